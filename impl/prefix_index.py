"""The prefix index: from the key of a block to the blocks that carry it.

Several blocks may carry one key: two requests that computed the same prefix at the same time each
keep their own copy, because the ids of a running request never change. The index does not know
which key a block has (`poolproof.impl.block_pool` does) and has no opinion on duplicates.
"""

from __future__ import annotations

from collections.abc import Hashable

from poolproof.impl.key_table import KeyTable


class PrefixIndex:
    """Key -> carriers, every carrier of a key being kept.

    A key has a bare id in `first` while one block carries it, which is nearly always so; from the
    second carrier on `copies` holds the other ids, as a dict in the order in which they came.
    A set for each key would cost a garbage-collected container for each cached block. Losing the
    second carrier when the first is recycled is a real bug of single-valued maps
    (nano-vllm#219), so a copy moves up into `first` when the first carrier leaves.

    `first` is a dict where no table is given. Both are open to the pool, which reads `first`
    directly; for every key of `copies`, `first` has that key, and the ids under it are distinct.
    """

    def __init__(self, first: KeyTable | None = None) -> None:
        self.first: dict[Hashable, int] | KeyTable = {} if first is None else first
        self.copies: dict[Hashable, dict[int, None]] = {}

    def insert(self, key: Hashable, block_id: int) -> bool:
        """Add a carrier; True when the key was new. Adding a carrier again changes nothing."""
        carrier = self.first.get(key)
        if carrier is None:
            self.first[key] = block_id
            return True
        if carrier != block_id:
            self.copies.setdefault(key, {})[block_id] = None
        return False

    def remove(self, key: Hashable, block_id: int) -> bool:
        """Take a carrier away; True when it was the last one of the key.

        Raises KeyError, and changes nothing, when the block does not carry the key.
        """
        carrier = self.first[key]
        copies = self.copies.get(key)
        if copies is None:
            if carrier != block_id:
                raise KeyError(key)
            del self.first[key]
            return True
        if carrier == block_id:
            self.first[key] = next(iter(copies))
            del copies[self.first[key]]
        else:
            try:
                del copies[block_id]
            except KeyError:
                raise KeyError(key) from None
        if not copies:
            del self.copies[key]
        return False

    def lookup(self, key: Hashable) -> int | None:
        """One carrier of the key, the one that has carried it longest, or None."""
        return self.first.get(key)

    def carriers(self, key: Hashable) -> list[int]:
        """All carriers of the key, `lookup`'s answer first; empty when there is none."""
        if key not in self.first:
            return []
        return [self.first[key], *self.copies.get(key, ())]

    def clear(self) -> None:
        """Forget everything. The containers stay the same objects."""
        self.first.clear()
        self.copies.clear()

    def __contains__(self, key: Hashable) -> bool:
        return key in self.first

    def __len__(self) -> int:
        """How many keys have a carrier."""
        return len(self.first)
