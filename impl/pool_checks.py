"""Decides which pools can be built, and which of their calls are legal.

The arguments of `BlockPool` are the choices that engines make differently without being wrong;
what each value means is told where it is carried out, in the pool.

Each method of `PoolChecks` takes the arguments of one operation and returns what the pool shall
carry out, the null block left out where it is ignored; or None for a call that is misuse and
ignored. It first tries a test that needs a few passes in C and can only say "legal" or "look
closely". The close look is one of the functions that know the sentence to raise, a ValueError.
They are written for good messages and run when the quick test has not already shown that a call is
legal, so a legal call over many blocks does not pay for them. Double frees are misuse even when
each entry taken alone would be legal: the counts are compared over the whole list (vllm#42571).
Nothing here changes any state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

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


def require_count(n: int) -> None:
    """allocate: n is an int of at least 0. A negative one would inflate counters (vllm#52707)."""
    if type(n) is not int or n < 0:
        raise ValueError(f"allocate: n must be an int of at least 0, not {n!r}")


def require_group(operation: str, group: int) -> None:
    """A cache group is an int of at least 0."""
    if type(group) is not int or group < 0:
        raise ValueError(f"{operation}: group must be an int of at least 0, not {group!r}")


def require_ids(
    operation: str,
    block_ids: Iterable[int],
    num_blocks: int,
    null_block: int | None,
    null_ignored: bool,
) -> list[int]:
    """The ids as a list, the null block still in it where that is allowed."""
    try:
        ids = list(block_ids)
    except TypeError:
        raise ValueError(
            f"{operation}: block_ids must be a list of block ids, not {block_ids!r}"
        ) from None
    for position, block_id in enumerate(ids):
        # bool is an int to Python; True would silently mean block 1.
        if type(block_id) is not int or not 0 <= block_id < num_blocks:
            raise ValueError(
                f"{operation}: {block_id!r} at position {position} is not a block id; "
                f"ids are ints from 0 to {num_blocks - 1}"
            )
        if block_id == null_block and not null_ignored:
            raise ValueError(
                f"{operation}: block {block_id} at position {position} is the null block, "
                "which nobody holds; leave it out or build the pool with null_in_lists='ignored'"
            )
    return ids


def require_references(ids: Sequence[int], ref_counts: Sequence[int]) -> None:
    """free: no block stands in the list more often than it has references."""
    for block_id, entries in Counter(ids).items():
        if entries > ref_counts[block_id]:
            raise ValueError(
                f"free: block {block_id} stands {entries} time(s) in the list "
                f"but has {ref_counts[block_id]} reference(s)"
            )


def require_content(
    ids: Sequence[int], ref_counts: Sequence[int], keys: Sequence[BlockKey | None]
) -> None:
    """touch: a block is held or carries a hash; otherwise its content belongs to nobody."""
    for block_id in ids:
        if not ref_counts[block_id] and keys[block_id] is None:
            raise ValueError(
                f"touch: block {block_id} is free and carries no hash, so its content is nobody's; "
                "it was evicted since the lookup, look it up again"
            )


def require_hash(operation: str, block_hash: bytes) -> None:
    """A hash is bytes."""
    if not isinstance(block_hash, bytes):
        raise ValueError(f"{operation}: a block hash must be bytes, not {block_hash!r}")


def require_tokens(operation: str, num_tokens: int) -> None:
    """A key covers an int of at least 1 tokens."""
    if type(num_tokens) is not int or num_tokens < 1:
        raise ValueError(
            f"{operation}: num_tokens must be an int of at least 1, not {num_tokens!r}"
        )


def require_hashes(ids: Sequence[int], hashes: Iterable[bytes]) -> list[bytes]:
    """cache: as many hashes as ids, all of them bytes."""
    try:
        listed = list(hashes)
    except TypeError:
        raise ValueError(f"cache: hashes must be a list of bytes, not {hashes!r}") from None
    if len(listed) != len(ids):
        raise ValueError(f"cache: {len(ids)} block ids but {len(listed)} hashes")
    for block_hash in listed:
        require_hash("cache", block_hash)
    return listed


def require_held(operation: str, ids: Sequence[int], ref_counts: Sequence[int]) -> None:
    """cache: every block is held by somebody, and none is named twice."""
    for block_id, entries in Counter(ids).items():
        if entries > 1:
            raise ValueError(f"{operation}: block {block_id} stands {entries} times in the list")
        if not ref_counts[block_id]:
            raise ValueError(
                f"{operation}: block {block_id} is free; only its holder can say what is in it"
            )


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
        null_block: int | None,
        *,
        null_ignored: bool,
        recache_forbidden: bool,
        misuse: str,
    ) -> None:
        self._num_blocks = num_blocks
        self._ref_counts = ref_counts
        self._cached = cached
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
            require_count(n)

    def touch(self, block_ids: Iterable[int]) -> list[int] | None:
        """The entries to touch."""
        if type(block_ids) is list and (self._trusting or self._is_plain_touch(block_ids)):
            return block_ids
        try:
            ids = self._ids("touch", block_ids)
            if self._checked:
                require_content(ids, self._ref_counts, self._cached.primary)
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
                require_references(ids, self._ref_counts)
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
                require_group("cache", group)
                hashes = require_hashes(ids, hashes)
            pairs = [
                (block_id, make_key(block_hash, group))
                for block_id, block_hash in zip(ids, hashes, strict=False)
                if not (self._null_ignored and block_id == self._null_block)
            ]
            if self._checked:
                require_held("cache", [pair[0] for pair in pairs], self._ref_counts)
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
                require_group("cache_partial", group)
                require_hash("cache_partial", block_hash)
                require_tokens("cache_partial", num_tokens)
                require_held("cache_partial", ids, self._ref_counts)
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
        except (IndexError, TypeError):
            return False

    def _is_plain_touch(self, block_ids: list[int]) -> bool:
        """All hashed, or all held; the null block is neither."""
        try:
            if not block_ids or min(block_ids) < 0 or set(map(type, block_ids)) != {int}:
                return False
            gather = gatherer(block_ids)
            return all(gather(self._cached.primary)) or all(gather(self._ref_counts))
        except (IndexError, TypeError):
            return False

    def _is_plain_free(self, block_ids: list[int]) -> bool:
        """All held, and none twice."""
        try:
            return (
                bool(block_ids)
                and all(gatherer(block_ids)(self._ref_counts))
                and are_distinct_ints(block_ids)
            )
        except (IndexError, TypeError):
            return False

    def _ids(
        self, operation: str, block_ids: Iterable[int], *, keep_null: bool = False
    ) -> list[int]:
        if self._checked:
            ids = require_ids(
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
