"""Every condition holds for all sizes; a wrong model is refuted, with a step that shows it."""

from __future__ import annotations

from dataclasses import replace

import pytest

z3 = pytest.importorskip("z3", reason="needs z3-solver (make proof)")

from poolproof.exploration.proof.all_models import MODELS  # noqa: E402 - behind the skip
from poolproof.exploration.proof.conditions import Condition, conditions  # noqa: E402 - the same
from poolproof.exploration.proof.pool_invariants import INVARIANTS  # noqa: E402 - the same
from poolproof.exploration.proof.pool_model import POOL  # noqa: E402 - the same
from poolproof.exploration.proof.proof_run import (  # noqa: E402 - the same
    Bridge,
    FailedStep,
    ProofRun,
    counterexample,
    decide_again,
    discharge,
    discharge_all,
    run_proof,
    smt_file_name,
)
from poolproof.exploration.proof.z3_logic import Z3Logic  # noqa: E402 - the same
from poolproof.impl.free_queue import FreeQueue  # noqa: E402 - the same

TIMEOUT_S = 60


def with_action(model, name, **changes):
    actions = [replace(a, **changes) if a.name == name else a for a in model.actions]
    return replace(model, actions=tuple(actions))


def failed(model):
    return [found for found in discharge_all([model], TIMEOUT_S) if found.verdict != "proved"]


@pytest.mark.parametrize("name", MODELS)
def test_every_condition_is_proved(name):
    assert [str(found.condition) for found in failed(MODELS[name])] == []


@pytest.mark.parametrize("name", ["content", "admission"])
def test_steps_over_the_pool_are_steps_of_the_pool(name):
    # What is given to these models is proved of the pool's own steps; their steps keep it, too.
    model = MODELS[name]
    whole = replace(model, given={}, invariants={**INVARIANTS, **model.invariants})
    assert [str(found.condition) for found in failed(whole)] == []


@pytest.mark.parametrize("name", MODELS)
def test_no_step_changes_what_is_assumed_to_stay(name):
    stays = {"lifo", "unhashed_first", "keep_first", "keep_last", "recache_forbidden", "null",
             "name_of", "chain_of", "head", "tail", "nil", "total"}  # fmt: skip
    model, logic = MODELS[name], Z3Logic()
    state = logic.state(model.fields)
    for action in model.actions:
        parameters = [logic.constant(n, sort) for n, sort in action.parameters.items()]
        assert not stays & set(action.effect(logic, state, *parameters)), action.name


def test_a_step_that_is_wrong_is_refuted_with_a_state_before_and_after():
    touch = POOL.action("touch").effect

    def leaves_the_queue_alone(logic, s, *parameters):
        changes = touch(logic, s, *parameters)
        return {name: changes[name] for name in ("count", "holder", "live", "on", "place")}

    wrong = with_action(POOL, "touch", effect=leaves_the_queue_alone)
    (found,) = failed(wrong)
    assert str(found.condition) == "pool, touch: I1 free iff unheld"
    step = counterexample(wrong, found)
    assert step.step == "touch(block 0, reference r0)"
    rows = {what: (before, after) for what, before, after in step.rows}
    assert rows["free queue"] == ("0", "0")
    assert rows["block 0"][0] == "count 0, queued, place 0, hash A"
    assert rows["block 0"][1] == "count 1, queued, place 0, hash A"
    assert "I1 free iff unheld" in step.broken


def test_a_wrong_initial_state_is_refuted_and_has_no_step():
    wrong = replace(POOL, initial=lambda logic, s: s.clock >= 0)
    found = failed(wrong)
    assert {f.condition.step for f in found} == {"initial state"}
    assert counterexample(wrong, found[0]) is None


def test_undecided_names_the_condition():
    x, y, w = z3.Ints("x y w")
    cubes = x * x * x + y * y * y != w * w * w
    hard = Condition("pool", "touch", "I1 hard", (x > 0, y > 0, w > 0), cubes)
    found = discharge(hard, 0.05)
    assert (found.verdict, str(found.condition)) == ("unknown", "pool, touch: I1 hard")
    assert found.reason
    run = ProofRun((found,), (FailedStep(found, None),), (), (), Bridge())
    assert run.exit_status == 2


def test_the_second_solver_confirms_what_holds_and_refutes_what_does_not():
    pytest.importorskip("cvc5", reason="needs cvc5 (make proof)")
    texts = [found.smt_lib for found in discharge_all([MODELS["content"]], TIMEOUT_S)]
    x = z3.Int("x")
    wrong = Condition("pool", "touch", "I1 wrong", (), x > 0)
    texts.append(discharge(wrong, TIMEOUT_S).smt_lib)
    answers = [opinion.answer for opinion in decide_again(texts, TIMEOUT_S)]
    assert answers == ["unsat"] * (len(texts) - 1) + ["sat"]


def test_the_second_solver_tries_harder_where_it_does_not_know():
    pytest.importorskip("cvc5", reason="needs cvc5 (make proof)")
    wanted = "cache: IDX duplicates"
    text = next(
        discharge(c, TIMEOUT_S).smt_lib for c in conditions(POOL) if wanted in f"{c.step}: {c.name}"
    )
    assert decide_again([text], TIMEOUT_S)[0].answer == "unsat"


def test_files_sort_in_the_order_of_the_run_and_say_what_they_are():
    found = discharge(next(conditions(POOL)), TIMEOUT_S)
    assert smt_file_name(7, found) == "007-pool-initial-state-i1-free-iff-unheld.smt2"
    assert found.smt_lib.startswith("; pool, initial state: I1 free iff unheld\n; unsat means")
    assert "(check-sat)" in found.smt_lib


def test_a_run_without_a_second_solver_asks_nobody():
    run = run_proof(TIMEOUT_S, FreeQueue, with_second_solver=False)
    assert run.opinions == ()
    assert run.disagreements == ()
    assert run.exit_status == 0
