"""The checks after a command, written for speed: does the target still equal the reference?

`FullCheck` reads everything that a pool shows; `IncrementalCheck` reads what a command touched,
so that its cost does not grow with the pool. Both only answer yes or no. On a no, the caller
reads the whole pool and asks the invariants for the sentence: those are the specification, these
are its fast form (tests/harness/test_fast_check.py holds the two together).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import compress, islice
from typing import Any

from poolproof.contract.content import Key
from poolproof.contract.observation import Neighbours, PoolObservation
from poolproof.contract.target import Capabilities
from poolproof.reference.dict_pool import DictPool

__all__ = ["FullCheck", "IncrementalCheck", "observe"]


def observe(
    target: Any, can: Capabilities, num_blocks: int, keys: Iterable[Key]
) -> PoolObservation:
    """Everything that the target shows, with a lookup for each of `keys`."""
    blocks = range(num_blocks)
    return PoolObservation(
        num_blocks=num_blocks,
        num_free=target.num_free(),
        free_order=list(target.free_order()) if can.sees("free_order") else None,
        ref_counts=list(map(target.ref_count, blocks)) if can.sees("ref_count") else None,
        block_hashes=list(map(target.block_hash, blocks)) if can.sees("block_hash") else None,
        neighbours=(
            list(map(target.free_neighbours, blocks)) if can.sees("free_neighbours") else None
        ),
        lookups={key: target.lookup(key) for key in keys} if "lookup" in can.verbs else None,
    )


class FullCheck:
    """Compares everything that the target shows with the reference, in one pass."""

    def __init__(
        self, target: Any, can: Capabilities, reference: DictPool, keys: list[Key]
    ) -> None:
        self._reference = reference
        self._keys = keys
        self._blocks = [b for b in range(reference.num_blocks) if b != reference.null_block]
        self._holders = [reference.holders[b] for b in self._blocks]
        self._block_keys = [reference.keys[b] for b in self._blocks]
        self._ordered = reference.profile.eviction != "unspecified"
        self._num_free: Callable[[], int] = target.num_free
        self._lookup = target.lookup if "lookup" in can.verbs else None
        self._free_order = target.free_order if can.sees("free_order") else None
        self._ref_count = target.ref_count if can.sees("ref_count") else None
        self._block_hash = target.block_hash if can.sees("block_hash") else None
        self._neighbours = target.free_neighbours if can.sees("free_neighbours") else None
        null = reference.null_block
        self._null_hash = target.block_hash if self._block_hash and null is not None else None

    def passes(self) -> bool:
        """Whether all that is seen equals the reference, and I1 holds in the target's own words."""
        free = self._reference.free
        if self._num_free() != len(free):
            return False
        order: list[int] = []
        if self._free_order is not None:
            order = list(self._free_order())
            if order != list(free) and (self._ordered or len(order) != len(free)
                                        or set(order) != free.keys()):  # fmt: skip
                return False
        blocks = self._blocks
        held: Iterable[int] = ()
        if self._ref_count is not None:
            counts = list(map(self._ref_count, blocks))
            if counts != list(map(len, self._holders)):
                return False
            if self._free_order is not None:
                if counts.count(0) != len(order) or any(map(self._ref_count, order)):
                    return False
                held = compress(blocks, counts)
        if self._block_hash is not None:
            shown = list(map(self._block_hash, blocks))
            if shown != [keys[0] if keys else None for keys in self._block_keys]:
                return False
            if self._null_hash and self._null_hash(self._reference.null_block) is not None:
                return False
        if self._neighbours is not None and self._free_order is not None:
            links = list(zip([None, *order], [*order[1:], None], strict=False))
            if list(map(self._neighbours, order)) != links[: len(order)]:
                return False
            if any(map(self._neighbours, held)):
                return False
        return self._lookups_pass()

    def _lookups_pass(self) -> bool:
        lookup = self._lookup
        if lookup is None:
            return True
        carriers_of = self._reference.carriers
        for key in self._keys:
            answer = lookup(key)
            carriers = carriers_of.get(key)
            if answer is None:
                if carriers is not None:
                    return False
            elif carriers is None or answer not in carriers:
                return False
        return True


class IncrementalCheck:
    """Compares what one command touched: its blocks, its keys, and both ends of the queue."""

    def __init__(self, target: Any, can: Capabilities, reference: DictPool) -> None:
        self._reference = reference
        self._num_free: Callable[[], int] = target.num_free
        self._lookup = target.lookup if "lookup" in can.verbs else None
        self._ref_count = target.ref_count if can.sees("ref_count") else None
        self._block_hash = target.block_hash if can.sees("block_hash") else None
        self.neighbours: Callable[[int], Neighbours] | None = (
            target.free_neighbours if can.sees("free_neighbours") else None
        )

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
        for block in touched:
            if block == null:
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
        if self.neighbours and reference.profile.eviction != "unspecified":
            return (
                self._ends_pass(min(length, len(free)))
                and (gap is None or self._closed(gap))
                and self._lookups_pass(keys)
            )
        return self._lookups_pass(keys)

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
            for block in islice(walk, length):
                links = self.neighbours(block)
                if links is None or links[1 - forward] != before:
                    return False
                if before is not None:
                    previous = self.neighbours(before)
                    if previous is None or previous[forward] != block:
                        return False
                before = block
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
