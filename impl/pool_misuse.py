"""What a caller of a pool must not do, and the sentence that says so.

Each function takes the arguments of one operation and the state that decides, changes nothing,
and raises `ValueError` for misuse. They are written for good messages and run when the pool's own
quick test has not already shown that a call is legal, so a legal call over many blocks does not
pay for them. Double frees are misuse even when each entry taken alone would be legal: the counts
are compared over the whole list (vllm#42571).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from poolproof.impl.cached_keys import BlockKey


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
