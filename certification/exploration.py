"""The exhaustive stages of a certification: every state of small scopes, every command in each.

`depths.py` has the scopes. The reference is explored; the target is executed, in every state that
was found. Reached means: the target was in that state, and every command of the alphabet was
executed there and compared.

For a manager it is every workload of up to so many commands, layout by layout. Each layout gets two
searches, both breadth first over a tiny alphabet (`exploration/grammars.py`): one with every verb,
one over prompts that differ in what distinguishes prompts. Every read is compared with shadow
memory. A bound on states ends a search; the stage states what it had covered by then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from poolproof.certification.certificate import StageOutcome, StageResult
from poolproof.certification.depths import Bounds, Budget, Sequences
from poolproof.certification.description import Description, LayoutDescription, part_of
from poolproof.certification.engine_exploration import EngineBounds, ExploringEngine
from poolproof.certification.finding_collector import FindingCollector
from poolproof.certification.levels import LEVELS
from poolproof.certification.levels.certified_level import BlockLevel
from poolproof.certification.losses import minimise_lost
from poolproof.certification.progress import StageProgress
from poolproof.certification.run_kinds import INDEX, POOL, QUEUE, RunKind
from poolproof.contract.level import Level
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import Profile
from poolproof.contract.target import Capabilities
from poolproof.contract.trace import Trace
from poolproof.exploration.breadth_first import Space, reachable
from poolproof.exploration.exhaustive_run import (
    PartResult,
    ScopePart,
    check_part,
    parts_of,
    scope_under,
    why_not,
)
from poolproof.exploration.index_check import IndexScope, index_states
from poolproof.exploration.orbit_space import OrbitSpace
from poolproof.exploration.queue_check import queue_states
from poolproof.exploration.scope import Scope
from poolproof.exploration.shortest import ShortestResult, shortest_manager_failure
from poolproof.exploration.state_space import StateSpace
from poolproof.exploration.watch import Watch
from poolproof.harness.extent import Extent
from poolproof.harness.failure_kind import FailureKind
from poolproof.harness.isolation import Beacon, Executor, Finished, Lost, Outcome, raise_if_ours
from poolproof.harness.lost_run import Again, Journal, find_culprit
from poolproof.targets.target import Target

__all__ = ["Exploring", "blocks_to_explore", "stage_of"]


MOST_COMMANDS_OF_IDENTITIES = 4
"""Longer workloads repeat what four commands show: computed, met, looked up, ended."""

_LEAST_STATES_OF_IDENTITIES = 100
"""Enough to meet each prompt with every other one."""

_USABLE_BLOCKS = 3


@dataclass(frozen=True, slots=True)
class WorkloadJob:
    """Workloads of one layout on so many blocks, the null block included."""

    layout: str
    num_blocks: int
    max_commands: int
    max_states: int
    identities: bool = False

    def trace(self, name: str, profile: ManagerProfile, block_size: int) -> Trace:
        """The trace of a workload without commands yet."""
        options = {"block_size": block_size, "layout": self.layout}
        return Trace(name, Level.MANAGER, profile, self.num_blocks, True, (), options=options)


def blocks_to_explore(profile: ManagerProfile, usable: int | None = None) -> int:
    """Blocks for `usable` (3) in each cache group, besides what admissions leave free or null.

    As many at least as there must be for a null block of that number to exist.
    """
    kept = profile.watermark_blocks + profile.proof_blocks
    null = -1 if profile.null_block is None else profile.null_block
    wanted = (usable or _USABLE_BLOCKS) * len(profile.groups) + kept + (null >= 0)
    return max(wanted, null + 1)


def try_workloads(target: Target, job: WorkloadJob, beacon: Beacon) -> ShortestResult:
    """Try all workloads, the shortest first, up to the first that fails."""
    return _try(target, job, Watch(beacon.bump, beacon.bump))


def _repeat_workloads(target: Target, again: Again[WorkloadJob], beacon: Beacon) -> None:
    with Journal(again.journal, beacon) as journal:
        _try(target, again.run, Watch(journal.begin, journal.announce))


def _try(target: Target, job: WorkloadJob, watch: Watch) -> ShortestResult:
    layout = target.layout(job.layout)
    build = layout.make
    assert build is not None
    assert isinstance(layout.profile, ManagerProfile)
    setup = job.trace(target.name, layout.profile, layout.block_size)

    def make(num_blocks: int, enable_caching: bool) -> Any:
        watch.begin(setup)
        return build(num_blocks, enable_caching)

    return shortest_manager_failure(
        make,
        layout.profile,
        job.num_blocks,
        layout.block_size,
        max_commands=job.max_commands,
        max_states=job.max_states,
        identities=job.identities,
        announce=watch.announce,
    )


class ExploringManager:
    """Runs the stages of the layouts of one target, and adds to `stages` what they showed."""

    def __init__(
        self,
        executor: Executor[Target],
        name: str,
        collector: FindingCollector,
        progress: StageProgress,
        stages: list[StageResult],
    ) -> None:
        self.stages = stages
        self._executor = executor
        self._name = name
        self._collector = collector
        self._progress = progress

    def explore(
        self,
        layouts: Sequence[LayoutDescription],
        *,
        max_commands: int,
        max_states: int,
        usable_blocks: int | None = None,
    ) -> None:
        """All workloads of these layouts, side by side, in one stage for each.

        `max_states` bounds the search over every verb, a quarter of it the one over identities.
        """
        jobs = [
            WorkloadJob(
                layout.name,
                blocks_to_explore(layout.manager_profile, usable_blocks),
                max_commands,
                max_states,
            )
            for layout in layouts
        ]
        others = [
            replace(
                job,
                max_commands=min(max_commands, MOST_COMMANDS_OF_IDENTITIES),
                max_states=max(_LEAST_STATES_OF_IDENTITIES, max_states // 4),
                identities=True,
            )
            for job in jobs
        ]
        pairs = [job for pair in zip(jobs, others) for job in pair]
        self._progress.begin("every workload", len(pairs), "searches")
        outcomes = self._executor.map(try_workloads, pairs)
        for layout, job, other in zip(layouts, jobs, others, strict=True):
            stage = f"{layout.name}, every workload"
            parts = [self._part(stage, job, layout, next(outcomes))]
            parts.append(self._part(stage, other, layout, next(outcomes)))
            self.stages.append(
                _joined(stage, parts, f"{job.num_blocks} blocks of {layout.block_size} tokens")
            )
        self._progress.end()

    def _part(
        self,
        stage: str,
        job: WorkloadJob,
        layout: LayoutDescription,
        ended: Outcome[ShortestResult],
    ) -> _Part:
        """The result of one search; violations go to the collector."""
        self._progress.advance(1)
        setup = job.trace(self._name, layout.manager_profile, layout.block_size)
        outcome = raise_if_ours(ended)
        if not isinstance(outcome, Finished):
            lost = find_culprit(self._executor, _repeat_workloads, job, outcome, setup)
            self._collector.add_lost(stage, minimise_lost(self._executor, lost, outcome))
            return _Part(outcome.sentence("a workload"), failed=True)
        found = outcome.value
        if found.violation is not None:
            failed = replace(setup, commands=found.commands or (), violation=found.violation)
            self._collector.add(stage, failed)
        return _Part(
            _covered(job, found), found.violation is not None, found.num_tries, found.num_states,
            found.duration_s,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Part:
    """The result of one of the two searches of a stage."""

    note: str
    failed: bool
    num_tries: int = 0
    num_states: int = 0
    seconds: float = 0.0


def _joined(stage: str, parts: Sequence[_Part], scope: str) -> StageResult:
    return StageResult(
        level=Level.MANAGER,
        stage=stage,
        outcome=StageOutcome.REFUSED if any(part.failed for part in parts) else StageOutcome.HOLDS,
        steps=sum(part.num_tries for part in parts),
        runs=sum(part.num_states for part in parts),
        seconds=sum(part.seconds for part in parts),
        note="; ".join([*(part.note for part in parts), f"2 sequences at once, {scope}"]),
    )


def _covered(job: WorkloadJob, found: ShortestResult) -> str:
    """How far a search got."""
    depth = max(found.depth, 0)
    what = "prompts with other keys" if job.identities else "every verb"
    length = "any length" if found.exhausted else f"up to {depth} commands"
    is_cut = found.violation is None and not found.exhausted and depth < job.max_commands
    cut = ", truncated there" if is_cut else ""
    return f"{what}: {length}, {found.num_states:,} states{cut}"


@dataclass(frozen=True, slots=True)
class PartJob:
    """A part, and what the target can do at that level."""

    part: ScopePart
    can: Capabilities


@dataclass(frozen=True, slots=True)
class SequenceJob:
    """Sequences of commands at a level of blocks, on so many blocks."""

    level: Level
    num_blocks: int
    bounds: Sequences


def check_sequences(target: Target, job: SequenceJob, beacon: Beacon) -> ShortestResult:
    """Try all sequences, the shortest first, up to the first that fails."""
    return _try_sequences(target, job, Watch(beacon.bump, beacon.bump))


def trace_of_lost_sequence(
    executor: Executor[Target], job: SequenceJob, lost: Lost, setup: Trace
) -> Trace:
    """The trace of the sequence in which the worker was lost."""
    return find_culprit(executor, _repeat_sequences, job, lost, setup)


def _repeat_sequences(target: Target, again: Again[SequenceJob], beacon: Beacon) -> None:
    with Journal(again.journal, beacon) as journal:
        _try_sequences(target, again.run, Watch(journal.begin, journal.announce))


def _try_sequences(target: Target, job: SequenceJob, watch: Watch) -> ShortestResult:
    part = part_of(target, job.level)
    profile = job.level.judged_by(part.profile)
    setup = Trace(part.name, job.level, profile, job.num_blocks, True, ())

    def make(num_blocks: int, enable_caching: bool) -> Any:
        watch.begin(setup)
        return part.make(num_blocks, enable_caching)

    level = _block_level(job.level)
    return level.try_sequences(make, profile, job.num_blocks, job.bounds, watch.announce)


def _block_level(level: Level) -> BlockLevel:
    found = LEVELS[level]
    assert isinstance(found, BlockLevel)
    return found


def check_states(target: Target, job: PartJob, beacon: Beacon) -> PartResult:
    """Check the part's states; `beacon.mark` holds the place of the one in progress, from 1."""
    return _check(target, job, Watch(beacon.bump, beacon.bump), beacon)


def trace_of_lost_part(
    executor: Executor[Target], job: PartJob, lost: Lost, name: str, profile: Profile
) -> Trace:
    """The trace of the state in which a part's worker was lost."""
    alone = PartJob(job.part.only(max(lost.mark - 1, 0)), job.can)
    num_blocks = job.part.num_blocks
    setup = Trace(name, job.part.level, profile, num_blocks, True, ())
    return find_culprit(executor, _repeat, alone, lost, setup)


def _repeat(target: Target, again: Again[PartJob], beacon: Beacon) -> None:
    with Journal(again.journal, beacon) as journal:
        _check(target, again.run, Watch(journal.begin, journal.announce), beacon)


def _check(target: Target, job: PartJob, watch: Watch, beacon: Beacon) -> PartResult:
    part = part_of(target, job.part.level)
    return check_part(
        part.name,
        make=part.make,
        profile=part.profile,
        can=job.can,
        part=job.part,
        watch=watch,
        mark=beacon.mark,
        tapes=part.tapes,
    )


_BLOCKS_OF_SEQUENCES = 3

MOST_COMMANDS_OF_WORKLOADS = 12
"""Managers with so few states that the budget allows more repeat themselves."""


def stage_of(bounds: Bounds) -> str:
    """What the exhaustive stage of a scope is called."""
    what = "state" if bounds.unreduced else "orbit"
    blocks = "1 block" if bounds.num_blocks == 1 else f"{bounds.num_blocks} blocks"
    return f"every {what}, {blocks}" + (", pairs" if bounds.wide else "")


@dataclass(slots=True)
class _Tally:
    """What one stage has done so far."""

    num_states: int = 0
    num_commands: int = 0
    num_failing: int = 0
    lost: bool = False
    cut_short: bool = False
    failures: dict[FailureKind, Trace] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether anything broke."""
        return self.lost or self.num_failing > 0


class Exploring:
    """Runs the exhaustive stages of one target; `stages` says what they showed.

    `so_far` is how far the stage in progress has come.
    """

    def __init__(
        self,
        executor: Executor[Target],
        about: Description,
        collector: FindingCollector,
        progress: StageProgress,
        seed: int,
        *,
        accepted: Container[FailureKind] = frozenset(),
    ) -> None:
        self.stages: list[StageResult] = []
        self.so_far = ""
        self._executor = executor
        self._about = about
        self._collector = collector
        self._progress = progress
        self._seed = seed
        self._accepted = accepted

    def explore(
        self,
        budget: Budget,
        left_out: Container[RunKind] = (),
        layouts: Container[RunKind] | None = None,
    ) -> None:
        """All stages of the budget, except for kinds of runs (`run_kinds.py`) that are left out.

        At each level the first stage that fails is the last. Of a manager every layout that is
        run, or of these the ones in `layouts`.
        """
        about = self._about
        kinds = [kind for level in LEVELS.values() for kind in level.kinds(about)]
        kinds = [kind for kind in kinds if kind not in left_out]
        if about.level.has_sequences:
            asked = [kind for kind in kinds if layouts is None or kind in layouts]
            self.explore_layouts(
                asked,
                max_commands=MOST_COMMANDS_OF_WORKLOADS,
                max_states=budget.states_of_layout(len(asked)),
            )
            return
        for kind, stages in _STAGES.items():
            if kind in kinds:
                self._until_refused(*stages(self, budget))

    def explorable(self, budget: Budget) -> list[Bounds]:
        """The scopes of the budget whose states the target can be put into."""
        about = self._about
        assert about.can is not None
        return [
            bounds
            for bounds in budget.scopes
            if why_not(about.profile, about.can, bounds.num_blocks) is None
        ]

    def _until_refused(self, *stages: Callable[[], None]) -> None:
        for stage in stages:
            stage()
            if self.stages[-1].outcome is StageOutcome.REFUSED and self._is_refused():
                break

    def _is_refused(self) -> bool:
        """Whether something was found that cannot be accepted."""
        return any(kind not in self._accepted for kind in self._collector.kinds)

    def explore_queue(self, num_blocks: int) -> None:
        """Every state of the free queue, in one stage."""
        can = self._about.can_at(Level.QUEUE)
        began = time.monotonic()
        states = [bytes(order) for order in queue_states(num_blocks)]
        parts = parts_of(states, None, num_blocks, self._seed)
        stage = f"every state, {num_blocks} blocks"
        tally = self._check(stage, parts, can, len(states))
        reached = f"{self._passed(tally)}/{len(states):,} orders of the queue"
        note = f"{reached}, each built in two ways, every operation, every link"
        tried = Extent({"blocks": (num_blocks, num_blocks)})
        self._note(Level.QUEUE, stage, tally, note, began, tried=tried)

    def explore_index(self, num_blocks: int, num_keys: int = 2) -> None:
        """Every state of the index with so many keys, in one stage."""
        can, profile = self._about.can_at(Level.INDEX), self._about.profile_at(Level.INDEX)
        began = time.monotonic()
        scope = IndexScope(num_blocks, num_keys, can.key_kinds, profile)
        states = list(index_states(scope))
        parts = parts_of(states, scope, num_blocks, self._seed)
        stage = f"every state, {num_blocks} blocks, {num_keys} keys"
        tally = self._check(stage, parts, can, len(states))
        reached = f"{self._passed(tally)}/{len(states):,} states of the index"
        note = f"{reached}, each built in three ways, every operation, all read"
        tried = Extent({"blocks": (num_blocks, num_blocks), "keys": (num_keys, num_keys)})
        self._note(Level.INDEX, stage, tally, note, began, tried=tried)

    def explore_sequences(self, level: Level, bounds: Sequences) -> None:
        """All sequences of commands up to a length, in one stage."""
        about = self._about
        grammar = _block_level(level)
        num_blocks = grammar.blocks_of_sequences(about.profile, _BLOCKS_OF_SEQUENCES)
        stage = f"every sequence, {bounds.max_commands} commands"
        self._progress.begin(stage)
        began = time.monotonic()
        job = SequenceJob(level, num_blocks, bounds)
        (ended,) = self._executor.map(check_sequences, [job])
        outcome = raise_if_ours(ended)
        if not isinstance(outcome, Finished):
            profile = about.profile_at(level)
            setup = Trace(about.name, level, profile, num_blocks, True, ())
            lost = trace_of_lost_sequence(self._executor, job, outcome, setup)
            self._collector.add_lost(stage, minimise_lost(self._executor, lost, outcome))
            note = outcome.sentence("a sequence of commands")
            self.stages.append(
                StageResult(level=level, stage=stage, outcome=StageOutcome.REFUSED, note=note)
            )
            return
        found = outcome.value
        if found.violation is not None:
            profile = about.profile_at(level)
            failed = Trace(
                about.name, level, profile, num_blocks, True, found.commands or (), found.violation
            )
            self._collector.add(stage, failed)
        length = "any length" if found.exhausted else f"up to {found.depth} commands"
        if found.out_of_steps:
            length = f"{length}, states not merged: bounded to {bounds.most_steps:,} steps"
        tried = Extent({"blocks": (num_blocks, num_blocks)})
        tried.note("commands in a run", 1, found.depth)
        tried.take_in(grammar.sequence_extent(bounds))
        self.stages.append(
            StageResult(
                level=level,
                stage=stage,
                outcome=StageOutcome.HOLDS if found.violation is None else StageOutcome.REFUSED,
                steps=found.num_tries,
                runs=found.num_states,
                seconds=time.monotonic() - began,
                note=f"{length} on {num_blocks} blocks; {grammar.sequence_words(bounds)}",
                extent=tried,
            )
        )

    def explore_layouts(
        self,
        kinds: Sequence[RunKind],
        *,
        max_commands: int,
        max_states: int,
        usable_blocks: int | None = None,
    ) -> None:
        """All workloads of these layouts of a manager, a stage for each."""
        layouts = [layout for layout in self._about.layouts if layout.kind in kinds]
        managers = ExploringManager(
            self._executor, self._about.name, self._collector, self._progress, self.stages
        )
        managers.explore(
            layouts,
            max_commands=max_commands,
            max_states=max_states,
            usable_blocks=usable_blocks,
        )

    def explore_engines(self, kinds: Sequence[RunKind], bounds: EngineBounds) -> None:
        """All sequences of these set-ups of an engine, a stage for each."""
        layouts = [layout for layout in self._about.layouts if layout.kind in kinds]

        def tell(reached: str) -> None:
            self.so_far = reached

        ExploringEngine(
            self._executor,
            self._about.name,
            self._collector,
            self._progress,
            self.stages,
            tell,
        ).explore(layouts, bounds)

    def explore_scope(self, bounds: Bounds) -> None:
        """Every state of a scope of the pool, in one stage."""
        can = self._about.can
        assert can is not None
        began = time.monotonic()
        asked = Scope(bounds.num_blocks, bounds.num_hashes, bounds.max_references)
        scope = scope_under(asked, self._about.profile, can)
        space: Space = StateSpace(scope) if bounds.unreduced else OrbitSpace(scope)
        states = reachable(space)
        num_blocks = scope.num_blocks + (self._about.profile.null_block is not None)
        parts = parts_of(
            states, scope, num_blocks, self._seed, wide=bounds.wide, unreduced=bounds.unreduced
        )
        stage = stage_of(bounds)
        tally = self._check(stage, parts, can, len(states))
        reached = f"{self._passed(tally)}/{len(states):,} "
        reached += (
            "states" if bounds.unreduced else f"orbits ({sum(map(space.size, states)):,} states)"
        )
        also = ", calls for two blocks, misuse" if bounds.wide else ""
        limits = f"{scope.num_hashes} hashes, references up to {scope.max_references}"
        tried = Extent({"blocks": (num_blocks, num_blocks)})
        tried.note("hashes", 0, scope.num_hashes)
        tried.note("references to one block", 0, scope.max_references)
        self._note(
            Level.POOL, stage, tally, f"{reached}, every action{also}; {limits}", began, tried=tried
        )

    def _check(
        self, stage: str, parts: Iterator[ScopePart], can: Capabilities, total: int
    ) -> _Tally:
        """Check part after part, until one fails or costs its worker."""
        self._progress.begin(stage, total, "states")
        tally = _Tally()
        jobs = [PartJob(part, can) for part in parts]
        for job, ended in zip(jobs, self._executor.map(check_states, jobs), strict=True):
            outcome = raise_if_ours(ended)
            if not isinstance(outcome, Finished):
                tally.lost = tally.cut_short = True
                self._lose(stage, job, outcome)
                break
            result = outcome.value
            self._progress.advance(result.num_states)
            tally.num_states += result.num_states
            tally.num_commands += result.num_commands
            tally.num_failing += result.num_failing
            self.so_far = f"{stage}: {self._passed(tally)} of {total:,} pass, the rest not tried"
            for kind, trace in result.failures.items():
                tally.failures.setdefault(kind, trace)
            if any(kind not in self._accepted for kind in tally.failures):
                tally.cut_short = True
                break
        return tally

    def _passed(self, tally: _Tally) -> str:
        return f"{tally.num_states - tally.num_failing:,}"

    def _lose(self, stage: str, job: PartJob, outcome: Lost) -> None:
        about = self._about
        profile = about.profile_at(job.part.level)
        trace = trace_of_lost_part(self._executor, job, outcome, about.name, profile)
        self._collector.add_lost(stage, minimise_lost(self._executor, trace, outcome))

    def _note(
        self, level: Level, stage: str, tally: _Tally, note: str, began: float, *, tried: Extent
    ) -> None:
        for trace in tally.failures.values():
            self._collector.add(stage, trace)
        if tally.cut_short:
            note += "; stopped at the first that fail"
        elif tally.failed:
            note += f"; {tally.num_failing} were left where they broke what may be accepted"
        self.stages.append(
            StageResult(
                level=level,
                stage=stage,
                outcome=StageOutcome.REFUSED if tally.failed else StageOutcome.HOLDS,
                steps=tally.num_commands,
                runs=tally.num_states,
                seconds=time.monotonic() - began,
                note=note,
                extent=tried,
            )
        )


def _stages_of_queues(exploring: Exploring, budget: Budget) -> Iterator[Callable[[], None]]:
    if budget.queue_blocks:
        yield partial(exploring.explore_queue, budget.queue_blocks)
        for bounds in budget.sequences[-1:]:
            yield partial(exploring.explore_sequences, Level.QUEUE, bounds)


def _stages_of_indexes(exploring: Exploring, budget: Budget) -> Iterator[Callable[[], None]]:
    if budget.index_blocks:
        yield partial(exploring.explore_index, budget.index_blocks)
        for bounds in budget.sequences[-1:]:
            # States of an index are few, so that the same budget goes further.
            further = replace(bounds, max_commands=bounds.max_commands + 2)
            yield partial(exploring.explore_sequences, Level.INDEX, further)


def _stages_of_pools(exploring: Exploring, budget: Budget) -> Iterator[Callable[[], None]]:
    for scope in exploring.explorable(budget):
        yield partial(exploring.explore_scope, scope)
    for bounds in budget.sequences:
        yield partial(exploring.explore_sequences, Level.POOL, bounds)


_STAGES: Mapping[RunKind, Callable[[Exploring, Budget], Iterator[Callable[[], None]]]] = {
    QUEUE: _stages_of_queues,
    INDEX: _stages_of_indexes,
    POOL: _stages_of_pools,
}
"""The exhaustive stages beside each kind of runs, in the order in which they are run."""
