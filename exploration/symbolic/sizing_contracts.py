"""Contracts of sizing and of counting blocks, admission's arithmetic among them."""

from __future__ import annotations

from poolproof.impl.kv_cache_group import blocks_for
from poolproof.impl.sizing import num_blocks, page_size_bytes

__all__ = [
    "blocks_cover_tokens",
    "growth_is_what_is_missing",
    "memory_is_used_up",
    "page_counts_keys_and_values",
    "requests_are_counted_apart",
    "slot_names_block_and_offset",
    "slot_of",
]


def memory_is_used_up(available_bytes: int, bytes_per_block: int) -> int:
    """As many whole blocks as fit, and no more would.

    pre: available_bytes >= 0 and bytes_per_block >= 1
    post: _ * bytes_per_block <= available_bytes
    post: available_bytes < (_ + 1) * bytes_per_block
    """
    return num_blocks(available_bytes, bytes_per_block)


def page_counts_keys_and_values(tokens: int, heads: int) -> int:
    """Keys and values: half as much is one of the two (head size 64, 2 bytes an element).

    pre: tokens >= 1 and heads >= 1
    post: _ == 2 * (tokens * heads * 64 * 2)
    """
    return page_size_bytes(tokens, heads, 64, 2)


def blocks_cover_tokens(num_tokens: int, block_size: int) -> int:
    """Enough blocks for the tokens, and not one more.

    pre: num_tokens >= 0 and block_size >= 1
    post: _ * block_size >= num_tokens
    post: (_ - 1) * block_size < num_tokens
    """
    return blocks_for(num_tokens, block_size)


def growth_is_what_is_missing(held: int, more: int) -> int:
    """Blocks to add when a sequence of `held` tokens grows by `more` (blocks of 16).

    Never negative; no more than `more` tokens take by themselves (vllm#52707, sparkinfer#135).

    pre: held >= 0 and more >= 0
    post: 0 <= _ <= (more + 15) // 16
    post: ((held + 15) // 16 + _) * 16 >= held + more
    """
    return blocks_for(held + more, 16) - blocks_for(held, 16)


def requests_are_counted_apart(first: int, second: int) -> int:
    """Blocks for two requests, each rounded up: a sum of tokens promises too few (FreeToken#367).

    pre: first >= 0 and second >= 0
    post: _ * 16 >= first + second
    post: _ <= (first + second + 15) // 16 + 1
    """
    return blocks_for(first, 16) + blocks_for(second, 16)


def slot_names_block_and_offset(block_id: int, position: int) -> tuple[int, int]:
    """From the slot of a position in its block back to both (blocks of 16).

    pre: block_id >= 0 and position >= 0
    post: _ == (block_id, position % 16)
    """
    return divmod(slot_of(block_id, position), 16)


def slot_of(block_id: int, position: int) -> int:
    """The slot of a position whose block is known, in blocks of 16, as engines compute it."""
    return block_id * 16 + position % 16
