"""Minimises a failing trace by delta debugging over its commands.

Truncate at the violation, delete runs of commands (ddmin: Zeller and Hildebrandt, "Simplifying
and Isolating Failure-Inducing Input", 2002), delete pairs, lower arguments, and use fewer
blocks, until nothing helps. On stateful traces this beats Hypothesis's shrinker, which reached
the true minimum in few of the trials (docs/design-notes.md). It does not know whether a shorter
trace exists: breadth-first search (explore/shortest.py) does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations
from typing import Any

from poolproof.contract.commands import Allocate, Command, PopLeftN
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.harness.pool_session import PoolSession
from poolproof.harness.relative import RelativeCommand, made_concrete, made_relative
from poolproof.harness.replay import start_session

__all__ = ["Attempt", "Execute", "execute_in_process", "minimise"]

MOST_FOR_PAIRS = 24
"""Traces longer than this are not searched for deletable pairs, whose number grows squared."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What became of a candidate: what was really applied, in both forms, and what broke."""

    relative: tuple[RelativeCommand, ...]
    commands: tuple[Command, ...]
    violation: Violation | None


Execute = Callable[[Trace, Sequence[RelativeCommand | Command]], Attempt]
"""Applies a candidate to a fresh target that is set up as the trace says."""


def execute_in_process(make: Callable[[int, bool], Any]) -> Execute:
    """Candidates are applied in this process, to targets that `make` builds."""

    def execute(
        trace: Trace,
        candidate: Sequence[RelativeCommand | Command],
        announce: Callable[[Command], None] | None = None,
    ) -> Attempt:
        return _execute(trace, candidate, make, announce)

    return execute


def _execute(
    trace: Trace,
    candidate: Sequence[RelativeCommand | Command],
    make: Callable[[int, bool], Any],
    announce: Callable[[Command], None] | None,
) -> Attempt:
    session = start_session(trace, make)
    if isinstance(session, Violation):
        return Attempt((), (), session)
    relative: list[RelativeCommand] = []
    commands: list[Command] = []
    violation = session.first_look()
    for item in candidate:
        if violation is not None:
            break
        state = session.reference
        if isinstance(item, RelativeCommand):
            command = made_concrete(item, state)
            if command is None or not session.is_defined(command):
                continue
            relative.append(item)
        else:
            command = item
            if not session.is_defined(command):
                continue
            relative.append(made_relative(command, state))
        commands.append(command)
        if announce is not None:
            announce(command)
        violation = session.step_any(command)
    if violation is None and isinstance(session, PoolSession) and session.nobody_holds():
        violation = session.end()
    return Attempt(tuple(relative), tuple(commands), violation)


def minimise(trace: Trace, execute: Execute, *, max_attempts: int = 4000) -> Trace:
    """The smallest trace found that breaks the same invariant as `trace` does now.

    Returns `trace` itself, without violation, when it does not fail at all. Deterministic for a
    deterministic target.
    """
    first = execute(trace, trace.commands)
    if first.violation is None:
        return trace.with_commands(trace.commands)
    search = _Search(trace, first, execute, max_attempts)
    search.run()
    best = search.best
    return replace(
        search.trace,
        commands=best.commands,
        violation=best.violation,
        fingerprint=None,
    )


class _Search:
    """The state of one minimisation: the best attempt so far and the set-up it needs."""

    def __init__(self, trace: Trace, first: Attempt, execute: Execute, max_attempts: int) -> None:
        assert first.violation is not None
        self.trace = trace
        self.best = first
        self._invariant = first.violation.invariant
        self._execute = execute
        self._left = max_attempts

    def run(self) -> None:
        before: object = None
        while before != (self.trace.num_blocks, self.best.commands) and self._left > 0:
            before = (self.trace.num_blocks, self.best.commands)
            self._delete_runs()
            self._fewer_blocks()
            self._lower_arguments()
            self._delete_pairs()

    def _try(self, candidate: Sequence[RelativeCommand], trace: Trace | None = None) -> bool:
        """Whether the candidate breaks the same invariant; if so it becomes the best."""
        if self._left <= 0:
            return False
        self._left -= 1
        setup = trace or self.trace
        attempt = self._execute(setup, candidate)
        if attempt.violation is None or attempt.violation.invariant != self._invariant:
            return False
        if _size(attempt) >= _size(self.best) and setup.num_blocks >= self.trace.num_blocks:
            return False
        self.best, self.trace = attempt, setup
        return True

    def _delete_runs(self) -> None:
        length = max(1, len(self.best.relative) // 2)
        while length >= 1:
            start = 0
            while start < len(self.best.relative):
                commands = self.best.relative
                if not self._try((*commands[:start], *commands[start + length :])):
                    start += length
            length //= 2

    def _delete_pairs(self) -> None:
        deleted = True
        while deleted and len(self.best.relative) <= MOST_FOR_PAIRS:
            commands = self.best.relative
            deleted = any(
                self._try([c for place, c in enumerate(commands) if place not in pair])
                for pair in combinations(range(len(commands)), 2)
            )

    def _fewer_blocks(self) -> None:
        while self.trace.num_blocks > 1:
            smaller = replace(self.trace, num_blocks=self.trace.num_blocks - 1)
            if (smaller.profile.null_block or 0) >= smaller.num_blocks:
                return
            if not self._try(self.best.relative, smaller):
                return

    def _lower_arguments(self) -> None:
        place = 0
        while place < len(self.best.relative):
            commands = self.best.relative
            lowered = any(
                self._try((*commands[:place], candidate, *commands[place + 1 :]))
                for candidate in _lower(commands[place], self.best.commands)
            )
            if not lowered:
                place += 1


def _size(attempt: Attempt) -> tuple[int, int, int]:
    """Shorter first, then fewer and smaller arguments."""
    arguments = weight = 0
    hashes: list[object] = []
    for item in attempt.relative:
        arguments += max(len(item.roles), 1)
        weight += sum(place + (role == "raw") for role, place in item.roles)
        weight += getattr(item.command, "count", 0) if not item.roles else 0
        for key in _hashes(item.command):
            if key not in hashes:
                hashes.append(key)
            weight += hashes.index(key)
    return len(attempt.commands), arguments, weight


def _lower(item: RelativeCommand, context: Sequence[Command]) -> Iterator[RelativeCommand]:
    """The command with smaller arguments, the smallest first."""
    command, roles = item.command, item.roles
    if isinstance(command, Allocate) and roles:
        kind, amount = roles[0]
        yield RelativeCommand(Allocate(1))
        if kind == "beyond" and amount > 1:
            yield RelativeCommand(command, ((kind, 1),))
    elif isinstance(command, Allocate | PopLeftN):
        for count in range(max(command.count, 0)):
            yield RelativeCommand(type(command)(count))
    if len(roles) > 1 and hasattr(command, "block_ids"):
        for place in range(len(roles)):
            yield _without(item, place)
    for place, (role, rank) in enumerate(roles):
        if role != "raw" and rank:
            for lower in range(rank):
                changed = (*roles[:place], (role, lower), *roles[place + 1 :])
                yield RelativeCommand(command, changed)
    yield from _other_hashes(item, context)


def _without(item: RelativeCommand, place: int) -> RelativeCommand:
    """The command without one of its blocks (and without that block's hash)."""
    changes: dict[str, Any] = {}
    hashes = getattr(item.command, "hashes", None)
    if hashes is not None and len(hashes) == len(item.roles):
        changes["hashes"] = (*hashes[:place], *hashes[place + 1 :])
    roles = (*item.roles[:place], *item.roles[place + 1 :])
    return RelativeCommand(replace(item.command, **changes), roles)


def _other_hashes(item: RelativeCommand, context: Sequence[Command]) -> Iterator[RelativeCommand]:
    """The command with hashes that stand earlier in the trace."""
    own = _hashes(item.command)
    if not own:
        return
    earlier: list[Any] = list(dict.fromkeys(key for c in context for key in _hashes(c)))
    name = "hashes" if hasattr(item.command, "hashes") else "block_hash"
    for place, key in enumerate(own):
        for other in earlier[: earlier.index(key)] if key in earlier else []:
            hashes = (*own[:place], other, *own[place + 1 :])
            value = hashes if name == "hashes" else hashes[0]
            yield RelativeCommand(replace(item.command, **{name: value}), item.roles)


def _hashes(command: Command) -> tuple[Any, ...]:
    names = {field.name for field in fields(command)}
    if "hashes" in names:
        hashes: tuple[Any, ...] = getattr(command, "hashes")  # noqa: B009 (only some have it)
        return hashes
    return (getattr(command, "block_hash"),) if "block_hash" in names else ()  # noqa: B009
