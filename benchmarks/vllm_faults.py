"""Faults that are planted into a vLLM scheduler of this process, each of which makes outputs wrong.

Each takes the block pool of one scheduler and the random choices of the run.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

__all__ = ["VLLM_FAULTS"]


def finds_another_block(pool: Any, choose: random.Random) -> None:
    """Now and then a lookup gives the block of another prefix."""
    original = pool.get_cached_block

    def get_cached_block(block_hash: Any, groups: Any) -> Any:
        found = original(block_hash, groups)
        if found is None or choose.random() < 0.7:
            return found
        others = [b for b in pool.blocks if b.block_hash is not None and not b.is_null]
        return [choose.choice(others) for _ in found] if others else found

    pool.get_cached_block = get_cached_block


def keeps_evicted_keys(pool: Any, choose: random.Random) -> None:
    """A block that is handed out again stays in the index under what it held."""
    original = pool._maybe_evict_cached_block  # noqa: SLF001 -- the fault is planted there

    def evict(block: Any) -> bool:
        key = block.block_hash
        is_done = bool(original(block))
        if is_done and key is not None and choose.random() < 0.5:
            pool.cached_block_hash_to_block.insert(key, block)
        return is_done

    pool._maybe_evict_cached_block = evict  # noqa: SLF001 -- the same


def does_not_hold_what_it_found(pool: Any, choose: random.Random) -> None:
    """A found block is not held: whoever frees it first frees it for all."""
    original = pool.free_blocks

    def free_blocks(blocks: Any) -> None:
        given = list(blocks)
        for block in given:
            if block.ref_cnt > 1 and choose.random() < 0.5:
                block.ref_cnt = 1
        original(given)

    pool.free_blocks = free_blocks


def hands_out_what_is_used(pool: Any, choose: random.Random) -> None:
    """Now and then a block that somebody uses is given to somebody else as well."""
    original = pool.get_new_blocks

    def get_new_blocks(number: int) -> Any:
        blocks = original(number)
        used = [b for b in pool.blocks if b.ref_cnt > 0 and not b.is_null and b not in blocks]
        if used and blocks and choose.random() < 0.15:
            pool.free_blocks([blocks.pop()])
            again = choose.choice(used)
            again.ref_cnt += 1
            blocks.append(again)
        return blocks

    pool.get_new_blocks = get_new_blocks


def publishes_under_the_next_key(pool: Any, choose: random.Random) -> None:
    """Now and then a block is published one block too early: its neighbour's contents."""
    original = pool.cache_full_blocks

    def cache_full_blocks(request: Any, blocks: Any, *arguments: Any, **named: Any) -> Any:
        given = list(blocks)
        if len(given) > 1 and choose.random() < 0.5:
            given[-1], given[-2] = given[-2], given[-1]
        return original(request, given, *arguments, **named)

    pool.cache_full_blocks = cache_full_blocks


VLLM_FAULTS: tuple[Callable[[Any, random.Random], None], ...] = (
    finds_another_block,
    keeps_evicted_keys,
    does_not_hold_what_it_found,
    hands_out_what_is_used,
    publishes_under_the_next_key,
)
