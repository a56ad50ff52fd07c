"""The checks after a command: does the target still equal the reference, and what if it does not?

`FullCheck` reads everything that a pool shows; `IncrementalCheck` reads what a command touched,
so that its cost does not grow with the pool. Both are written for speed and only answer yes or no.
On a no, `PoolDiagnosis` reads the whole pool with care and asks the invariants for the sentence:
those are the specification, the checks are its fast form (tests/harness/test_pool_check.py holds
the two together).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from operator import index
from typing import Any

from poolproof.contract.content import Key
from poolproof.contract.observation import Neighbours, PoolObservation
from poolproof.contract.target import Capabilities
from poolproof.contract.violation import Violation
from poolproof.harness.every_invariant import EveryInvariant
from poolproof.harness.reading import (
    read,
    read_block_or_none,
    read_blocks,
    read_count,
    read_neighbours,
)
from poolproof.reference.dict_pool import DictPool

__all__ = ["FullCheck", "IncrementalCheck", "PoolDiagnosis", "observe"]


def observe(
    target: Any,
    can: Capabilities,
    num_blocks: int,
    keys: Iterable[Key],
    null_block: int | None = None,
) -> PoolObservation:
    """Everything that the target shows, with a lookup for each of `keys`.

    The null block's count and links mean nothing and are not read: they stand as 0 and None.
    Raises ViolationError for a method that raises or whose answer is of a wrong type.
    """
    blocks = range(num_blocks)
    free_order = ref_counts = block_hashes = neighbours = lookups = None
    num_free = read_count(target.num_free)
    if can.sees("free_order"):
        free_order = read_blocks(target.free_order)
    if can.sees("ref_count"):
        count = target.ref_count
        ref_counts = [0 if b == null_block else read_count(count, b) for b in blocks]
    if can.sees("block_hash"):
        block_hashes = [read(target.block_hash, b) for b in blocks]
    if can.sees("free_neighbours"):
        links = target.free_neighbours
        neighbours = [None if b == null_block else read_neighbours(links, b) for b in blocks]
    if "lookup" in can.verbs:
        lookups = {key: read_block_or_none(target.lookup, key) for key in keys}
    return PoolObservation(
        num_blocks, num_free, free_order, ref_counts, block_hashes, neighbours, lookups
    )


ReadAhead = Callable[[Sequence[int], Sequence[int], Sequence[Key]], None]
"""Told the blocks, the blocks whose links, and the keys that a check is about to read."""


def read_ahead_of(target: Any) -> ReadAhead | None:
    """How a target is told what will be read: a program answers hundreds of readings at once."""
    read_ahead: ReadAhead | None = getattr(target, "poolproof_read_ahead", None)
    return read_ahead


class FullCheck:
    """Compares everything that the target shows with the reference, in one pass."""

    def __init__(
        self, target: Any, can: Capabilities, reference: DictPool, keys: list[Key]
    ) -> None:
        blocks = [b for b in range(reference.num_blocks) if b != reference.null_block]
        self._reference = reference
        # The neighbours that follow from the last order; many commands leave it as it is.
        self._order: list[int] | None = None
        self._links: list[Neighbours] = []
        # What stays the same, in one place: looking up an attribute costs as much as reading one.
        self._known = (
            reference.free,
            blocks,
            [reference.holders[b] for b in blocks],
            [reference.keys[b] for b in blocks],
            reference.carriers,
            keys,
            reference.null_block,
        )
        self._reads: tuple[
            Callable[[], int],
            Callable[[], Iterable[int]] | None,
            Callable[[int], int] | None,
            Callable[[int], Key | None] | None,
            Callable[[int], Neighbours] | None,
            Callable[[Key], int | None] | None,
        ] = (
            target.num_free,
            target.free_order if can.sees("free_order") else None,
            target.ref_count if can.sees("ref_count") else None,
            target.block_hash if can.sees("block_hash") else None,
            target.free_neighbours if can.sees("free_neighbours") else None,
            target.lookup if "lookup" in can.verbs else None,
        )
        self._read_ahead = read_ahead_of(target)

    def passes(self, *, links: bool = True) -> bool:
        """Whether all that is seen equals the reference, in which every invariant holds.

        The links of the queue are left out unless `links`.
        """
        free, blocks, holders, block_keys, carriers_of, keys_to_find, null = self._known
        num_free, free_order, ref_count, block_hash, neighbours, lookup = self._reads
        if num_free() != len(free):
            return False
        if self._read_ahead is not None:
            self._read_ahead(
                blocks,
                blocks if links and free_order is not None else (),
                keys_to_find if lookup is not None else (),
            )
        order = list(free)
        if free_order is not None:
            shown_order = free_order()
            if type(shown_order) is not list:  # an array has no truth value
                shown_order = list(shown_order)
            if shown_order != order:
                if self._reference.ordered:
                    return False
                shown_order = list(map(index, shown_order))  # numbers of arrays have no hash
                if set(shown_order) != set(order):
                    return False
                if len(shown_order) != len(order):
                    return False
                order = shown_order
        if ref_count is not None:
            counts = list(map(ref_count, blocks))
            # The second half is I1 in the target's own words, with no help from the reference.
            if counts != list(map(len, holders)) or counts.count(0) != len(order):
                return False
        if block_hash is not None:
            hashes = [keys[0] if keys else None for keys in block_keys]
            if list(map(block_hash, blocks)) != hashes:
                return False
            if null is not None and block_hash(null) is not None:
                return False
        if links and neighbours is not None and free_order is not None:
            if order != self._order:
                self._order, self._links = order, self._links_of(order)
            if list(map(neighbours, blocks)) != self._links:
                return False
        if lookup is not None:
            for key in keys_to_find:
                block = lookup(key)
                if block is None:
                    if key in carriers_of:
                        return False
                elif block not in carriers_of.get(key, ()):
                    return False
        return True

    def _links_of(self, order: list[int]) -> list[Neighbours]:
        """The neighbours of each block but the null block in a queue of this order."""
        links: list[Neighbours] = [None] * self._reference.num_blocks
        before = None
        for place, block in enumerate(order, start=1):
            after = order[place] if place < len(order) else None
            links[block] = (before, after)
            before = block
        null = self._reference.null_block
        if null is not None:
            del links[null]
        return links


class IncrementalCheck:
    """Compares what one command touched: its blocks, its keys, and both ends of the queue.

    `gaps` are the former neighbours of the blocks that the command takes out of the queue.
    """

    def __init__(self, target: Any, can: Capabilities, reference: DictPool) -> None:
        self._reference = reference
        self._num_free: Callable[[], int] = target.num_free
        self._lookup = target.lookup if "lookup" in can.verbs else None
        self._ref_count = target.ref_count if can.sees("ref_count") else None
        self._block_hash = target.block_hash if can.sees("block_hash") else None
        self.neighbours: Callable[[int], Neighbours] | None = (
            target.free_neighbours if can.sees("free_neighbours") else None
        )
        self.gaps: list[Neighbours] = []
        self._read_ahead = read_ahead_of(target)

    def note_gap(self, block: int) -> None:
        """A block is about to leave the queue from wherever it stands."""
        # Of two gaps neither is judged (see the session), so that a third is not read.
        if self.neighbours is not None and len(self.gaps) < 2:
            self.gaps.append(self.neighbours(block))

    def passes(self, touched: Iterable[int], keys: Iterable[Key], gap: Neighbours = None) -> bool:
        """Whether the touched blocks and keys, the counter and the queue's ends are right.

        `gap` are the former neighbours of a block that left the queue: now each other's.
        """
        reference = self._reference
        free = reference.free
        if self._num_free() != len(free):
            return False
        null = reference.null_block
        length = 1
        blocks = dict.fromkeys(touched)  # one id may stand in a list hundreds of times
        if self._read_ahead is not None:
            keys = tuple(keys)
            looked_at = [block for block in blocks if block != null]
            self._read_ahead(
                looked_at, self._linked(looked_at, gap), keys if self._lookup is not None else ()
            )
        for block in blocks:
            if block == null:
                if self._block_hash and self._block_hash(block) is not None:
                    return False
                continue
            length += 1
            if self._ref_count and self._ref_count(block) != len(reference.holders[block]):
                return False
            if self._block_hash:
                known = reference.keys[block]
                if self._block_hash(block) != (known[0] if known else None):
                    return False
            if self.neighbours and (self.neighbours(block) is not None) != (block in free):
                return False
        if self.neighbours and reference.ordered:
            return (
                self._ends_pass(min(length, len(free)))
                and (gap is None or self._closed(gap))
                and self._lookups_pass(keys)
            )
        return self._lookups_pass(keys)

    def _linked(self, blocks: Sequence[int], gap: Neighbours) -> tuple[int, ...]:
        """The blocks whose links `passes` reads, if nothing is wrong."""
        free = self._reference.free
        length = min(len(blocks) + 1, len(free)) if self._reference.ordered else 0
        sides = [block for block in gap or () if block is not None]
        return (*blocks, *islice(free, length), *islice(reversed(free), length), *sides)

    def _closed(self, gap: tuple[int | None, int | None]) -> bool:
        """Whether the blocks on both sides of a gap are linked to each other."""
        assert self.neighbours is not None
        before, after = gap
        left = None if before is None else self.neighbours(before)
        right = None if after is None else self.neighbours(after)
        return (before is None or (left is not None and left[1] == after)) and (
            after is None or (right is not None and right[0] == before)
        )

    def _ends_pass(self, length: int) -> bool:
        """Walk `length` blocks from either end through the links."""
        assert self.neighbours is not None
        free = self._reference.free
        for walk, forward in ((iter(free), 1), (reversed(free), 0)):
            before: int | None = None
            previous: Neighbours = None
            for block in islice(walk, length):
                links = self.neighbours(block)
                if links is None or links[1 - forward] != before:
                    return False
                if previous is not None and previous[forward] != block:
                    return False
                before, previous = block, links
        return True

    def _lookups_pass(self, keys: Iterable[Key]) -> bool:
        if self._lookup is None:
            return True
        for key in keys:
            answer = self._lookup(key)
            carriers = self._reference.carriers.get(key, ())
            if (answer is None and carriers) or (answer is not None and answer not in carriers):
                return False
        return True


class PoolDiagnosis:
    """Reads a whole pool with care and says what is wrong with it."""

    def __init__(
        self,
        target: Any,
        can: Capabilities,
        reference: DictPool,
        keys: Iterable[Key],
        invariants: EveryInvariant,
    ) -> None:
        self._target = target
        self._can = can
        self._reference = reference
        self._keys = keys
        self._broken_in = invariants.broken_in
        self._may_drop = reference.profile.retention == "may-drop"

    def diagnose(self) -> Violation | None:
        """Read the whole pool and ask the invariants; the first that is broken, or None.

        Raises ViolationError for a pool that cannot be read.
        """
        if self._may_drop:
            self.forget_what_vanished()
        violation = self.first_broken()
        while violation is not None and self._may_drop and self.forget_what_vanished():
            # A block vanished while we were reading.
            violation = self.first_broken()
        return violation

    def first_broken(self) -> Violation | None:
        """The same of a pool of which the reference knows what it has dropped."""
        return self._broken_in(self.observe(), self._reference.ledger())

    def observe(self) -> PoolObservation:
        """Everything that the pool shows. Raises ViolationError where it cannot be read."""
        pool = self._reference
        return observe(self._target, self._can, pool.num_blocks, self._keys, pool.null_block)

    def forget_what_vanished(self) -> bool:
        """A `may-drop` target may have dropped free cached blocks; the reference follows it.

        Returns whether it did.
        """
        pool = self._reference
        forgotten = False
        for block in [b for b, keys in pool.keys.items() if keys and b in pool.free]:
            if self._can.sees("block_hash"):
                gone = read(self._target.block_hash, block) is None
            elif "lookup" not in self._can.verbs:
                break  # only `acquire` can tell, and its answer is judged there
            else:
                key = pool.keys[block][0]
                held = any(b not in pool.free for b in pool.carriers[key])
                gone = not held and read(self._target.lookup, key) is None
            if gone:
                pool.forget_keys([block])
                forgotten = True
        return forgotten
