"""Certifying managers end to end: layouts, stages, ruler, hostile targets, what is not covered."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import pytest

from poolproof.bugs.catalogue import MANAGER_SPECIMENS
from poolproof.certification.certificate import Certificate, NotRun, StageOutcome, Verdict
from poolproof.certification.certify import certify
from poolproof.certification.depths import BUDGETS, Budget
from poolproof.certification.options import CertifyOptions
from poolproof.certification.progress import SilentProgress
from poolproof.certification.verdict import Rules, judge
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.target import TargetError
from poolproof.contract.violation import Severity
from poolproof.harness.isolation import Limits
from poolproof.stateful_tests import settings
from poolproof.targets.load import load_target
from poolproof.targets.manager_target import manager_target
from poolproof.targets.target import ManagerLayout

HOSTILE = Path(__file__).with_name("hostile_managers.py")


@pytest.fixture(autouse=True, scope="module")
def _small_budget():
    small = Budget(
        pool_chunks=1, chain_chunks=1, queue_chunks=1, manager_chunks=1, shortest_states=500
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BUDGETS, "quick", small)
        patch.setitem(settings.EXAMPLES, "quick", 8)
        patch.setattr("poolproof.certification.driving.RUNS_PER_CHUNK", 24)
        yield


@contextmanager
def more_runs():
    """As many as a bug needs to show in each of its forms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(settings.EXAMPLES, "quick", 15)
        patch.setattr("poolproof.certification.driving.RUNS_PER_CHUNK", 100)
        yield


def certified(target, *, layouts=(), in_process=False, hardening=False, limits=None):
    load = target if callable(target) else lambda: load_target(target)
    options = CertifyOptions(
        depth="quick",
        workers=2,
        limits=limits or Limits(),
        in_process=in_process,
        hardening=hardening,
        layouts=layouts,
    )
    return judge(certify(load, options, SilentProgress()), Rules())


def refused(name, **options):
    certificate = certified(f"{HOSTILE}:{name}", **options)
    assert certificate.verdict is Verdict.REFUSED
    return certificate


@pytest.fixture(scope="module")
def stale(_small_budget):
    """The certificate of a manager that finds blocks by keys of what they held before."""
    with more_runs():
        return refused("KeepsStaleKeys")


@pytest.mark.some(0)
def test_a_right_manager_holds_in_each_layout_that_is_asked_for():
    certificate = certified("reference-manager", layouts=("full", "full+sliding"))
    assert certificate.verdict is Verdict.HOLDS, certificate.findings
    assert [(stage.level, stage.stage) for stage in certificate.stages[:4]] == [
        ("manager", "full, state machine"),
        ("manager", "full+sliding, state machine"),
        ("manager", "full, plain driver"),
        ("manager", "full+sliding, plain driver"),
    ]
    assert all(stage.facts_required for stage in certificate.stages[2:4])
    assert NotRun("layout sliding", "not asked for (--layout)") in certificate.not_run
    assert "layout full+sliding: null_block 0, groups full+sliding:6" in certificate.notes
    assert len(certificate.canaries_caught) >= 6
    assert not certificate.canaries_missed
    assert "swap_out" in certificate.never_called
    assert "verbs that the target lacks: swap_out, swap_in" in certificate.not_covered


def test_layouts_that_are_not_there_or_not_run_are_errors():
    with pytest.raises(TargetError, match="no layout 'mamba'; it has full, sliding"):
        certified("reference-manager", layouts=("mamba",))
    with pytest.raises(TargetError, match="impl is a pool target; leave out --layout"):
        certified("impl", layouts=("full",))


@pytest.mark.some(0)
def test_a_layout_that_is_not_run_is_listed_with_its_reason():
    def load():
        (good,) = load_target(f"{HOSTILE}:Good").layouts
        other = ManagerLayout("mamba", ManagerProfile(), None, why_not="needs chunk splits")
        return manager_target("mine", "native-manager", [other, good])

    certificate = certified(load)
    assert certificate.verdict is Verdict.HOLDS, certificate.findings
    assert certificate.not_run[-1] == NotRun("layout mamba", "needs chunk splits")
    with pytest.raises(TargetError, match="layout mamba of mine is not run: needs chunk splits"):
        certified(load, layouts=("mamba",))


@pytest.mark.some(0)
def test_a_certificate_of_a_manager_is_read_back(stale):
    again = Certificate.from_json(stale.to_json())
    assert again.profile == stale.profile
    assert isinstance(again.profile, ManagerProfile)
    assert [f.trace for f in again.findings] == [f.trace for f in stale.findings]


@pytest.mark.some(0)
def test_a_stale_key_is_refused_with_a_short_trace_and_what_was_shown(stale):
    finding = stale.findings[0]
    assert finding.violation.invariant == "IDX"
    assert finding.level == "manager"
    assert finding.num_commands <= 5
    assert finding.trace.options["layout"] == "full"
    assert finding.trace.shown
    assert finding.shortest_known


@pytest.mark.deep
def test_a_black_box_is_refused_for_what_is_read_or_found():
    certificate = refused("StaleBlackBox")
    assert {f.violation.invariant for f in certificate.findings} & {"IDX", "DATA", "ADM"}
    unseen = [sentence for sentence in certificate.not_covered if "the target shows no" in sentence]
    assert len(unseen) == 4


@pytest.mark.some(0)
def test_a_right_black_box_holds():
    certificate = certified(f"{HOSTILE}:BlackBox")
    assert certificate.verdict is Verdict.HOLDS, certificate.findings
    assert not certificate.canaries_missed


@pytest.mark.deep
def test_in_process_finds_the_same(stale):
    with more_runs():
        together = certified(f"{HOSTILE}:KeepsStaleKeys", in_process=True)
    assert [f.fingerprint for f in stale.findings] == [f.fingerprint for f in together.findings]
    assert "isolation" in {skipped.what for skipped in together.not_run}


@pytest.mark.some(0)
def test_an_order_that_is_another_profile_is_named():
    certificate = refused("ReusesNewestFirst")
    assert certificate.behaves_as == "eviction=lru"
    assert {f.violation.invariant for f in certificate.findings} == {"ORD"}


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("name", "severity", "words"),
    [
        ("Dies", Severity.CRASH, "exit status 7"),
        # Within the limit, or within what a second look gives a run that may only be slow.
        pytest.param("Hangs", Severity.STALL, "did not return within", marks=pytest.mark.deep),
        ("CannotBeBuilt", Severity.CRASH, "ZeroDivisionError: no blocks today"),
        ("DiesWhenBuilt", Severity.CRASH, "exit status 9"),
        ("ShowsNonsense", Severity.CRASH, "it must answer a list of block ids"),
        ("AnswersNonsense", Severity.CRASH, "3.5"),
    ],
)
def test_a_hostile_manager_is_a_finding_with_a_short_trace(name, severity, words):
    certificate = refused(name, limits=Limits(call_timeout_s=0.5))
    matching = [f for f in certificate.findings if words in f.violation.sentence]
    assert matching, [f.violation.sentence for f in certificate.findings]
    assert matching[0].violation.severity is severity
    # A hang costs its time limit at each attempt to make the trace shorter.
    assert matching[0].num_commands <= (4 if severity is Severity.CRASH else 12)
    assert any(stage.outcome is StageOutcome.REFUSED for stage in certificate.stages)


def test_a_manager_that_lacks_a_method_is_an_error_that_names_it():
    with pytest.raises(TargetError, match=r"lacks step\(\)"):
        certified(f"{HOSTILE}:LacksStep")


@pytest.mark.some(0)
def test_rows_that_promise_less_are_said():
    rows = "admission=sound,hits=sound,eviction=unspecified,groups=full,host_blocks=4"
    rows += ",release_order=unspecified"
    certificate = certified(f"reference-manager[{rows}]", hardening=True)
    assert certificate.verdict is not Verdict.REFUSED, certificate.findings
    said = [s for s in certificate.not_covered if s.startswith("layout full: ")]
    assert len(said) == 4
    assert not any("verbs that the target lacks" in s for s in certificate.not_covered)
    assert certificate.hardening == ()


@pytest.mark.parametrize("specimen_id", sorted(MANAGER_SPECIMENS))
@pytest.mark.deep
def test_each_planted_manager_bug_is_refused(specimen_id):
    specimen = MANAGER_SPECIMENS[specimen_id]
    layout = ManagerLayout("planted", specimen.profile, specimen.make, specimen.block_size)
    target = manager_target(specimen_id, "native-manager", [layout], source="bugs/")
    options = CertifyOptions(depth="standard")
    with more_runs():
        certificate = judge(certify(lambda: target, options, SilentProgress()), Rules())
    assert certificate.verdict is Verdict.REFUSED
    assert {f.violation.invariant for f in certificate.findings} & set(specimen.invariants)


WEAK = """
from poolproof.bugs.catalogue import manager_specimen

FOUND = manager_specimen("{specimen}")


class Manager(FOUND.cls):
    profile = FOUND.profile.to_json()

    def __init__(self, num_blocks, block_size=4, **named):
        super().__init__(num_blocks, block_size, **named)
"""


def weak_stage_of(folder, specimen):
    """The certificate of a specimen, and its stage in which hashes collide."""
    (folder / "weak.py").write_text(WEAK.format(specimen=specimen))
    certificate = certified(f"{folder / 'weak.py'}:Manager")
    (stage,) = [stage for stage in certificate.stages if "weak hashes" in stage.stage]
    return certificate, stage


@pytest.mark.some(0)
def test_a_manager_that_compares_too_little_is_refused_once_hashes_collide(tmp_path):
    certificate, stage = weak_stage_of(tmp_path, "C3")
    assert certificate.verdict is Verdict.REFUSED
    assert [s for s in certificate.stages if s.outcome is StageOutcome.REFUSED] == [stage]
    assert {f.trace.options["weak_hashes"] for f in certificate.findings} == {4}


@pytest.mark.some(0)
def test_a_manager_that_trusts_its_hashes_depends_on_collisions_and_is_not_wrong(tmp_path):
    certificate, stage = weak_stage_of(tmp_path, "C1-trusted")
    assert certificate.verdict is Verdict.HOLDS
    assert "hashes are trusted: with 4 bits" in stage.note


@pytest.mark.some(0)
def test_a_manager_that_says_nothing_of_collisions_is_not_called_wrong_for_them():
    certificate = certified(f"{HOSTILE}:Good")
    assert "collisions" in certificate.profile.assumed
    assert certificate.verdict is Verdict.HOLDS
    (stage,) = [stage for stage in certificate.stages if "weak hashes" in stage.stage]
    assert "went wrong by a collision" in stage.note
