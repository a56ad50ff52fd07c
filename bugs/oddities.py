"""Correct oddities: pools that look unlike any engine but are right, so no check may accuse them.

Each is a native target of its own, with the profile that makes it right. They are what false
alarms are measured with. `ODDITIES` has all of them: those of this file, which differ in what they
offer or take only hashes of one length, and those of the files named `odd_...`.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, ClassVar

from poolproof.bugs.clean_pool import CleanPool
from poolproof.bugs.odd_books import (
    ComparingPool,
    NumberedPool,
    PureValuePool,
    RecountingPool,
    RollingBackPool,
)
from poolproof.bugs.odd_free_lists import BuddyPool, HeapPool, OrderedDictPool, StackPool
from poolproof.contract.content import Key
from poolproof.contract.profile import Profile

__all__ = ["ODDITIES", "MergingPool"]


class _Rows:
    """The hash of each block in a row of fixed width, as an array in C or a column keeps it."""

    def __init__(self, num_blocks: int, width: int) -> None:
        self.width = width
        self.bytes = bytearray(num_blocks * width)
        self.is_filled = bytearray(num_blocks)

    def __getitem__(self, block_id: int) -> bytes | None:
        start = block_id * self.width
        row = bytes(self.bytes[start : start + self.width])
        return row if self.is_filled[block_id] else None

    def __setitem__(self, block_id: int, key: bytes | None) -> None:
        self.is_filled[block_id] = key is not None
        if key is not None:
            start = block_id * self.width
            self.bytes[start : start + self.width] = self.fitting(key)

    def fitting(self, key: bytes) -> bytes:
        if len(key) != self.width:
            raise ValueError(f"a row has room for {self.width} bytes, the hash has {len(key)}")
        return key


class WideRowsPool(CleanPool):
    """Hashes stand in rows of 32 bytes each, and nothing longer or shorter is taken."""

    profile: ClassVar[dict[str, Any]] = {"hash_bytes": 32, "misuse": "undefined", "events": "none"}

    def __init__(self, num_blocks: int, *, enable_caching: bool = True) -> None:
        super().__init__(num_blocks, enable_caching=enable_caching)
        self.rows = _Rows(num_blocks, int(self.profile["hash_bytes"]))
        self.hashes = self.rows  # type: ignore[assignment] # what the base does with a list, it can

    def cache(self, block_ids: list[int], hashes: list[Key]) -> None:
        super().cache(block_ids, [self.rows.fitting(key) for key in hashes])  # type: ignore[arg-type] # opaque ones alone

    def _clear_hashes(self) -> None:
        self.rows.is_filled = bytearray(self.num_blocks)

    def lookup(self, block_hash: Key) -> int | None:
        return super().lookup(self.rows.fitting(block_hash))  # type: ignore[arg-type] # see above


class FourWordsPool(WideRowsPool):
    """Hashes stand in rows of 16 bytes each, the size that most hashes have here."""

    profile: ClassVar[dict[str, Any]] = {
        "hash_bytes": 16,
        "eviction": "lifo",
        "duplicates": "last",
    }


class IntegerKeyPool(CleanPool):
    """A compact index: a hash is one integer of 64 bits, and is made bytes again to be shown."""

    profile: ClassVar[dict[str, Any]] = {
        "hash_bytes": 8,
        "null_block": 0,
        "eviction": "unhashed-first",
        "misuse": "undefined",
        "events": "per-copy",
    }
    number = Struct("<Q")

    def cache(self, block_ids: list[int], hashes: list[Key]) -> None:
        super().cache(block_ids, [self._packed(key) for key in hashes])

    def lookup(self, block_hash: Key) -> int | None:
        return super().lookup(self._packed(block_hash))

    def block_hash(self, block_id: int) -> Key | None:
        packed: Any = super().block_hash(block_id)
        return None if packed is None else self.number.pack(packed)

    def take_events(self) -> list[dict[str, Any]]:
        events = super().take_events()
        for event in events:
            event["hashes"] = [self.number.pack(packed) for packed in event["hashes"]]
        return events

    def _packed(self, key: Any) -> Any:
        return self.number.unpack(key)[0]


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
