"""Breadth-first exploration of a space of states, level by level, over one or more processes.

A level holds the states that are so many transitions away from the first one and no fewer. Each
state belongs to one partition by its checksum; a partition keeps those of its own that were seen,
so that no memory is shared. With several workers each partition is a process, and what a level
leads to is exchanged between them; with one, everything happens here.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from zlib import crc32

from poolproof.exploration.memory import peak_mib
from poolproof.exploration.orbit_space import Transition
from poolproof.exploration.scope import ALL_VERBS, Scope

__all__ = ["Exploration", "Partition", "SearchLevel", "Space", "explore", "reachable"]


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
