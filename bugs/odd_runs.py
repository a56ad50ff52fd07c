"""A correct oddity whose free blocks are runs of neighbours, as a buddy allocator has them."""

from __future__ import annotations

from bisect import insort
from typing import Any, ClassVar

from poolproof.contract.content import Key

__all__ = ["BuddyPool"]


class BuddyPool:
    """Free blocks are runs of neighbours that merge again; the smallest run that fits is cut.

    The last block that is cached under a hash is its only carrier.
    """

    profile: ClassVar[dict[str, Any]] = {
        "eviction": "unspecified",
        "duplicates": "last",
        "misuse": "undefined",
    }

    def __init__(self, num_blocks: int, *, enable_caching: bool = True) -> None:
        self.enable_caching = enable_caching
        self.runs: list[tuple[int, int]] = [(0, num_blocks)]
        self.owners = [0] * num_blocks
        self.carrier: dict[Key, int] = {}

    def allocate(self, n: int) -> list[int]:
        """One run where one is long enough, else the longest first."""
        if n > self.num_free():
            raise MemoryError
        taken: list[int] = []
        while len(taken) < n:
            missing = n - len(taken)
            fitting = [run for run in self.runs if run[1] >= missing]
            longest = max(self.runs, key=lambda run: run[1])
            start, length = min(fitting, key=lambda run: run[1], default=longest)
            cut = min(length, missing)
            self.runs.remove((start, length))
            if cut < length:
                insort(self.runs, (start + cut, length - cut))
            taken += range(start, start + cut)
        self.evict(taken)
        for block_id in taken:
            self.owners[block_id] = 1
        return taken

    def touch(self, block_ids: list[int]) -> None:
        for block_id in block_ids:
            if not self.owners[block_id]:
                self._cut_out(block_id)
            self.owners[block_id] += 1

    def free(self, block_ids: list[int]) -> None:
        for block_id in block_ids:
            self.owners[block_id] -= 1
            if not self.owners[block_id]:
                self._merge(block_id)

    def cache(self, block_ids: list[int], hashes: list[Key]) -> None:
        if self.enable_caching:
            for block_id, key in zip(block_ids, hashes, strict=True):
                self.evict([block_id])
                self.carrier[key] = block_id

    def lookup(self, block_hash: Key) -> int | None:
        return self.carrier.get(block_hash)

    def evict(self, block_ids: list[int]) -> None:
        self.carrier = {key: b for key, b in self.carrier.items() if b not in block_ids}

    def num_free(self) -> int:
        return sum(length for _, length in self.runs)

    def free_order(self) -> list[int]:
        return [
            block_id for start, length in self.runs for block_id in range(start, start + length)
        ]

    def _cut_out(self, block_id: int) -> None:
        start, length = next(run for run in self.runs if 0 <= block_id - run[0] < run[1])
        self.runs.remove((start, length))
        for piece in ((start, block_id - start), (block_id + 1, start + length - block_id - 1)):
            if piece[1]:
                insort(self.runs, piece)

    def _merge(self, block_id: int) -> None:
        start, end = block_id, block_id + 1
        for run in [run for run in self.runs if run[0] == end or sum(run) == start]:
            self.runs.remove(run)
            start, end = min(start, run[0]), max(end, sum(run))
        insort(self.runs, (start, end - start))
