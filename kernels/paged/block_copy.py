"""Copies whole blocks: within one cache (copy on write), or to another one (swap).

A list of copies is simultaneous: every source is read as it was before the list, even if an
earlier pair of the list overwrites it. Sources that are also destinations go through a buffer.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from poolproof.kernels.arguments import require, require_strides

__all__ = ["copy_blocks", "copy_rows", "swap_blocks"]

Pairs = Sequence[tuple[int, int]]


@triton.jit
def copy_rows(
    source,
    destination,
    source_ids,
    destination_ids,
    stride_source_block,
    stride_source_slot,
    stride_source_head,
    stride_block,
    stride_slot,
    stride_head,
    num_heads,
    HEADS_PADDED: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
):
    """One program: one slot of one pair of blocks, all heads."""
    pair = tl.program_id(0)
    slot = tl.program_id(1).to(tl.int64)
    here = tl.load(source_ids + pair).to(tl.int64)
    there = tl.load(destination_ids + pair).to(tl.int64)
    heads = tl.arange(0, HEADS_PADDED)[:, None]
    elements = tl.arange(0, HEAD_PADDED)[None, :]
    mask = (heads < num_heads) & (elements < HEAD_SIZE)
    source += here * stride_source_block + slot * stride_source_slot
    destination += there * stride_block + slot * stride_slot
    numbers = tl.load(source + heads * stride_source_head + elements, mask=mask, other=0.0)
    tl.store(destination + heads * stride_head + elements, numbers, mask=mask)


def copy_blocks(key_cache: Tensor, value_cache: Tensor, pairs: Pairs) -> None:
    """Copy blocks (source, destination) within a cache, all at once.

    Args:
        key_cache: (num_blocks, block_size, num_kv_heads, head_size), any type.
        value_cache: the same shape.
        pairs: a block may be the source of several, and destination once.

    Raises:
        KernelArgumentError: before anything is launched.
    """
    _check_pairs(pairs, key_cache.shape[0], key_cache.shape[0])
    _check_caches(key_cache, value_cache)
    moved = [(source, there) for source, there in pairs if source != there]
    overwritten = {there for _, there in moved}
    kept = sorted({source for source, _ in moved} & overwritten)
    for cache in (key_cache, value_cache):
        plain = [pair for pair in moved if pair[0] not in overwritten]
        buffer = torch.empty((len(kept), *cache.shape[1:]), dtype=cache.dtype, device=cache.device)
        _copy(cache, buffer, [(block, place) for place, block in enumerate(kept)])
        _copy(cache, cache, plain)
        through = [pair for pair in moved if pair[0] in overwritten]
        _copy(buffer, cache, [(kept.index(source), there) for source, there in through])


def swap_blocks(source: Tensor, destination: Tensor, pairs: Pairs) -> None:
    """Copy blocks from one cache to another, such as from the GPU to the host and back.

    Both (num_blocks, block_size, num_kv_heads, head_size), the numbers of blocks may differ; a
    block is destination once. Between two devices torch copies, block by block. Raises
    KernelArgumentError before anything is copied.
    """
    _check_pairs(pairs, source.shape[0], destination.shape[0])
    shape, wanted = tuple(destination.shape[1:]), tuple(source.shape[1:])
    require(shape == wanted, "destination", f"of blocks {shape}", f"of source's blocks {wanted}")
    same = destination.dtype == source.dtype
    require(same, "destination", f"of {destination.dtype}", f"of source's {source.dtype}")
    overlap = source.untyped_storage().data_ptr() == destination.untyped_storage().data_ptr()
    require(not overlap, "destination", "source's own memory", "another cache (or use copy_blocks)")
    if source.device != destination.device:
        for here, there in pairs:
            destination[there].copy_(source[here], non_blocking=True)
        return
    _copy(source, destination, pairs)


def _copy(source: Tensor, destination: Tensor, pairs: Pairs) -> None:
    if not pairs:
        return
    # Bits are copied and not numbers, so that fp8 and NaN pass as they are.
    bits = {1: torch.int8, 2: torch.int16, 4: torch.int32}[source.element_size()]
    here, there = (torch.tensor(ids, device=source.device) for ids in zip(*pairs, strict=True))
    copy_rows[(len(pairs), source.shape[1])](
        source.view(bits), destination.view(bits), here, there,
        *source.stride()[:3], *destination.stride()[:3], source.shape[2],
        HEADS_PADDED=triton.next_power_of_2(source.shape[2]), HEAD_SIZE=source.shape[3],
        HEAD_PADDED=triton.next_power_of_2(source.shape[3]),
    )  # fmt: skip


def _check_pairs(pairs: Pairs, num_sources: int, num_destinations: int) -> None:
    seen: set[int] = set()
    for index, (source, there) in enumerate(pairs):
        allowed = f"a block from 0 to {num_sources - 1}"
        require(0 <= source < num_sources, f"pairs[{index}] source", source, allowed)
        allowed = f"a block from 0 to {num_destinations - 1}"
        require(0 <= there < num_destinations, f"pairs[{index}] destination", there, allowed)
        require(there not in seen, f"pairs[{index}] destination", there, "in the list only once")
        seen.add(there)


def _check_caches(key_cache: Tensor, value_cache: Tensor) -> None:
    shape, wanted = tuple(value_cache.shape), tuple(key_cache.shape)
    require(shape == wanted, "value_cache", f"of shape {shape}", f"of key_cache's shape {wanted}")
    for name, cache in (("key_cache", key_cache), ("value_cache", value_cache)):
        require(cache.dim() == 4, name, f"of {cache.dim()} dimensions", "of 4")
        require_strides(name, cache)
