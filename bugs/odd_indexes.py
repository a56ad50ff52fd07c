"""Indexes that look unlike any engine's and are right: none of them may be accused."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any, ClassVar

from poolproof.contract.index_commands import IndexKey

__all__ = ["INDEX_ODDITIES"]


class SmallestFirst:
    """Keeps the carriers of a key as a sorted list, and answers the smallest."""

    key_kinds: ClassVar[tuple[str, ...]] = ("bytes", "int", "pair")

    def __init__(self) -> None:
        self._sorted: dict[IndexKey, list[int]] = {}

    def insert(self, key: IndexKey, block_id: int) -> bool:
        blocks = self._sorted.setdefault(key, [])
        place = bisect_left(blocks, block_id)
        is_new = place == len(blocks) or blocks[place] != block_id
        if is_new:
            insort(blocks, block_id)
        return is_new

    def pop(self, key: IndexKey, block_id: int) -> int | None:
        blocks = self._sorted.get(key, [])
        place = bisect_left(blocks, block_id)
        if place == len(blocks) or blocks[place] != block_id:
            return None
        del blocks[place]
        if not blocks:
            del self._sorted[key]
        return block_id

    def get(self, key: IndexKey) -> int | None:
        blocks = self._sorted.get(key)
        return blocks[0] if blocks else None


class NewestFirst:
    """One set of pairs and no map at all; answers the block that came last."""

    key_kinds = ("bytes", "int", "pair")

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._pairs: dict[tuple[IndexKey, int], None] = {}

    def insert(self, key: IndexKey, block_id: int) -> None:
        self._pairs.pop((key, block_id), None)
        self._pairs[key, block_id] = None

    def pop(self, key: IndexKey, block_id: int) -> int | None:
        if (key, block_id) not in self._pairs:
            return None
        del self._pairs[key, block_id]
        return block_id

    def get(self, key: IndexKey) -> int | None:
        for other, block_id in reversed(self._pairs):
            if other == key:
                return block_id
        return None

    def contains(self, key: IndexKey, block_id: int) -> bool:
        return (key, block_id) in self._pairs


class Tombstones:
    """An open table that never forgets a slot: what was popped leaves a tombstone behind."""

    def __init__(self) -> None:
        self._slots: list[tuple[bytes, int] | None] = []
        self._places: dict[bytes, list[int]] = {}

    def insert(self, key: bytes, block_id: int) -> None:
        if not self.contains(key, block_id):
            self._places.setdefault(key, []).append(len(self._slots))
            self._slots.append((key, block_id))

    def pop(self, key: bytes, block_id: int) -> int | None:
        for place in self._places.get(key, ()):
            if self._slots[place] == (key, block_id):
                self._slots[place] = None
                return block_id
        return None

    def get(self, key: bytes) -> int | None:
        blocks = self.carriers(key)
        return blocks[len(blocks) // 2] if blocks else None

    def contains(self, key: bytes, block_id: int) -> bool:
        return block_id in self.carriers(key)

    def carriers(self, key: bytes) -> list[int]:
        """The blocks that carry the key, the newest first."""
        slots = [self._slots[place] for place in reversed(self._places.get(key, ()))]
        return [slot[1] for slot in slots if slot is not None]

    def clear(self) -> None:
        self._slots, self._places = [], {}


class FirstStays:
    """One block for each key, the first that came, as its profile says."""

    profile: ClassVar[dict[str, Any]] = {"duplicates": "first"}
    key_kinds = ("int",)

    def __init__(self) -> None:
        self._block_of: dict[int, int] = {}

    def insert(self, key: int, block_id: int) -> None:
        self._block_of.setdefault(key, block_id)

    def pop(self, key: int, block_id: int) -> int | None:
        return self._block_of.pop(key) if self._block_of.get(key) == block_id else None

    def get(self, key: int) -> int | None:
        return self._block_of.get(key)

    def num_keys(self) -> int:
        """How many keys have a block."""
        return len(self._block_of)


class LastTakesOver(FirstStays):
    """One block for each key, the last that came, as its profile says."""

    profile: ClassVar[dict[str, Any]] = {"duplicates": "last"}

    def insert(self, key: int, block_id: int) -> None:
        self._block_of[key] = block_id


class OneWidth(SmallestFirst):
    """Packs each key into a fixed record: a hash of 20 bytes, with a group behind it or without."""

    profile: ClassVar[dict[str, Any]] = {"hash_bytes": 20}
    key_kinds = ("bytes", "pair")

    def insert(self, key: IndexKey, block_id: int) -> bool:
        return super().insert(self._record(key), block_id)

    def pop(self, key: IndexKey, block_id: int) -> int | None:
        return super().pop(self._record(key), block_id)

    def get(self, key: IndexKey) -> int | None:
        return super().get(self._record(key))

    def _record(self, key: IndexKey) -> bytes:
        block_hash, group = key if isinstance(key, tuple) else (key, -1)
        if not isinstance(block_hash, bytes) or len(block_hash) != 20:
            raise ValueError(f"a hash has 20 bytes, this one is {block_hash!r:.80}")
        return block_hash + group.to_bytes(8, "little", signed=True)


INDEX_ODDITIES: tuple[type, ...] = (
    SmallestFirst, NewestFirst, Tombstones, FirstStays, LastTakesOver, OneWidth
)  # fmt: skip
"""In no order."""
