"""Z3 discharges conditions, and writes each as SMT-LIB that another solver can read."""

from __future__ import annotations

import time
from dataclasses import dataclass

import z3

from poolproof.exploration.proof.conditions import Condition

__all__ = ["Discharge", "discharge"]


@dataclass(frozen=True)
class Discharge:
    """What a solver said of a condition: `proved`, `refuted`, or `unknown` with a reason."""

    condition: Condition
    verdict: str
    reason: str
    duration_s: float
    smt_lib: str


def discharge(condition: Condition, timeout_s: float) -> Discharge:
    """Ask Z3 whether the hypotheses hold without the goal anywhere."""
    solver = z3.Solver()
    solver.set("timeout", max(1, round(1000 * timeout_s)))
    solver.add(*condition.hypotheses)
    solver.add(z3.Not(condition.goal))
    began_s = time.perf_counter()
    answer = solver.check()
    duration_s = time.perf_counter() - began_s
    verdict = {"unsat": "proved", "sat": "refuted"}.get(str(answer), "unknown")
    reason = solver.reason_unknown() if verdict == "unknown" else ""
    text = f"; {condition}\n; unsat means proved\n(set-logic ALL)\n{solver.to_smt2()}"
    return Discharge(condition, verdict, reason, duration_s, text)
