"""`poolproof prove` as its users see it: what is printed and written, and each way to fail."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest

HAS_Z3 = importlib.util.find_spec("z3") is not None
HAS_CVC5 = importlib.util.find_spec("cvc5") is not None
needs_z3 = pytest.mark.skipif(not HAS_Z3, reason="needs z3-solver (make proof)")
needs_cvc5 = pytest.mark.skipif(not (HAS_Z3 and HAS_CVC5), reason="needs z3 and cvc5 (make proof)")


@pytest.fixture
def without(monkeypatch):
    """Hides a package from `find_spec`."""
    find_spec = importlib.util.find_spec

    def hide(name):
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda n, *rest: None if n == name else find_spec(n, *rest)
        )

    return hide


@pytest.fixture(scope="module")
def small_run():
    """The true run of one model, with its second opinions where there is cvc5."""
    from poolproof.exploration.proof.all_models import MODELS
    from poolproof.exploration.proof.proof_run import (
        Bridge,
        ProofRun,
        SecondOpinion,
        check_proof_of,
        discharge_all,
    )

    found = tuple(discharge_all([MODELS["admission"]], 60))
    opinions = tuple(SecondOpinion("unsat", 0.01) for _ in found)
    return ProofRun(found, (), opinions, (check_proof_of("admission"),), Bridge(10, 20))


@pytest.fixture
def run_gives(monkeypatch):
    """Lets the command meet a run that is made up."""

    def gives(run):
        def run_proof(timeout_s, make_queue, *, with_second_solver, heard):
            for found in run.discharges:
                heard(found)
            return run

        monkeypatch.setattr("poolproof.exploration.proof.proof_run.run_proof", run_proof)

    return gives


@needs_cvc5
def test_everything_is_proved_confirmed_written_and_shown(poolproof):
    result = poolproof("prove", "--smt-dir", "smt", "--json", "proof.json", "--planted")
    assert result.exit_code == 0, result.output
    assert "PROVED: 350 conditions, for any number of blocks and references" in result.stdout
    assert "350 proved" in result.stdout
    assert "350 confirmed" in result.stdout
    assert "planted bugs     50 of 50 caught" in result.stdout
    assert "P19: the index keeps a recycled block" in result.stdout
    assert "does not hold after it: IDX index = hashes" in result.stdout
    assert len(list(Path("smt").glob("*.smt2"))) == 350
    value = json.loads(Path("proof.json").read_text())
    assert value["format"] == "poolproof-proof"
    assert {row["second_solver"] for row in value["conditions"]} == {"unsat"}
    assert set(value["solvers"]) == {"z3", "cvc5"}
    assert value["bridge"]["difference"] == ""


@needs_z3
def test_without_a_second_solver_the_report_says_so(poolproof, run_gives, small_run):
    run_gives(replace(small_run, opinions=()))
    result = poolproof("prove", "--second-solver", "none", "--json", "proof.json")
    assert result.exit_code == 0
    assert "second solver    not asked; `pip install cvc5` makes one available" in result.stdout
    assert "not asked" in result.stdout
    value = json.loads(Path("proof.json").read_text())
    assert {row["second_solver"] for row in value["conditions"]} == {None}
    assert set(value["solvers"]) == {"z3"}


def test_a_missing_z3_says_what_to_install(poolproof, without):
    without("z3")
    result = poolproof("prove")
    assert result.exit_code == 2
    assert result.stderr == (
        "poolproof: prove needs the solver Z3; install it with: pip install 'poolproof[proof]'\n"
    )


@needs_z3
def test_a_missing_second_solver_that_was_asked_for_says_what_to_install(poolproof, without):
    without("cvc5")
    result = poolproof("prove", "--second-solver", "cvc5")
    assert result.exit_code == 2
    assert "install it with: pip install cvc5" in result.stderr


@needs_z3
def test_a_refuted_step_shows_the_pool_before_and_after(poolproof, run_gives, small_run):
    from poolproof.exploration.proof.proof_run import FailedStep

    found = replace(small_run.discharges[-1], verdict="refuted")
    step = small_run.bugs[0].counterexample
    start = replace(small_run.discharges[0], verdict="refuted")
    run_gives(replace(small_run, failed=(FailedStep(found, step), FailedStep(start, None))))
    result = poolproof("prove")
    assert result.exit_code == 1
    assert f"REFUTED {found.condition}" in result.stdout
    assert "a state and a step: ask(revived" in result.stdout
    assert "admitted" in result.stdout
    assert f"REFUTED {start.condition}; no example with up to 3 blocks" in result.stdout
    assert result.stdout.endswith("REFUTED\n")


@needs_z3
def test_undecided_fails_and_names_the_condition(poolproof, run_gives, small_run):
    from poolproof.exploration.proof.proof_run import FailedStep

    found = replace(small_run.discharges[0], verdict="unknown", reason="timeout")
    run_gives(replace(small_run, failed=(FailedStep(found, None),)))
    result = poolproof("prove", "--timeout-s", "0.5")
    assert result.exit_code == 2
    assert f"NOT DECIDED {found.condition}: Z3 says unknown (timeout)" in result.stdout
    assert result.stdout.endswith("INCONCLUSIVE\n")


@needs_z3
@pytest.mark.parametrize(("answer", "status"), [("sat", 1), ("unknown (TIMEOUT)", 2)])
def test_what_the_second_solver_does_not_confirm_fails(
    answer, status, poolproof, run_gives, small_run
):
    doubted = replace(small_run.opinions[0], answer=answer)
    run_gives(replace(small_run, opinions=(doubted, *small_run.opinions[1:])))
    result = poolproof("prove")
    assert result.exit_code == status
    named = small_run.discharges[0].condition
    assert f"cvc5 does not confirm {named}: {answer}" in result.stdout


@needs_z3
def test_a_bug_that_gets_through_and_an_empty_proof_fail(poolproof, run_gives, small_run):
    (checks,) = small_run.checks
    missed = replace(checks.bugs[0], counterexample=None, broken=())
    needs = (replace(checks.vacuity.needs[0], step="", alone_catches=()),)
    vacuity = replace(checks.vacuity, never_enabled=("take",), needs=needs)
    run_gives(replace(small_run, checks=(replace(checks, bugs=(missed,), vacuity=vacuity),)))
    result = poolproof("prove", "--planted")
    assert result.exit_code == 2
    assert "planted bugs     0 of 1 caught" in result.stdout
    assert "NOT CAUGHT" in result.stdout
    assert "the proof is empty in a place: admission: take never happens" in result.stdout
    assert "admission: nothing rests on ADM decision stays right" in result.stdout


@needs_z3
def test_a_model_that_differs_from_what_runs_fails(poolproof, run_gives, small_run):
    run_gives(replace(small_run, bridge=replace(small_run.bridge, difference="links differ")))
    result = poolproof("prove")
    assert result.exit_code == 1
    assert "bridge           DIFFERS: links differ" in result.stdout


@needs_z3
def test_a_folder_that_cannot_be_written_costs_no_proof(poolproof):
    result = poolproof("prove", "--json", "none/proof.json")
    assert result.exit_code == 2
    assert "there is no folder none" in result.stderr
