"""Two detectors that execute no allocator: the inductive proof and the symbolic checks.

They speak of a specimen where its mistake is planted in their models (`planted_in_models.py`).
"""

from __future__ import annotations

import importlib
import time
from unittest.mock import patch

from poolproof.harness.isolation import Beacon
from poolproof.kill_matrix.detector import Detector, SearchOutcome
from poolproof.kill_matrix.planted_in_models import IN_CONTRACTS, IN_PROOF
from poolproof.kill_matrix.subject import MatrixSubject

__all__ = ["PROOF", "SYMBOLIC"]

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
