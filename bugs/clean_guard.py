"""What callers of the clean pool must not do: each function says why, or None if all is well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

__all__ = ["bad_count", "bad_ids", "too_many_frees", "unfit_for_cache"]


def bad_count(count: int) -> str | None:
    """A count must not be negative (vllm#52707)."""
    return f"the count {count} is negative" if count < 0 else None


def bad_ids(block_ids: Sequence[int], num_blocks: int, forbidden: int | None) -> str | None:
    """Ids must be in range; `forbidden` is the null block where lists must not contain it."""
    for block_id in block_ids:
        if not 0 <= block_id < num_blocks:
            return f"block {block_id} does not exist (there are {num_blocks})"
        if block_id == forbidden:
            return f"block {block_id} is the null block"
    return None


def too_many_frees(
    block_ids: Sequence[int], ref_counts: Sequence[int], null_block: int | None
) -> str | None:
    """No block may be freed more often, over the whole list, than it has references."""
    for block_id, times in Counter(block_ids).items():
        if times > ref_counts[block_id] and block_id != null_block:
            return f"block {block_id} is freed {times} times, held {ref_counts[block_id]} times"
    return None


def unfit_for_cache(
    block_ids: Sequence[int], ref_counts: Sequence[int], null_block: int | None
) -> str | None:
    """Blocks that get a hash must be held, and named once."""
    for block_id, times in Counter(block_ids).items():
        if block_id == null_block:
            continue
        if times > 1:
            return f"block {block_id} stands {times} times in one call"
        if not ref_counts[block_id]:
            return f"block {block_id} is cached although nobody holds it"
    return None
