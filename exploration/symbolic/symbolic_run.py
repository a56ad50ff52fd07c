"""CrossHair over the contracts, in two processes, and over the wrong versions that it must refute.

Only "Confirmed over all paths" counts as holding. CrossHair gives up on a condition after a time,
and finding no counterexample until then shows nothing.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any
from unittest.mock import patch

from poolproof.exploration.symbolic.catalogue import CONTRACTS, WRONG, Contract, Wrong

__all__ = ["ContractOutcome", "SymbolicRun", "examine", "run_symbolic"]

_WORST_FIRST = ("refuted", "not confirmed", "confirmed")


@dataclass(frozen=True)
class ContractOutcome:
    """Of one contract: the worst verdict of its conditions, and what CrossHair said."""

    name: str
    verdict: str
    num_conditions: int
    message: str
    duration_s: float


@dataclass(frozen=True)
class SymbolicRun:
    """The outcomes of the contracts and of the wrong versions, in their order."""

    contracts: tuple[ContractOutcome, ...]
    wrong: tuple[ContractOutcome, ...]

    @property
    def exit_status(self) -> int:
        """0 all confirmed; 1 one refuted; 2 one not confirmed, or a wrong version got through."""
        verdicts = {outcome.verdict for outcome in self.contracts}
        if "refuted" in verdicts:
            return 1
        missed = any(outcome.verdict != "refuted" for outcome in self.wrong)
        return 2 if missed or "not confirmed" in verdicts else 0


def run_symbolic(timeout_s: float, names: Sequence[str] = ()) -> SymbolicRun:
    """Examine the contracts of these names, by default all, and wrong versions of their code."""
    chosen = [contract for contract in CONTRACTS if not names or contract.name in names]
    wrong = [found for found in WRONG if not names or found.contract in names]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        asked = [pool.submit(_examine_by_name, contract.name, timeout_s) for contract in chosen]
        planted = [pool.submit(_examine_wrong, WRONG.index(found), timeout_s) for found in wrong]
        return SymbolicRun(
            tuple(future.result() for future in asked), tuple(future.result() for future in planted)
        )


def _examine_by_name(name: str, timeout_s: float) -> ContractOutcome:
    return examine(_contract(name), timeout_s)


def _examine_wrong(number: int, timeout_s: float) -> ContractOutcome:
    found: Wrong = WRONG[number]
    contract = _contract(found.contract)
    module = importlib.import_module(contract.function.__module__)
    with patch.object(module, found.name, found.version):
        return examine(contract, timeout_s)


def _contract(name: str) -> Contract:
    return next(contract for contract in CONTRACTS if contract.name == name)


def examine(contract: Contract, timeout_s: float) -> ContractOutcome:
    """What CrossHair says of one contract within `timeout_s` a condition."""
    from crosshair.core_and_libs import analyze_function, run_checkables
    from crosshair.options import AnalysisKind, AnalysisOptionSet

    options = AnalysisOptionSet(
        analysis_kind=[AnalysisKind.PEP316], per_condition_timeout=timeout_s, report_all=True
    )
    began_s = time.perf_counter()
    messages = run_checkables(analyze_function(contract.function, options))
    duration_s = time.perf_counter() - began_s
    found = [(_verdict(message), message.message) for message in messages] or [
        ("not confirmed", "CrossHair found no condition in the docstring")
    ]
    verdict, said = min(found, key=lambda pair: _WORST_FIRST.index(pair[0]))
    return ContractOutcome(contract.name, verdict, len(found), said, duration_s)


def _verdict(message: Any) -> str:
    refuted = ("POST_FAIL", "POST_ERR", "EXEC_ERR")
    name = message.state.name
    return "confirmed" if name == "CONFIRMED" else "refuted" if name in refuted else "not confirmed"
