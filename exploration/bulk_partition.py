"""All orbits of a scope in one process, as sorted arrays of integers: whole levels at a time.

The orbits that were seen are kept by the length of their queue, eight bytes each. What a level
leads to is sorted, so that equal orbits stand side by side with the first verb in front, and is
looked up in what was seen. Orbits come in and go out as the bytes of `orbit_space.py`, so that an
exploration that one of the two began can be continued by the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np

from poolproof.exploration.breadth_first import SearchLevel
from poolproof.exploration.bulk_relation import Array, BulkRelation
from poolproof.exploration.packed_orbits import VERB_BITS
from poolproof.exploration.scope import ALL_VERBS, Scope, peak_mib

__all__ = ["BulkPartition"]

_U = np.uint64
_VERB_BITS = _U(VERB_BITS)

_ORBITS_AT_ONCE = 1 << 14
"""What is computed for so many stays in a processor's cache."""

_BYTES_AT_ONCE = 1 << 16


class BulkPartition:
    """All states of the scope's orbits; see `breadth_first.Partitions`."""

    def __init__(self, scope: Scope) -> None:
        self._relation = BulkRelation(scope)
        self._width = scope.num_blocks
        nothing = np.empty(0, dtype=_U)
        self._seen = [nothing] * (scope.num_blocks + 1)
        self._frontier: dict[int, Array] = {}
        self._leaving: dict[int, list[Array]] = {}

    def begin(self, levels: Sequence[Iterable[bytes]]) -> None:
        for level in levels:
            states = iter(level)
            parts: dict[int, list[Array]] = {}
            while joined := b"".join(islice(states, _BYTES_AT_ONCE)):
                for queued, orbits in self._relation.from_bytes(joined).items():
                    parts.setdefault(queued, []).append(orbits)
            self._frontier = {q: np.sort(np.concatenate(some)) for q, some in parts.items()}
            for queued, orbits in self._frontier.items():
                self._remember(queued, orbits)

    def expand(self) -> SearchLevel:
        level = SearchLevel()
        self._leaving = {}
        for queued, orbits in self._frontier.items():
            for first in range(0, len(orbits), _ORBITS_AT_ONCE):
                self._expand(orbits[first : first + _ORBITS_AT_ONCE], queued, level)
        return level

    def absorb(self) -> SearchLevel:
        level = SearchLevel()
        self._frontier = {}
        for queued in sorted(self._leaving):
            parts = self._leaving.pop(queued)
            found = parts[0] if len(parts) == 1 else _first_of_each(np.concatenate(parts))
            verbs = np.bincount((found & _U((1 << VERB_BITS) - 1)).astype(np.intp))
            level.new.update({ALL_VERBS[v]: int(n) for v, n in enumerate(verbs) if n})
            self._frontier[queued] = found >> _VERB_BITS
            self._remember(queued, self._frontier[queued])
        return level

    def frontier(self) -> Iterator[bytes]:
        for queued, orbits in self._frontier.items():
            for first in range(0, len(orbits), _BYTES_AT_ONCE):
                some = orbits[first : first + _BYTES_AT_ONCE]
                joined = self._relation.as_bytes(some, queued)
                for place in range(0, len(joined), self._width):
                    yield joined[place : place + self._width]

    def memory_mib(self) -> int:
        return peak_mib()

    def _expand(self, orbits: Array, queued: int, level: SearchLevel) -> None:
        """Count a part of the frontier, and keep what it leads to and was not seen before."""
        after = self._relation.successors(orbits, queued)
        sizes = self._relation.sizes(orbits)
        level.num_found += len(orbits)
        level.num_states += _exact_sum(sizes)
        level.num_transitions += _exact_sum(sizes * after.degrees)
        level.fired.update({ALL_VERBS[v]: n for v, n in enumerate(after.fired) if n})
        for goes_to, found in after.found.items():
            some = _first_of_each(found)
            fresh = some[~_is_among(some >> _VERB_BITS, self._seen[goes_to])]
            if len(fresh):
                self._leaving.setdefault(goes_to, []).append(fresh)

    def _remember(self, queued: int, orbits: Array) -> None:
        joined = np.concatenate([self._seen[queued], orbits])
        joined.sort(kind="stable")  # two sorted runs are merged
        self._seen[queued] = joined


def _first_of_each(found: Array) -> Array:
    """Of each orbit the one with the first verb, in ascending order."""
    found.sort()
    orbits = found >> _VERB_BITS
    is_first = np.ones(len(found), dtype=bool)
    np.not_equal(orbits[1:], orbits[:-1], out=is_first[1:])
    return found[is_first]


def _is_among(orbits: Array, known: Array) -> Array:
    """Which of some orbits, in ascending order, are among known ones, in ascending order."""
    if not len(known):
        return np.zeros(len(orbits), dtype=bool)
    places: Array = np.searchsorted(known, orbits)
    places[places == len(known)] = 0
    return known[places] == orbits


def _exact_sum(numbers: Array) -> int:
    """The sum, which may exceed what an integer of the array holds; each half's does not."""
    low, high = numbers & _U(0xFFFF_FFFF), numbers >> _U(32)
    return int(low.sum()) + (int(high.sum()) << 32)
