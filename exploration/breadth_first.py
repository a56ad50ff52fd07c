"""Breadth-first exploration of a space of states, level by level, over one or more processes.

A level holds the states that are so many transitions away from the first one and no fewer. Each
state belongs to one partition by its checksum; a partition keeps those of its own that were seen,
so that no memory is shared. With several workers each partition is a process, and what a level
leads to is exchanged between them; with one, everything happens here. The parent only carries what
one partition found for another; it holds no states. Workers ignore Ctrl-C, which reaches all
processes of a terminal at once: the parent decides when they end.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Protocol
from zlib import crc32

from poolproof.exploration.orbit_space import OrbitSpace, Transition
from poolproof.exploration.scope import ALL_VERBS, ExplorationError, Scope, peak_mib
from poolproof.exploration.state_space import StateSpace

__all__ = [
    "Exploration",
    "SearchLevel",
    "Space",
    "WorkerLostError",
    "WorkerProcesses",
    "explore",
    "reachable",
    "space_of",
]


class Space(Protocol):
    """A finite space of states that are bytes of one width."""

    scope: Scope
    width: int
    has_symmetry: bool

    def initial(self) -> bytes: ...
    def successors(self, state: bytes, /) -> tuple[list[Transition], int]: ...
    def size(self, state: bytes, /) -> int: ...


@dataclass(slots=True)
class SearchLevel:
    """What one level held and led to.

    `num_found` are its states up to symmetry, `num_states` those they stand for, and
    `num_transitions` the transitions from those. `fired` counts, for each verb, the transitions
    up to symmetry, `new` those that found a state first (of several verbs, the first in order).
    """

    num_found: int = 0
    num_states: int = 0
    num_transitions: int = 0
    fired: Counter[str] = field(default_factory=Counter)
    new: Counter[str] = field(default_factory=Counter)

    def add(self, other: SearchLevel) -> None:
        """Count another level in."""
        self.num_found += other.num_found
        self.num_states += other.num_states
        self.num_transitions += other.num_transitions
        self.fired += other.fired
        self.new += other.new


@dataclass(slots=True)
class Exploration:
    """The levels so far. `stopped` says why there are no more, if not because all was seen."""

    scope: Scope
    has_symmetry: bool
    levels: list[SearchLevel] = field(default_factory=list)
    stopped: str = ""
    seconds: float = 0.0

    @property
    def total(self) -> SearchLevel:
        """All levels together."""
        total = SearchLevel()
        for level in self.levels:
            total.add(level)
        return total

    @property
    def depth(self) -> int:
        """How many transitions the farthest state is away."""
        return len(self.levels) - 1


Found = dict[bytes, int]
"""States with the first verb that leads to them."""


class Partition:
    """The states whose checksum is `number` modulo `count`."""

    def __init__(self, space: Space, number: int = 0, count: int = 1) -> None:
        self.frontier: list[bytes] = []
        self._space = space
        self._number = number
        self._count = count
        self._seen: set[bytes] = set()

    def owns(self, state: bytes) -> bool:
        """Whether the state belongs here."""
        return crc32(state) % self._count == self._number

    def resume(self, states: Iterable[bytes]) -> None:
        """States of an earlier level, of which those that belong here are known from now on."""
        self.frontier = [state for state in states if self.owns(state)]
        self._seen.update(self.frontier)

    def absorb(self, found: Iterable[Found]) -> SearchLevel:
        """Take in what the level before led to; the new states are the frontier now."""
        fresh: Found = {}
        for part in found:
            for state, verb in part.items():
                if state not in self._seen:
                    known = fresh.get(state)
                    if known is None or verb < known:
                        fresh[state] = verb
        self._seen.update(fresh)
        self.frontier = list(fresh)
        new = Counter(fresh.values())
        return SearchLevel(new=Counter({ALL_VERBS[verb]: number for verb, number in new.items()}))

    def expand(self) -> tuple[SearchLevel, list[Found]]:
        """What the frontier is and leads to, by the partition that has to hear of it."""
        level = SearchLevel(num_found=len(self.frontier))
        successors, size, seen = self._space.successors, self._space.size, self._seen
        count, number = self._count, self._number
        leaving: list[Found] = [{} for _ in range(count)]
        own = leaving[number]
        fired: Counter[int] = Counter()
        for state in self.frontier:
            found, degree = successors(state)
            states = size(state)
            level.num_states += states
            level.num_transitions += states * degree
            for verb, after in found:
                fired[verb] += 1
                if after in seen:
                    continue
                goes_to = own if count == 1 else leaving[crc32(after) % count]
                known = goes_to.get(after)
                if known is None or verb < known:
                    goes_to[after] = verb
        level.fired = Counter({ALL_VERBS[verb]: number for verb, number in fired.items()})
        return level, leaving


class Partitions(Protocol):
    """All partitions of a space, wherever they are."""

    def begin(self, levels: Sequence[Iterable[bytes]]) -> None:
        """Start from levels that were explored before, the last of them not yet expanded."""
        ...

    def expand(self) -> SearchLevel:
        """Expand the frontier; what it leads to is kept for `absorb`."""
        ...

    def absorb(self) -> SearchLevel:
        """Take in what the last `expand` led to."""
        ...

    def frontier(self) -> Iterator[bytes]:
        """The states found by the last `absorb`, in no particular order."""
        ...

    def memory_mib(self) -> int:
        """The most memory that was in use, over all processes, in MiB."""
        ...


class OnePartition:
    """All states in one partition, in this process."""

    def __init__(self, space: Space) -> None:
        self._partition = Partition(space)
        self._leaving: list[Found] = []

    def begin(self, levels: Sequence[Iterable[bytes]]) -> None:
        for level in levels:
            self._partition.resume(level)

    def expand(self) -> SearchLevel:
        level, self._leaving = self._partition.expand()
        return level

    def absorb(self) -> SearchLevel:
        level = self._partition.absorb(self._leaving)
        self._leaving = []
        return level

    def frontier(self) -> Iterator[bytes]:
        return iter(self._partition.frontier)

    def memory_mib(self) -> int:
        return peak_mib()


def explore(
    space: Space,
    partitions: Partitions | None = None,
    *,
    max_depth: int | None = None,
    after_level: Callable[[Exploration, Iterator[bytes]], object] = lambda *_: None,
    earlier: Exploration | None = None,
) -> Exploration:
    """Explore until there is nothing new, or to a depth.

    `after_level` hears of every level once it is complete, with the states of the next one.
    `earlier` is an exploration whose levels are known, and whose states `partitions` was given.
    A KeyboardInterrupt ends it between levels, and `stopped` says so.
    """
    found = earlier or Exploration(space.scope, space.has_symmetry)
    parts = partitions or OnePartition(space)
    began = time.perf_counter() - found.seconds
    if earlier is None:
        parts.begin([[space.initial()]])
    try:
        while found.stopped == "":
            level = parts.expand()
            fresh = parts.absorb()
            found.levels.append(level)
            level.new = fresh.new
            found.seconds = time.perf_counter() - began
            after_level(found, parts.frontier())
            if not fresh.new:
                break
            if max_depth is not None and len(found.levels) > max_depth:
                found.stopped = f"at depth {max_depth}, as asked for"
    except KeyboardInterrupt:
        found.stopped = "interrupted"
    found.seconds = time.perf_counter() - began
    return found


def reachable(space: Space) -> list[bytes]:
    """All states, nearest first, in one fixed order."""
    partition = Partition(space)
    partition.resume([space.initial()])
    states = list(partition.frontier)
    while partition.frontier:
        _, leaving = partition.expand()
        partition.absorb(leaving)
        states += partition.frontier
    return states


_PATIENCE_S = 0.5

Packed = tuple[bytes, bytes]
"""States joined, and the verb of each."""


class WorkerLostError(ExplorationError):
    """A worker ended before its work did, usually for want of memory."""


def space_of(scope: Scope, *, symmetry: bool) -> Space:
    """The orbits of a scope, or its states."""
    return OrbitSpace(scope) if symmetry else StateSpace(scope)


class WorkerProcesses:
    """`count` partitions in as many processes. A context manager; see `breadth_first.Partitions`.

    Raises WorkerLostError when one ends before it answered.
    """

    def __init__(self, scope: Scope, count: int, *, symmetry: bool = True) -> None:
        self._width = space_of(scope, symmetry=symmetry).width
        self._owners = [
            Partition(space_of(scope, symmetry=symmetry), number, count) for number in range(count)
        ]
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        for number in range(count):
            here, there = multiprocessing.Pipe()
            process = multiprocessing.Process(
                target=_serve, args=(there, scope, symmetry, number, count), daemon=True
            )
            process.start()
            there.close()
            self._pipes.append(here)
            self._processes.append(process)
        self._passing: list[list[Packed]] = [[] for _ in range(count)]
        self._peaks: list[int] = []

    def __enter__(self) -> WorkerProcesses:  # noqa: PYI034 -- Self came with Python 3.11
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process, pipe in zip(self._processes, self._pipes, strict=True):
            with suppress(OSError):  # it may be dead already
                pipe.send(("stop", None))
            process.join(_PATIENCE_S)
            # One that is in the middle of a level is not waited for.
            process.terminate()
            process.join()
            pipe.close()

    def begin(self, levels: Sequence[Iterable[bytes]]) -> None:
        for level in levels:
            parts: list[list[bytes]] = [[] for _ in self._owners]
            for state in level:
                for owner, part in zip(self._owners, parts, strict=True):
                    if owner.owns(state):
                        part.append(state)
            self._ask([("resume", b"".join(part)) for part in parts])

    def expand(self) -> SearchLevel:
        total = SearchLevel()
        self._passing = [[] for _ in self._owners]
        answers = self._ask([("expand", None)] * len(self._owners))
        # Kept, and not asked for in the end: after an interruption no answer belongs to a question.
        self._peaks = [peak for _, _, peak in answers]
        for level, leaving, _ in answers:
            total.add(level)
            for passing, packed in zip(self._passing, leaving, strict=True):
                passing.append(packed)
        return total

    def absorb(self) -> SearchLevel:
        total = SearchLevel()
        for level in self._ask([("absorb", passing) for passing in self._passing]):
            total.add(level)
        self._passing = [[] for _ in self._owners]
        return total

    def frontier(self) -> Iterator[bytes]:
        for joined in self._ask([("frontier", None)] * len(self._owners)):
            yield from _cut(joined, self._width)

    def memory_mib(self) -> int:
        return peak_mib() + sum(self._peaks)

    def _ask(self, questions: Sequence[tuple[str, Any]]) -> list[Any]:
        """Send each worker its question, then wait for all answers."""
        try:
            for pipe, question in zip(self._pipes, questions, strict=True):
                pipe.send(question)
            return [pipe.recv() for pipe in self._pipes]
        except (EOFError, OSError) as error:
            codes = [process.exitcode for process in self._processes]
            raise WorkerLostError(
                f"a worker of the exploration died (exit statuses {codes}), perhaps for want of "
                "memory; use fewer --workers, a smaller scope, or --resume to keep what is done"
            ) from error


def _serve(pipe: Connection, scope: Scope, symmetry: bool, number: int, count: int) -> None:
    """A worker: answers until it is told to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    space = space_of(scope, symmetry=symmetry)
    partition = Partition(space, number, count)
    own: Found = {}
    while True:
        question, argument = pipe.recv()
        if question == "stop":
            return
        if question == "resume":
            partition.resume(_cut(argument, space.width))
            pipe.send(None)
        elif question == "expand":
            level, leaving = partition.expand()
            own, leaving[number] = leaving[number], {}
            packed = [(b"".join(found), bytes(found.values())) for found in leaving]
            pipe.send((level, packed, peak_mib()))
        elif question == "absorb":
            found = [dict(zip(_cut(s, space.width), verbs, strict=True)) for s, verbs in argument]
            pipe.send(partition.absorb([own, *found]))
            own = {}
        else:
            pipe.send(b"".join(partition.frontier))


def _cut(joined: bytes, width: int) -> Iterator[bytes]:
    return (joined[place : place + width] for place in range(0, len(joined), width))
