"""The specification of an index: for each key the blocks that carry it, in order of arrival."""

from __future__ import annotations

from poolproof.contract.index_commands import IndexKey
from poolproof.contract.observation import IndexLedger

__all__ = ["DictIndex"]


class DictIndex:
    """Empty at first. `duplicates` is the row of the profile: "kept", "first" or "last"."""

    def __init__(self, duplicates: str = "kept") -> None:
        self.carriers: dict[IndexKey, dict[int, None]] = {}
        self._duplicates = duplicates

    def insert(self, key: IndexKey, block_id: int) -> None:
        if self._duplicates == "first" and key in self.carriers:
            return
        if self._duplicates == "last" and not self.contains(key, block_id):
            self.carriers.pop(key, None)
        self.carriers.setdefault(key, {})[block_id] = None

    def pop(self, key: IndexKey, block_id: int) -> int | None:
        """The block, which does not carry the key any more; None where it did not."""
        if not self.contains(key, block_id):
            return None
        del self.carriers[key][block_id]
        if not self.carriers[key]:
            del self.carriers[key]
        return block_id

    def get(self, key: IndexKey) -> int | None:
        """The block that has carried the key longest; any carrier would do. None: no block."""
        return next(iter(self.carriers.get(key, ())), None)

    def contains(self, key: IndexKey, block_id: int) -> bool:
        return block_id in self.carriers.get(key, ())

    def clear(self) -> None:
        self.carriers.clear()

    def ledger(self) -> IndexLedger:
        """What the invariants compare an index with."""
        return IndexLedger(carriers=self.carriers)
