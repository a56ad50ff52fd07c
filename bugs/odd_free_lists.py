"""Correct oddities that differ in what their free list is: a heap, a stack, a dictionary, runs.

Each is a native pool of its own, right under the profile that it declares. None shows more than
its own structure shows cheaply. They are listed with the others in `oddities.py`.
"""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from heapq import heappop, heappush
from itertools import count
from typing import Any, ClassVar

from poolproof.contract.content import Key

__all__ = ["BuddyPool", "HeapPool", "OrderedDictPool", "StackPool"]


class HeapPool:
    """A heap by the time of release; entries of blocks that left early stay in it and are stale."""

    profile: ClassVar[dict[str, Any]] = {"null_block": 0, "eviction": "lru", "misuse": "undefined"}

    def __init__(self, num_blocks: int, *, enable_caching: bool = True) -> None:
        self.enable_caching = enable_caching
        self.counts = [0] * num_blocks
        self.hashes: list[Key | None] = [None] * num_blocks
        self.heap: list[tuple[int, int]] = []
        self.freed_at: dict[int, int] = {}
        self.clock = count()
        for block_id in range(1, num_blocks):
            self._queue(block_id)

    def allocate(self, n: int) -> list[int]:
        if n > self.num_free():
            raise MemoryError
        return [self._pop() for _ in range(n)]

    def touch(self, block_ids: list[int]) -> None:
        for block_id in block_ids:
            self.freed_at.pop(block_id, None)
            self.counts[block_id] += 1

    def free(self, block_ids: list[int]) -> None:
        for block_id in block_ids:
            self.counts[block_id] -= 1
            if not self.counts[block_id]:
                self._queue(block_id)

    def cache(self, block_ids: list[int], hashes: list[Key]) -> None:
        if self.enable_caching:
            for block_id, key in zip(block_ids, hashes, strict=True):
                self.hashes[block_id] = key

    def lookup(self, block_hash: Key) -> int | None:
        """The carrier with the fewest owners."""
        carriers = [b for b, key in enumerate(self.hashes) if key == block_hash]
        return min(carriers, key=self.counts.__getitem__, default=None)

    def evict(self, block_ids: list[int]) -> None:
        for block_id in block_ids:
            self.hashes[block_id] = None

    def reset(self) -> bool:
        if any(self.counts):
            return False
        self.hashes = [None] * len(self.hashes)
        return True

    def num_free(self) -> int:
        return len(self.freed_at)

    def free_order(self) -> list[int]:
        return sorted(self.freed_at, key=self.freed_at.__getitem__)

    def ref_count(self, block_id: int) -> int:
        return self.counts[block_id]

    def block_hash(self, block_id: int) -> Key | None:
        return self.hashes[block_id]

    def _queue(self, block_id: int) -> None:
        self.freed_at[block_id] = next(self.clock)
        heappush(self.heap, (self.freed_at[block_id], block_id))

    def _pop(self) -> int:
        freed_at, block_id = heappop(self.heap)
        while self.freed_at.get(block_id) != freed_at:
            freed_at, block_id = heappop(self.heap)
        del self.freed_at[block_id]
        self.counts[block_id], self.hashes[block_id] = 1, None
        return block_id


class StackPool:
    """The last freed goes first; one block a hash, the first; a listener hears of hashes."""

    profile: ClassVar[dict[str, Any]] = {
        "eviction": "lifo",
        "duplicates": "first",
        "events": "per-hash",
        "misuse": "undefined",
    }

    def __init__(self, num_blocks: int, *, enable_caching: bool = True) -> None:
        self.enable_caching = enable_caching
        self.stack = list(reversed(range(num_blocks)))
        self.counts = dict.fromkeys(range(num_blocks), 0)
        self.blocks: dict[Key, int] = {}
        self.hashes: dict[int, Key] = {}
        self.events: list[dict[str, Any]] = []

    def allocate(self, n: int) -> tuple[int, ...]:
        """A tuple is as good as a list."""
        if n > len(self.stack):
            raise ValueError(f"{n} of {len(self.stack)} blocks")
        taken = tuple(self.stack.pop() for _ in range(n))
        self.evict(list(taken))
        self.counts.update(dict.fromkeys(taken, 1))
        return taken

    def touch(self, block_ids: list[int]) -> None:
        for block_id in block_ids:
            if not self.counts[block_id]:
                self.stack.remove(block_id)
            self.counts[block_id] += 1

    def free(self, block_ids: list[int]) -> None:
        for block_id in block_ids:
            self.counts[block_id] -= 1
            if not self.counts[block_id]:
                self.stack.append(block_id)

    def cache(self, block_ids: list[int], hashes: list[Key]) -> None:
        if not self.enable_caching:
            return
        for block_id, key in zip(block_ids, hashes, strict=True):
            if self.hashes.get(block_id) == key:
                continue
            self.evict([block_id])
            if key not in self.blocks:
                self.blocks[key], self.hashes[block_id] = block_id, key
                self._announce("stored", key)

    def lookup(self, block_hash: Key) -> int | None:
        return self.blocks.get(block_hash)

    def evict(self, block_ids: list[int]) -> None:
        for block_id in block_ids:
            if block_id in self.hashes:
                key = self.hashes.pop(block_id)
                del self.blocks[key]
                self._announce("removed", key)

    def reset(self) -> bool:
        """Announced hash by hash, and never as a clear."""
        if len(self.stack) < len(self.counts):
            return False
        self.evict(list(self.hashes))
        return True

    def num_free(self) -> int:
        return len(self.stack)

    def free_order(self) -> list[int]:
        return self.stack[::-1]

    def free_neighbours(self, block_id: int) -> tuple[int | None, int | None] | None:
        """Who stands beside the block, from the place where it stands."""
        if self.counts[block_id]:
            return None
        place = self.stack.index(block_id)
        above = self.stack[place + 1] if place + 1 < len(self.stack) else None
        return above, self.stack[place - 1] if place else None

    def take_events(self) -> list[dict[str, Any]]:
        events, self.events = self.events, []
        return events

    def _announce(self, what: str, key: Key) -> None:
        self.events.append({"type": what, "hashes": [key], "group": 0})


class OrderedDictPool:
    """One ordered dictionary; null blocks may stand in lists; a listener hears of every copy."""

    profile: ClassVar[dict[str, Any]] = {
        "null_block": 0,
        "null_in_lists": "ignored",
        "eviction": "unhashed-first",
        "events": "per-copy",
        "misuse": "undefined",
    }

    def __init__(self, num_blocks: int, *, enable_caching: bool = True) -> None:
        self.enable_caching = enable_caching
        self.waiting = OrderedDict.fromkeys(range(1, num_blocks))
        self.owners: dict[int, int] = {}
        self.hashes: dict[int, Key] = {}
        self.events: list[dict[str, Any]] = []

    def allocate(self, n: int) -> list[int]:
        if n > len(self.waiting):
            raise MemoryError
        taken = [self.waiting.popitem(last=False)[0] for _ in range(n)]
        self.evict(taken)
        self.owners.update(dict.fromkeys(taken, 1))
        return taken

    def touch(self, block_ids: list[int]) -> None:
        for block_id in filter(None, block_ids):
            self.waiting.pop(block_id, None)
            self.owners[block_id] = self.owners.get(block_id, 0) + 1

    def free(self, block_ids: list[int]) -> None:
        """What nobody can find again goes to the head, in the order given."""
        useless = []
        for block_id in filter(None, block_ids):
            self.owners[block_id] -= 1
            if not self.owners[block_id]:
                del self.owners[block_id]
                self.waiting[block_id] = None
                if block_id not in self.hashes:
                    useless.append(block_id)
        for block_id in reversed(useless):
            self.waiting.move_to_end(block_id, last=False)

    def cache(self, block_ids: list[int], hashes: list[Key]) -> None:
        for block_id, key in zip(block_ids, hashes, strict=True):
            if self.enable_caching and block_id and self.hashes.get(block_id) != key:
                self.evict([block_id])
                self.hashes[block_id] = key
                self.events.append({"type": "stored", "hashes": [key], "group": 0})

    def lookup(self, block_hash: Key) -> int | None:
        """The carrier that was cached last."""
        return next((b for b in reversed(self.hashes) if self.hashes[b] == block_hash), None)

    def evict(self, block_ids: list[int]) -> None:
        """One event for all of the call."""
        gone = [self.hashes.pop(block_id) for block_id in block_ids if block_id in self.hashes]
        if gone:
            self.events.append({"type": "removed", "hashes": gone, "group": 0})

    def reset(self) -> bool:
        if self.owners:
            return False
        self.hashes.clear()
        self.events.append({"type": "cleared", "hashes": [], "group": 0})
        return True

    def num_free(self) -> int:
        return len(self.waiting)

    def free_order(self) -> list[int]:
        return list(self.waiting)

    def ref_count(self, block_id: int) -> int:
        return self.owners.get(block_id, 0)

    def block_hash(self, block_id: int) -> Key | None:
        return self.hashes.get(block_id)

    def take_events(self) -> list[dict[str, Any]]:
        events, self.events = self.events, []
        return events


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
