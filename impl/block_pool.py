"""The block pool: which blocks are free, who may share them, and what is cached in them.

A pool hands out block ids and counts references to them; it keeps the hash of a full block after
its last reference has gone, so that a later request with the same prefix can revive it from the
free queue until an allocation evicts it. The pool never sees tokens or tensors: whether a block
was full and written when it was cached is the caller's duty, and so is the choice of the hash
(`poolproof.impl.block_hash`). It is not thread-safe, like the schedulers that own such pools.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Any

from poolproof.impl.block_loops import UNLINKED, BlockLoops, numbers
from poolproof.impl.cached_keys import CachedKeys, EventLog, group_of, hash_of, make_keys
from poolproof.impl.free_queue import FreeQueue
from poolproof.impl.pool_checks import PoolChecks, describe, gatherer, require_sizes


class BlockPool:
    """A pool of the blocks 0..num_blocks-1, with reference counts and a prefix index.

    Args:
        num_blocks: how many blocks, at least 1.
        enable_caching: without it `lookup` finds nothing, and `cache`, `cache_partial` and
            `evict` do nothing and look at none of their arguments.
        null_block: an id that is never handed out, or None.
        eviction: where the blocks of one `free` call go: "lru" each to the tail of the queue,
            "lifo" each to the head, "unhashed-first" those without a hash to the head (the first
            given is reused first; a block without a hash can serve no hit, vllm#42656) and the
            others to the tail.
        duplicates: several blocks cached under one hash are all "kept"; or one carrier remains,
            the "first" or the "last" to come. The loser ends without any hash, the keys of its
            other prefixes included.
        recache: another hash on a hashed block replaces the old one ("replace") or is misuse
            ("forbidden"). The same hash again does nothing. Promotion of a partial key to the
            full one is always legal.
        null_in_lists: the null block in an argument is "misuse" or is skipped ("ignored").
        keys: "block" one key a block; "partial" also keys of parts of a block, see
            `cache_partial`.
        events: "none", "per-copy" or "per-hash"; see `poolproof.impl.cached_keys`. Where a block
            takes a hash over from another one (duplicates "last"), the new copy is stored before
            the old one is removed, so that a mirror never loses the hash in between; under
            "per-hash" nothing is announced, because nothing changes for a set.
        misuse: "raises" a ValueError; "ignores" the whole call; "undefined" checks nothing.

    Misuse and refusals change nothing, the order of the queue included. With misuse "raises",
    these are misuse: counts that are no int or negative, ids that are no int (bool is none) or
    out of range, more frees than references, touching a free block without a hash, caching a
    block that nobody holds, ids repeated in `cache`, lists of unequal length, hashes that are no
    bytes. Raises ValueError for unknown argument values.

    Source of the design: the block pool of vLLM V1, whose structures are described at length in
    public; the code here is its own.
    """

    def __init__(
        self,
        num_blocks: int,
        *,
        enable_caching: bool = True,
        null_block: int | None = None,
        eviction: str = "lru",
        duplicates: str = "kept",
        recache: str = "replace",
        null_in_lists: str = "misuse",
        keys: str = "block",
        events: str = "none",
        misuse: str = "raises",
    ) -> None:
        require_sizes(num_blocks, enable_caching, null_block)
        self.profile = describe(
            null_block,
            {
                "eviction": eviction,
                "duplicates": duplicates,
                "recache": recache,
                "null_in_lists": null_in_lists,
                "keys": keys,
                "events": events,
                "misuse": misuse,
            },
        )
        self.num_blocks = num_blocks
        self.enable_caching = enable_caching
        self.null_block = null_block
        self._eviction = eviction
        self._partial = keys == "partial"
        self._events = None if events == "none" else EventLog(events)
        self._queue = FreeQueue(num_blocks)
        # Looked at directly by `free_neighbours`, as checkers read it for every block.
        self._previous, self._next = self._queue.previous, self._queue.next
        self._num_usable = num_blocks
        if null_block is not None:
            self._queue.unlink(null_block)
            self._num_usable -= 1
        # As many zeros again stand beyond the counts, for `PoolChecks`.
        self._ref_counts = numbers(2 * num_blocks, 0)
        self._cached = CachedKeys(num_blocks, duplicates, self._events, partial=self._partial)
        # Looked at directly by `lookup`, which runs once for each block of a prompt.
        self._carrier_of = self._cached.index.first
        self._loops = BlockLoops(
            num_blocks, self._next, self._previous, self._ref_counts, self._cached.primary
        )
        self._checks = PoolChecks(
            num_blocks,
            self._ref_counts,
            self._cached,
            self._loops,
            null_block,
            null_ignored=null_in_lists == "ignored",
            recache_forbidden=recache == "forbidden",
            misuse=misuse,
        )
        self._bind_observers()

    def _bind_observers(self) -> None:
        """Checkers read these for every block after every command: without a Python frame each.

        Not in a subclass, which may have its own.
        """
        if type(self) is BlockPool:
            self.ref_count = self._ref_counts.__getitem__  # type: ignore[method-assign,assignment]  # the same signature, but no method

    def __getstate__(self) -> dict[str, Any]:
        # A copy must not read the counts of the original.
        return {name: value for name, value in vars(self).items() if name != "ref_count"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._bind_observers()

    def allocate(self, n: int) -> list[int]:
        """Take n distinct blocks from the head of the free queue, each with one reference.

        What was cached in them is evicted. Raises MemoryError, before anything changes, when
        fewer than n are free; a negative n or one that is no int is misuse.
        """
        if type(n) is not int or n < 1:
            self._checks.count(n)
            return []
        if n > self._queue.length:
            raise MemoryError(
                f"allocate: {n} blocks asked for, {self._queue.length} of {self._num_usable} "
                "free; free some or ask for fewer"
            )
        taken = self._loops.take(n)
        self._queue.length -= n
        self._cached.drop_n(taken)
        return taken

    def touch(self, block_ids: Iterable[int]) -> None:
        """Add one reference for each entry; a free block leaves the queue and keeps its hash."""
        ids = self._checks.touch(block_ids)
        if ids:
            self._queue.length -= self._loops.hold(ids)

    def free(self, block_ids: Iterable[int]) -> None:
        """Drop one reference for each entry, in eviction order.

        A block joins the queue at the entry where its count reaches 0, and keeps its hash.
        """
        ids = self._checks.free(block_ids)
        if not ids:
            return
        if self._eviction == "lifo":
            self._free_to_head(ids)
            return
        to_head: list[int] | None = None if self._eviction == "lru" else []
        self._queue.length += self._loops.release(ids, to_head)
        if to_head:
            self._queue.link_head(to_head)

    def cache(self, block_ids: Iterable[int], hashes: Iterable[bytes], *, group: int = 0) -> None:
        """Give held, full blocks their hashes in a cache group, one entry after the other."""
        if not self.enable_caching:
            return
        if (
            type(block_ids) is list
            and type(hashes) is list
            and self._checks.is_plain_cache(block_ids, hashes, group)
        ):
            self._cached.add_unhashed_n(block_ids, make_keys(hashes, group))
            return
        for block_id, key in self._checks.cache(block_ids, hashes, group):
            self._cached.add_full(block_id, key)

    def cache_partial(
        self, block_id: int, block_hash: bytes, *, num_tokens: int, group: int = 0
    ) -> None:
        """Make a held block reachable from a prefix that ends inside it.

        `num_tokens` says how far the key reaches, in any unit that grows with the prefix. A key
        that reaches further than the block's partial primary key replaces all keys of the block;
        one that does not, or any key of a block cached in full, is added beside them. Caching the
        block in full with `cache` drops its partial keys. The rules are those of vLLM 0.32.
        Raises ValueError for a pool with keys "block".
        """
        if not self.enable_caching:
            return
        if not self._partial:
            raise ValueError("cache_partial: the pool keeps one key a block; use keys='partial'")
        key = self._checks.cache_partial(block_id, block_hash, num_tokens, group)
        if key is not None:
            self._cached.add_partial(block_id, key, num_tokens)

    def lookup(self, block_hash: bytes, *, group: int = 0) -> int | None:
        """A block that carries the hash in the group, or None. Changes nothing."""
        return self._carrier_of.get((block_hash, group) if group else block_hash)

    def lookup_groups(self, block_hash: bytes, groups: Iterable[int]) -> list[int] | None:
        """One carrier of the hash for each group, in their order, or None when any misses."""
        found = []
        for group in groups:
            block_id = self.lookup(block_hash, group=group)
            if block_id is None:
                return None
            found.append(block_id)
        return found

    def lookup_prefix(self, hashes: Iterable[bytes], *, group: int = 0) -> list[int]:
        """What `lookup` finds for each hash, up to the first hash that nobody carries."""
        keys = zip(hashes, repeat(group)) if group else hashes
        table = self._cached.table
        if table is not None:
            return table.find_prefix(keys if type(keys) is list else list(keys))
        return list(iter(map(self._carrier_of.get, keys).__next__, None))

    def carry(self, block_ids: list[int], hashes: list[bytes], *, group: int = 0) -> bool:
        """Whether each block carries the hash beside it, as its primary one, in the group.

        What a lookup has found may be evicted until it is touched (vllm#39702).
        """
        try:
            found = gatherer(block_ids)(self._cached.primary) if block_ids else (None,)
        except (IndexError, TypeError):
            return False
        return found[1:] == tuple(make_keys(hashes, group))

    def evict(self, block_ids: Iterable[int]) -> None:
        """Take hash and index entry from blocks; references and queue positions stay."""
        if self.enable_caching:
            self._cached.drop_n(self._checks.evict(block_ids) or [])

    def reset(self) -> bool:
        """Forget every hash and return True; False, and no change, while a block is held."""
        if self._queue.length != self._num_usable:
            return False
        if self.enable_caching:
            self._cached.clear()
        return True

    def num_free(self) -> int:
        """How many blocks `allocate` can hand out now."""
        return self._queue.length

    def usage(self) -> float:
        """The share of the non-null blocks that are held; 0.0 when there is none."""
        if not self._num_usable:
            return 0.0
        return (self._num_usable - self._queue.length) / self._num_usable

    def free_order(self) -> list[int]:
        """The free blocks in the order in which `allocate` will take them."""
        return self._queue.free_order()

    def free_neighbours(self, block_id: int) -> tuple[int | None, int | None] | None:
        """The blocks before and after in the queue, or None for a block that is not queued."""
        before, after = self._previous[block_id], self._next[block_id]
        if before == UNLINKED == after:
            return None
        num_blocks = self.num_blocks  # the sentinels stand beyond the ids
        return before if before < num_blocks else None, after if after < num_blocks else None

    def ref_count(self, block_id: int) -> int:
        """How many references the block has; ids out of range are not looked for."""
        return self._ref_counts[block_id]

    def block_hash(self, block_id: int) -> bytes | None:
        """The primary hash of the block. Raises IndexError for an id out of range."""
        key = self._cached.primary[block_id]
        return key[0] if type(key) is tuple else key  # type: ignore[return-value] # bytes or None

    def block_hashes(self, block_id: int) -> list[tuple[bytes, int]]:
        """Every (hash, group) that the block carries, the primary one first."""
        return [(hash_of(key), group_of(key)) for key in self._cached.keys_of(block_id)]

    def take_events(self) -> list[dict[str, Any]]:
        """The events since the last call, oldest first; empty with events "none"."""
        return [] if self._events is None else self._events.take()

    def _free_to_head(self, ids: list[int]) -> None:
        ref_counts = self._ref_counts
        released = []
        for block_id in ids:
            ref_counts[block_id] -= 1
            if not ref_counts[block_id]:
                released.append(block_id)
        self._queue.link_head(released[::-1])
