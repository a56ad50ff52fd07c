"""Certification end to end: good pools hold, bad ones are refused, hostile ones cost nothing else.

The levels' budgets are cut down here; what a level reaches in full is CI's to run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from poolproof.bugs.catalogue import SPECIMENS
from poolproof.certification.certificate import Certificate, StageOutcome, Verdict
from poolproof.certification.certify import certify
from poolproof.certification.depths import BUDGETS, Budget
from poolproof.certification.options import CertifyOptions
from poolproof.certification.progress import SilentProgress
from poolproof.certification.verdict import Rules, judge
from poolproof.contract.target import TargetError
from poolproof.contract.violation import Severity
from poolproof.harness.isolation import Died, ImporterError, Limits
from poolproof.stateful_tests import settings
from poolproof.targets.load import load_target
from poolproof.targets.target import Target

HOSTILE = Path(__file__).with_name("hostile_targets.py")
STRICT = Limits(call_timeout_s=0.5, memory_mib=100)
"""Each attempt to make the trace of a hang shorter may hang as well, and costs the limit."""


@pytest.fixture(autouse=True, scope="module")
def _small_budget() -> Iterator[None]:
    small = Budget(pool_chunks=1, chain_chunks=1, queue_chunks=1, shortest_states=500)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BUDGETS, "quick", small)
        patch.setitem(settings.EXAMPLES, "quick", 8)
        patch.setattr("poolproof.certification.driving.RUNS_PER_CHUNK", 40)
        yield


@contextmanager
def more_runs() -> Iterator[None]:
    """As many as a bug needs to show in each of its forms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(settings.EXAMPLES, "quick", 20)
        patch.setattr("poolproof.certification.driving.RUNS_PER_CHUNK", 100)
        yield


def certified(
    target: str,
    *,
    in_process: bool = False,
    hardening: bool = False,
    limits: Limits | None = None,
) -> Certificate:
    options = CertifyOptions(
        depth="quick",
        workers=2,
        limits=limits or Limits(),
        in_process=in_process,
        hardening=hardening,
    )
    found = certify(lambda: load_target(target), options, SilentProgress())
    return judge(found, Rules())


def refused(name: str, limits: Limits | None = None) -> Certificate:
    certificate = certified(f"{HOSTILE}:{name}", limits=limits)
    assert certificate.verdict is Verdict.REFUSED
    assert certificate.findings
    return certificate


@pytest.fixture(scope="module")
def stale(_small_budget: None) -> Certificate:
    """The certificate of a pool whose index answers with blocks that were handed out again."""
    with more_runs():
        return refused("KeepsStaleHashes")


@pytest.mark.some(1)
@pytest.mark.parametrize("target", ["impl", "reference", "impl[eviction=lifo,duplicates=first]"])
def test_a_correct_pool_holds(target: str) -> None:
    certificate = certified(target)
    assert certificate.verdict is Verdict.HOLDS, certificate.findings
    assert all(stage.outcome is StageOutcome.HOLDS for stage in certificate.stages)
    assert not certificate.canaries_missed
    assert len(certificate.canaries_caught) >= 6


def test_a_correct_queue_holds() -> None:
    certificate = certified("impl-queue")
    assert certificate.verdict is Verdict.HOLDS
    assert {stage.level for stage in certificate.stages} == {"queue"}


def test_two_certifications_of_the_same_code_say_the_same(stale: Certificate) -> None:
    with more_runs():
        again = refused("KeepsStaleHashes")
    assert [f.fingerprint for f in stale.findings] == [f.fingerprint for f in again.findings]


def test_in_process_finds_what_isolation_finds(stale: Certificate) -> None:
    with more_runs():
        together = certified(f"{HOSTILE}:KeepsStaleHashes", in_process=True)
    assert {f.fingerprint for f in stale.findings} == {f.fingerprint for f in together.findings}


def test_a_stale_index_is_refused_with_the_shortest_trace(stale: Certificate) -> None:
    findings = stale.findings
    (finding,) = findings[:1]
    assert finding.violation.severity is Severity.WRONG_DATA_OF_ANOTHER
    assert finding.violation.invariant == "IDX"
    assert finding.num_commands <= 4
    forms = [form for found in findings for form in found.each_form]
    assert "D1" in {specimen.specimen_id for form in forms for specimen in form.similar}


@pytest.mark.some(0)
def test_an_order_that_is_another_profile_is_named() -> None:
    certificate = refused("ReusesNewestFirst")
    assert certificate.behaves_as == "eviction=lifo"
    assert {f.violation.invariant for f in certificate.findings} == {"ORD"}


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("name", "severity", "words"),
    [
        pytest.param(
            "LoopsForEver", Severity.STALL, "did not return within 0.5 s", marks=pytest.mark.deep
        ),
        ("EatsMemory", Severity.CRASH, "used more than 100 MiB"),
        ("ExitsTheProcess", Severity.CRASH, "exit status 7"),
        ("Segfaults", Severity.CRASH, "SIGSEGV"),
        ("AsksToExit", Severity.CRASH, "tried to exit the process"),
        ("CannotBeBuilt", Severity.CRASH, "ZeroDivisionError: no blocks today"),
        ("DiesWhenBuilt", Severity.CRASH, "constructing the target with 4 blocks ended"),
        ("HangsWhenBuilt", Severity.STALL, "constructing the target with 4 blocks did not return"),
    ],
)
def test_a_hostile_target_is_a_finding_with_a_short_trace(
    name: str, severity: Severity, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "HangsWhenBuilt":
        # Asked for what only an instance shows, it never answers, however long is waited.
        monkeypatch.setattr("poolproof.targets.apart._SECONDS", 0.1)
    certificate = refused(name, STRICT)
    matching = [f for f in certificate.findings if words in f.violation.sentence]
    assert matching, [f.violation.sentence for f in certificate.findings]
    assert matching[0].violation.severity is severity
    assert matching[0].num_commands <= 4


@pytest.mark.parametrize(
    ("name", "words"),
    [("LacksMethods", "cache"), ("DeclaresNonsense", "unknown profile key 'evicton'")],
)
def test_a_target_that_cannot_be_run_is_an_error_that_names_the_cause(
    name: str, words: str
) -> None:
    with pytest.raises(TargetError, match=words):
        certified(f"{HOSTILE}:{name}")


@pytest.mark.some(0)
def test_what_a_target_prints_stays_out_of_our_output(capfd: pytest.CaptureFixture[str]) -> None:
    assert certified(f"{HOSTILE}:IsChatty").verdict is Verdict.HOLDS
    printed = capfd.readouterr()
    assert "allocating" not in printed.out + printed.err


@pytest.mark.deep
def test_hardening_reports_apart_and_does_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each kind of misuse is a finding, and would be searched for a shorter trace.
    monkeypatch.setitem(BUDGETS, "quick", replace(BUDGETS["quick"], shortest_states=10))
    monkeypatch.setattr("poolproof.certification.driving.RUNS_PER_CHUNK", 25)
    certificate = certified("impl[misuse=undefined]", hardening=True)
    assert certificate.verdict is Verdict.HOLDS
    assert certificate.hardening
    assert all(f.violation.invariant == "MISUSE" for f in certificate.hardening)


@pytest.mark.some(0)
def test_methods_that_no_command_calls_are_listed() -> None:
    assert "cache_partial" in certified("impl[keys=block]").never_called


@pytest.mark.parametrize("specimen_id", sorted(SPECIMENS))
@pytest.mark.deep
def test_each_planted_bug_is_refused(specimen_id: str) -> None:
    specimen = SPECIMENS[specimen_id]
    target = Target(
        name=specimen_id,
        level=specimen.level,
        shape="native",
        profile=specimen.profile,
        version=None,
        source="bugs/",
        make=specimen.make,
    )
    options = CertifyOptions(depth="quick")
    with more_runs():
        certificate = judge(certify(lambda: target, options, SilentProgress()), Rules())
    assert certificate.verdict is Verdict.REFUSED
    assert {f.violation.invariant for f in certificate.findings} & set(specimen.invariants)


@pytest.mark.some(0)
def test_what_was_found_is_kept_when_the_watching_process_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def end(*_: object) -> None:
        raise ImporterError(Died(status=-9), was_imported=True)

    monkeypatch.setattr("poolproof.certification.certify._Certification._explore", end)
    last = refused("KeepsStaleHashes").stages[-1]
    assert last.outcome is StageOutcome.INCONCLUSIVE
    ended = "the process that imported the target and watches over it ended (killed by SIGKILL), "
    assert last.note.startswith(ended)
    assert certified("impl").verdict is Verdict.INCONCLUSIVE
