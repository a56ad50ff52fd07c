"""A prefix index on its own: which blocks carry a hash.

    poolproof certify examples/prefix_index.py:PrefixIndex --depth quick

A hash has a bare block id while one block carries it, which is nearly always so, and a dict of ids
from the second block on. Between the two forms most of what goes wrong in such maps goes wrong: the
last block but one leaves and takes the last with it, or leaves an empty dict behind.
"""

from __future__ import annotations


class PrefixIndex:
    """Keeps every block that carries a hash; `get` names the one that came first."""

    profile = {"duplicates": "kept"}

    def __init__(self) -> None:
        self._entries: dict[bytes, int | dict[int, None]] = {}

    def insert(self, key: bytes, block_id: int) -> None:
        entry = self._entries.get(key)
        if entry is None:
            self._entries[key] = block_id
        elif isinstance(entry, dict):
            entry[block_id] = None
        elif entry != block_id:
            self._entries[key] = {entry: None, block_id: None}

    def pop(self, key: bytes, block_id: int) -> int | None:
        if not self.contains(key, block_id):
            return None
        entry = self._entries[key]
        if isinstance(entry, dict):
            del entry[block_id]
            if len(entry) == 1:
                (self._entries[key],) = entry
        else:
            del self._entries[key]
        return block_id

    def get(self, key: bytes) -> int | None:
        entry = self._entries.get(key)
        return next(iter(entry)) if isinstance(entry, dict) else entry

    def contains(self, key: bytes, block_id: int) -> bool:
        entry = self._entries.get(key)
        return block_id in entry if isinstance(entry, dict) else entry == block_id

    def clear(self) -> None:
        self._entries.clear()

    def num_keys(self) -> int:
        return len(self._entries)
