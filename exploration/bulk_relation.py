"""The transition relation of `orbit_space.py` on whole arrays of packed orbits at once.

Each rule is a few operations on integers (`packed_orbits.py`): a block that changes its kind adds
a constant, one that joins or leaves the queue shifts a part of it. No sorting is needed for an
orbit, since held blocks are counted by kind. Of all renamings of hashes the smallest integer is
taken; they are walked through by exchanging two neighbours at a time.

`tests/exploration/test_bulk.py` holds this against `orbit_space.py`, orbit by orbit and transition
by transition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import factorial
from typing import Any

import numpy as np

from poolproof.contract.profile import joins_head
from poolproof.exploration.orbit_space import ALLOCATE, CACHE, EVICT, FREE, RESET, TOUCH
from poolproof.exploration.packed_orbits import VERB_BITS, Packing, plain_changes
from poolproof.exploration.scope import ALL_VERBS, Scope

__all__ = ["Array", "BulkRelation", "Successors"]

Array = Any
"""A NumPy array of unsigned 64-bit integers; NumPy's types are absent where types are checked."""

_U = np.uint64


@dataclass(slots=True)
class Successors:
    """What an array of orbits leads to.

    `found` has, by the length of their queue, the successors, each above the `VERB_BITS` bits of
    its verb, one for each transition up to symmetry. `fired` counts them by verb, and `degrees`
    are the transitions from one state of each orbit.
    """

    found: dict[int, Array]
    fired: list[int]
    degrees: Array


class BulkRelation:
    """The rules of a scope for which `why_not_in_bulk` is None."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._packing = packing = Packing(scope)
        self._labels = range(1, packing.radix)
        self._references = range(1, scope.max_references + 1)
        self._label_bits = _U(packing.label_bits)
        self._label_mask = _U((1 << packing.label_bits) - 1)
        self._held_bits = _U(packing.held_bits)
        self._held_mask = _U((1 << packing.held_bits) - 1)
        self._count_mask = _U((1 << packing.count_bits) - 1)
        self._shifts = _column(packing.shifts)
        self._can_evict = "evict" in scope.verbs
        self._can_reset = "reset" in scope.verbs
        self._walk = [
            [(_U(distance), _U(mask)) for distance, mask in packing.exchange(place + 1)]
            for place in plain_changes(scope.num_hashes)
        ]
        factorials = [factorial(number) for number in range(scope.num_blocks + 1)]
        self._factorials = np.array(factorials, dtype=_U)
        self._namings = _U(factorials[-1] * factorial(scope.num_hashes))
        # By the bits of a hash in the queue: its number, and a held block that carries it.
        self._label_of = np.zeros(1 << packing.label_bits, dtype=np.uint8)
        self._revived = np.zeros(1 << packing.label_bits, dtype=_U)
        for label in self._labels:
            self._label_of[packing.one_hot(label)] = label
            self._revived[packing.one_hot(label)] = packing.unit(1, label)
        self._moves = self._all_moves()
        self._joining = [
            (
                to_head,
                [packing.kind(1, label) for label in labels],
                _column(packing.unit(1, label) for label in labels),
                _column(packing.one_hot(label) for label in labels),
            )
            for to_head, labels in self._joining_labels()
        ]
        places = [int(self._place(place)) for place in range(scope.num_blocks)]
        self._places = _column(places)
        self._below = _column((1 << place) - 1 for place in places)

    def initial(self) -> Array:
        """The orbit of the fresh pool, whose queue has all blocks, alone in an array."""
        return np.array([self._held_mask], dtype=_U)

    def successors(self, orbits: Array, queued: int) -> Successors:
        """Every transition from orbits with `queued` free blocks each."""
        gathered = _Gathered(len(orbits))
        counts = self._counts(orbits)
        if queued:
            self._from_queue(orbits, queued, gathered)
        if self._can_reset and queued == self.scope.num_blocks:
            some = (orbits > self._held_mask)[None]
            fresh = np.broadcast_to(self.initial(), some.shape)
            gathered.add(RESET, queued, fresh, some.astype(_U))
        for verb, kinds, constants in self._moves:
            gathered.add(verb, queued, orbits + constants, counts[kinds])
        self._released(orbits, queued, counts, gathered)
        if self.scope.duplicates != "kept":
            self._cached_alone(orbits, queued, counts, gathered)
        found = {}
        for goes_to, parts in gathered.found.items():
            numbers = [len(after) for _, after in parts]
            verbs = np.repeat(np.array([verb for verb, _ in parts], dtype=_U), numbers)
            after = self.canonical(np.concatenate([after for _, after in parts]))
            found[goes_to] = (after << _U(VERB_BITS)) | verbs
        return Successors(found, gathered.fired, gathered.degrees)

    def canonical(self, orbits: Array) -> Array:
        """The smallest integer of all names for the hashes."""
        best, renamed = orbits, orbits
        for exchange in self._walk:
            renamed = _exchanged(renamed, exchange)
            best = np.minimum(best, renamed)
        return best

    def sizes(self, orbits: Array) -> Array:
        """How many states each orbit has: all namings, over those that change nothing."""
        unmoved = np.ones(len(orbits), dtype=_U)
        renamed = orbits
        for exchange in self._walk:
            renamed = _exchanged(renamed, exchange)
            unmoved += renamed == orbits
        for count in self._counts(orbits):
            unmoved *= self._factorials[count.astype(np.intp)]
        return self._namings // unmoved

    def as_bytes(self, orbits: Array, queued: int) -> bytes:
        """The orbits as `orbit_space.py` writes them, joined."""
        blocks, radix = self.scope.num_blocks, self._packing.radix
        rows = np.empty((len(orbits), blocks), dtype=np.uint8)
        for column, place in enumerate(reversed(range(queued))):
            bits = (orbits >> self._place(place)) & self._label_mask
            rows[:, column] = self._label_of[bits.astype(np.intp)]
        up_to = np.cumsum(self._counts(orbits), axis=0)
        for place in range(blocks - queued):
            rows[:, queued + place] = (up_to <= _U(place)).sum(axis=0) + radix
        return rows.tobytes()

    def from_bytes(self, joined: bytes) -> dict[int, Array]:
        """Orbits that `orbit_space.py` wrote, by the length of their queue, in no order."""
        packing, radix = self._packing, self._packing.radix
        rows = np.frombuffer(joined, dtype=np.uint8).reshape(-1, self.scope.num_blocks)
        one_hot = np.array([packing.one_hot(label) for label in range(radix)], dtype=_U)
        units = np.array([1 << shift for shift in packing.shifts], dtype=_U)
        lengths = (rows < radix).sum(axis=1)
        found = {}
        # Not np.unique, which imports another part of NumPy, for longer than small scopes take.
        for queued in np.flatnonzero(np.bincount(lengths)).tolist():
            some = rows[lengths == queued].astype(np.intp)
            orbits = np.full(len(some), self._held_mask, dtype=_U)
            for column, place in enumerate(reversed(range(queued))):
                orbits |= one_hot[some[:, column]] << self._place(place)
            for column in range(queued, self.scope.num_blocks):
                orbits -= units[some[:, column] - radix]
            found[queued] = orbits
        return found

    def _counts(self, orbits: Array) -> Array:
        """How many blocks of each kind are held: a row a kind."""
        return ((orbits >> self._shifts) & self._count_mask) ^ self._count_mask

    def _place(self, place: int) -> Any:
        """Where a place of the queue begins, counted from the tail."""
        return _U(self._packing.held_bits + place * self._packing.label_bits)

    def _from_queue(self, orbits: Array, queued: int, gathered: _Gathered) -> None:
        """The allocation, and touches and evictions of free blocks."""
        head = self._place(queued - 1)
        without = orbits & ~(self._label_mask << head)
        every = np.ones((1, len(orbits)), dtype=_U)
        taken = (without - _U(self._packing.unit(1, 0)))[None]
        gathered.add(ALLOCATE, queued - 1, taken, every)
        if not self._labels:
            return
        places, below = self._places[:queued], self._below[:queued]
        bits = (orbits >> places) & self._label_mask
        some = (bits != 0).astype(_U)
        left = (orbits & below) | ((orbits >> self._label_bits) & ~below)
        revived = left - self._revived[bits.astype(np.intp)]
        gathered.add(TOUCH, queued - 1, revived, some)
        if self._can_evict:
            gathered.add(EVICT, queued, orbits ^ (bits << places), some)

    def _released(self, orbits: Array, queued: int, counts: Array, gathered: _Gathered) -> None:
        """The last references go, and the blocks join the queue."""
        for to_head, kinds, units, labels in self._joining:
            released = orbits + units
            if to_head:
                after = released | (labels << self._place(queued))
            else:
                queue = (released >> self._held_bits) << self._label_bits
                after = ((queue | labels) << self._held_bits) | (released & self._held_mask)
            gathered.add(FREE, queued + 1, after, counts[kinds])

    def _cached_alone(self, orbits: Array, queued: int, counts: Array, gathered: _Gathered) -> None:
        """Held blocks are cached under a hash that one block at most may carry."""
        packing, scope = self._packing, self.scope
        for other in self._labels:
            carried, others = self._without(orbits, counts, other)
            for references in self._references:
                for label in range(packing.radix):
                    if label == other or (label and scope.recache == "forbidden"):
                        continue
                    times = counts[packing.kind(references, label)]
                    leaving = _U(packing.unit(references, label))
                    joining = _U(packing.unit(references, other))
                    if scope.duplicates == "last":
                        after = others + leaving - joining
                    else:
                        bare = _U(packing.unit(references, 0))
                        after = orbits + leaving - np.where(carried, bare, joining)
                        if not label:
                            # The block had no hash, and gets none: nothing changes.
                            times = np.where(carried, _U(0), times)
                    gathered.add(CACHE, queued, after[None], times[None])

    def _without(self, orbits: Array, counts: Array, label: int) -> tuple[Array, Array]:
        """Whether any block carries the hash, and the orbits in which none does."""
        packing, places = self._packing, range(self.scope.num_blocks)
        in_queue = _U(sum(packing.one_hot(label) << int(self._place(place)) for place in places))
        carried = (orbits & in_queue) != 0
        others = orbits & ~in_queue
        for references in self._references:
            number = counts[packing.kind(references, label)]
            carried |= number != 0
            others += number * _U(packing.unit(references, label))
            others -= number * _U(packing.unit(references, 0))
        return carried, others

    def _joining_labels(self) -> list[tuple[bool, list[int]]]:
        """Hashes, 0 for none, whose blocks join the queue at its head, and those at its tail."""
        ends: dict[bool, list[int]] = {}
        for label in range(self._packing.radix):
            ends.setdefault(joins_head(self.scope.eviction, bool(label)), []).append(label)
        return list(ends.items())

    def _all_moves(self) -> list[tuple[int, list[int], Array]]:
        """Rules by which a held block becomes one of another kind, whatever the others are.

        For each verb the kinds to which it applies and, for each, what it adds to the orbit.
        """
        moves: dict[int, list[tuple[int, int]]] = {}
        packing, scope = self._packing, self.scope
        for references in self._references:
            for label in range(packing.radix):
                after = []
                if references < scope.max_references:
                    after.append((TOUCH, references + 1, label))
                if references > 1:
                    after.append((FREE, references - 1, label))
                if label and self._can_evict:
                    after.append((EVICT, references, 0))
                if scope.duplicates == "kept" and not (label and scope.recache == "forbidden"):
                    after += [(CACHE, references, o) for o in self._labels if o != label]
                kind, leaving = packing.kind(references, label), packing.unit(references, label)
                for verb, more, other in after:
                    # Modulo the integers' range, as NumPy adds.
                    constant = (leaving - packing.unit(more, other)) % (1 << 64)
                    moves.setdefault(verb, []).append((kind, constant))
        return [
            (verb, [kind for kind, _ in rules], _column(constant for _, constant in rules))
            for verb, rules in moves.items()
        ]


class _Gathered:
    """The successors of an array of orbits, as rule after rule adds them."""

    def __init__(self, number: int) -> None:
        self.found: dict[int, list[tuple[int, Array]]] = {}
        self.fired = [0] * len(ALL_VERBS)
        self.degrees = np.zeros(number, dtype=_U)

    def add(self, verb: int, goes_to: int, after: Array, times: Array) -> None:
        """Rows of successors, each with how many blocks it has alike: none where it does not go."""
        some = after[times != 0]
        self.fired[verb] += len(some)
        self.degrees += times.sum(axis=0)
        if len(some):
            self.found.setdefault(goes_to, []).append((verb, some))


def _exchanged(orbits: Array, exchange: Iterable[tuple[Any, Any]]) -> Array:
    for distance, mask in exchange:
        differing = ((orbits >> distance) ^ orbits) & mask
        orbits = orbits ^ (differing | (differing << distance))
    return orbits


def _column(numbers: Iterable[int]) -> Array:
    return np.array(list(numbers), dtype=_U).reshape(-1, 1)
