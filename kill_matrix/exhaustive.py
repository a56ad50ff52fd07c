"""A detector: every state and every short sequence of small scopes, as `certify` explores them."""

from __future__ import annotations

import time
from typing import Any

from poolproof.certification.certificate import StageOutcome
from poolproof.certification.depths import BUDGETS
from poolproof.certification.description import describe
from poolproof.certification.exploration import Exploring
from poolproof.certification.progress import SilentProgress
from poolproof.contract.depth import Depth
from poolproof.contract.trace import Trace
from poolproof.harness.failure_kind import FailureKind, failure_kind
from poolproof.harness.isolation import Beacon, InWorker
from poolproof.kill_matrix.detector import Detector, SearchOutcome
from poolproof.kill_matrix.drivers import minimised_length
from poolproof.kill_matrix.subject import MatrixSubject

__all__ = ["EXHAUSTIVE", "explore"]


class _FirstTrace:
    """The interface of a finding collector: keeps the first trace, and the kinds of all."""

    def __init__(self) -> None:
        self.trace: Trace | None = None
        self.kinds: frozenset[FailureKind] = frozenset()

    def add(self, _stage: str, trace: Trace, _num_runs: int = 1) -> None:
        self.trace = self.trace or trace
        assert trace.violation is not None
        self.kinds |= {failure_kind(trace.violation, trace.commands)}


def explore(
    subject: MatrixSubject, depth: Depth, seed: int, beacon: Beacon
) -> tuple[int, Trace | None]:
    """The exhaustive stages of a depth, up to the first that fails: steps, and the failing trace.

    Steps are counted to the end of the part of the states in which it failed.
    """
    target = subject.target()
    about = describe(target, None, beacon)
    first = _FirstTrace()
    collector: Any = first  # stood in for: there is nothing to list
    exploring = Exploring(InWorker(target, beacon), about, collector, SilentProgress(), seed)
    exploring.explore(BUDGETS[depth])
    steps = sum(stage.steps for stage in exploring.stages)
    is_refused = any(stage.outcome is StageOutcome.REFUSED for stage in exploring.stages)
    assert is_refused == (first.trace is not None), subject.id
    return steps, first.trace


def _search(subject: MatrixSubject, seed: int, beacon: Beacon) -> SearchOutcome:
    began = time.process_time()
    steps, trace = explore(subject, Depth.QUICK, seed, beacon)
    seconds = time.process_time() - began
    if trace is None:
        return SearchOutcome(False, steps, seconds)
    assert trace.violation is not None
    length = minimised_length(subject, trace, beacon)
    return SearchOutcome(True, steps, seconds, trace.violation.invariant, length)


EXHAUSTIVE = Detector(
    "exhaustive",
    "every state and every short sequence of small scopes, as at `certify --depth quick`",
    _search,
    is_seeded=False,
)
