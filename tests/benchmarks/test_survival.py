"""Survival: medians with searches that gave up, the goals, and that each planted bug is caught."""

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    """What loads a script of benchmarks/, which is no package, with those beside it."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))

    def load(name):
        spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return load


@dataclass
class Seen:
    steps: int
    is_caught: bool = True


def test_a_curve_falls_at_each_catch(script):
    curve = script("censored").survival_curve([Seen(3), Seen(1), Seen(3), Seen(8)])
    assert curve == [(1, 0.75), (3, pytest.approx(0.25)), (8, 0)]


def test_who_gave_up_is_at_risk_until_then(script):
    curve = script("censored").survival_curve([Seen(2), Seen(5, is_caught=False), Seen(9)])
    assert curve == [(2, pytest.approx(2 / 3)), (9, 0)]


def test_giving_up_is_no_catch(script):
    median_steps = script("censored").median_steps
    assert median_steps([Seen(10, is_caught=False)] * 3) is None
    assert median_steps([Seen(4), Seen(6), *[Seen(10, is_caught=False)] * 3]) is None
    assert median_steps([Seen(4), Seen(6), Seen(7), *[Seen(10, is_caught=False)] * 2]) == 7


def test_the_median_of_catches_is_the_usual_one(script):
    assert script("censored").median_steps([Seen(steps) for steps in (9, 1, 5)]) == 5


@pytest.mark.parametrize(
    ("ours", "uniform", "is_reached"),
    [(50, 5, True), (51, 5, False), (90, 45, True), (91, 45, False), (150, 1500, True),
     (151, 1500, False)],
)  # fmt: skip
def test_the_goals(script, ours, uniform, is_reached):
    survival = script("survival")
    row = survival.row_of("A1", [Seen(ours)], [Seen(uniform)], 10_000)
    assert row["is_reached"] == is_reached


def test_a_bug_that_the_baseline_never_caught_counts_as_its_budget(script):
    survival = script("survival")
    row = survival.row_of("A1", [Seen(1001)], [Seen(10_000, is_caught=False)], 10_000)
    assert (row["is_hard"], row["is_reached"], row["uniform"]) == (True, False, None)


def test_a_search_gives_up_after_its_budget(script):
    catching = script("catching")
    campaign = catching.campaign_of(catching.SPECIMENS_BY_ID["C6"], 0, uniform=True)
    found = catching.steps_to_catch(campaign, 20)
    assert (found.steps, found.is_caught) == (20, False)


@pytest.mark.parametrize("specimen_id", ["Q3", "A1", "A7"])
@pytest.mark.parametrize("uniform", [False, True])
def test_both_workloads_catch_a_plain_bug_at_each_level(script, specimen_id, uniform):
    catching = script("catching")
    campaign = catching.campaign_of(catching.SPECIMENS_BY_ID[specimen_id], 0, uniform=uniform)
    assert catching.steps_to_catch(campaign, 20_000).is_caught


@pytest.mark.deep
def test_every_specimen_is_caught_at_standard_and_most_at_quick(script):
    levels = script("levels_of_specimens")
    ids = [name for name, subject in levels.subjects().items() if not subject.is_oddity]
    summary = levels.summary_of([levels.caught_at(name) for name in ids])
    assert summary["never"] == []
    assert summary["quick"] >= levels.LEAST_AT_QUICK * summary["specimens"]


@pytest.mark.deep
def test_no_oddity_is_accused_over_twenty_seeds(script):
    levels = script("levels_of_specimens")
    ids = [name for name, subject in levels.subjects().items() if subject.is_oddity]
    accused = [row for row in (levels.driven((name, 20, 100)) for name in ids) if row["accused"]]
    assert accused == []
