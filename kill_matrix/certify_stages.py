"""Detectors made of what `certify` does: its exhaustive stages, and all its runs at a depth.

The exhaustive stages are every state and every short sequence of small scopes. `certify` at a
depth is the runs that it makes, in the order in which it does. Not the whole certification: it
ends at the first thing that breaks, checks no ruler, minimises nothing and prints nothing. What is
found or missed is the same, at a fraction of the time. Done from seed 0 alone, as a gate does it,
which is to give the same verdict every time.
"""

from __future__ import annotations

import time
from typing import Any

from poolproof.certification.certificate import StageOutcome
from poolproof.certification.depths import BUDGETS, RUNS_PER_CHUNK
from poolproof.certification.description import describe
from poolproof.certification.exploration import Exploring
from poolproof.certification.jobs import Machine, campaign_of, run_machine_with
from poolproof.certification.progress import SilentProgress
from poolproof.certification.run_kinds import Chunk
from poolproof.contract.depth import Depth
from poolproof.contract.trace import Trace
from poolproof.harness.failure_kind import FailureKind, failure_kind
from poolproof.harness.isolation import Beacon, InWorker
from poolproof.kill_matrix.detector import Detector, SearchOutcome
from poolproof.kill_matrix.drivers import CountingLog, kind_of, minimised_length
from poolproof.kill_matrix.subject import MatrixSubject

__all__ = ["CERTIFY", "EXHAUSTIVE"]


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


def _no_small_scopes(subject: MatrixSubject) -> str | None:
    level = subject.level
    return (
        None
        if level.has_small_scopes
        else f"a certification visits no states of {level.with_article}"
    )


EXHAUSTIVE = Detector(
    "exhaustive",
    "every state and every short sequence of small scopes, as at `certify --depth quick`",
    _search,
    _no_small_scopes,
    is_seeded=False,
)


ODDITIES_ELSEWHERE = "oddities are certified at standard by tests/bugs (make test-deep)"


def _certify(depth: Depth, subject: MatrixSubject, seed: int, beacon: Beacon) -> SearchOutcome:
    began = time.process_time()
    steps, trace, stage = _runs(depth, subject, seed, beacon)
    seconds = time.process_time() - began
    if trace is None:
        return SearchOutcome(False, steps, seconds)
    assert trace.violation is not None
    return SearchOutcome(True, steps, seconds, trace.violation.invariant, note=stage)


def _runs(
    depth: Depth, subject: MatrixSubject, seed: int, beacon: Beacon
) -> tuple[int, Trace | None, str]:
    """Steps, the first failing trace and the stage that it came from."""
    log = CountingLog(beacon)
    machine = Machine(kind_of(subject), depth, seed)
    result = run_machine_with(subject.target(), machine, log)
    if result.trace is not None:
        return log.steps_until_failure or result.num_steps, result.trace, "state machine"
    steps = result.num_steps
    kinds = {kind_of(subject): _chunks(depth, subject)}
    if subject.weak_hashes:
        # For the others this stage says how often a manager that trusts its hashes is misled.
        kinds[kind_of(subject).weakened()] = 1
    for kind, chunks in kinds.items():
        campaign = campaign_of(subject.target(), Chunk(kind, seed, 0, 0))
        for number in range(chunks * RUNS_PER_CHUNK):
            run = campaign.run(number, beacon.bump)
            steps += run.num_steps
            # A collision is reported, too, by a note beside the stage.
            trace = run.trace or run.collision
            if trace is not None:
                return steps, trace, kind.stage
    if not subject.level.has_small_scopes:
        return steps, None, ""
    explored, trace = explore(subject, depth, seed, beacon)
    return steps + explored, trace, "exhaustive stages"


def _chunks(depth: Depth, subject: MatrixSubject) -> int:
    budget = BUDGETS[depth]
    if subject.level.has_layouts:
        return budget.chunks_of_layout(kind_of(subject), 1)
    return budget.chunks[kind_of(subject)]


def _search_quick(subject: MatrixSubject, seed: int, beacon: Beacon) -> SearchOutcome:
    return _certify(Depth.QUICK, subject, seed, beacon)


def _search_standard(subject: MatrixSubject, seed: int, beacon: Beacon) -> SearchOutcome:
    return _certify(Depth.STANDARD, subject, seed, beacon)


def _not_at_standard(subject: MatrixSubject) -> str | None:
    return ODDITIES_ELSEWHERE if subject.is_oddity else None


CERTIFY = (
    Detector(
        "certify-quick",
        "the runs of `certify --depth quick`, in its order",
        _search_quick,
        is_seeded=False,
        is_made_of_others=True,
        drives_machines=True,
    ),
    Detector(
        "certify-standard",
        "the runs of `certify --depth standard`, in its order",
        _search_standard,
        _not_at_standard,
        is_seeded=False,
        is_made_of_others=True,
        drives_machines=True,
    ),
)
