"""Whole requests over a real allocator: they share prefixes, fork, are preempted and swapped."""

from __future__ import annotations

import random

from poolproof.contract.violation import Severity
from poolproof.kernels.case import Case
from poolproof.kernels.checks.check import Check, Outcome
from poolproof.kernels.serving.engine import AllocatorBrokeError
from poolproof.kernels.serving.forward import WrongOutputError
from poolproof.kernels.serving.session import ServingSession
from poolproof.kernels.target import KernelTarget

__all__ = ["SERVING_CHECKS"]

OPERATIONS_PER_SEQUENCE = 10


def _serve(target: KernelTarget, case: Case) -> Outcome:
    """A case stands for its seed, its heads, its block size, and a number of operations."""
    assert target.make_pool is not None
    session = ServingSession(
        target,
        target.make_pool,
        random.Random(case.seed).randrange,
        block_size=case.block_size,
        head_size=case.head_size,
        num_kv_heads=case.num_kv_heads,
        queries_per_kv_head=case.queries_per_kv_head,
    )
    try:
        session.run(OPERATIONS_PER_SEQUENCE * len(case.sequences))
    except (WrongOutputError, AllocatorBrokeError) as error:
        return Outcome(session.engine.compared, str(error))
    return Outcome(session.engine.compared)


SERVING_CHECKS = (
    Check(
        name="serving",
        sentence="requests over a real pool get dense attention over their own tokens",
        severity=Severity.WRONG_DATA_OF_ANOTHER,
        run=_serve,
        applies=lambda t: (
            t.make_pool is not None
            and t.device == "cpu"
            and t.declaration.mixed
            and "float32" in t.declaration.dtypes
        ),
    ),
)
