"""Certifying engines end to end: broken ones are refused under the right invariant."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from poolproof.certification.broken_engines import BROKEN_ENGINES
from poolproof.certification.certificate import Certificate, Verdict
from poolproof.certification.certify import certify
from poolproof.certification.depths import BUDGETS, Budget
from poolproof.certification.description import describe
from poolproof.certification.driving import kinds_of
from poolproof.certification.engine_watch import watch_engine
from poolproof.certification.levels import LEVELS
from poolproof.certification.options import CertifyOptions
from poolproof.certification.progress import SilentProgress
from poolproof.certification.ruler import check_ruler
from poolproof.certification.verdict import Rules, judge
from poolproof.contract.level import Level
from poolproof.contract.target import TargetError
from poolproof.stateful_tests import settings
from poolproof.targets.load import load_target
from poolproof.targets.target import Target

SILENT: Any = SimpleNamespace(bump=lambda *_: None)
HOSTILE = Path(__file__).with_name("hostile_engines.py")


@pytest.fixture(autouse=True, scope="module")
def _small_budget() -> Iterator[None]:
    small = Budget(
        pool_chunks=1, chain_chunks=1, queue_chunks=1, manager_chunks=1, shortest_states=500
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BUDGETS, "quick", small)
        patch.setitem(settings.EXAMPLES, "quick", 8)
        patch.setattr("poolproof.certification.driving.RUNS_PER_CHUNK", 40)
        yield


def certified(name: str) -> Certificate:
    options = CertifyOptions(depth="quick", workers=1, in_process=True)
    spec = name if name.startswith("impl") else f"{HOSTILE}:{name}"
    return judge(certify(lambda: load_target(spec), options, SilentProgress()), Rules())


def target_of(name: str) -> Target:
    return load_target(f"{HOSTILE}:{name}")


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("name", "invariant"),
    [
        ("KeepsABlock", "LEAK"),
        ("NamesAnothersBlock", "DATA"),
        ("GivesTwice", "OUT"),
        ("NeverAdmits", "LIVE"),
        ("ComputesTooMuch", "PLAN"),
        ("SaysNothing", "CRASH"),
    ],
)
def test_a_broken_engine_is_refused_under_its_invariant(name: str, invariant: str) -> None:
    certificate = certified(name)
    assert certificate.verdict is Verdict.REFUSED
    found = {f.trace.violation.invariant for f in certificate.findings if f.trace.violation}
    assert invariant in found
    assert found <= {invariant, "LIVE"}
    assert set(certificate.canaries_caught) >= set(BROKEN_ENGINES)
    assert not certificate.canaries_missed


@pytest.mark.some(0)
def test_a_certificate_says_what_an_engine_lacks_and_is_read_back() -> None:
    certificate = certified("GivesTwice")
    assert "methods that the target lacks: arrived, reset" in certificate.not_covered
    again = Certificate.from_json(certificate.to_json())
    assert again.profile == certificate.profile
    assert [f.trace for f in again.findings] == [f.trace for f in certificate.findings]


def test_a_finding_stores_the_steps_that_the_target_planned() -> None:
    (finding,) = certified("GivesTwice").findings
    assert finding.trace.shown is not None
    assert [state.answer for state in finding.trace.shown[1:]] == [
        "",
        "computes A 0; A gets 1 1 and ends",
    ]


@pytest.mark.parametrize(
    ("name", "specimens"),
    [
        ("Right", {"S8", "S118", "S12", "S120"}),
        ("impl-engine", {"S8", "S118", "S12", "S120", "S129", "S25", "S28"}),
    ],
)
def test_the_ruler_catches_each_planted_bug_and_each_broken_engine(
    name: str, specimens: set[str]
) -> None:
    target = load_target(name) if name == "impl-engine" else target_of(name)
    about = describe(target, None, SILENT)
    caught, missed = check_ruler(about, kinds_of(about, CertifyOptions()))
    assert set(caught) >= set(BROKEN_ENGINES)
    assert {bug.partition(" ")[0] for bug in set(caught) - set(BROKEN_ENGINES)} == specimens
    assert missed == ()


def test_a_mistake_that_needs_a_method_is_not_planted_without_it() -> None:
    about = describe(target_of("CannotCancel"), None, SILENT)
    kinds = kinds_of(about, CertifyOptions())
    planted = [runs.bug for runs in LEVELS[Level.ENGINE].planted(about, kinds)]
    assert set(BROKEN_ENGINES) - set(planted) == {"a request that is forgotten"}
    assert not [bug for bug in planted if bug.startswith("S120")]


def test_methods_that_are_missing_are_named() -> None:
    with pytest.raises(TargetError, match=r"lacks answer\(\), which an engine target needs"):
        target_of("Half")


def test_a_wrong_row_is_named() -> None:
    with pytest.raises(TargetError, match="'policy' must be one of fcfs, priority"):
        target_of("WrongRow")


def test_the_own_engine_takes_no_rows() -> None:
    with pytest.raises(TargetError, match="its set-ups state all rows; choose one with --layout"):
        load_target("impl-engine[policy=priority]")


def test_what_an_engine_did_is_told_in_words() -> None:
    (finding,) = certified("NamesAnothersBlock").findings
    target = target_of("NamesAnothersBlock")
    watched = watch_engine(finding.trace, target.make)
    assert watched.violation is not None
    assert watched.violation.invariant == "DATA"
    assert "computes A 0" in str(watched.seen[-1].shown.answer)
