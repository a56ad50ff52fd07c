"""The exhaustive stages of a certification: every state of small scopes, every command in each.

Which scopes there are is in `depths.py`. What is explored is the reference; what is executed, in
every state that was found, is the target. Reached means: the target was in that state, and every
command of the alphabet was executed there and compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from poolproof.certification.certificate import StageOutcome, StageResult
from poolproof.certification.depths import Bounds, Budget, Sequences
from poolproof.certification.description import Description, part_of
from poolproof.certification.finding_collector import FindingCollector
from poolproof.certification.losses import minimise_lost
from poolproof.certification.manager_exploration import ExploringManager
from poolproof.certification.progress import StageProgress
from poolproof.certification.run_kinds import INDEX, POOL, QUEUE, RunKind
from poolproof.contract.profile import Profile
from poolproof.contract.target import Capabilities, capabilities_of
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
from poolproof.exploration.index_check import IndexScope, index_states, plain_keys
from poolproof.exploration.orbit_space import OrbitSpace
from poolproof.exploration.queue_check import queue_states
from poolproof.exploration.scope import Scope
from poolproof.exploration.shortest import (
    ShortestResult,
    shortest_failure,
    shortest_index_failure,
    shortest_queue_failure,
)
from poolproof.exploration.state_space import StateSpace
from poolproof.exploration.watch import Watch
from poolproof.harness.extent import Extent
from poolproof.harness.failure_kind import FailureKind
from poolproof.harness.isolation import Beacon, Executor, Finished, Lost, raise_if_ours
from poolproof.harness.lost_run import Again, Journal, find_culprit
from poolproof.targets.target import Target

__all__ = [
    "Exploring",
    "PartJob",
    "SequenceJob",
    "check_sequences",
    "check_states",
    "reason_not_explored",
    "stage_of",
    "trace_of_lost_part",
    "trace_of_lost_sequence",
]


_MOST_STATES = 1_000_000


@dataclass(frozen=True, slots=True)
class PartJob:
    """A part, and what the target can do at that level."""

    part: ScopePart
    can: Capabilities


@dataclass(frozen=True, slots=True)
class SequenceJob:
    """Sequences of commands at a level, "pool", "queue" or "index", on so many blocks."""

    level: str
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
    level = part_of(target, job.level)
    bounds = job.bounds
    profile = Profile() if job.level == "queue" else level.profile
    setup = Trace(level.name, job.level, profile, job.num_blocks, True, ())

    def make(num_blocks: int, enable_caching: bool) -> Any:
        watch.begin(setup)
        return level.make(num_blocks, enable_caching)

    if job.level == "queue":
        return shortest_queue_failure(
            make,
            job.num_blocks,
            max_commands=bounds.max_commands,
            max_states=_MOST_STATES,
            max_count=bounds.max_count,
            max_list=bounds.max_list,
            max_applied=bounds.most_steps,
            announce=watch.announce,
        )
    if job.level == "index":
        kinds = capabilities_of(make(job.num_blocks, True)).key_kinds
        keys = plain_keys(kinds, bounds.num_hashes, profile.usual_hash_bytes)
        return shortest_index_failure(
            make,
            profile,
            job.num_blocks,
            keys,
            max_commands=bounds.max_commands,
            max_states=_MOST_STATES,
            announce=watch.announce,
        )
    return shortest_failure(
        make,
        target.profile,
        job.num_blocks,
        hashes=bounds.num_hashes,
        max_commands=bounds.max_commands,
        max_states=_MOST_STATES,
        max_count=bounds.max_count,
        max_list=bounds.max_list,
        max_applied=bounds.most_steps,
        announce=watch.announce,
    )


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
    level = part_of(target, job.part.level)
    return check_part(
        level.name,
        make=level.make,
        profile=level.profile,
        can=job.can,
        part=job.part,
        watch=watch,
        mark=beacon.mark,
        tapes=level.tapes,
    )


_BLOCKS_OF_SEQUENCES = 3

MOST_COMMANDS_OF_WORKLOADS = 12
"""Managers with so few states that the budget allows more repeat themselves."""


def reason_not_explored(about: Description, scopes: Sequence[Bounds]) -> str | None:
    """Why no scope of a pool can be explored exhaustively; None where one can."""
    if about.can is None:
        return "the target could not be constructed"
    reasons = [why_not(about.profile, about.can, bounds.num_blocks) for bounds in scopes]
    return reasons[0] if reasons and all(reasons) else None


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
        about, sequences = self._about, budget.sequences
        # States of an index are few, so that the same budget goes further.
        of_index = [replace(last, max_commands=last.max_commands + 2) for last in sequences[-1:]]
        if about.level == "manager":
            kinds = [
                layout.kind
                for layout in about.layouts
                if not layout.why_not
                and layout.kind not in left_out
                and (layouts is None or layout.kind in layouts)
            ]
            self.explore_layouts(
                kinds,
                max_commands=MOST_COMMANDS_OF_WORKLOADS,
                max_states=budget.states_of_layout(len(kinds)),
            )
        if about.queue_can is not None and budget.queue_blocks and QUEUE not in left_out:
            self._until_refused(
                partial(self.explore_queue, budget.queue_blocks),
                *(partial(self.explore_sequences, "queue", bounds) for bounds in sequences[-1:]),
            )
        if about.index_can is not None and budget.index_blocks and INDEX not in left_out:
            self._until_refused(
                partial(self.explore_index, budget.index_blocks),
                *(partial(self.explore_sequences, "index", bounds) for bounds in of_index),
            )
        if about.level == "pool" and POOL not in left_out:
            self._until_refused(
                *(partial(self.explore_scope, bounds) for bounds in self._explorable(budget)),
                *(partial(self.explore_sequences, "pool", bounds) for bounds in sequences),
            )

    def _explorable(self, budget: Budget) -> list[Bounds]:
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
        can = self._about.queue_can
        assert can is not None
        began = time.monotonic()
        states = [bytes(order) for order in queue_states(num_blocks)]
        parts = parts_of(states, None, num_blocks, self._seed)
        stage = f"every state, {num_blocks} blocks"
        tally = self._check(stage, parts, can, len(states))
        reached = f"{self._passed(tally)}/{len(states):,} orders of the queue"
        note = f"{reached}, each built in two ways, every operation, every link"
        tried = Extent({"blocks": (num_blocks, num_blocks)})
        self._note("queue", stage, tally, note, began, tried=tried)

    def explore_index(self, num_blocks: int, num_keys: int = 2) -> None:
        """Every state of the index with so many keys, in one stage."""
        can, profile = self._about.index_can, self._about.profile_at("index")
        assert can is not None
        began = time.monotonic()
        scope = IndexScope(num_blocks, num_keys, can.key_kinds, profile)
        states = list(index_states(scope))
        parts = parts_of(states, scope, num_blocks, self._seed)
        stage = f"every state, {num_blocks} blocks, {num_keys} keys"
        tally = self._check(stage, parts, can, len(states))
        reached = f"{self._passed(tally)}/{len(states):,} states of the index"
        note = f"{reached}, each built in three ways, every operation, all read"
        tried = Extent({"blocks": (num_blocks, num_blocks), "keys": (num_keys, num_keys)})
        self._note("index", stage, tally, note, began, tried=tried)

    def explore_sequences(self, level: str, bounds: Sequences) -> None:
        """All sequences of commands up to a length, in one stage."""
        about = self._about
        num_blocks = _BLOCKS_OF_SEQUENCES
        null = about.profile.null_block
        if level == "pool" and null is not None:
            num_blocks = max(num_blocks, null) + 1
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
        limits = f"counts up to {bounds.max_count}, lists up to {bounds.max_list}"
        num_hashes = bounds.num_hashes
        hashes = f", {num_hashes} hash{'es' * (num_hashes != 1)}" if level == "pool" else ""
        bounded = f"{limits}{hashes}" if level != "index" else f"{num_hashes} keys"
        self.stages.append(
            StageResult(
                level=level,
                stage=stage,
                outcome=StageOutcome.HOLDS if found.violation is None else StageOutcome.REFUSED,
                steps=found.num_tries,
                runs=found.num_states,
                seconds=time.monotonic() - began,
                note=f"{length} on {num_blocks} blocks; {bounded}",
                extent=_extent_of(level, bounds, num_blocks, found.depth),
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
            "pool", stage, tally, f"{reached}, every action{also}; {limits}", began, tried=tried
        )

    def _check(
        self, stage: str, parts: Iterator[ScopePart], can: Capabilities, total: int
    ) -> _Tally:
        """Check part after part, until one fails or costs its worker."""
        self._progress.begin(stage, total)
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
        self, level: str, stage: str, tally: _Tally, note: str, began: float, *, tried: Extent
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


def _extent_of(level: str, bounds: Sequences, num_blocks: int, depth: int) -> Extent:
    tried = Extent({"blocks": (num_blocks, num_blocks)})
    tried.note("commands in a run", 1, depth)
    if level == "index":
        tried.note("keys", bounds.num_hashes)
        return tried
    tried.note("blocks in one allocation", 0, bounds.max_count)
    tried.note("entries in one list", 1, bounds.max_list)
    return tried
