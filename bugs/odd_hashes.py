"""Correct oddities whose hashes have one length, and which take no other.

They are listed with the others in `oddities.py`.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, ClassVar

from poolproof.bugs.clean_pool import CleanPool
from poolproof.contract.content import Key

__all__ = ["FourWordsPool", "IntegerKeyPool", "WideRowsPool"]


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
