"""Minimises a failing trace by delta debugging over its commands.

Truncate at the violation, then go through the passes of `minimising_passes.py` until none of them
finds anything smaller. Made for stateful traces, on which Hypothesis's shrinker often stops early.
It does not know whether a shorter trace exists: breadth-first search (exploration/shortest.py)
does; benchmarks/minimal_traces.py compares the two.

The budget of a minimisation is counted in attempts and in commands, never in seconds, so that a
target gets the same trace on every machine. It can be stopped after any attempt and resumed
from its `Minimisation`, also by another process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.engine_commands import EngineCommand
from poolproof.contract.manager_commands import ManagerCommand
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.harness.careful_session import CAREFUL
from poolproof.harness.failure_kind import failure_kind
from poolproof.harness.minimising_passes import (
    LAST_RESORTS,
    Best,
    Pass,
    Place,
    TraceVariant,
    passes_for,
)
from poolproof.harness.pool_session import EVENTS_EVERY, PoolSession
from poolproof.harness.queue_session import QueueSession
from poolproof.harness.relative import Naming, RelativeCommand
from poolproof.harness.replay import start_session
from poolproof.harness.smaller_engine_traces import engine_weight
from poolproof.harness.smaller_index_traces import index_weight
from poolproof.harness.smaller_manager_traces import sequences_renamed, weight_of
from poolproof.harness.smaller_pool_traces import hashes_of, prompt_weight

__all__ = [
    "Attempt",
    "Cursor",
    "Effort",
    "Execute",
    "Minimisation",
    "execute_in_process",
    "improved",
    "minimise",
    "run_candidate",
]


MOST_ATTEMPTS = 4_000
MOST_WORK = 500_000
"""What a minimisation may cost at most. The planted bugs of `bugs/` take up to 1,300 attempts and
20,000 of work."""

EXECUTIONS_MORE = 20
"""The work of so many executions of the trace comes on top: a run of 70,000 commands could afford
seven attempts without, which is no more than the end and the beginning cut off."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The outcome of a candidate: what was really applied, in both forms, and what broke."""

    relative: tuple[RelativeCommand, ...]
    commands: tuple[Command, ...]
    violation: Violation | None


Execute = Callable[[Trace, Sequence[RelativeCommand | Command]], Attempt]
"""Applies a candidate to a fresh target that is set up as the trace says."""


@dataclass(frozen=True, slots=True)
class Effort:
    """What a minimisation may cost: attempts, and work, whichever is spent first.

    The work of an attempt is its commands and the blocks of the pool that is built for it; that of
    `EXECUTIONS_MORE` executions of the trace as it came is added to `work`.
    """

    attempts: int = MOST_ATTEMPTS
    work: int = MOST_WORK


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a minimisation has come with its best trace.

    Everything before `place` in the pass named `pass_name` was tried. `has_improved` says that
    this round of passes found something smaller, so that another one follows. `gained_in` is the
    last pass that did: those after it have tried the trace that is now the best, so that the next
    round may end with that pass, and the last resorts. `size_at_first` is the work of the trace as
    it came.
    """

    pass_name: str = ""
    place: Place = ()
    has_improved: bool = False
    gained_in: str = ""
    attempts: int = 0
    work: int = 0
    size_at_first: int = 0
    is_finished: bool = False


@dataclass(frozen=True, slots=True)
class Minimisation:
    """A minimisation between two attempts: the smallest trace so far, and where to go on.

    `attempt` is what the trace did, in both forms; without it (it is not kept on disk) the trace
    is executed once more.
    """

    trace: Trace
    cursor: Cursor = Cursor()
    attempt: Attempt | None = None


def execute_in_process(make: Callable[[int, bool], Any]) -> Execute:
    """Candidates are applied in this process, to targets that `make` builds."""
    return lambda trace, candidate: run_candidate(trace, candidate, make)


def run_candidate(
    trace: Trace,
    candidate: Sequence[RelativeCommand | Command],
    make: Callable[[int, bool], Any],
    announce: Callable[[Command], None] | None = None,
) -> Attempt:
    """Apply a candidate to a fresh target; `announce` gets each command before it is applied.

    Commands that mean nothing or are not defined in the state that is reached are left out.
    """
    session = start_session(trace, make)
    if isinstance(session, Violation):
        return Attempt((), (), session)
    relative: list[RelativeCommand] = []
    commands: list[Command] = []
    naming = Naming(session.reference)
    violation = session.first_look()
    for item in candidate:
        if violation is not None:
            break
        meant = naming.concrete(item)
        if meant is None or not session.is_defined(meant):
            continue
        relative.append(naming.relative(item, meant))
        commands.append(meant)
        if announce is not None:
            announce(meant)
        violation = session.step_any(meant)
        if isinstance(session, PoolSession):
            naming.note_taken(relative[-1], session.last.taken)
    if violation is None and isinstance(session, PoolSession):
        violation = session.last_look()
    if violation is None and not isinstance(session, QueueSession) and session.nobody_holds():
        violation = session.end()
    return Attempt(tuple(relative), tuple(commands), violation)


def minimise(
    trace: Trace,
    execute: Execute,
    *,
    max_attempts: int = MOST_ATTEMPTS,
    max_work: int = MOST_WORK,
) -> Trace:
    """The smallest trace found that fails in the same way (`failure_kind.py`) as `trace` does now.

    Returns `trace` itself, without violation, when it does not fail at all. Deterministic for a
    deterministic target.
    """
    return improved(Minimisation(trace), execute, Effort(max_attempts, max_work)).trace


def improved(
    progress: Minimisation,
    execute: Execute,
    effort: Effort | None = None,
    go_on: Callable[[], bool] = lambda: True,
) -> Minimisation:
    """Go on with a minimisation until it is finished, or `go_on` says no; one attempt at least.

    A trace that does not fail comes back finished and without violation.
    """
    if progress.cursor.is_finished:
        return progress
    if not progress.cursor.size_at_first:
        size = _work_of(progress.trace, progress.trace.commands)
        progress = replace(progress, cursor=replace(progress.cursor, size_at_first=size))
    first = progress.attempt or execute(progress.trace, progress.trace.commands)
    if first.violation is None:
        holds = progress.trace.with_commands(progress.trace.commands)
        return Minimisation(holds, replace(progress.cursor, is_finished=True))
    search = _Search(progress, first, execute, effort or Effort())
    search.run(go_on)
    return search.progress()


class _StoppedError(Exception):
    """The caller wants the progress so far."""


class _Search:
    """The best attempt so far, the set-up that it needs, and the place among the passes."""

    def __init__(
        self, progress: Minimisation, first: Attempt, execute: Execute, effort: Effort
    ) -> None:
        assert first.violation is not None
        self._trace = progress.trace
        self._best = first
        self._cursor = progress.cursor
        self._kind = failure_kind(first.violation, first.commands)
        self._execute = execute
        self._effort = effort
        self._passes: Sequence[Pass] | None = None
        self._has_begun = False

    def run(self, go_on: Callable[[], bool]) -> None:
        """Rounds of all passes, until a round finds nothing or the effort is spent."""
        try:
            while True:
                self._round(go_on)
                if not self._cursor.has_improved:
                    if not self._fails_with_caching():
                        break
                    self._cursor = replace(self._cursor, gained_in="")
                self._cursor = replace(self._cursor, pass_name="", place=(), has_improved=False)
                if self._is_spent():
                    break
        except _StoppedError:
            return
        self._cursor = replace(self._cursor, is_finished=True)

    def progress(self) -> Minimisation:
        """What was reached, under the names that a finished trace has."""
        best = self._best
        if self._cursor.is_finished and self._trace.level.has_layouts:
            # Sequences are A, B, C in the order of their appearance.
            renamed = tuple(sequences_renamed(best.commands))
            named = best if renamed == best.commands else self._execute(self._trace, renamed)
            if named.violation is not None:
                best = named
        trace = replace(
            self._trace,
            commands=best.commands,
            violation=best.violation,
            fingerprint=None,
            harm=None,
        )
        return Minimisation(trace, self._cursor, best)

    def _round(self, go_on: Callable[[], bool]) -> None:
        """Every pass once, from the one that the cursor names, as far as it is new to the best."""
        self._use_names_of_small_pools()
        passes = passes_for(self._now())
        if self._passes is not None and passes is not self._passes:
            self._cursor = replace(self._cursor, gained_in="")
        self._passes = passes
        names = [each.name for each in passes]
        if self._cursor.pass_name not in names:
            # The trace has become short on the way, or a newer version has other passes.
            self._cursor = replace(self._cursor, pass_name=names[0], place=())
        is_known = False
        for each in passes[names.index(self._cursor.pass_name) :]:
            is_last_resort = each.name in LAST_RESORTS
            if is_last_resort and self._cursor.has_improved:
                break
            if is_known and not is_last_resort:
                continue
            if each.name != self._cursor.pass_name:
                self._cursor = replace(self._cursor, pass_name=each.name, place=())
            self._exhaust(each, go_on)
            # The ordinary passes behind it have tried this trace in the round before.
            is_known |= each.name == self._cursor.gained_in and not self._cursor.has_improved

    def _exhaust(self, one: Pass, go_on: Callable[[], bool]) -> None:
        """Take what is smaller, as long as the pass has anything to try."""
        has_succeeded = True
        while has_succeeded:
            has_succeeded = False
            for place, variant in one.variants(self._now(), self._cursor.place):
                if self._is_spent():
                    return
                self._cursor = replace(self._cursor, place=place)
                if self._has_begun and not go_on():
                    raise _StoppedError
                self._has_begun = True
                has_succeeded = self._try(variant)
                if has_succeeded:
                    after = one.after_success(place)
                    self._cursor = replace(
                        self._cursor, place=after, has_improved=True, gained_in=one.name
                    )
                    break

    def _now(self) -> Best:
        return Best(self._trace, self._best.commands, self._best.relative)

    def _is_spent(self) -> bool:
        spent = self._cursor
        most_work = self._effort.work + EXECUTIONS_MORE * spent.size_at_first
        return spent.attempts >= self._effort.attempts or spent.work >= most_work

    def _attempt(self, setup: Trace, commands: Sequence[RelativeCommand | Command]) -> Attempt:
        spent = self._cursor
        self._cursor = replace(
            spent,
            attempts=spent.attempts + 1,
            work=spent.work + _work_of(setup, commands),
        )
        return self._execute(setup, commands)

    def _is_same_failure(self, attempt: Attempt) -> bool:
        found = attempt.violation
        return found is not None and failure_kind(found, attempt.commands) == self._kind

    def _try(self, variant: TraceVariant) -> bool:
        """Whether the variant fails in the same way; if so it becomes the best."""
        setup = variant.setup
        attempt = self._attempt(setup, variant.commands)
        if not self._is_same_failure(attempt):
            return False
        size, best_size = _size(attempt), _size(self._best)
        is_plainer = _setup_size(setup) < _setup_size(self._trace)
        is_smaller = size < best_size or setup.num_blocks < self._trace.num_blocks
        if not is_smaller and not (is_plainer and size == best_size):
            return False
        self._best, self._trace = attempt, setup
        return True

    def _fails_with_caching(self) -> bool:
        """Caching is on as a rule, so that one bug does not become two findings by this alone."""
        if self._trace.enable_caching or self._is_spent():
            return False
        setup = replace(self._trace, enable_caching=True)
        attempt = self._attempt(setup, self._best.relative)
        if not self._is_same_failure(attempt) or _size(attempt) > _size(self._best):
            return False
        self._best, self._trace = attempt, setup
        return True

    def _use_names_of_small_pools(self) -> None:
        """A pool that has become small names its blocks as small pools do."""
        if Naming.is_by_origin(self._best.relative) and Naming.is_small(self._trace.num_blocks):
            again = self._attempt(self._trace, self._best.commands)
            if self._is_same_failure(again):
                self._best = again
                self._cursor = replace(self._cursor, gained_in="")


def _setup_size(setup: Trace) -> tuple[bool, int]:
    """An ordinary session before a careful one; events read often before events read seldom."""
    return bool(setup.options.get(CAREFUL)), int(setup.options.get(EVENTS_EVERY, 1))


def _work_of(setup: Trace, commands: Sequence[object]) -> int:
    # An index is built with no blocks of its own, however high the ids go that it is given.
    return len(commands) + (setup.num_blocks if setup.level.is_built_of_blocks else 0)


def _size(attempt: Attempt) -> tuple[int, int, int]:
    """Shorter first, then fewer and smaller arguments."""
    arguments = weight = 0
    keys: dict[object, int] = {}
    for item in attempt.relative:
        arguments += max(len(item.roles), 1)
        if isinstance(item.command, ManagerCommand | EngineCommand):
            weigh = weight_of if isinstance(item.command, ManagerCommand) else engine_weight
            tokens, values = weigh(item.command)
            arguments += tokens
            weight += values
        else:
            weight += prompt_weight(item.command)
        weight += sum(place + (role == "raw") for role, place in item.roles)
        weight += getattr(item.command, "count", 0) if not item.roles else 0
        for key in hashes_of(item.command):
            weight += keys.setdefault(key, len(keys))
    weight += index_weight(attempt.commands)
    return len(attempt.commands), arguments, weight
