"""What a worker does for a certification, in the process that holds the target.

Each job takes the loaded target, a plain argument and the beacon by which the watchman sees
progress, and returns plain values. Which jobs run, and what becomes of their results, is decided
in `certify.py`.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, Protocol

from hypothesis.stateful import RuleBasedStateMachine

from poolproof.contract.commands import Command
from poolproof.contract.profile import Profile
from poolproof.contract.target import Capabilities, TargetError, capabilities_of
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.harness.failure_kind import failure_kind
from poolproof.harness.isolation import Beacon
from poolproof.harness.minimise import minimise, run_candidate
from poolproof.harness.queue_driver import QueueCampaign
from poolproof.harness.random_driver import PoolCampaign
from poolproof.harness.replay import Replay, replay
from poolproof.harness.target_call import crash
from poolproof.stateful_tests.chain_machine import ChainMachine
from poolproof.stateful_tests.machine_log import MachineLog
from poolproof.stateful_tests.pool_machine import PoolMachine
from poolproof.stateful_tests.queue_machine import QueueMachine
from poolproof.stateful_tests.run_machine import MachineResult, run_machine
from poolproof.stateful_tests.settings import machine_settings
from poolproof.targets.target import Make, Target

__all__ = [
    "Chunk",
    "ChunkResult",
    "Description",
    "Machine",
    "Shrink",
    "TimedMachine",
    "campaign_of",
    "describe",
    "make_for",
    "methods_entered",
    "queue_of",
    "replay_trace",
    "run_chunk",
    "run_hypothesis",
    "run_machine_with",
    "shrink_trace",
]


class Campaign(Protocol):
    """A numbered family of runs."""

    def run(self, number: int, announce: Any = None) -> Any: ...


@dataclass(frozen=True, slots=True)
class Description:
    """What the parent needs to know of a target that only its workers have loaded.

    `unbuilt` is the violation that even the smallest instance raised on construction; then
    nothing is known of its capabilities.
    """

    name: str
    level: str
    shape: str
    profile: Profile
    version: str | None
    source: str
    notes: tuple[str, ...]
    takes_chains: bool
    has_queue: bool
    public_methods: tuple[str, ...]
    can: Capabilities | None
    can_chained: Capabilities | None = None
    queue_can: Capabilities | None = None
    unbuilt: Violation | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """Runs `first` to `first + count` - 1 of one kind: "pool", "chains" or "queue".

    `profile` replaces the target's own, to find out what it behaves as, or to see what misuse
    does that the target's own leaves undefined.
    """

    kind: str
    seed: int
    first: int
    count: int
    profile: Profile | None = None

    @property
    def numbers(self) -> range:
        """The numbers of the runs."""
        return range(self.first, self.first + self.count)


@dataclass(slots=True)
class ChunkResult:
    """What the runs of a chunk did: the shortest failing trace for each kind of failure.

    `lost` is the trace of a run that cost the worker.
    """

    num_steps: int = 0
    num_runs: int = 0
    facts: set[str] = field(default_factory=set)
    failures: dict[str, Trace] = field(default_factory=dict)
    runs_of_kind: Counter[str] = field(default_factory=Counter)
    num_failing_runs: int = 0
    lost: Trace | None = None

    def add(self, trace: Trace) -> None:
        """Keep the trace of a failing run if it is the shortest of its kind."""
        assert trace.violation is not None
        kind = failure_kind(trace.violation, trace.commands)
        self.runs_of_kind[kind] += 1
        known = self.failures.get(kind)
        if known is None or len(trace.commands) < len(known.commands):
            self.failures[kind] = trace


@dataclass(frozen=True, slots=True)
class Machine:
    """A Hypothesis machine to run: kind "pool", "chains" or "queue"."""

    kind: str
    level: str
    seed: int


@dataclass(frozen=True, slots=True)
class Shrink:
    """A failing trace to minimise, in at most so many attempts."""

    trace: Trace
    max_attempts: int = 4000


def describe(target: Target, _: None, beacon: Beacon) -> Description:
    """Look at the target through one small instance. Raises TargetError if it cannot be run."""
    beacon.bump()
    can, can_chained, queue_can, unbuilt = None, None, None, None
    # Usable blocks beside a null block, wherever that stands.
    num_blocks = 4 + (target.profile.null_block or 0)
    try:
        can = capabilities_of(target.make(num_blocks, True))
        if target.make_chained is not None:
            can_chained = capabilities_of(target.make_chained(num_blocks, True))
        if target.level == "queue" or target.companion_queue is not None:
            queue_can = capabilities_of(queue_of(target).make(num_blocks, True))
    except TargetError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it raises is its finding
        unbuilt = crash(f"constructing the target with {num_blocks} blocks", error)
    return Description(
        name=target.name,
        level=target.level,
        shape=target.shape,
        profile=target.profile,
        version=target.version,
        source=target.source,
        notes=target.notes,
        takes_chains=target.make_chained is not None,
        has_queue=target.companion_queue is not None,
        public_methods=tuple(_public_methods(target.real_class)),
        can=can,
        can_chained=can_chained,
        queue_can=queue_can,
        unbuilt=unbuilt,
    )


def campaign_of(target: Target, chunk: Chunk) -> PoolCampaign | QueueCampaign:
    """The campaign that a chunk belongs to."""
    profile = chunk.profile or target.profile
    if chunk.kind == "queue":
        queue = queue_of(target)
        return QueueCampaign(queue.name, queue.make, chunk.seed)
    if chunk.kind == "chains":
        assert target.make_chained is not None
        return PoolCampaign(
            target.name,
            target.make_chained,
            profile,
            chunk.seed,
            chain_block_size=target.block_size,
            hash_block_size=target.hash_block_size,
        )
    return PoolCampaign(target.name, target.make, profile, chunk.seed)


def queue_of(target: Target) -> Target:
    """The target at queue level: itself, or the free queue that belongs to the pool."""
    if target.level == "queue":
        return target
    assert target.companion_queue is not None
    return target.companion_queue


def run_chunk(target: Target, chunk: Chunk, beacon: Beacon) -> ChunkResult:
    """Run the chunk's runs; `beacon.mark` holds the number of the run in progress, plus one."""
    campaign = campaign_of(target, chunk)
    result = ChunkResult()
    for number in chunk.numbers:
        beacon.mark(number + 1)
        run = campaign.run(number, beacon.bump)
        result.num_runs += 1
        result.num_steps += run.num_steps
        result.facts |= run.facts
        if run.trace is not None:
            result.num_failing_runs += 1
            result.add(run.trace)
    return result


class _BeaconLog(MachineLog):
    """A machine log that shows the watchman each command, and passes on what it hears."""

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
    chunk = Chunk(machine.kind, machine.seed, 0, 0)
    campaign = campaign_of(target, chunk)
    if isinstance(campaign, QueueCampaign):
        campaign = PoolCampaign(campaign.name, campaign.make, Profile(), machine.seed)
    machines: dict[str, Callable[[PoolCampaign, MachineLog], RuleBasedStateMachine]] = {
        "pool": PoolMachine,
        "chains": ChainMachine,
        "queue": QueueMachine,
    }
    make = machines[machine.kind]
    return run_machine(
        lambda log: make(campaign, log),
        machine_settings(machine.level),
        seed=machine.seed,
        log=log,
    )


def make_for(target: Target, trace: Trace) -> Make:
    """What builds the instances that the trace was recorded on."""
    if trace.level == "queue":
        return queue_of(target).make
    if int(trace.options.get("block_size", 1)) > 1:
        assert target.make_chained is not None
        return target.make_chained
    return target.make


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


def methods_entered(target: Target, chunk: Chunk, beacon: Beacon) -> frozenset[str]:
    """The public methods of the target's class that the chunk's runs entered, by profiling them."""
    codes: dict[CodeType, str] = {}
    for name in _public_methods(target.real_class):
        function = getattr(target.real_class, name)
        code = getattr(getattr(function, "fget", function), "__code__", None)
        if code is not None:
            codes[code] = name
    entered: set[str] = set()

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in codes:
            entered.add(codes[frame.f_code])

    sys.setprofile(watch)
    try:
        run_chunk(target, chunk, beacon)
    finally:
        sys.setprofile(None)
    return frozenset(entered)


def _public_methods(cls: type | None) -> list[str]:
    """Methods of the class and its bases that are written in Python and have a public name."""
    if cls is None:
        return []
    return sorted(
        name
        for name in dir(cls)
        if not name.startswith("_") and hasattr(getattr(cls, name), "__code__")
    )
