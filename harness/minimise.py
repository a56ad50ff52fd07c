"""Minimises a failing trace by delta debugging over its commands.

Truncate at the violation, delete runs of commands (ddmin: Zeller and Hildebrandt, "Simplifying
and Isolating Failure-Inducing Input", 2002), then try the variants of `smaller_traces.py`, until
none of them helps. Made for stateful traces, on which Hypothesis's shrinker often stops early. It
does not know whether a shorter trace exists: breadth-first search (explore/shortest.py) does;
benchmarks/minimal_traces.py compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.manager_commands import ManagerCommand
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.harness.failure_kind import failure_kind
from poolproof.harness.queue_session import QueueSession
from poolproof.harness.relative import RelativeCommand, made_concrete, made_relative
from poolproof.harness.replay import start_session
from poolproof.harness.smaller_manager_traces import (
    fewer_tokens,
    lowered_manager_command,
    sequences_renamed,
    smaller_everywhere,
    weight_of,
    without_a_sequence,
)
from poolproof.harness.smaller_traces import (
    Candidate,
    calls_merged,
    for_one_block_less,
    hashes_of,
    lowered,
    one_reference_less,
    two_commands_less,
)

__all__ = ["Attempt", "Execute", "execute_in_process", "minimise", "run_candidate"]


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
    return lambda trace, candidate: run_candidate(trace, candidate, make)


def run_candidate(
    trace: Trace,
    candidate: Sequence[RelativeCommand | Command],
    make: Callable[[int, bool], Any],
    announce: Callable[[Command], None] | None = None,
) -> Attempt:
    """Apply a candidate to a fresh target; `announce` hears each command before it is applied.

    What means nothing or is not defined in the state that is reached is left out.
    """
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
    if violation is None and not isinstance(session, QueueSession) and session.nobody_holds():
        violation = session.end()
    return Attempt(tuple(relative), tuple(commands), violation)


def minimise(trace: Trace, execute: Execute, *, max_attempts: int = 4000) -> Trace:
    """The smallest trace found that breaks the same invariant, as badly, as `trace` does now.

    Returns `trace` itself, without violation, when it does not fail at all. Deterministic for a
    deterministic target.
    """
    first = execute(trace, trace.commands)
    if first.violation is None:
        return trace.with_commands(trace.commands)
    search = _Search(trace, first, execute, max_attempts)
    search.run()
    best = search.best
    if trace.level == "manager":
        # Sequences are A, B, C in the order of their appearance.
        named = execute(search.trace, sequences_renamed(best.commands))
        if named.violation is not None:
            best = named
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
        self._kind = failure_kind(first.violation, first.commands)
        self._rank = first.violation.severity.rank
        self._execute = execute
        self._left = max_attempts

    def run(self) -> None:
        self._until_nothing_helps()
        if not self.trace.enable_caching and self._fails_with_caching():
            self._until_nothing_helps()

    def _until_nothing_helps(self) -> None:
        before: object = None
        while before != (self.trace.num_blocks, self.best.commands) and self._left > 0:
            before = (self.trace.num_blocks, self.best.commands)
            self._delete_runs()
            self._repeat(lambda: calls_merged(self.best.relative))
            self._repeat(lambda: one_reference_less(self.best.commands, self.best.relative))
            self._fewer_blocks()
            self._lower_arguments()
            if self.trace.level == "manager":
                self._repeat(self._smaller_prompts)
            self._repeat(lambda: two_commands_less(self.best.relative))

    def _fails_with_caching(self) -> bool:
        """Caching is on as a rule, so that one bug does not become two findings by this alone."""
        if self._left <= 0:
            return False
        self._left -= 1
        setup = replace(self.trace, enable_caching=True)
        attempt = self._execute(setup, self.best.relative)
        found = attempt.violation
        if (
            found is None
            or failure_kind(found, attempt.commands) != self._kind
            or found.severity.rank > self._rank
            or _size(attempt) > _size(self.best)
        ):
            return False
        self.best, self.trace = attempt, setup
        return True

    def _smaller_prompts(self) -> Iterable[Candidate]:
        return smaller_everywhere(self.best.relative, int(self.trace.options["block_size"]))

    def _repeat(self, candidates: Callable[[], Iterable[Candidate]]) -> None:
        """Take the first candidate that is smaller, as long as there is one."""
        while any(self._try(candidate) for candidate in candidates()):
            pass

    def _try(self, candidate: Candidate, trace: Trace | None = None) -> bool:
        """Whether the candidate breaks the same invariant; if so it becomes the best."""
        if self._left <= 0:
            return False
        self._left -= 1
        setup = trace or self.trace
        attempt = self._execute(setup, candidate)
        found = attempt.violation
        if found is None or failure_kind(found, attempt.commands) != self._kind:
            return False
        # Severity decides what fails a run: wrong data must not shrink to a lost hit.
        if found.severity.rank > self._rank:
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

    def _fewer_blocks(self) -> None:
        """One block less at a time, and with it whatever the trace cannot do without it."""
        smaller = True
        while smaller and self.trace.num_blocks > 1:
            setup = replace(self.trace, num_blocks=self.trace.num_blocks - 1)
            if (setup.profile.null_block or 0) >= setup.num_blocks:
                return
            smaller = any(self._try(candidate, setup) for candidate in self._with_less())

    def _with_less(self) -> Iterator[Candidate]:
        """What may still fail with one block less."""
        yield from for_one_block_less(self.best.relative)
        if self.trace.level == "manager":
            yield from without_a_sequence(self.best.relative)
            yield from fewer_tokens(self.best.relative)

    def _lower_arguments(self) -> None:
        place = 0
        while place < len(self.best.relative):
            commands = self.best.relative
            lower = _smaller_commands(commands[place], self.best.commands)
            if not any(self._try((*commands[:place], c, *commands[place + 1 :])) for c in lower):
                place += 1


def _smaller_commands(
    item: RelativeCommand, context: Sequence[Command]
) -> Iterable[RelativeCommand]:
    if isinstance(item.command, ManagerCommand):
        return map(RelativeCommand, lowered_manager_command(item.command))
    return lowered(item, context)


def _size(attempt: Attempt) -> tuple[int, int, int]:
    """Shorter first, then fewer and smaller arguments."""
    arguments = weight = 0
    keys: list[object] = []
    for item in attempt.relative:
        arguments += max(len(item.roles), 1)
        if isinstance(item.command, ManagerCommand):
            tokens, values = weight_of(item.command)
            arguments += tokens
            weight += values
        weight += sum(place + (role == "raw") for role, place in item.roles)
        weight += getattr(item.command, "count", 0) if not item.roles else 0
        for key in hashes_of(item.command):
            if key not in keys:
                keys.append(key)
            weight += keys.index(key)
    return len(attempt.commands), arguments, weight
