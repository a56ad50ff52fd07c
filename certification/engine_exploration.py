"""Every sequence of commands over a few requests, on engines: set-up by set-up, breadth first.

The searches of all set-ups go side by side, one command deeper each time, so that an interruption
or a limit leaves a sentence that is true: up to so many commands nothing fails. Each search begins
anew, which costs about a third more where a further command gives four times as many states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from poolproof.certification.certificate import StageOutcome, StageResult
from poolproof.certification.description import LayoutDescription
from poolproof.certification.finding_collector import FindingCollector
from poolproof.certification.losses import minimise_lost
from poolproof.certification.progress import StageProgress
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.level import Level
from poolproof.contract.target import TargetError
from poolproof.contract.trace import Trace
from poolproof.exploration.engine_grammar import scope_for
from poolproof.exploration.shortest import ShortestResult, shortest_engine_failure
from poolproof.exploration.watch import Watch
from poolproof.harness.isolation import Beacon, Executor, Finished, Outcome, raise_if_ours
from poolproof.harness.lost_run import Again, Journal, find_culprit
from poolproof.targets.target import Target

__all__ = ["EngineBounds", "ExploringEngine"]

_USABLE_BLOCKS = 3

_TOLD = {
    "the engine": "states merged as the engine tells them, up to the names of blocks and requests",
    "pickle": "states merged only where pickle writes the same",
    "": "no states merged: the engine tells none, and pickle cannot write it",
}


@dataclass(frozen=True, slots=True)
class EngineBounds:
    """How far engines are explored: commands, usable blocks per cache group, requests at once.

    `max_states` and `max_seconds` bound each set-up; the seconds are those of its searches alone.
    """

    max_commands: int = 4
    usable_blocks: int = _USABLE_BLOCKS
    max_live: int = 2
    max_states: int = 200_000
    max_seconds: float = float("inf")


@dataclass(frozen=True, slots=True)
class _Job:
    """One search of one set-up on so many blocks, the null block included."""

    layout: str
    num_blocks: int
    max_commands: int
    max_live: int
    max_states: int
    max_seconds: float

    def trace(self, name: str, profile: EngineProfile, block_size: int) -> Trace:
        """The trace of a sequence without commands yet."""
        options = {"block_size": block_size, "layout": self.layout}
        return Trace(name, Level.ENGINE, profile, self.num_blocks, True, (), options=options)


@dataclass(slots=True)
class _SetUp:
    """One set-up, and what its searches have shown so far."""

    layout: LayoutDescription
    job: _Job
    stage: str
    scope: str
    found: ShortestResult | None = None
    lost: str = ""
    seconds: float = 0.0
    steps: int = 0
    is_done: bool = field(default=False)

    @property
    def reached(self) -> str:
        """How far it was covered, in words."""
        found = self.found
        if self.lost:
            return self.lost
        if found is None:
            return "nothing was concluded"
        if found.exhausted:
            return f"every sequence of any length, {found.num_states:,} states: the scope is closed"
        depth = max(found.depth, 0)
        cut = ""
        if found.violation is None and depth < self.job.max_commands:
            cut = ", truncated there by the limit " + (
                "in time" if found.out_of_time else "of states"
            )
        commands = "1 command" if depth == 1 else f"{depth} commands"
        return f"every sequence of up to {commands}, {found.num_states:,} states{cut}"

    def result(self) -> StageResult:
        """The stage, as a certificate has it."""
        found = self.found
        failed = bool(self.lost) or (found is not None and found.violation is not None)
        told = "" if found is None else _TOLD[found.told_by]
        return StageResult(
            level=Level.ENGINE,
            stage=self.stage,
            outcome=StageOutcome.REFUSED if failed else StageOutcome.HOLDS,
            steps=self.steps,
            runs=0 if found is None else found.num_states,
            seconds=self.seconds,
            note="; ".join(filter(None, (self.reached, self.scope, told))),
        )


def _try_sequences(target: Target, job: _Job, beacon: Beacon) -> ShortestResult:
    """Try all sequences, the shortest first, up to the first that fails."""
    return _try(target, job, Watch(beacon.bump, beacon.bump))


def _repeat_sequences(target: Target, again: Again[_Job], beacon: Beacon) -> None:
    with Journal(again.journal, beacon) as journal:
        _try(target, again.run, Watch(journal.begin, journal.announce))


def _try(target: Target, job: _Job, watch: Watch) -> ShortestResult:
    layout = target.layout(job.layout)
    build = layout.make
    assert build is not None
    assert isinstance(layout.profile, EngineProfile)
    setup = job.trace(target.name, layout.profile, layout.block_size)

    def make(num_blocks: int, enable_caching: bool) -> Any:
        watch.begin(setup)
        return build(num_blocks, enable_caching)

    return shortest_engine_failure(
        make,
        layout.profile,
        scope_for(layout.profile, job.num_blocks, layout.block_size, most_live=job.max_live),
        max_commands=job.max_commands,
        max_states=job.max_states,
        max_seconds=job.max_seconds,
        announce=watch.announce,
    )


@dataclass(frozen=True, slots=True)
class ExploringEngine:
    """Runs the stages of the set-ups of one target, and adds to `stages` what they showed.

    `tell` hears how far all of them have come, in words.
    """

    executor: Executor[Target]
    name: str
    collector: FindingCollector
    progress: StageProgress
    stages: list[StageResult]
    tell: Callable[[str], None]

    def explore(self, layouts: Sequence[LayoutDescription], bounds: EngineBounds) -> None:
        """All sequences of these set-ups, one command deeper each time.

        Raises TargetError where no request fits.
        """
        set_ups = [_set_up(layout, bounds) for layout in layouts]
        self.progress.begin("every sequence", bounds.max_commands * len(set_ups), "searches")
        for depth in range(1, bounds.max_commands + 1):
            self._go_to(depth, [one for one in set_ups if not one.is_done], bounds)
            self.tell("; ".join(f"{one.layout.name}: {one.reached}" for one in set_ups))
        self.stages.extend(one.result() for one in set_ups)
        self.progress.end()

    def _go_to(self, depth: int, set_ups: Sequence[_SetUp], bounds: EngineBounds) -> None:
        jobs = [
            replace(
                one.job,
                max_commands=depth,
                max_seconds=max(0.0, bounds.max_seconds - one.seconds),
            )
            for one in set_ups
        ]
        for one, job, ended in zip(
            set_ups, jobs, self.executor.map(_try_sequences, jobs), strict=True
        ):
            self._note(one, job, ended)
            self.progress.advance(1)

    def _note(self, one: _SetUp, job: _Job, ended: Outcome[ShortestResult]) -> None:
        """What one search showed; violations go to the collector."""
        profile = one.layout.profile
        assert isinstance(profile, EngineProfile)
        setup = job.trace(self.name, profile, one.layout.block_size)
        outcome = raise_if_ours(ended)
        if not isinstance(outcome, Finished):
            lost = find_culprit(self.executor, _repeat_sequences, job, outcome, setup)
            self.collector.add_lost(one.stage, minimise_lost(self.executor, lost, outcome))
            one.lost, one.is_done = outcome.sentence("a sequence of commands"), True
            return
        found = outcome.value
        one.found = found
        one.seconds += found.duration_s
        one.steps += found.num_tries
        one.is_done = (
            found.exhausted or found.violation is not None or found.depth < job.max_commands
        )
        if found.violation is not None:
            failed = replace(setup, commands=found.commands or (), violation=found.violation)
            self.collector.add(one.stage, failed)


def _set_up(layout: LayoutDescription, bounds: EngineBounds) -> _SetUp:
    profile = layout.profile
    assert isinstance(profile, EngineProfile)
    null = -1 if profile.null_block is None else profile.null_block
    wanted = bounds.usable_blocks * len(profile.groups) + (null >= 0)
    num_blocks = max(wanted, null + 1)
    scope = scope_for(profile, num_blocks, layout.block_size, most_live=bounds.max_live)
    if not scope.requests:
        raise TargetError(
            f"set-up {layout.name}: no request fits into {num_blocks} blocks; ask for more --blocks"
        )
    job = _Job(
        layout.name, num_blocks, bounds.max_commands, bounds.max_live, bounds.max_states,
        bounds.max_seconds,
    )  # fmt: skip
    return _SetUp(layout, job, f"{layout.name}, every sequence", scope.words())
