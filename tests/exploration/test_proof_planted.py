"""The proof is checked: planted bugs break it, every action happens, every invariant is needed."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("z3", reason="needs z3-solver (make proof)")

from poolproof.exploration.proof.all_models import MODELS
from poolproof.exploration.proof.model import Action, State
from poolproof.exploration.proof.planted import PLANTED, Planted, catch
from poolproof.exploration.proof.pool_model import POOL
from poolproof.exploration.proof.proof_run import check_proof_of, vacuity
from poolproof.exploration.proof.step_table import step_table

SMALLEST = replace(POOL, name="smallest", consequences={})


def planted(name):
    return next(bug for bug in PLANTED if bug.name == name)


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name)
def test_planted_bug_breaks_what_it_was_planted_for(bug):
    caught = catch(bug)
    assert caught.is_caught
    assert bug.invariant in caught.invariants


def test_every_invariant_has_a_planted_bug():
    assert len(PLANTED) >= 17
    names = {"I1", "I2", "I3", "I4", "OWN", "IDX", "ORD", "LINK", "DATA", "ADM"}
    assert names <= {bug.invariant for bug in PLANTED}
    assert len({bug.name for bug in PLANTED}) == len(PLANTED)


def test_what_is_not_wrong_is_not_caught():
    same = Planted("same", "pool", "touch", "I1", "nothing is changed", alter=lambda effect: effect)
    caught = catch(same)
    assert not caught.is_caught
    assert caught.broken == ()


@pytest.mark.parametrize("name", MODELS)
def test_every_action_happens_and_every_invariant_is_needed(name):
    found = check_proof_of(name).vacuity
    assert found.never_enabled == ()
    assert [need.invariant for need in found.needs if not need.is_needed] == []


def test_an_action_that_contradicts_the_invariants_is_told():
    never = Action("never", {"block": "Block"}, lambda logic, s, b: s.count(b) < 0, lambda *_: {})
    model = replace(SMALLEST, name="with never", actions=(never,))
    assert vacuity(model).never_enabled == ("never",)


def test_an_invariant_that_nothing_rests_on_is_told():
    idle = {"ORD idle": lambda logic, s: s.clock >= s.clock}
    model = replace(SMALLEST, name="idle", invariants={**POOL.invariants, **idle})
    needs = {need.invariant: need for need in vacuity(model).needs}
    assert not needs["ORD idle"].is_needed
    assert needs["OWN counter"].step


def test_the_table_of_a_list_shows_links_before_and_after():
    step = step_table(catch(planted("Q1")).example)
    rows = {what: (before, after) for what, before, after in step.rows}
    node = rows["line of nodes"][0].split()[1]
    assert rows["line of nodes"] == (f"head {node} tail", "head tail")
    assert rows[f"node {node}"][1] == f"outside: head <- {node} -> tail"


@pytest.mark.parametrize(
    ("name", "what", "says"),
    [("Q12", "done", "of"), ("C1", "block 0", "KV of c"), ("C1", "reference r0", "reads"),
     ("M1", "admitted", "True")],
)  # fmt: skip
def test_the_table_shows_what_a_model_adds(name, what, says):
    step = step_table(catch(planted(name)).example)
    assert says in " ".join(" ".join(row[1:]) for row in step.rows if row[0] == what)


def test_the_profile_of_a_counterexample_is_named():
    profiles = " ".join(
        before
        for name in ("P7", "P22", "P24")
        for what, before, _ in step_table(catch(planted(name)).example).rows
        if what == "profile"
    )
    assert "eviction=" in profiles
    assert "duplicates=first" in profiles or "duplicates=last" in profiles


def test_a_state_names_the_fields_that_it_has():
    state = State({"count": 1})
    with pytest.raises(AttributeError, match="no field 'hash'; it has count"):
        _ = state.hash
    with pytest.raises(KeyError, match="no fields hash"):
        state.after({"hash": 1})
