"""Which keys each block carries, and which blocks carry each key: one truth kept both ways.

A key is a block hash and the cache group that it was computed for. Equal tokens have different KV
in different groups (full attention, sliding window, ...), so the group belongs to the key. In
group 0 the key is the hash itself, which spares an allocation and a tuple hash for each block of
an engine with one group; in another group it is the pair. Bytes and pairs are never equal,
whatever the hashes' lengths.

Everything that gives a block a key or takes one away goes through `CachedKeys`, so that the
blocks' own keys, the prefix index and the events cannot disagree; index entries that outlive a
block's key, and the reverse, are the classic corruption of prefix caches (kvcached#363,
vllm#4764). Reference counts and arguments are checked before, in `poolproof.impl.pool_checks`.

Events are for consumers that keep a mirror of the index. One is a dict `{"type": "stored" |
"removed" | "cleared", "hashes": [bytes, ...], "group": int}`; stored and removed carry one hash
each, cleared carries none. Replayed in order from an empty mirror they give the index: under
"per-copy" as a multiset of (hash, group), one entry for each block that carries the hash; under
"per-hash" as a set. Which of the two a consumer must assume is a choice that both sides have to
share: a removal event for each copy, replayed as a set, forgets a hash that another block still
carries (vllm#55092). Token ids, parents and storage tiers are not part of these events.
"""

from __future__ import annotations

from itertools import repeat
from typing import Any

from poolproof.impl import block_loops
from poolproof.impl.key_table import KeyTable
from poolproof.impl.prefix_index import PrefixIndex

BlockKey = bytes | tuple[bytes, int]


def make_key(block_hash: bytes, group: int) -> BlockKey:
    """The index key of a hash in a group."""
    return (block_hash, group) if group else block_hash


def make_keys(hashes: list[bytes], group: int) -> list[BlockKey]:
    """The index keys of hashes in a group."""
    return [(block_hash, group) for block_hash in hashes] if group else [*hashes]


def hash_of(key: BlockKey) -> bytes:
    """The hash as the caller gave it."""
    return key[0] if type(key) is tuple else key  # type: ignore[return-value]  # mypy does not narrow by type(), the quickest test


def group_of(key: BlockKey) -> int:
    """The group that the key belongs to."""
    return key[1] if type(key) is tuple else 0


class EventLog:
    """Collects events until they are taken. `mode` is "per-copy" or "per-hash"."""

    def __init__(self, mode: str) -> None:
        self._every_copy = mode == "per-copy"
        self._events: list[dict[str, Any]] = []

    def stored(self, key: BlockKey, first_copy: bool) -> None:
        """A block has come to carry the key; `first_copy`: no other did before."""
        if self._every_copy or first_copy:
            self._append("stored", key)

    def removed(self, key: BlockKey, last_copy: bool) -> None:
        """A block has ceased to carry the key; `last_copy`: no other does now."""
        if self._every_copy or last_copy:
            self._append("removed", key)

    def cleared(self) -> None:
        """Every key of every group is gone."""
        self._events.append({"type": "cleared", "hashes": [], "group": 0})

    def take(self) -> list[dict[str, Any]]:
        """The events since the last call, oldest first."""
        events, self._events = self._events, []
        return events

    def _append(self, kind: str, key: BlockKey) -> None:
        self._events.append({"type": kind, "hashes": [hash_of(key)], "group": group_of(key)})


class CachedKeys:
    """The keys of `num_blocks` blocks.

    `primary[b]` is the key of block b, or None; a block has further keys only besides a primary
    one. `duplicates` is "kept", "first" or "last", as told in `BlockPool`; without `partial`, no
    block gets further keys. `table` is the index's, where the pool is compiled and no block has
    further keys, or None; see `poolproof.impl.key_table`.
    """

    def __init__(
        self, num_blocks: int, duplicates: str, events: EventLog | None, *, partial: bool
    ) -> None:
        self.primary: list[BlockKey | None] = [None] * num_blocks
        self.table: KeyTable | None = None
        if block_loops.COMPILED and not partial:
            self.table = KeyTable(self.primary)
        self.index = PrefixIndex(self.table)
        # The tokens that a primary key covers where it is a partial one; absent: all.
        self.partial_tokens: dict[int, int] = {}
        self._further: dict[int, dict[BlockKey, None]] = {}
        self._duplicates = duplicates
        self._events = events

    def keys_of(self, block_id: int) -> list[BlockKey]:
        """Every key of the block, the primary one first."""
        key = self.primary[block_id]
        return [] if key is None else [key, *self._further.get(block_id, ())]

    def add_full(self, block_id: int, key: BlockKey) -> None:
        """Make the key the only one of a full block. The same key again changes nothing."""
        if self.primary[block_id] == key and block_id not in self.partial_tokens:
            return
        self.drop(block_id)
        self._insert(block_id, key)

    def add_unhashed_n(self, block_ids: list[int], keys: list[BlockKey]) -> None:
        """`add_full` for distinct blocks without any key, one after the other."""
        primary = self.primary
        if self._events is not None:
            for block_id, key in zip(block_ids, keys, strict=True):
                self._insert(block_id, key)
            return
        # No block loses a key here, so every key that nobody carries can go in first, with one dict
        # operation a block. The rest meet a rival and are settled in order.
        if self.table is not None:
            for position in self.table.enter_n(block_ids, keys):
                self._insert(block_ids[position], keys[position])
            return
        rivalled = []
        enter = self.index.first.setdefault  # type: ignore[union-attr]  # no table, so it is a dict
        for block_id, key in zip(block_ids, keys, strict=True):
            if enter(key, block_id) == block_id:
                primary[block_id] = key
            else:
                rivalled.append((block_id, key))
        for block_id, key in rivalled:
            self._insert(block_id, key)

    def add_partial(self, block_id: int, key: BlockKey, num_tokens: int) -> None:
        """Add a key that covers `num_tokens` of the prefix, see `BlockPool.cache_partial`."""
        if key in self.keys_of(block_id):
            return
        covered = self.partial_tokens.get(block_id)
        if covered is not None and covered < num_tokens:
            self.drop(block_id)
        self._insert(block_id, key)
        if self.primary[block_id] == key:
            self.partial_tokens[block_id] = num_tokens

    def drop(self, block_id: int) -> None:
        """Take every key from the block; none is fine."""
        for key in self.keys_of(block_id):
            last_copy = self.index.remove(key, block_id)
            if self._events is not None:
                self._events.removed(key, last_copy)
        self.primary[block_id] = None
        self._further.pop(block_id, None)
        self.partial_tokens.pop(block_id, None)

    def drop_n(self, block_ids: list[int]) -> None:
        """`drop` for blocks, one after the other."""
        first, copies = self.index.first, self.index.copies
        if not first:
            return
        if self._events is not None or self._further or self.partial_tokens:
            for block_id in block_ids:
                self.drop(block_id)
            return
        if self.table is not None:
            for block_id in self.table.leave_n(block_ids, copies):
                self.drop(block_id)
            return
        primary = self.primary
        for block_id in block_ids:
            key = primary[block_id]
            if key is not None:
                primary[block_id] = None
                if copies and key in copies:
                    self.index.remove(key, block_id)
                else:
                    del first[key]

    def clear(self) -> None:
        """Take every key from every block: index and blocks together, or hits on nothing remain.

        The containers stay the same objects, since others look into them.
        """
        self.index.clear()
        self.primary[:] = repeat(None, len(self.primary))
        self._further.clear()
        self.partial_tokens.clear()
        if self._events is not None:
            self._events.cleared()

    def _insert(self, block_id: int, key: BlockKey) -> None:
        """Add a key that the block does not carry, and settle with the block that does."""
        rival = None if self._duplicates == "kept" else self.index.lookup(key)
        if rival is not None and self._duplicates == "first":
            self.drop(block_id)
            return
        if self.primary[block_id] is None:
            self.primary[block_id] = key
        else:
            self._further.setdefault(block_id, {})[key] = None
        first_copy = self.index.insert(key, block_id)
        if self._events is not None:
            self._events.stored(key, first_copy)
        if rival is not None:
            self.drop(rival)
