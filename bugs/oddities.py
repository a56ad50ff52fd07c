"""Correct oddities: pools that look unlike any engine and are right, so nobody may accuse them.

Each is a native target of its own, with the profile that makes it right. They are what false
alarms are measured with. `ODDITIES` has all of them: those of this file, which differ in what they
offer, and those of the files named `odd_...`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from poolproof.bugs.clean_pool import CleanPool
from poolproof.bugs.odd_bookkeeping import ComparingPool, NumberedPool, RecountingPool
from poolproof.bugs.odd_free_lists import HeapPool, OrderedDictPool, StackPool
from poolproof.bugs.odd_hashes import FourWordsPool, IntegerKeyPool, WideRowsPool
from poolproof.bugs.odd_misuse import PureValuePool, RollingBackPool
from poolproof.bugs.odd_runs import BuddyPool
from poolproof.contract.content import Key
from poolproof.contract.profile import Profile

__all__ = [
    "ODDITIES",
    "AcquiringPool",
    "BitmapPool",
    "BlackBoxPool",
    "MergingPool",
    "PreEvictingPool",
    "TellingPool",
]


class BitmapPool:
    """Free blocks are the set bits of one integer; the highest goes first, hashed or not."""

    profile: ClassVar[dict[str, Any]] = {"eviction": "unspecified", "misuse": "undefined"}

    def __init__(self, num_blocks: int, *, enable_caching: bool = True) -> None:
        self.free_bits = (1 << num_blocks) - 1
        self.counts = [0] * num_blocks
        self.hashes: dict[int, Key] = {}
        self.enable_caching = enable_caching

    def allocate(self, n: int) -> list[int]:
        if n > self.num_free():
            raise MemoryError
        taken = []
        for _ in range(n):
            block_id = self.free_bits.bit_length() - 1
            self._hold(block_id)
            self.hashes.pop(block_id, None)
            taken.append(block_id)
        return taken

    def touch(self, block_ids: list[int]) -> None:
        for block_id in block_ids:
            self._hold(block_id)

    def free(self, block_ids: list[int]) -> None:
        for block_id in block_ids:
            self.counts[block_id] -= 1
            if not self.counts[block_id]:
                self.free_bits |= 1 << block_id

    def cache(self, block_ids: list[int], hashes: list[Key]) -> None:
        if self.enable_caching:
            self.hashes.update(zip(block_ids, hashes, strict=True))

    def lookup(self, block_hash: Key) -> int | None:
        """The carrier with the highest id, by a search over all of them."""
        return max((b for b, key in self.hashes.items() if key == block_hash), default=None)

    def num_free(self) -> int:
        return self.free_bits.bit_count()

    def ref_count(self, block_id: int) -> int:
        return self.counts[block_id]

    def _hold(self, block_id: int) -> None:
        self.free_bits &= ~(1 << block_id)
        self.counts[block_id] += 1


class BlackBoxPool:
    """Only the required methods: no walk, no counts, no hashes, no eviction, no reset."""

    profile: ClassVar[dict[str, Any]] = {"eviction": "lru", "misuse": "raises"}

    def __init__(self, num_blocks: int, *, enable_caching: bool = True) -> None:
        self._inside = CleanPool(
            num_blocks, enable_caching=enable_caching, rules=Profile.from_mapping(self.profile)
        )

    def allocate(self, n: int) -> list[int]:
        return self._inside.allocate(n)

    def touch(self, block_ids: list[int]) -> None:
        self._inside.touch(block_ids)

    def free(self, block_ids: list[int]) -> None:
        self._inside.free(block_ids)

    def cache(self, block_ids: list[int], hashes: list[Key]) -> None:
        self._inside.cache(block_ids, hashes)

    def lookup(self, block_hash: Key) -> int | None:
        return self._inside.lookup(block_hash)

    def num_free(self) -> int:
        return self._inside.num_free()


class AcquiringPool:
    """Looks up and pins the longest cached prefix at once; there is no lookup and no touch."""

    profile: ClassVar[dict[str, Any]] = {"eviction": "lru", "misuse": "undefined"}

    def __init__(self, num_blocks: int, *, enable_caching: bool = True) -> None:
        self._inside = CleanPool(
            num_blocks, enable_caching=enable_caching, rules=Profile.from_mapping(self.profile)
        )

    def allocate(self, n: int) -> list[int]:
        return self._inside.allocate(n)

    def acquire(self, hashes: list[Key]) -> list[int]:
        """The blocks of the longest cached prefix, each with one more reference."""
        found = []
        for key in hashes:
            block_id = self._inside.lookup(key)
            if block_id is None:
                break
            found.append(block_id)
        self._inside.touch(found)
        return found

    def free(self, block_ids: list[int]) -> None:
        self._inside.free(block_ids)

    def cache(self, block_ids: list[int], hashes: list[Key]) -> None:
        self._inside.cache(block_ids, hashes)

    def num_free(self) -> int:
        return self._inside.num_free()

    def free_order(self) -> list[int]:
        return self._inside.free_order()

    def block_hash(self, block_id: int) -> Key | None:
        return self._inside.block_hash(block_id)


class PreEvictingPool(CleanPool):
    """Drops the oldest cached free block ahead of time whenever two of them are waiting."""

    profile: ClassVar[dict[str, Any]] = {"retention": "may-drop", "eviction": "lru"}

    def free(self, block_ids: list[int]) -> None:
        super().free(block_ids)
        waiting = [b for b in self.free_order() if self.hashes[b] is not None]
        for block_id in waiting[:-1]:
            self._drop_hash(block_id)


class TellingPool(CleanPool):
    """`allocate` also answers which hashes it evicted."""

    profile: ClassVar[dict[str, Any]] = {"eviction": "unhashed-first"}

    def allocate(  # type: ignore[override] # the contract allows more than the base gives
        self, n: int
    ) -> tuple[list[int], list[Key]]:
        before = list(self.hashes)
        taken = super().allocate(n)
        return taken, [key for b in taken if (key := before[b]) is not None]


class MergingPool(CleanPool):
    """`cache` merges duplicates: the caller holds the block that was there first from then on."""

    profile: ClassVar[dict[str, Any]] = {
        "duplicates": "first",
        "eviction": "lru",
        "misuse": "undefined",
    }

    def cache(  # type: ignore[override] # the contract allows more than the base gives
        self, block_ids: list[int], hashes: list[Key]
    ) -> list[int]:
        super().cache(block_ids, hashes)
        held = []
        for block_id, key in zip(block_ids, hashes, strict=True):
            carrier = self.lookup(key)
            if carrier is not None and carrier != block_id:
                self.touch([carrier])
                self.free([block_id])
                held.append(carrier)
            else:
                held.append(block_id)
        return held


ODDITIES: tuple[type, ...] = (
    BitmapPool,
    BlackBoxPool,
    AcquiringPool,
    PreEvictingPool,
    TellingPool,
    MergingPool,
    HeapPool,
    StackPool,
    OrderedDictPool,
    BuddyPool,
    RollingBackPool,
    PureValuePool,
    RecountingPool,
    ComparingPool,
    NumberedPool,
    WideRowsPool,
    FourWordsPool,
    IntegerKeyPool,
)
