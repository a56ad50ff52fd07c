"""The jobs of a certification's workers, run in the process that holds the target.

Each job takes the loaded target, a plain argument and the beacon by which the watchman sees
progress, and returns plain values. `certify.py` decides which jobs run and what happens to their
results.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from poolproof.certification.description import public_methods
from poolproof.certification.levels import LEVELS
from poolproof.certification.levels.certified_level import NumberedRuns
from poolproof.certification.manager_watch import Watched
from poolproof.certification.run_kinds import CHAINS, INDEX, QUEUE, Chunk, RunKind
from poolproof.certification.watching import watch_at_level
from poolproof.contract.commands import Command
from poolproof.contract.depth import Depth
from poolproof.contract.trace import Trace
from poolproof.harness.extent import Extent
from poolproof.harness.failure_kind import FailureKind, failure_kind
from poolproof.harness.hash_lengths import lengths_that_pass
from poolproof.harness.isolation import Beacon
from poolproof.harness.minimise import minimise, run_candidate
from poolproof.harness.replay import Replay, replay
from poolproof.harness.tape_driver import taped
from poolproof.stateful_tests.machine_log import MachineLog
from poolproof.stateful_tests.run_machine import MachineResult, run_machine
from poolproof.stateful_tests.settings import machine_settings
from poolproof.targets.target import Make, Target

__all__ = [
    "ChunkResult",
    "Machine",
    "Shrink",
    "TimedMachine",
    "campaign_of",
    "effort_to_read",
    "make_for",
    "methods_entered",
    "replay_trace",
    "run_chunk",
    "run_hypothesis",
    "run_machine_with",
    "shrink_trace",
    "try_hash_lengths",
    "watch_trace",
]


_MOST_STARTS = 10
"""A program that cannot be talked to any more is started anew for the next run, which may take a
second: after so many the chunk ends."""

_ENOUGH_IN_VAIN = 3
"""So many runs that all lost the program at their first command: there is no talking to it."""


_MACHINE_SHARES = {CHAINS: 2, QUEUE: 3, INDEX: 3}
"""Which part of a depth's examples a state machine gets, as one divided by this. Token chains lead
to the states of opaque hashes. Parts of a pool have few operations, and every state of small ones
is visited."""


@dataclass(slots=True)
class ChunkResult:
    """What the runs of a chunk did: the shortest failing trace for each kind of failure.

    `lost` is the trace of a run that cost the worker, `in_vain` says that no command was answered,
    since the program behind the target was lost at the first of each run. `num_collisions` are the
    runs that went wrong because two hashes were made equal, in a manager that trusts its hashes.
    `extent` is how far the runs went, `remarks` what the certificate should say of the target.
    """

    num_steps: int = 0
    num_runs: int = 0
    facts: set[str] = field(default_factory=set)
    failures: dict[FailureKind, Trace] = field(default_factory=dict)
    runs_of_kind: Counter[FailureKind] = field(default_factory=Counter)
    num_failing_runs: int = 0
    num_collisions: int = 0
    lost: Trace | None = None
    in_vain: bool = False
    extent: Extent = field(default_factory=Extent)
    remarks: set[str] = field(default_factory=set)

    def add(self, trace: Trace) -> None:
        """Keep the trace of a failing run if it is the shortest of its kind."""
        assert trace.violation is not None
        kind = failure_kind(trace.violation, trace.commands)
        self.runs_of_kind[kind] += 1
        known = self.failures.get(kind)
        if known is None or effort_to_read(trace) < effort_to_read(known):
            self.failures[kind] = trace


def effort_to_read(trace: Trace) -> tuple[int, int]:
    """The order of traces of one failure: the smallest blocks first, then the length."""
    return int(trace.options.get("block_size", 1)), len(trace.commands)


@dataclass(frozen=True, slots=True)
class Machine:
    """A Hypothesis machine to run: its kind, how deep it goes, its seed.

    It gets one of `share` shares of the examples that its kind has.
    """

    kind: RunKind
    depth: Depth
    seed: int
    share: int = 1


@dataclass(frozen=True, slots=True)
class Shrink:
    """A failing trace to minimise, in at most so many attempts."""

    trace: Trace
    max_attempts: int = 4000


def campaign_of(target: Target, chunk: Chunk) -> NumberedRuns:
    """The campaign that a chunk belongs to."""
    return LEVELS[chunk.kind.level].campaign(target, chunk)


def run_chunk(target: Target, chunk: Chunk, beacon: Beacon) -> ChunkResult:
    """Run the chunk's runs; `beacon.mark` holds the number of the run in progress, plus one."""
    campaign = taped(campaign_of(target, chunk), target.tapes)
    result = ChunkResult()
    num_lost = 0
    for number in chunk.numbers:
        beacon.mark(number + 1)
        lost_before = target.tapes.num_lost if target.tapes is not None else 0
        run = campaign.run(number, beacon.bump)
        result.num_runs += 1
        result.num_steps += run.num_steps
        result.facts |= run.facts
        result.num_collisions += run.collision is not None
        result.extent.take_in(run.extent)
        result.remarks |= run.remarks
        if run.trace is not None:
            result.num_failing_runs += 1
            result.add(run.trace)
        num_lost += target.tapes is not None and target.tapes.num_lost > lost_before
        in_all = num_lost == result.num_runs == _ENOUGH_IN_VAIN
        result.in_vain = in_all and result.num_steps <= _ENOUGH_IN_VAIN
        if result.in_vain or num_lost == _MOST_STARTS:
            break
    return result


class _BeaconLog(MachineLog):
    """A machine log that shows the watchman each command, and passes it on."""

    def __init__(self, beacon: Beacon) -> None:
        super().__init__()
        self._beacon = beacon

    def begin(self, trace: Trace) -> None:
        super().begin(trace)
        self._beacon.mark(self.num_examples)

    def announce(self, command: Command) -> None:
        super().announce(command)
        self._beacon.bump()


@dataclass(frozen=True, slots=True)
class TimedMachine:
    """What a machine did, and how many seconds it took."""

    result: MachineResult
    seconds: float


def run_hypothesis(target: Target, machine: Machine, beacon: Beacon) -> TimedMachine:
    """Run one of the state machines of `stateful_tests`."""
    began = time.monotonic()
    result = run_machine_with(target, machine, _BeaconLog(beacon))
    return TimedMachine(result, time.monotonic() - began)


def run_machine_with(target: Target, machine: Machine, log: MachineLog) -> MachineResult:
    """Run a state machine that tells `log` what it does."""
    campaign = campaign_of(target, Chunk(machine.kind, machine.seed, 0, 0))
    make = LEVELS[machine.kind.level].machine(machine.kind)
    return run_machine(
        lambda log: make(campaign, log),
        machine_settings(machine.depth, share=machine.share * _MACHINE_SHARES.get(machine.kind, 1)),
        seed=machine.seed,
        log=log,
    )


def make_for(target: Target, trace: Trace) -> Make:
    """The factory of the instances that the trace was recorded on."""
    return LEVELS[trace.level].make(target, trace)


def shrink_trace(target: Target, task: Shrink, beacon: Beacon) -> Trace:
    """Minimise a trace in this process; a target that may not return costs the worker."""
    make = make_for(target, task.trace)
    return minimise(
        task.trace,
        lambda trace, candidate: run_candidate(trace, candidate, make, beacon.bump),
        max_attempts=task.max_attempts,
    )


def replay_trace(target: Target, trace: Trace, beacon: Beacon) -> Replay:
    """Replay a trace against the target."""
    return replay(trace, make_for(target, trace), beacon.bump)


def try_hash_lengths(target: Target, trace: Trace, beacon: Beacon) -> tuple[int, ...]:
    """The lengths of hashes with which a failing trace passes."""
    return lengths_that_pass(trace, make_for(target, trace), beacon.bump)


def watch_trace(target: Target, trace: Trace, beacon: Beacon) -> Watched:
    """Run a trace and say what the target showed after each command."""
    return watch_at_level(trace, make_for(target, trace), beacon)


def methods_entered(target: Target, chunk: Chunk, beacon: Beacon) -> frozenset[str]:
    """The public methods of the target's class that the chunk's runs entered, by profiling them."""
    codes: dict[CodeType, set[str]] = {}
    for name in public_methods(target.real_class):
        function = getattr(target.real_class, name)
        code = getattr(getattr(function, "fget", function), "__code__", None)
        if code is not None:
            codes.setdefault(code, set()).add(name)  # one function may have several names
    entered: set[str] = set()

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in codes:
            entered.update(codes[frame.f_code])

    sys.setprofile(watch)
    try:
        run_chunk(target, chunk, beacon)
    finally:
        sys.setprofile(None)
    return frozenset(entered)
