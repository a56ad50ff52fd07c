"""Decides which pools can be built, and which of their calls are legal.

The arguments of `BlockPool` are the choices that engines make differently without being wrong; what
each value means is told where it is carried out, in the pool.

Each method of `PoolChecks` takes the arguments of one operation and returns what the pool shall
carry out, the null block left out where it is ignored; or None for a call that is misuse and
ignored. It first tries a test that needs a few passes in C, or in the compiled pool one pass of
`BlockLoops`, and can only say "legal" or "look closely"; the close look,
`poolproof.impl.pool_misuse`, knows the sentence to raise. Nothing here changes any state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

from poolproof.impl import block_loops, pool_misuse
from poolproof.impl.block_loops import BlockLoops
from poolproof.impl.cached_keys import BlockKey, CachedKeys, make_key

CHOICES: dict[str, tuple[str, ...]] = {
    "eviction": ("lru", "unhashed-first", "lifo"),
    "duplicates": ("kept", "first", "last"),
    "recache": ("replace", "forbidden"),
    "null_in_lists": ("misuse", "ignored"),
    "keys": ("block", "partial"),
    "events": ("none", "per-copy", "per-hash"),
    "misuse": ("raises", "ignores", "undefined"),
}


def require_sizes(num_blocks: int, enable_caching: bool, null_block: int | None) -> None:
    """Raises ValueError unless a pool of this size can be built."""
    if type(num_blocks) is not int or num_blocks < 1:
        raise ValueError(f"num_blocks must be an int of at least 1, not {num_blocks!r}")
    if type(enable_caching) is not bool:
        raise ValueError(f"enable_caching must be True or False, not {enable_caching!r}")
    if null_block is not None and (type(null_block) is not int or not 0 <= null_block < num_blocks):
        raise ValueError(
            f"null_block must be None or a block id from 0 to {num_blocks - 1}, not {null_block!r}"
        )


def describe(null_block: int | None, chosen: dict[str, str]) -> dict[str, str | int | None]:
    """The profile of a pool, `chosen` having a value for every key of `CHOICES`.

    Raises ValueError, naming the argument and what is allowed, for an unknown value.
    """
    for name, value in chosen.items():
        if value not in CHOICES[name]:
            allowed = ", ".join(repr(choice) for choice in CHOICES[name])
            raise ValueError(f"{name} must be one of {allowed}, not {value!r}")
    return {"null_block": null_block, **chosen, "retention": "exact"}


def gatherer(block_ids: list[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A function that looks up a non-empty list of ids in a per-block list, all in C.

    The first id is looked up twice, because `itemgetter` of a single one would not give a tuple.
    """
    return itemgetter(block_ids[0], *block_ids)


def are_distinct_ints(block_ids: list[int]) -> bool:
    """Whether the entries are ints, none of them a bool, and no two are equal; all in C.

    A sum that is an int has no entry of another number type, such as those of NumPy. A bool is
    looked for only where an entry equals one; there is one such entry if all are distinct.
    """
    distinct = set(block_ids)
    return (
        len(distinct) == len(block_ids)
        and type(sum(block_ids)) is int
        and (0 not in distinct or type(block_ids[block_ids.index(0)]) is int)
        and (1 not in distinct or type(block_ids[block_ids.index(1)]) is int)
    )


class PoolChecks:
    """The checks of one pool, over its live reference counts and keys.

    `ref_counts` has as many zeros again beyond the counts: an id that is negative or just out of
    range finds a zero there, so that "all held" also says "all in range" without another pass.
    `misuse` is "raises", "ignores" or "undefined", as told in `BlockPool`.
    """

    def __init__(
        self,
        num_blocks: int,
        ref_counts: Sequence[int],
        cached: CachedKeys,
        loops: BlockLoops,
        null_block: int | None,
        *,
        null_ignored: bool,
        recache_forbidden: bool,
        misuse: str,
    ) -> None:
        self._num_blocks = num_blocks
        self._ref_counts = ref_counts
        self._cached = cached
        self._loops = loops
        self._by_loops = block_loops.COMPILED
        self._null_block = null_block
        self._null_ignored = null_ignored
        self._recache_forbidden = recache_forbidden
        self._checked = misuse != "undefined"
        self._raises = misuse == "raises"
        # Nothing to check and nothing to leave out: a list is taken as it comes.
        self._trusting = misuse == "undefined" and not (null_ignored and null_block is not None)

    def count(self, n: int) -> None:
        """Raises ValueError where n is no count and misuse raises."""
        if self._raises:
            pool_misuse.require_count(n)

    def touch(self, block_ids: Iterable[int]) -> list[int] | None:
        """The entries to touch."""
        if type(block_ids) is list and (self._trusting or self._is_plain_touch(block_ids)):
            return block_ids
        try:
            ids = self._ids("touch", block_ids)
            if self._checked:
                pool_misuse.require_content(ids, self._ref_counts, self._cached.primary)
        except ValueError:
            if self._raises:
                raise
            return None
        return ids

    def free(self, block_ids: Iterable[int]) -> list[int] | None:
        """The entries to free."""
        if type(block_ids) is list and (self._trusting or self._is_plain_free(block_ids)):
            return block_ids
        try:
            ids = self._ids("free", block_ids)
            if self._checked:
                pool_misuse.require_references(ids, self._ref_counts)
        except ValueError:
            if self._raises:
                raise
            return None
        return ids

    def evict(self, block_ids: Iterable[int]) -> list[int] | None:
        """The blocks to evict."""
        try:
            return self._ids("evict", block_ids)
        except ValueError:
            if self._raises:
                raise
            return None

    def cache(
        self, block_ids: Iterable[int], hashes: Iterable[bytes], group: int
    ) -> list[tuple[int, BlockKey]]:
        """The blocks to cache with their keys; none for a call that is ignored."""
        try:
            ids = self._ids("cache", block_ids, keep_null=True)
            if self._checked:
                pool_misuse.require_group("cache", group)
                hashes = pool_misuse.require_hashes(ids, hashes)
            pairs = [
                (block_id, make_key(block_hash, group))
                for block_id, block_hash in zip(ids, hashes, strict=False)
                if not (self._null_ignored and block_id == self._null_block)
            ]
            if self._checked:
                pool_misuse.require_held("cache", [pair[0] for pair in pairs], self._ref_counts)
                if self._recache_forbidden:
                    self._require_no_recache(pairs)
        except ValueError:
            if self._raises:
                raise
            return []
        return pairs

    def cache_partial(
        self, block_id: int, block_hash: bytes, num_tokens: int, group: int
    ) -> BlockKey | None:
        """The key to add; None also for the null block where it is ignored."""
        try:
            ids = self._ids("cache_partial", [block_id])
            if self._checked:
                pool_misuse.require_group("cache_partial", group)
                pool_misuse.require_hash("cache_partial", block_hash)
                pool_misuse.require_tokens("cache_partial", num_tokens)
                pool_misuse.require_held("cache_partial", ids, self._ref_counts)
        except ValueError:
            if self._raises:
                raise
            return None
        return make_key(block_hash, group) if ids else None

    def is_plain_cache(self, block_ids: list[int], hashes: list[bytes], group: int) -> bool:
        """Whether a call of cache is legal and gives keys to unhashed blocks only."""
        if not block_ids or len(block_ids) != len(hashes):
            return False
        try:
            if self._by_loops and self._checked:
                return (
                    self._loops.are_held_once(block_ids, unkeyed=True)
                    and block_loops.are_bytes(hashes)
                    and type(group) is int
                    and group >= 0
                )
            gather = gatherer(block_ids)
            if gather(self._cached.primary).count(None) <= len(block_ids):
                return False
            return self._trusting or (
                self._checked
                and all(gather(self._ref_counts))
                and are_distinct_ints(block_ids)
                and set(map(type, hashes)) == {bytes}
                and type(group) is int
                and group >= 0
            )
        except (IndexError, OverflowError, TypeError):
            return False

    def _is_plain_touch(self, block_ids: list[int]) -> bool:
        """All hashed, or all held; the null block is neither."""
        try:
            if self._by_loops:
                return self._loops.have_content(block_ids)
            if not block_ids or min(block_ids) < 0 or set(map(type, block_ids)) != {int}:
                return False
            gather = gatherer(block_ids)
            return all(gather(self._cached.primary)) or all(gather(self._ref_counts))
        except (IndexError, OverflowError, TypeError):
            return False

    def _is_plain_free(self, block_ids: list[int]) -> bool:
        """All held, and none twice."""
        try:
            if self._by_loops:
                return self._loops.are_held_once(block_ids)
            return (
                bool(block_ids)
                and all(gatherer(block_ids)(self._ref_counts))
                and are_distinct_ints(block_ids)
            )
        except (IndexError, OverflowError, TypeError):
            return False

    def _ids(
        self, operation: str, block_ids: Iterable[int], *, keep_null: bool = False
    ) -> list[int]:
        if self._checked:
            ids = pool_misuse.require_ids(
                operation,
                block_ids,
                self._num_blocks,
                self._null_block,
                self._null_ignored,
            )
        else:
            ids = list(block_ids)
        if self._null_ignored and not keep_null:
            ids = [block_id for block_id in ids if block_id != self._null_block]
        return ids

    def _require_no_recache(self, pairs: list[tuple[int, BlockKey]]) -> None:
        for block_id, key in pairs:
            carried = self._cached.primary[block_id]
            if (
                carried is not None
                and carried != key
                and block_id not in self._cached.partial_tokens
            ):
                raise ValueError(
                    f"cache: block {block_id} carries another hash already, and this pool has "
                    "recache='forbidden'; evict it first"
                )
