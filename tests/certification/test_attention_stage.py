"""The stage "paged attention": when it is left out, and what it makes of what its workers say."""

from types import SimpleNamespace

import pytest

from poolproof.certification import attention_stage as module
from poolproof.certification.attention_stage import STAGE, Served, attention_stage, why_no_attention
from poolproof.certification.certificate import StageOutcome
from poolproof.certification.certify import not_run
from poolproof.certification.description import describe
from poolproof.certification.driving import Driving, kinds_of
from poolproof.certification.options import CertifyOptions, Limits
from poolproof.certification.progress import SilentProgress
from poolproof.certification.run_kinds import POOL
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Severity, Violation
from poolproof.harness.isolation import Finished, Hung
from poolproof.targets.load import load_target

OPTIONS = CertifyOptions(depth="quick", in_process=True)


@pytest.fixture
def with_torch(monkeypatch):
    monkeypatch.setattr(module, "missing_packages", list)


def about(name: str):
    return describe(load_target(name), None, SILENT)


SILENT = SimpleNamespace(bump=lambda *_: None)


class Answering:
    """An isolation whose workers all answer alike, or are all lost."""

    def __init__(self, outcome) -> None:
        self.outcome = outcome
        self.kinds: list[str] = []

    def map(self, _job, tasks, **_patience):
        for task in tasks:
            self.kinds.append(task.kind)
            yield self.outcome


def stage_over(name: str, outcome, lost=()):
    description, isolation = about(name), Answering(outcome)
    driving = Driving(isolation, description, OPTIONS, SilentProgress())
    driving.lost |= set(lost)
    kinds = kinds_of(description, OPTIONS)
    found: list[Trace] = []
    driving.collector = SimpleNamespace(add=lambda _stage, trace: found.append(trace))
    stages = attention_stage(
        isolation, description, driving, options=OPTIONS, progress=SilentProgress(), kinds=kinds
    )
    return stages, isolation.kinds, found


def test_without_torch_it_is_listed_as_not_run(monkeypatch):
    monkeypatch.setattr(module, "missing_packages", lambda: ["torch", "triton"])
    assert stage_over("impl", Finished(Served()))[0] == []
    assert (STAGE, "torch is not installed") in not_run(about("impl"), OPTIONS)


@pytest.mark.usefixtures("with_torch")
@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("impl", OPTIONS, None),
        ("impl-nano", OPTIONS, None),
        ("impl[hash_bytes=8]", OPTIONS, None),
        ("impl[hash_bytes=7]", OPTIONS, "hashes of 7 bytes collide by chance"),
        ("impl-queue", OPTIONS, "a free queue alone"),
        ("impl", CertifyOptions(limits=Limits(memory_mib=64)), "torch needs --memory-limit 1024"),
    ],
)
def test_it_is_left_out_where_it_means_nothing(name, options, words):
    reason = why_no_attention(about(name), options)
    assert (reason is None) if words is None else (words in reason)


@pytest.mark.usefixtures("with_torch")
def test_outputs_that_were_compared_make_a_pass():
    (stage,), kinds, _ = stage_over("impl", Finished(Served(40, 900, 800, 70)))
    assert (stage.outcome, stage.stage, kinds) == (StageOutcome.HOLDS, STAGE, [POOL])
    assert stage.note == "800 outputs compared, 70 prefixes shared"


@pytest.mark.usefixtures("with_torch")
def test_layouts_that_no_paged_kernel_reads_are_left_out():
    _, kinds, _ = stage_over("reference-manager", Finished(Served(1, 1, 1, 1)))
    assert [kind.layout for kind in kinds] == ["full", "sliding", "full+sliding"]


@pytest.mark.usefixtures("with_torch")
def test_a_wrong_output_is_a_finding_like_any_other():
    description = about("impl")
    violation = Violation("DATA", Severity.WRONG_DATA_OF_ANOTHER, "wrong")
    trace = Trace("impl", "pool", description.profile, 6, True, (), violation)
    (stage,), _, found = stage_over("impl", Finished(Served(3, 90, 80, 7, trace)))
    assert (stage.outcome, found) == (StageOutcome.REFUSED, [trace])


@pytest.mark.usefixtures("with_torch")
@pytest.mark.parametrize("outcome", [Finished(Served()), Hung(seconds=10.0)])
def test_nothing_compared_or_a_lost_worker_concludes_nothing(outcome):
    (stage,), _, _ = stage_over("impl", outcome)
    assert stage.outcome is StageOutcome.INCONCLUSIVE


@pytest.mark.usefixtures("with_torch")
def test_what_cost_a_worker_before_is_not_driven_again():
    assert stage_over("impl", Finished(Served()), lost=[POOL])[0] == []
