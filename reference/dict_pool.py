"""The specification of a block pool: dictionaries and one ordered dictionary, nothing clever.

Four facts make up a pool, and each has one dictionary: who holds a block, which blocks are free
in which order, which keys a block carries, which blocks carry a key. Every operation
that docs/contract.md describes is a few lines over them, in every profile.

`DictPool` believes its caller: whether a command is legal is decided by `legality.py`, and what
a target may answer where the profile leaves it a choice is passed in (`chosen`). It does not
know KV contents; that is the shadow memory's task at manager level.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from poolproof.contract.content import Key
from poolproof.contract.observation import PoolLedger
from poolproof.contract.profile import Profile

__all__ = ["DictPool"]


class DictPool:
    """A pool of `num_blocks` blocks under `profile`.

    `holders[b]` lists whose references to block b are outstanding: numbers of commands, or of
    sequences where a manager owns the pool (`owner_noun`). So the reference count of b is
    `len(holders[b])`. `free` holds the free blocks, head first.
    `keys[b]` lists the keys of b, its block hash first; `carriers[k]` the blocks that carry k,
    oldest first. `key_length[b]` is how many tokens the block hash of b covers, counted from the
    start of its sequence, where that is known (token chains only, of `block_size` tokens a block).

    What a target did unseen cannot always be told afterwards. `doubtful` are the blocks whose keys
    it may have or lack; `ordered` says whether the order of `free` is known, and not only who is in
    it.
    """

    def __init__(
        self, num_blocks: int, profile: Profile | None = None, *, enable_caching: bool = True
    ) -> None:
        self.num_blocks = num_blocks
        self.profile = profile or Profile()
        self.enable_caching = enable_caching
        self.null_block = self.profile.null_block
        self.holders: dict[int, list[int]] = {b: [] for b in range(num_blocks)}
        self.keys: dict[int, list[Key]] = {b: [] for b in range(num_blocks)}
        self.key_length: dict[int, int] = {}
        self.carriers: dict[Key, list[int]] = {}
        self.free: OrderedDict[int, None] = OrderedDict.fromkeys(
            b for b in range(num_blocks) if b != self.null_block
        )
        self.doubtful: set[int] = set()
        self.ordered = self.profile.eviction != "unspecified"
        self.command_number = 0
        self.block_size = 1
        self.owner_noun = "command"

    def allocate(self, count: int, chosen: Sequence[int] | None = None) -> list[int]:
        """Hand out `count` free blocks from the head, or the `chosen` ones where order is free."""
        assert 0 <= count <= len(self.free)
        if chosen is None:
            taken = [self.free.popitem(last=False)[0] for _ in range(count)]
        else:
            taken = list(chosen)
            for block_id in taken:
                del self.free[block_id]
        for block_id in taken:
            self._drop_keys(block_id)
            self.holders[block_id].append(self.command_number)
        return taken

    def touch(self, block_ids: Iterable[int]) -> None:
        """One more reference for each entry; a free block leaves the queue and keeps its keys."""
        for block_id in block_ids:
            if block_id != self.null_block:
                self.free.pop(block_id, None)
                self.holders[block_id].append(self.command_number)

    def release(self, block_ids: Iterable[int], holder: int | None = None) -> list[int]:
        """`free`: one reference less for each entry; returns the blocks that became free.

        The oldest reference goes, or that of `holder`, where owners are known by name.
        """
        freed = []
        for block_id in block_ids:
            if block_id != self.null_block:
                holders = self.holders[block_id]
                holders.pop(0 if holder is None else holders.index(holder))
                if not self.holders[block_id]:
                    freed.append(block_id)
        if self.profile.retention == "while-held":
            self.forget_keys(freed)
        self._queue(freed)
        return freed

    def cache(self, block_ids: Iterable[int], keys: Iterable[Key]) -> None:
        """Each block gets its key and enters the index, as `duplicates` says.

        What a second key of a block means is decided before, by `recache` (`legality.py`).
        """
        if self.enable_caching:
            for block_id, key in zip(block_ids, keys, strict=True):
                if block_id != self.null_block:
                    self._cache_one(block_id, key)

    def cache_full(self, block_id: int, key: Key, num_tokens: int) -> None:
        """`cache` of one block whose key covers `num_tokens`; partial keys of the block go."""
        if self.enable_caching and block_id != self.null_block:
            if self.key_length.get(block_id, num_tokens) < num_tokens:
                self._drop_keys(block_id)
            self._cache_one(block_id, key)
            if self.keys[block_id]:
                self.key_length[block_id] = num_tokens

    def cache_partial(self, block_id: int, key: Key, num_tokens: int) -> None:
        """A key that ends inside the block: it replaces shorter keys and joins longer ones."""
        if not self.enable_caching or block_id == self.null_block or key in self.keys[block_id]:
            return
        length = self.key_length.get(block_id)
        if length is not None and length < num_tokens:
            self._drop_keys(block_id)
        if not self.keys[block_id]:
            self.key_length[block_id] = num_tokens
        self._add_key(block_id, key)

    def cache_in_doubt(self, block_id: int, key: Key) -> None:
        """The block may have got its key: the target knows whether there was one already."""
        if self.enable_caching and block_id != self.null_block and key not in self.keys[block_id]:
            self._drop_keys(block_id)
            self._add_key(block_id, key)
            self.doubtful.add(block_id)

    def lookup(self, key: Key) -> Sequence[int]:
        """All blocks that carry the key; a target may answer with any of them."""
        return self.carriers.get(key, ())

    def longest_prefix(self, keys: Sequence[Key]) -> int:
        """How many of the keys, from the first on, some block carries."""
        return next((i for i, key in enumerate(keys) if not self.lookup(key)), len(keys))

    def evict(self, block_ids: Iterable[int]) -> None:
        """The blocks lose their keys; references and queue positions stay."""
        if self.enable_caching:
            for block_id in block_ids:
                self._drop_keys(block_id)

    def reset(self) -> bool:
        """Every key goes, unless a block is held."""
        if len(self.free) != self.num_blocks - (self.null_block is not None):
            return False
        self.forget_keys(range(self.num_blocks))
        return True

    def usage(self) -> float:
        """The share of the usable blocks that are held; 0.0 where there is none."""
        usable = self.num_blocks - (self.null_block is not None)
        return 1 - len(self.free) / usable if usable else 0.0

    def forget_keys(self, block_ids: Iterable[int]) -> None:
        """These blocks lose their keys (also: a `may-drop` target was seen to have lost them)."""
        for block_id in block_ids:
            self._drop_keys(block_id)

    def forget_vanished(self, key: Key) -> None:
        """A `may-drop` target was seen to miss the key: its carriers lose it, if all are free."""
        carriers = list(self.lookup(key))
        if all(block_id in self.free for block_id in carriers):
            self.forget_keys(carriers)

    def ledger(self) -> PoolLedger:
        """What the invariants compare a pool with."""
        return PoolLedger(
            holders=self.holders,
            keys=self.keys,
            carriers=self.carriers,
            free_order=tuple(self.free),
            null_block=self.null_block,
            ordered=self.ordered,
            owner_noun=self.owner_noun,
        )

    def _queue(self, freed: list[int]) -> None:
        """Blocks that one call freed join the queue, in the order the profile declares."""
        to_head, to_tail = [], freed
        if self.profile.eviction == "lifo":
            to_head, to_tail = freed[::-1], []
        elif self.profile.reuses_unhashed_first:
            self.ordered = self.ordered and self.doubtful.isdisjoint(freed)
            to_head = [b for b in freed if not self.keys[b]]
            to_tail = [b for b in freed if self.keys[b]]
            if self.profile.eviction == "unhashed-lifo":
                to_head.reverse()
        for block_id in to_tail:
            self.free[block_id] = None
        for block_id in reversed(to_head):
            self.free[block_id] = None
            self.free.move_to_end(block_id, last=False)

    def _cache_one(self, block_id: int, key: Key) -> None:
        if key in self.keys[block_id]:
            if self.profile.duplicates == "kept":
                self.doubtful.discard(block_id)
            return
        self._drop_keys(block_id)
        if self.profile.duplicates == "first" and key in self.carriers:
            return
        if self.profile.duplicates == "last":
            self.forget_keys(list(self.carriers.get(key, ())))
        self._add_key(block_id, key)

    def _add_key(self, block_id: int, key: Key) -> None:
        self.keys[block_id].append(key)
        self.carriers.setdefault(key, []).append(block_id)

    def _drop_keys(self, block_id: int) -> None:
        keys = self.keys[block_id]
        if not keys:
            return
        for key in keys:
            self.carriers[key].remove(block_id)
            if not self.carriers[key]:
                del self.carriers[key]
        keys.clear()
        self.doubtful.discard(block_id)
        self.key_length.pop(block_id, None)
