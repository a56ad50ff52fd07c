"""cvc5 decides the same conditions again, from their SMT-LIB text, in a process of its own.

cvc5 shares no code with Z3, and the text is what anybody else can check, too. It is optional.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["SecondOpinion", "decide_again"]


@dataclass(frozen=True)
class SecondOpinion:
    """The answer to one text: `unsat`, `sat`, `unknown`, or the solver's complaint."""

    answer: str
    duration_s: float


def decide_again(texts: Sequence[str], timeout_s: float) -> list[SecondOpinion]:
    """cvc5's answers to SMT-LIB texts, in their order."""
    return [_decide(text, timeout_s) for text in texts]


def _decide(text: str, timeout_s: float) -> SecondOpinion:
    """The answer; where instances found by matching are not enough, more are enumerated."""
    opinion = _ask(text, timeout_s, {})
    if opinion.answer.startswith("unknown"):
        opinion = _ask(text, timeout_s, {"full-saturate-quant": "true"})
    return opinion


def _ask(text: str, timeout_s: float, options: Mapping[str, str]) -> SecondOpinion:
    import cvc5

    solver = cvc5.Solver(cvc5.TermManager())
    for name, value in options.items():
        solver.setOption(name, value)
    solver.setOption("tlimit-per", str(max(1, round(1000 * timeout_s))))
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, "condition")
    symbols = parser.getSymbolManager()
    began_s = time.perf_counter()
    said = ""
    while not (command := parser.nextCommand()).isNull():
        said += command.invoke(solver, symbols)
    return SecondOpinion(said.strip() or "no answer", time.perf_counter() - began_s)
