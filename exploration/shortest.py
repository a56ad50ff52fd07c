"""Breadth-first search for the shortest failing command sequence.

Level by level every defined command of a fixed grammar is tried in every state reached so far;
states that cannot be told apart are continued once. The first failure is therefore a shortest
one, and among the shortest the first in the grammar's order, so that the same bug gives the same
trace whatever led to it. Shortest means: of this grammar, and as far as merging states is sound
(`recorded_session.py` says when it is not). Every try builds a fresh target and replays the
commands before it unchecked, because targets in general can be neither copied nor undone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from poolproof.contract.commands import Command
from poolproof.contract.content import Key
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.index_commands import IndexKey
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import Profile
from poolproof.contract.violation import Violation
from poolproof.exploration.engine_grammar import EngineGrammar, EngineScope
from poolproof.exploration.grammars import (
    IdentityGrammar,
    IndexGrammar,
    ManagerGrammar,
    PoolGrammar,
    QueueGrammar,
    WorkloadGrammar,
)
from poolproof.exploration.recorded_engine import RecordedEngine
from poolproof.exploration.recorded_session import (
    RecordedIndex,
    RecordedManager,
    RecordedPool,
    RecordedQueue,
)
from poolproof.harness.target_call import crash
from poolproof.reference.content_names import ContentNames

__all__ = [
    "ShortestResult",
    "shortest_engine_failure",
    "shortest_failure",
    "shortest_index_failure",
    "shortest_manager_failure",
    "shortest_queue_failure",
]

Make = Callable[[int, bool], Any]
Commands = tuple[Command, ...]
IsWanted = Callable[[Violation, Commands], bool]
"""Whether a failure after these commands is one that the search is for."""


Announce = Callable[[Command], object]
"""Hears each command before it is applied, on the target that `make` gave last."""


def any_failure(_violation: Violation, _commands: Commands) -> bool:
    """Every failure is wanted."""
    return True


def unheard(_command: Command) -> None:
    """Nobody listens."""


class _NotAgainError(Exception):
    """A replayed prefix broke something that it had not broken before."""

    def __init__(self, commands: Commands, violation: Violation) -> None:
        super().__init__(violation.sentence)
        self.commands = commands
        self.violation = replace(
            violation,
            sentence=f"{violation.sentence}; the same commands showed nothing before: the target "
            "does not behave the same way twice",
        )


class _Session(Protocol):
    """What a search needs of a session."""

    replaying: bool
    is_exact: bool

    def first_look(self) -> Violation | None: ...
    def step(self, command: Command) -> Violation | None: ...
    def step_any(self, command: Command) -> Violation | None: ...
    def look(self) -> Violation | None: ...
    def state(self) -> Hashable: ...


AnySession = TypeVar("AnySession", bound=_Session)


@dataclass(frozen=True, slots=True)
class ShortestResult:
    """What a search found: the failing `commands` with their `violation`, or None twice.

    No sequence of up to `depth` commands fails. `exhausted` says that there are no further
    states, `num_states` counts them up to renaming, `num_tries` the commands that were executed
    and checked. A search that ended before `max_commands`, neither failing nor exhausted, ran
    into `max_states`, or into `max_applied`: commands in all, those that lead to a state counted
    each time, and is then `out_of_steps`, or into a limit in time (`out_of_time`). A target that
    counts its calls has new states without end, ever further away. `told_by` says how the states of
    an engine were known, see `recorded_engine.py`.
    """

    commands: Commands | None
    violation: Violation | None
    depth: int
    exhausted: bool
    num_states: int
    num_tries: int
    duration_s: float
    out_of_steps: bool = False
    out_of_time: bool = False
    told_by: str = ""


def shortest_failure(
    make: Make,
    profile: Profile,
    num_blocks: int,
    *,
    enable_caching: bool = True,
    hashes: int | Sequence[Key] = 2,
    max_commands: int = 6,
    max_states: int = 100_000,
    max_applied: float = math.inf,
    max_count: int = 3,
    max_list: int = 2,
    is_wanted: IsWanted = any_failure,
    announce: Announce = unheard,
) -> ShortestResult:
    """The shortest sequence of pool commands after which a target breaks an invariant.

    `make(num_blocks, enable_caching)` builds a fresh target; `hashes` is how many different
    hashes commands may name, or which ones. What fails and is not wanted is not followed further.
    """
    alphabet: Sequence[Key] = (
        [bytes([number]) * profile.usual_hash_bytes for number in range(1, hashes + 1)]
        if isinstance(hashes, int)
        else hashes
    )

    def start() -> RecordedPool:
        target = make(num_blocks, enable_caching)
        return RecordedPool(target, profile, num_blocks, enable_caching=enable_caching)

    grammar = PoolGrammar(alphabet, max_count=max_count, max_list=max_list)
    return _Search(
        start,
        grammar.commands,
        max_commands,
        max_states,
        max_applied,
        is_wanted=is_wanted,
        announce=announce,
    ).run()


def shortest_queue_failure(
    make: Make,
    num_blocks: int,
    *,
    max_commands: int = 6,
    max_states: int = 100_000,
    max_applied: float = math.inf,
    max_count: int = 3,
    max_list: int = 2,
    is_wanted: IsWanted = any_failure,
    announce: Announce = unheard,
) -> ShortestResult:
    """The shortest sequence of queue commands after which a target breaks an invariant."""

    def start() -> RecordedQueue:
        return RecordedQueue(make(num_blocks, True), num_blocks)

    grammar = QueueGrammar(max_count=max_count, max_list=max_list)
    return _Search(
        start,
        grammar.commands,
        max_commands,
        max_states,
        max_applied,
        is_wanted=is_wanted,
        announce=announce,
    ).run()


def shortest_index_failure(
    make: Make,
    profile: Profile,
    num_blocks: int,
    keys: Sequence[IndexKey],
    *,
    max_commands: int = 6,
    max_states: int = 100_000,
    max_applied: float = math.inf,
    is_wanted: IsWanted = any_failure,
    announce: Announce = unheard,
) -> ShortestResult:
    """The shortest sequence of index commands over `keys` that breaks an invariant."""

    def start() -> RecordedIndex:
        return RecordedIndex(make(num_blocks, True), num_blocks, profile)

    return _Search(
        start,
        IndexGrammar(keys).commands,
        max_commands,
        max_states,
        max_applied,
        is_wanted=is_wanted,
        announce=announce,
    ).run()


def shortest_manager_failure(
    make: Make,
    profile: ManagerProfile,
    num_blocks: int,
    block_size: int = 2,
    *,
    enable_caching: bool = True,
    max_commands: int = 5,
    max_states: int = 20_000,
    max_applied: float = math.inf,
    most_sequences: int = 2,
    identities: bool = False,
    is_wanted: IsWanted = any_failure,
    announce: Announce = unheard,
) -> ShortestResult:
    """The shortest sequence of manager commands after which a target breaks an invariant.

    All workloads of up to `max_commands` commands over the prompts of `grammars.py`, with
    at most `most_sequences` sequences at once, every read compared with shadow memory.
    `identities` takes the prompts that differ in what tells prompts apart, with few verbs.
    """
    names = ContentNames()

    def start() -> RecordedManager:
        target = make(num_blocks, enable_caching)
        return RecordedManager(
            target, profile, num_blocks, block_size, names, enable_caching=enable_caching
        )

    kind = IdentityGrammar if identities else ManagerGrammar
    grammar: WorkloadGrammar = kind(block_size, most_sequences=most_sequences)
    return _Search(
        start,
        grammar.commands,
        max_commands,
        max_states,
        max_applied,
        is_wanted=is_wanted,
        announce=announce,
    ).run()


def shortest_engine_failure(
    make: Make,
    profile: EngineProfile,
    scope: EngineScope,
    *,
    enable_caching: bool = True,
    max_commands: int = 5,
    max_states: int = 20_000,
    max_applied: float = math.inf,
    max_seconds: float = math.inf,
    is_wanted: IsWanted = any_failure,
    announce: Announce = unheard,
) -> ShortestResult:
    """The shortest sequence of engine commands after which a target breaks an invariant.

    All sequences of up to `max_commands` commands over the requests of the scope, each step's
    reads compared with shadow memory.
    """
    names = ContentNames()

    def start() -> RecordedEngine:
        target = make(scope.num_blocks, enable_caching)
        return RecordedEngine(target, profile, scope.num_blocks, scope.block_size, names)

    return _Search(
        start,
        EngineGrammar(scope).commands,
        max_commands,
        max_states,
        max_applied,
        max_seconds=max_seconds,
        is_wanted=is_wanted,
        announce=announce,
    ).run()


class _Search(Generic[AnySession]):
    """One search; `run` once."""

    def __init__(
        self,
        start: Callable[[], AnySession],
        commands_in: Callable[[AnySession], Iterable[Command]],
        max_commands: int,
        max_states: int,
        max_applied: float,
        *,
        is_wanted: IsWanted,
        announce: Announce,
        max_seconds: float = math.inf,
    ) -> None:
        self._start = start
        self._is_wanted = is_wanted
        self._announce = announce
        self._commands_in = commands_in
        self._max_commands = max_commands
        self._max_states = max_states
        self._max_applied = max_applied
        self._num_applied = 0
        self._num_tries = 0
        self._began_s = time.perf_counter()
        self._ends_s = self._began_s + max_seconds
        self._told_by = ""

    def run(self) -> ShortestResult:
        try:
            session = self._start()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a target may raise anything
            return self._result(-1, set(), (), crash("constructing the target", error))
        violation = session.first_look()
        if violation is not None:
            return self._result(-1, set(), (), violation)
        first = session.state()
        self._told_by = getattr(session, "told_by", "")
        states = {first}
        level: list[tuple[Hashable, Commands]] = [(first, ())]
        for depth in range(self._max_commands):
            following: list[tuple[Hashable, Commands]] = []
            for state, prefix in level:
                try:
                    failed = self._expand(state, prefix, states, following)
                except _NotAgainError as again:
                    if not self._is_wanted(again.violation, again.commands):
                        return self._result(depth, states)
                    failed = again.commands, again.violation
                if failed is not None:
                    return self._result(depth, states, *failed)
                if len(states) > self._max_states or self._num_applied > self._max_applied:
                    return self._result(depth, states)
                if time.perf_counter() > self._ends_s:
                    return self._result(depth, states, out_of_time=True)
            level = following
            if not level:
                break
        return self._result(self._max_commands, states, exhausted=not level)

    def _expand(
        self,
        state: Hashable,
        prefix: Commands,
        states: set[Hashable],
        following: list[tuple[Hashable, Commands]],
    ) -> tuple[Commands, Violation] | None:
        """Try every command after `prefix`; the first that fails, with its violation, or None."""
        session = self._replayed(prefix)
        reached = state
        for command in list(self._commands_in(session)):
            # Nothing changed, pickle says: the session serves for the next command as well.
            if reached != state or not session.is_exact:
                session = self._replayed(prefix)
            if self._try(session, command) is not None:
                # Once more from the start, so that the finding counts this trace's commands only.
                violation = self._try(self._replayed(prefix), command)
                commands = (*prefix, command)
                if violation is not None and self._is_wanted(violation, commands):
                    return commands, violation
                reached = None  # nothing goes on from a broken state
                continue
            reached = session.state()
            if reached not in states:
                states.add(reached)
                following.append((reached, (*prefix, command)))
        return None

    def _try(self, session: AnySession, command: Command) -> Violation | None:
        self._num_tries += 1
        self._num_applied += 1
        self._announce(command)
        return session.step_any(command) or session.look()

    def _replayed(self, prefix: Commands) -> AnySession:
        """A fresh session after commands that are known to show nothing."""
        try:
            session = self._start()
        except (Exception, SystemExit) as error:
            # One of thousands of instances: a program may fail at any of them.
            raise _NotAgainError((), crash("constructing the target", error)) from error
        self._num_applied += len(prefix)
        session.replaying = True
        for position, command in enumerate(prefix, start=1):
            self._announce(command)
            violation = session.step_any(command)  # misuse may leave a trace that only pickle sees
            if violation is not None:
                raise _NotAgainError(prefix[:position], violation)
        session.replaying = False
        return session

    def _result(
        self,
        depth: int,
        states: set[Hashable],
        commands: Commands | None = None,
        violation: Violation | None = None,
        *,
        exhausted: bool = False,
        out_of_time: bool = False,
    ) -> ShortestResult:
        duration_s = time.perf_counter() - self._began_s
        return ShortestResult(
            commands,
            violation,
            depth,
            exhausted,
            len(states),
            self._num_tries,
            duration_s,
            out_of_steps=self._num_applied > self._max_applied and depth < self._max_commands,
            out_of_time=out_of_time,
            told_by=self._told_by,
        )
