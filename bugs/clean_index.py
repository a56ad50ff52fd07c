"""A correct index that planted bugs are derived from, in the form that engines have.

A key has the bare block id while one block carries it, and a dict of ids from the second on, as in
vLLM's `BlockHashToBlockMap`: most of what goes wrong in such maps goes wrong between the two forms.
"""

from __future__ import annotations

from poolproof.contract.index_commands import IndexKey
from poolproof.contract.profile import Profile

__all__ = ["CleanIndex"]

Entry = int | dict[int, None]


class CleanIndex:
    """Keeps the carriers that `rules` say; what a pop does is in parts, for bugs to change one."""

    key_kinds: tuple[str, ...] = ("bytes", "int", "pair")

    def __init__(self, rules: Profile | None = None) -> None:
        self.duplicates = (rules or Profile()).duplicates
        self.entries: dict[IndexKey, Entry] = {}

    def insert(self, key: IndexKey, block_id: int) -> None:
        entry = self.entries.get(key)
        if self.duplicates == "first" and entry is not None:
            return
        if entry is None or self.duplicates == "last":
            self.entries[key] = block_id
        elif isinstance(entry, int):
            if entry != block_id:
                self.entries[key] = {entry: None, block_id: None}
        else:
            entry[block_id] = None

    def pop(self, key: IndexKey, block_id: int) -> int | None:
        entry = self.entries.pop(key, None)
        if entry is None:
            return None
        if isinstance(entry, int):
            return self.pop_single(key, entry, block_id)
        return self.pop_of_several(key, entry, block_id)

    def pop_single(self, key: IndexKey, entry: int, block_id: int) -> int | None:
        """The key had one block; its entry was taken out."""
        if entry == block_id:
            return block_id
        self.entries[key] = entry
        return None

    def pop_of_several(self, key: IndexKey, entry: dict[int, None], block_id: int) -> int | None:
        """The key had a dict of blocks; it was taken out."""
        answer = block_id if block_id in entry else None
        entry.pop(block_id, None)
        self.put_back(key, entry)
        return answer

    def put_back(self, key: IndexKey, entry: dict[int, None]) -> None:
        """What is left of several blocks."""
        if len(entry) == 1:
            (self.entries[key],) = entry
        elif entry:
            self.entries[key] = entry

    def get(self, key: IndexKey) -> int | None:
        entry = self.entries.get(key)
        return next(iter(entry)) if isinstance(entry, dict) else entry

    def contains(self, key: IndexKey, block_id: int) -> bool:
        entry = self.entries.get(key)
        return block_id in entry if isinstance(entry, dict) else entry == block_id

    def clear(self) -> None:
        self.entries.clear()

    def num_keys(self) -> int:
        """How many keys have an entry."""
        return len(self.entries)
