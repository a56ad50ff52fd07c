"""Paged attention for a batch of decodes, prefills and chunks: checks, then two or three launches.

Sequences with one query go to the decode kernel and the others to the prefill kernel, whatever
else is in the batch, so that a sequence gives the same bits in every batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from poolproof.kernels.arguments import (
    KernelArgumentError,
    check_shapes,
    check_values,
    refuse_new_sights,
)
from poolproof.kernels.batch import AttentionOptions, PagedBatch
from poolproof.kernels.interpreter import is_interpreted
from poolproof.kernels.paged.decode import decode_splits, merge_splits
from poolproof.kernels.paged.prefill import prefill_tiles

__all__ = [
    "INTERPRETED",
    "Results",
    "TileSizes",
    "capability",
    "check_device",
    "paged_attention",
    "tile_sizes",
]

# Decided where the kernels were defined, and not again.
INTERPRETED = is_interpreted()


@dataclass(frozen=True, slots=True)
class TileSizes:
    """How work is cut; the bits of a result depend on it, so nothing of the batch decides it.

    `keys`: positions per tile of a decode; `split`: positions per split of a decode; `rows`:
    queries times heads of a prefill tile; `prefill_keys`: positions per tile of a prefill. Each is
    a power of two of at least 16. `merged`: splits that are merged
    at once, a power of two. Warps and stages (tiles that are loaded ahead, plus one) change nothing
    but the time.
    """

    keys: int
    split: int
    rows: int
    prefill_keys: int
    merged: int = 16
    decode_warps: int = 2
    decode_stages: int = 2
    prefill_warps: int = 8
    prefill_stages: int = 2


def tile_sizes(head_size: int, dtype: torch.dtype, capability: int = 0) -> TileSizes:
    """The sizes for a head size, a type of the query, and a compute capability (90 for 9.0).

    Those of capability 9.0 are the fastest of 45 that were timed on an H100 for heads of 128 in
    bfloat16. Other GPUs have less shared memory, or (10.0) another matrix unit, for which Triton
    makes nothing of tiles so large.
    """
    if INTERPRETED:
        # Small, so that a few dozen tokens make several tiles and splits.
        return TileSizes(keys=16, split=32, rows=32, prefill_keys=16, merged=4)
    if head_size > 128 or dtype == torch.float32:
        return TileSizes(keys=32, split=512, rows=64, prefill_keys=32)
    if capability == 90:
        return TileSizes(keys=64, split=512, rows=256, prefill_keys=128)
    if capability in (80, 87, 100, 103):
        return TileSizes(keys=64, split=512, rows=128, prefill_keys=64, prefill_stages=3)
    return TileSizes(keys=64, split=512, rows=64, prefill_keys=64, prefill_warps=4)


def capability(device: torch.device) -> int:
    """The compute capability of a GPU, as 90 for 9.0; 0 where nothing is compiled."""
    if INTERPRETED:
        return 0
    major, minor = torch.cuda.get_device_capability(device)
    return int(10 * major + minor)


def paged_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    kv_lengths: Tensor,
    query_lengths: Tensor,
    *,
    out: Tensor | None = None,
    lse: Tensor | None = None,
    values_checked: bool = False,
    max_kv_length: int | None = None,
    max_query_length: int | None = None,
    sizes: TileSizes | None = None,
    **options: Any,
) -> Tensor:
    """Attention of each query over its sequence's keys.

    Args:
        query: (num_tokens, num_heads, head_size), the sequences one after another.
        key_cache: (num_blocks, block_size, num_kv_heads, head_size); elements of a head side by
            side, any other strides; the query's type or fp8.
        value_cache: the same.
        block_tables: (num_sequences, max_blocks); entries behind the last needed one are not read.
        kv_lengths: (num_sequences,), tokens in the cache, the new ones included.
        query_lengths: (num_sequences,), how many of those are new.
        out: where the result goes; every row is written, with zeros where no key is seen.
        lse: (num_tokens, num_heads) in float32, where the logarithm of each softmax's sum goes, the
            sink included, in base e; minus infinity where no key is seen.
        values_checked: lengths and ids are known to be right and are not read back from the
            device. With wrong ones the kernel reads memory that is not the cache's.
        max_kv_length: an upper bound of `kv_lengths`, where it is known.
        max_query_length: an upper bound of `query_lengths`; with 1 there is no prefill to launch.
        sizes: how work is cut.
        **options: the fields of `AttentionOptions`; `scale` has to be given.

    Raises:
        KernelArgumentError: before anything is launched.
    """
    batch = PagedBatch(
        query=query,
        key_cache=key_cache,
        value_cache=value_cache,
        block_tables=block_tables,
        kv_lengths=kv_lengths,
        query_lengths=query_lengths,
        options=AttentionOptions(**options),
    )
    check_shapes(batch, out, lse)
    refuse_new_sights(batch)
    if not values_checked:
        check_values(batch)
    check_device(query)
    result = torch.empty_like(query) if out is None else out
    if query.shape[0]:
        sizes = sizes or tile_sizes(query.shape[2], query.dtype, capability(query.device))
        room = batch.block_tables.shape[1] * batch.block_size
        if not values_checked:
            max_kv_length, max_query_length = int(kv_lengths.max()), int(query_lengths.max())
        longest = room if max_kv_length is None else min(max_kv_length, room)
        _launch(batch, Results(result, lse), sizes, longest, max_query_length)
    return result


def check_device(query: Tensor) -> None:
    """Whether a tensor is where the kernels run. Raises KernelArgumentError."""
    if query.device.type != ("cpu" if INTERPRETED else "cuda"):
        raise KernelArgumentError(
            f"query is on {query.device}; it must be on "
            + ("cpu, because TRITON_INTERPRET=1" if INTERPRETED else "a CUDA device")
        )


@dataclass(frozen=True, slots=True)
class Results:
    """Where output and log-sum-exps go; the latter None where nobody asks for them."""

    out: Tensor
    lse: Tensor | None

    @property
    def lse_strides(self) -> tuple[int, int]:
        """From a token to the next, and from a head to the next."""
        return (0, 0) if self.lse is None else (self.lse.stride(0), self.lse.stride(1))


def _launch(
    batch: PagedBatch,
    results: Results,
    sizes: TileSizes,
    longest: int,
    max_query_length: int | None,
) -> None:
    first_rows = torch.cumsum(batch.query_lengths, 0, dtype=torch.int64) - batch.query_lengths
    _decode(batch, results, sizes, first_rows, max(1, -(-longest // sizes.split)))
    if max_query_length != 1:
        _prefill(batch, results, sizes, first_rows)


def _common(batch: PagedBatch, keys: int) -> dict[str, Any]:
    options = batch.options
    return {
        # A number of the launch: as a constant it would make a kernel for each window.
        "window": options.sliding_window or 0,
        "HAS_WINDOW": options.sliding_window is not None,
        "HAS_SOFTCAP": options.softcap is not None,
        "HAS_SLOPES": options.alibi_slopes is not None,
        "GROUP": batch.queries_per_kv_head,
        "HEAD_SIZE": batch.query.shape[2],
        "HEAD_PADDED": triton.next_power_of_2(batch.query.shape[2]),
        "BLOCK_SIZE": batch.block_size,
        "TILE": keys,
        "BY_FLOAT32": INTERPRETED and batch.is_fp8,
        "IN_FLOAT32": INTERPRETED and batch.query.dtype == torch.bfloat16,
    }


def _strides(batch: PagedBatch) -> tuple[int, ...]:
    keys, values = batch.key_cache.stride(), batch.value_cache.stride()
    return (*batch.query.stride()[:2], *keys[:3], *values[:3], batch.block_tables.stride(0))


def _decode(
    batch: PagedBatch, results: Results, sizes: TileSizes, first_rows: Tensor, num_splits: int
) -> None:
    options, query, out = batch.options, batch.query, results.out
    num_sequences, (num_heads, head_size) = len(first_rows), query.shape[1:]
    space = {"dtype": torch.float32, "device": query.device}
    maxima = torch.empty((num_sequences, num_heads, num_splits), **space)
    totals = torch.empty_like(maxima)
    weighted_sums = torch.empty((num_sequences, num_heads, num_splits, head_size), **space)
    common = _common(batch, sizes.keys)
    group_padded = max(16, triton.next_power_of_2(batch.queries_per_kv_head))
    grid = (num_sequences, batch.num_kv_heads, num_splits)
    decode_splits[grid](
        query, batch.key_cache, batch.value_cache, batch.block_tables, batch.kv_lengths,
        batch.query_lengths, first_rows, options.alibi_slopes, maxima, totals, weighted_sums,
        options.scale * options.key_scale, options.softcap or 0.0, *_strides(batch),
        batch.num_kv_heads, num_splits, GROUP_PADDED=group_padded, SPLIT=sizes.split,
        num_warps=sizes.decode_warps, num_stages=sizes.decode_stages, **common,
    )  # fmt: skip
    merge_splits[num_sequences, num_heads](
        maxima, totals, weighted_sums, batch.kv_lengths, batch.query_lengths, first_rows,
        options.sinks, out, results.lse, options.value_scale, *out.stride()[:2],
        *results.lse_strides, num_splits, common["window"], HAS_WINDOW=common["HAS_WINDOW"],
        HAS_SINKS=options.sinks is not None, HAS_LSE=results.lse is not None,
        HEAD_SIZE=head_size, HEAD_PADDED=common["HEAD_PADDED"], SPLIT=sizes.split,
        MERGED=sizes.merged, IN_FLOAT32=common["IN_FLOAT32"],
    )  # fmt: skip


def _prefill(batch: PagedBatch, results: Results, sizes: TileSizes, first_rows: Tensor) -> None:
    options, query, lengths = batch.options, batch.query, batch.query_lengths
    out = results.out
    group = batch.queries_per_kv_head
    rows = max(sizes.rows, triton.next_power_of_2(group))
    queries = rows // group
    tiles = torch.where(lengths == 1, 0, (lengths + queries - 1) // queries)
    tile_ends = torch.cumsum(tiles, 0, dtype=torch.int64)
    # No more tiles than this, whatever the lengths are, so that nothing is read back.
    most = query.shape[0] // queries + len(first_rows)
    numbers = torch.arange(most, device=query.device)
    tile_sequences = torch.searchsorted(tile_ends, numbers, right=True)
    prefill_tiles[(most, batch.num_kv_heads)](
        query, batch.key_cache, batch.value_cache, batch.block_tables, batch.kv_lengths,
        batch.query_lengths, first_rows, tile_ends, tile_sequences, options.alibi_slopes,
        options.sinks, out, results.lse, options.scale * options.key_scale, options.softcap or 0.0,
        options.value_scale, *_strides(batch), *out.stride()[:2], *results.lse_strides,
        len(first_rows), CAUSAL=options.causal, HAS_SINKS=options.sinks is not None,
        HAS_LSE=results.lse is not None, ROWS=rows,
        num_warps=sizes.prefill_warps, num_stages=sizes.prefill_stages,
        **_common(batch, sizes.prefill_keys),
    )  # fmt: skip
