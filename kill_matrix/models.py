"""Two detectors that execute no allocator: the inductive proof and the symbolic checks.

They say nothing about code: they refuse a wrong guard or effect in a model, or a wrong version of
a small function. They speak of a specimen where its mechanism is planted there, too; that was
judged by a person, from the sentences and threads of both.
"""

from __future__ import annotations

import importlib
import time
from unittest.mock import patch

from poolproof.harness.isolation import Beacon
from poolproof.kill_matrix.detector import Detector, SearchOutcome
from poolproof.kill_matrix.subject import MatrixSubject

__all__ = ["IN_CONTRACTS", "IN_PROOF", "PROOF", "SYMBOLIC"]


IN_PROOF = {
    "A1": "Q4",
    "A3": "M3",
    "A3-manager": "M3",
    "A4": "Q6",
    "A5": "Q9",
    "A6": "P3",
    "A9": "C7",
    "A12": "P1",
    "A13": "P7",
    "A13-manager": "P7",
    "A16": "P2",
    "A21": "P6",
    "A25": "P14",
    "A28": "P12",
    "A28-manager": "P12",
    "B2": "M1",
    "B3": "M2",
    "B4": "M1",
    "B14": "P5",
    "C1": "P11",
    "C1-manager": "C6",
    "C1-trusted": "C6",
    "C3": "C6",
    "C4": "C4",
    "C6": "C4",
    "C9": "C4",
    "C11": "C4",
    "C14": "C2",
    "C17": "C3",
    "D1": "P19",
    "D1-manager": "C5",
    "D1-nano": "C5",
    "D3": "P9",
    "D3-manager": "P9",
    "D6": "P20",
    "D8": "P10",
    "D11": "P21",
    "D13": "C3",
    "D21": "P8",
    "E3": "P24",
    "F2": "C1",
    "G7": "P15",
    "Q2": "Q11",
    "Q4": "Q1",
    "Q5": "Q2",
    "Q7": "Q14",
}
"""The bug of `poolproof prove --planted` that is the same mistake."""

IN_CONTRACTS = {
    "A6": "freeing",
    "A12": "touching",
    "B6": "peak_covers_a_window_anywhere",
    "B13": "requests_are_counted_apart",
    "C7": "fields_read_back",
    "G3": "window_keeps_what_is_read",
    "G3-hybrid": "window_keeps_what_is_read",
}
"""The contract of `poolproof symbolic` whose wrong version is the same mistake."""


_SYMBOLIC_TIMEOUT_S = 20.0
"""What `poolproof symbolic` gives each condition."""


def _prove(subject: MatrixSubject, _seed: int, beacon: Beacon) -> SearchOutcome:
    """Look for a step of the wrong model after which an invariant does not hold."""
    from poolproof.exploration.proof.planted import PLANTED, catch

    beacon.bump()
    name = IN_PROOF[subject.id]
    (planted,) = [found for found in PLANTED if found.name == name]
    began = time.process_time()
    caught = catch(planted)
    seconds = time.process_time() - began
    invariant = planted.invariant if caught.is_caught else ""
    return SearchOutcome(
        caught.is_caught, 0, seconds, invariant, note=f"{name}: {planted.sentence}"
    )


def _confirm(subject: MatrixSubject, _seed: int, beacon: Beacon) -> SearchOutcome:
    """Put the wrong version in the place of the right one; its contract has to be refuted."""
    from poolproof.exploration.symbolic.catalogue import CONTRACTS, WRONG
    from poolproof.exploration.symbolic.symbolic_run import examine

    beacon.bump()
    name = IN_CONTRACTS[subject.id]
    (contract,) = [found for found in CONTRACTS if found.name == name]
    (wrong,) = [found for found in WRONG if found.contract == name]
    module = importlib.import_module(contract.function.__module__)
    began = time.process_time()
    with patch.object(module, wrong.name, wrong.version):
        verdict = examine(contract, _SYMBOLIC_TIMEOUT_S).verdict
    seconds = time.process_time() - began
    return SearchOutcome(verdict == "refuted", 0, seconds, note=f"{name}: {wrong.sentence}")


def _not_in_proof(subject: MatrixSubject) -> str | None:
    return None if subject.id in IN_PROOF else "its mistake is not planted in a model"


def _not_in_contracts(subject: MatrixSubject) -> str | None:
    return (
        None if subject.id in IN_CONTRACTS else "its mistake is not in a function with a contract"
    )


PROOF = Detector(
    "proof",
    "the inductive proof, of a model with the same mistake in it",
    _prove,
    _not_in_proof,
    needs=("z3",),
    is_seeded=False,
    sees_losses=False,
)
SYMBOLIC = Detector(
    "symbolic",
    "CrossHair, on a contract whose function has the same mistake",
    _confirm,
    _not_in_contracts,
    needs=("z3", "crosshair"),
    is_seeded=False,
    sees_losses=False,
)
