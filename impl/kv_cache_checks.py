"""What a caller of the KV-cache manager must not do, and the sentence that says so.

Each function changes nothing and raises `ValueError` for misuse, before the manager has changed
anything.
"""

from __future__ import annotations

from poolproof.impl.kv_cache_blocks import KVCacheBlocks
from poolproof.impl.kv_cache_layout import Layout
from poolproof.impl.kv_cache_request import ManagedRequest


def require_tokens(
    num_new: int, num_new_computed: int, num_lookahead: int, num_external: int
) -> None:
    """allocate_slots: counts of at least 0, and something to allocate for."""
    counts = (num_new, num_new_computed, num_lookahead, num_external)
    if set(map(type, counts)) != {int} or min(counts) < 0:
        raise ValueError(
            "allocate_slots: the numbers of new, new computed, lookahead and external computed "
            f"tokens must be ints of at least 0, not {counts}"
        )
    if not (num_new or num_new_computed or num_external):
        raise ValueError("allocate_slots: no token is new, found or loaded; there is nothing to do")


def require_hashes(request: ManagedRequest, hash_block_size: int) -> list[bytes]:
    """The block hashes of a request, one for every full block.

    Too many would be those of tokens that have been cut off (vllm#49377).
    """
    hashes = request.block_hashes
    if len(hashes) != request.num_tokens // hash_block_size:
        raise ValueError(
            f"request {request.request_id!r} has {request.num_tokens} tokens and {len(hashes)} "
            f"block hashes; it needs one for every full block of {hash_block_size} tokens, "
            "no more and no less"
        )
    return hashes


def require_admissible(
    request: ManagedRequest,
    num_hit_tokens: int,
    hits: KVCacheBlocks,
    layout: Layout,
    *,
    is_first: bool,
    enable_caching: bool,
) -> None:
    """allocate_slots: computed tokens come with a first allocation, and with blocks."""
    name = request.request_id
    if not is_first:
        raise ValueError(
            f"allocate_slots: request {name!r} has blocks, and computed blocks of others cannot "
            "join them; look up before the first allocation only"
        )
    if request.num_computed_tokens:
        raise ValueError(
            f"allocate_slots: request {name!r} has {request.num_computed_tokens} computed tokens "
            "but no blocks; set num_computed_tokens to 0 when its blocks are freed"
        )
    lengths = [
        len(ids) * group.block_size for ids, group in zip(hits.blocks, layout.groups, strict=False)
    ]
    if len(hits.blocks) != len(layout.groups) or set(lengths) != {num_hit_tokens}:
        raise ValueError(
            f"allocate_slots: new_computed_blocks of request {name!r} are for {lengths} tokens in "
            f"its groups, and num_new_computed_tokens says {num_hit_tokens}"
        )
    if num_hit_tokens and not enable_caching:
        raise ValueError("allocate_slots: there are no computed blocks without caching")
