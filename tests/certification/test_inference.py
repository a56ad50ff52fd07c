"""The rows under which a target holds: found where they are the reason, and never for a bug.

Correct oddities are loaded with every row that they state taken away. A profile that holds again
need not be theirs: only what shows can be inferred.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from poolproof.bugs.catalogue import MANAGER_SPECIMENS, SPECIMENS
from poolproof.bugs.manager_oddities import MANAGER_ODDITIES
from poolproof.bugs.oddities import ODDITIES
from poolproof.bugs.profile_rows import MANAGER_ROWS
from poolproof.certification import inference, profile_trials
from poolproof.certification.certificate import Verdict
from poolproof.certification.depths import BUDGETS
from poolproof.certification.inference import InferenceOutcome, infer
from poolproof.certification.options import CertifyOptions
from poolproof.certification.progress import SilentProgress
from poolproof.contract.depth import Depth
from poolproof.contract.profile_costs import cost_of
from poolproof.harness.isolation import Limits
from poolproof.harness.replay import replay
from poolproof.impl.block_pool import BlockPool
from poolproof.stateful_tests.settings import EXAMPLES
from poolproof.targets.load import load_target
from poolproof.targets.target import Target
from poolproof.targets.target_spec import TargetSpec

OF_ROWS = [
    example.right for example in MANAGER_ROWS if example.row in {"held_blocks", "prior_sightings"}
]
ODD = {cls.__name__: cls for cls in (*ODDITIES, *MANAGER_ODDITIES, *OF_ROWS)}


@pytest.fixture
def brief(monkeypatch):
    """The search alone, over few runs and without the certification that confirms it."""
    monkeypatch.setattr(profile_trials, "PORTIONS", ((range(30),),))
    holds = SimpleNamespace(findings=(), verdict=Verdict.HOLDS)
    monkeypatch.setattr(inference._Inference, "_certified", lambda *_: holds)


def stripped(cls: type) -> inference.LoadWith:
    """The target as it is, judged by the rows that are given alone; a manager keeps its groups."""

    def load_with(rows: Mapping[str, Any]) -> Callable[[], Target]:
        return lambda: relabelled(load_target(TargetSpec.of(cls)), rows)

    return load_with


def relabelled(target: Target, rows: Mapping[str, Any]) -> Target:
    layouts = tuple(
        replace(
            layout,
            profile=type(layout.profile).from_mapping({"groups": layout.profile.groups, **rows}),
        )
        for layout in target.layouts
    )
    profile = layouts[0].profile if layouts else type(target.profile).from_mapping(rows)
    return replace(target, profile=profile, layouts=layouts)


def inferred(load_with, **options):
    options = {"depth": Depth.QUICK, "in_process": True, **options}
    return infer(load_with, CertifyOptions(**options), SilentProgress())


def rows_of(found):
    return {change.row: change.value for change in found.changes}


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("TellingPool", {"eviction": "unhashed-first"}),
        ("StackPool", {"misuse": "undefined", "eviction": "lifo", "duplicates": "first"}),
        ("WideRowsPool", {"hash_bytes": 32, "misuse": "undefined"}),
        ("NumberedPool", {"null_block": 0, "eviction": "unhashed-first"}),
        ("WholePromptManager", {"full_hit": "allowed"}),
        ("NullBlockManager", {"null_block": 5}),
        ("EarlyPublisher", {"publishes": "scheduled"}),
        ("OneUserABlock", {"held_blocks": "exclusive"}),
        ("CopiesForItsForks", {"held_blocks": "exclusive"}),
        ("TakesWhatComesAgain", {"prior_sightings": 1}),
        ("TakesTheThirdTime", {"prior_sightings": 2}),
        ("WatchfulManager", {"watermark_blocks": 2, "lookahead_tokens": 3}),
    ],
)
@pytest.mark.usefixtures("brief")
def test_the_rows_that_an_odd_target_needs_are_found(name, rows):
    found = inferred(stripped(ODD[name]))
    silences = any(cost_of(row, value).checks_less for row, value in rows.items())
    assert found.outcome is (InferenceOutcome.SILENCED if silences else InferenceOutcome.FOUND)
    assert rows_of(found) == rows
    assert {row: found.rows[row] for row in rows} == rows
    assert all(c.costs == cost_of(c.row, c.value).sentence for c in found.changes)
    assert found.exit_status == (2 if silences else 0)


@pytest.mark.usefixtures("brief")
def test_a_target_that_holds_needs_no_row():
    found = inferred(stripped(BlockPool))
    assert found.outcome is InferenceOutcome.HOLDS_AS_DECLARED
    assert found.changes == ()
    assert found.profile == found.declared


@pytest.mark.some(1)
@pytest.mark.parametrize("name", ["L4", "J9", "Q2", "B24", "C11"])
@pytest.mark.usefixtures("brief")
def test_no_row_explains_a_bug(name):
    found = inferred(planted(name))
    assert found.outcome is InferenceOutcome.NO_ROWS
    assert found.profile is None
    assert found.exit_status == 1
    assert found.unexplained.violation is not None


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("name", "row"), [("A1", "repeats_in_free=forbidden"), ("B7", "admission=sound")]
)
@pytest.mark.usefixtures("brief")
def test_a_bug_that_passes_where_a_check_is_silenced_is_no_design(name, row):
    found = inferred(planted(name))
    assert found.outcome is InferenceOutcome.SILENCED
    assert [str(change) for change in found.silencing] == [row]
    assert found.exit_status == 2
    hidden = found.explained[found.silencing[0].row]
    specimen = {**SPECIMENS, **MANAGER_SPECIMENS}[name]
    assert replay(hidden, specimen.make).violation == hidden.violation


@pytest.mark.usefixtures("brief")
def test_another_design_comes_with_what_fails_under_the_declared_one():
    found = inferred(stripped(ODD["NumberedPool"]))
    assert set(found.explained) == {"null_block", "eviction"}
    assert found.explained["eviction"].violation.invariant == "ORD"


@pytest.mark.usefixtures("brief")
def test_the_failure_that_nothing_explains_fails_when_it_is_replayed():
    found = inferred(planted("L4"))
    assert replay(found.unexplained, SPECIMENS["L4"].make).violation == found.unexplained.violation


@pytest.mark.usefixtures("brief")
def test_a_budget_that_ended_is_not_taken_for_a_search_that_did(monkeypatch):
    monkeypatch.setattr(inference, "MOST_DRIVES", 1)
    found = inferred(stripped(ODD["TellingPool"]))
    assert found.outcome is InferenceOutcome.BUDGET
    assert "1 driven" in found.why
    assert found.exit_status == 2


@pytest.mark.usefixtures("brief")
def test_a_profile_that_would_need_too_many_rows_is_not_called_impossible(monkeypatch):
    monkeypatch.setattr(inference, "MOST_ROWS", 1)
    found = inferred(stripped(ODD["StackPool"]))
    assert found.outcome is InferenceOutcome.BUDGET
    assert found.why == "more than 1 rows would have to change"


class Exits(BlockPool):
    """Ends the process when something is freed."""

    def free(self, block_ids):
        os._exit(3)


@pytest.mark.usefixtures("brief")
def test_a_target_that_ends_its_process_is_not_concluded_on():
    found = inferred(
        lambda _: lambda: load_target(TargetSpec.of(Exits)), in_process=False, limits=Limits(2.0)
    )
    assert found.outcome is InferenceOutcome.LOST
    assert "exit status 3" in found.why
    assert found.exit_status == 2


@pytest.mark.usefixtures("brief")
def test_a_profile_is_proposed_only_if_its_certificate_holds(monkeypatch):
    """The target that was built to the rows fails, the one that was tried does not."""
    trace = inferred(planted("L4")).unexplained
    form = SimpleNamespace(trace=trace)
    refuted = SimpleNamespace(findings=[SimpleNamespace(each_form=[form])])
    monkeypatch.setattr(inference._Inference, "_certified", lambda *_: refuted)
    found = inferred(stripped(BlockPool))
    assert found.outcome is InferenceOutcome.NO_ROWS
    assert found.unexplained.commands == trace.commands


def planted(name: str) -> inference.LoadWith:
    """A specimen under the profile that it is stated under."""
    specimen = {**SPECIMENS, **MANAGER_SPECIMENS}[name]
    clean = load_target(TargetSpec.of(specimen.cls))
    make = specimen.make
    target = relabelled(clean, specimen.profile.to_json())
    layouts = tuple(
        replace(layout, make=make, make_of=None, block_size=specimen.block_size)
        for layout in target.layouts
    )
    return lambda _: lambda: replace(target, make=make, layouts=layouts)


@pytest.fixture
def small_budget(monkeypatch):
    """The whole search, over a quarter of the runs, and a certification of few runs alone."""
    monkeypatch.setattr(profile_trials, "PORTIONS", ((range(20),), (range(20, 100),)))
    small = replace(
        BUDGETS[Depth.QUICK], pool_chunks=2, chain_chunks=1, queue_chunks=1, manager_chunks=2,
        scopes=(), sequences=(), queue_blocks=0, index_blocks=0, workload_states=50,
        production=None, manager_production=None,
    )  # fmt: skip
    monkeypatch.setitem(BUDGETS, Depth.QUICK, small)
    monkeypatch.setitem(EXAMPLES, Depth.QUICK, 5)


def assert_holds_again(found):
    assert found.profile is not None, found.why
    assert found.certificate.findings == ()


@pytest.mark.deep
@pytest.mark.parametrize("name", ODD)
@pytest.mark.usefixtures("small_budget")
def test_each_odd_target_holds_again(name):
    assert_holds_again(inferred(stripped(ODD[name])))


@pytest.mark.deep
@pytest.mark.parametrize(("name", "status"), [("TellingPool", 0), ("DeferringManager", 2)])
def test_what_is_found_holds_at_quick(name, status):
    """The second defers what would fit, which only a row that silences a check lets pass."""
    found = inferred(stripped(ODD[name]))
    assert_holds_again(found)
    assert found.certificate.verdict is Verdict.HOLDS
    assert found.exit_status == status
