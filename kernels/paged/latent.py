"""MLA over latent keys: the values are the first elements of the keys, under one head for all.

What DeepSeek's models cache of a token is one vector, a latent part and a rotary one; with the
projections absorbed into query and output, attention reads nothing else. The latent part is loaded
once and counts twice, in the scores and as the value.

Rows are pairs of a query and one of its heads. A program takes a tile of rows of one sequence, so
that a key is loaded once for all of them: many heads of a decode, or some heads of several queries.
Long sequences with a few queries, decodes and drafts, are cut into splits of their keys that run in
parallel and merge; prompts have tiles enough. Tiles and splits are cut by the sequence alone,
as everywhere here, so that it gives the same bits in every batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from poolproof.kernels.arguments import check_latent_shapes, check_values, refuse_new_sights
from poolproof.kernels.batch import AttentionOptions, PagedBatch
from poolproof.kernels.paged.attention import INTERPRETED, Results, capability, check_device
from poolproof.kernels.paged.decode import merge_splits
from poolproof.kernels.paged.tile import add_tile, finish, load_tile, products_of, scaled

__all__ = [
    "LatentSizes",
    "attend_latent",
    "latent_sizes",
    "latent_splits",
    "latent_tiles",
    "paged_latent_attention",
    "rows_of_tile",
]


@triton.jit
def rows_of_tile(
    number,
    tile_ends,
    sequence,
    query_length,
    num_heads,
    ROWS: tl.constexpr,
):
    """Query and head of each row of tile `number`, and which rows there are."""
    tiles_behind = (tl.load(tile_ends + sequence) - number).to(tl.int32)
    num_rows = query_length * num_heads
    rows = (tl.cdiv(num_rows, ROWS) - tiles_behind) * ROWS + tl.arange(0, ROWS)
    return rows // num_heads, rows % num_heads, rows < num_rows


@triton.jit
def attend_latent(
    query,
    key_cache,
    table,
    row,
    queries,
    heads,
    is_row,
    positions_of_rows,
    begin,
    end,
    window,
    scale,
    softcap,
    stride_query,
    stride_query_head,
    stride_key_block,
    stride_key_slot,
    CAUSAL: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    LATENT: tl.constexpr,
    LATENT_PADDED: tl.constexpr,
    ROTARY: tl.constexpr,
    ROTARY_PADDED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    BY_FLOAT32: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
):
    """Maxima, totals and weighted sums of some rows over the keys from `begin` to `end`."""
    latent_elements = tl.arange(0, LATENT_PADDED)
    latent_mask = is_row[:, None] & (latent_elements < LATENT)[None, :]
    rows = query + (row + queries)[:, None] * stride_query + heads[:, None] * stride_query_head
    latent_queries = tl.load(rows + latent_elements[None, :], mask=latent_mask, other=0.0)
    rotary_elements = tl.arange(0, ROTARY_PADDED)
    rotary_mask = is_row[:, None] & (rotary_elements < ROTARY)[None, :]
    rotary_queries = tl.load(rows + LATENT + rotary_elements[None, :], mask=rotary_mask, other=0.0)
    maximum = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    weighted = tl.zeros([ROWS, LATENT_PADDED], tl.float32)
    for tile in range(begin // TILE * TILE, end, TILE):
        positions = tile + tl.arange(0, TILE)
        readable = (positions >= begin) & (positions < end)
        latent = load_tile(
            key_cache, table, positions, readable, 0, stride_key_block, stride_key_slot, 0,
            LATENT, LATENT_PADDED, BLOCK_SIZE, BY_FLOAT32, WHOLE=False,
        )  # fmt: skip
        products = products_of(latent_queries, latent, IN_FLOAT32)
        if ROTARY > 0:
            rotary = load_tile(
                key_cache + LATENT, table, positions, readable, 0, stride_key_block,
                stride_key_slot, 0, ROTARY, ROTARY_PADDED, BLOCK_SIZE, BY_FLOAT32, WHOLE=False,
            )  # fmt: skip
            products += products_of(rotary_queries, rotary, IN_FLOAT32)
        visible = readable[None, :] & is_row[:, None]
        if CAUSAL:
            visible = visible & (positions[None, :] <= positions_of_rows[:, None])
        if HAS_WINDOW:
            visible = visible & (positions[None, :] > positions_of_rows[:, None] - window)
        scores = scaled(products, scale, softcap, HAS_SOFTCAP)
        scores = tl.where(visible, scores, float("-inf"))
        values = latent.to(latent_queries.dtype)
        maximum, total, weighted = add_tile(scores, values, maximum, total, weighted, IN_FLOAT32)
    return maximum, total, weighted


@triton.jit
def latent_splits(
    query,
    key_cache,
    block_tables,
    kv_lengths,
    query_lengths,
    first_rows,
    first_partials,
    tile_ends,
    tile_sequences,
    maxima,
    totals,
    weighted_sums,
    scale,
    softcap,
    stride_query,
    stride_query_head,
    stride_key_block,
    stride_key_slot,
    stride_table,
    num_sequences,
    num_heads,
    num_splits,
    window,
    CAUSAL: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    LATENT: tl.constexpr,
    LATENT_PADDED: tl.constexpr,
    ROTARY: tl.constexpr,
    ROTARY_PADDED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    SPLIT: tl.constexpr,
    BY_FLOAT32: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
):
    """One program: a tile of rows of a sequence with a few queries, one split of its keys."""
    number = tl.program_id(0)
    split = tl.program_id(1)
    sequence = tl.load(tile_sequences + number).to(tl.int64)
    if sequence >= num_sequences:
        return
    length = tl.load(kv_lengths + sequence)
    query_length = tl.load(query_lengths + sequence)
    queries, heads, is_row = rows_of_tile(
        number, tile_ends, sequence, query_length, num_heads, ROWS
    )
    row_positions = length - query_length + queries
    begin = split * SPLIT
    end = tl.minimum(split * SPLIT + SPLIT, length)
    if HAS_WINDOW:
        begin = tl.maximum(begin, length - query_length + tl.min(queries, axis=0) - window + 1)
    if begin >= end:
        return
    row = tl.load(first_rows + sequence).to(tl.int64)
    table = block_tables + sequence * stride_table
    maximum, total, weighted = attend_latent(
        query, key_cache, table, row, queries, heads, is_row, row_positions, begin, end, window,
        scale, softcap, stride_query, stride_query_head, stride_key_block, stride_key_slot, CAUSAL,
        HAS_WINDOW, HAS_SOFTCAP, LATENT, LATENT_PADDED, ROTARY, ROTARY_PADDED, ROWS, BLOCK_SIZE,
        TILE, BY_FLOAT32, IN_FLOAT32,
    )  # fmt: skip
    partial = tl.load(first_partials + sequence).to(tl.int64) + queries
    place = (partial * num_heads + heads) * num_splits + split
    tl.store(maxima + place, maximum, mask=is_row)
    tl.store(totals + place, total, mask=is_row)
    elements = tl.arange(0, LATENT_PADDED)
    mask = is_row[:, None] & (elements < LATENT)[None, :]
    tl.store(weighted_sums + place[:, None] * LATENT + elements[None, :], weighted, mask=mask)


@triton.jit
def latent_tiles(
    query,
    key_cache,
    block_tables,
    kv_lengths,
    query_lengths,
    first_rows,
    tile_ends,
    tile_sequences,
    sinks,
    out,
    lse,
    scale,
    softcap,
    value_scale,
    stride_query,
    stride_query_head,
    stride_key_block,
    stride_key_slot,
    stride_table,
    stride_out,
    stride_out_head,
    stride_lse,
    stride_lse_head,
    num_sequences,
    num_heads,
    window,
    CAUSAL: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    HAS_LSE: tl.constexpr,
    LATENT: tl.constexpr,
    LATENT_PADDED: tl.constexpr,
    ROTARY: tl.constexpr,
    ROTARY_PADDED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    BY_FLOAT32: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
):
    """One program: a tile of rows of a sequence that is not split, all keys that they see."""
    # The last queries of a prompt see the most keys: their programs start first.
    number = tl.num_programs(0) - 1 - tl.program_id(0)
    sequence = tl.load(tile_sequences + number).to(tl.int64)
    if sequence >= num_sequences:
        return
    length = tl.load(kv_lengths + sequence)
    query_length = tl.load(query_lengths + sequence)
    queries, heads, is_row = rows_of_tile(
        number, tile_ends, sequence, query_length, num_heads, ROWS
    )
    row_positions = length - query_length + queries
    begin = 0
    end = length
    if CAUSAL:
        end = tl.minimum(length, tl.max(row_positions, axis=0) + 1)
    if HAS_WINDOW:
        begin = tl.maximum(tl.min(row_positions, axis=0) - window + 1, 0)
    row = tl.load(first_rows + sequence).to(tl.int64)
    table = block_tables + sequence * stride_table
    maximum, total, weighted = attend_latent(
        query, key_cache, table, row, queries, heads, is_row, row_positions, begin, end, window,
        scale, softcap, stride_query, stride_query_head, stride_key_block, stride_key_slot, CAUSAL,
        HAS_WINDOW, HAS_SOFTCAP, LATENT, LATENT_PADDED, ROTARY, ROTARY_PADDED, ROWS, BLOCK_SIZE,
        TILE, BY_FLOAT32, IN_FLOAT32,
    )  # fmt: skip
    sink = tl.zeros([ROWS], tl.float32)
    if HAS_SINKS:
        sink = tl.load(sinks + heads, mask=is_row, other=0.0)
    output, log_sum_exps = finish(
        maximum, total, weighted, sink, value_scale, out, HAS_SINKS, IN_FLOAT32
    )
    elements = tl.arange(0, LATENT_PADDED)
    addresses = out + (row + queries)[:, None] * stride_out + heads[:, None] * stride_out_head
    mask = is_row[:, None] & (elements < LATENT)[None, :]
    tl.store(addresses + elements[None, :], output, mask=mask)
    if HAS_LSE:
        places = lse + (row + queries) * stride_lse + heads * stride_lse_head
        tl.store(places, log_sum_exps, mask=is_row)


@dataclass(frozen=True, slots=True)
class LatentSizes:
    """How work is cut; the bits of a result depend on it, so nothing of the batch decides it.

    `keys`: positions a tile; `split`: positions a split; `rows`: queries times heads of a tile;
    `merged`: splits that are merged at once; all powers of two, the first three of at least 16. A
    sequence with at most `few` queries and more keys than a split is cut into splits.
    """

    keys: int
    split: int
    rows: int
    few: int = 8
    merged: int = 16
    num_warps: int = 8
    num_stages: int = 2


def latent_sizes(dtype: torch.dtype, capability: int = 0) -> LatentSizes:
    """The sizes for a type of the query and a compute capability (90 for 9.0).

    A tile of 32 keys of 576 elements takes 36 KB in a half type, and 32 rows of weighted sums are
    64 registers of each of 256 threads. None of it was timed on a GPU.
    """
    if INTERPRETED:
        return LatentSizes(keys=16, split=32, rows=64, few=3, merged=4)
    if dtype == torch.float32:
        return LatentSizes(keys=16, split=512, rows=16)
    if capability in (80, 87, 90, 100, 103):
        return LatentSizes(keys=32, split=512, rows=32)
    return LatentSizes(keys=32, split=512, rows=16)


def paged_latent_attention(
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
    sizes: LatentSizes | None = None,
    **options: Any,
) -> Tensor:
    """Attention of each query over its sequence's latent keys.

    Args:
        query: (num_tokens, num_heads, head_size), the latent part in front of the rotary one.
        key_cache: (num_blocks, block_size, 1, head_size); elements side by side, any other strides.
        value_cache: `key_cache[..., :value_size]`, the same memory.
        block_tables: as for `paged_attention`, and so are the lengths and the other arguments.
        kv_lengths: see there.
        query_lengths: see there.
        out: (num_tokens, num_heads, value_size).
        lse: (num_tokens, num_heads) in float32.
        values_checked: see there.
        max_kv_length: see there.
        sizes: how work is cut.
        **options: the fields of `AttentionOptions`, without slopes; `scale` has to be given.

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
    check_latent_shapes(batch, out, lse)
    refuse_new_sights(batch)
    if not values_checked:
        check_values(batch)
    check_device(query)
    result = query.new_empty(batch.out_shape) if out is None else out
    if query.shape[0]:
        longest = block_tables.shape[1] * batch.block_size
        if not values_checked:
            max_kv_length = int(kv_lengths.max())
        if max_kv_length is not None:
            longest = min(longest, max_kv_length)
        sizes = sizes or latent_sizes(query.dtype, capability(query.device))
        _launch(batch, Results(result, lse), sizes, longest)
    return result


def _launch(batch: PagedBatch, results: Results, sizes: LatentSizes, longest: int) -> None:
    lengths = batch.query_lengths
    first_rows = torch.cumsum(lengths, 0, dtype=torch.int64) - lengths
    is_split = (lengths <= sizes.few) & (batch.kv_lengths > sizes.split)
    if longest > sizes.split:
        _split(batch, results, sizes, first_rows, torch.where(is_split, lengths, 0), longest)
    tiles = _tiles(batch, sizes, torch.where(is_split, 0, lengths), batch.query.shape[0])
    _whole(batch, results, sizes, first_rows, tiles)


def _tiles(
    batch: PagedBatch, sizes: LatentSizes, query_lengths: Tensor, most_tokens: int
) -> tuple[int, Tensor, Tensor]:
    """How many tiles there are at most, where those of each sequence end, and whose each one is.

    The first is a bound for all lengths, so that nothing is read back from the device.
    """
    num_heads = batch.query.shape[1]
    ends = torch.cumsum((query_lengths * num_heads + sizes.rows - 1) // sizes.rows, 0)
    most = most_tokens * num_heads // sizes.rows + len(query_lengths)
    numbers = torch.arange(most, device=ends.device)
    return most, ends, torch.searchsorted(ends, numbers, right=True)


def _common(batch: PagedBatch, sizes: LatentSizes) -> dict[str, Any]:
    options, latent = batch.options, batch.value_size
    rotary = batch.query.shape[2] - latent
    return {
        "window": options.sliding_window or 0,
        "CAUSAL": options.causal,
        "HAS_WINDOW": options.sliding_window is not None,
        "HAS_SOFTCAP": options.softcap is not None,
        "LATENT": latent,
        "LATENT_PADDED": triton.next_power_of_2(latent),
        "ROTARY": rotary,
        "ROTARY_PADDED": max(16, triton.next_power_of_2(rotary)),
        "ROWS": sizes.rows,
        "BLOCK_SIZE": batch.block_size,
        "TILE": sizes.keys,
        "BY_FLOAT32": INTERPRETED and batch.is_fp8,
        "IN_FLOAT32": INTERPRETED and batch.query.dtype == torch.bfloat16,
        "num_warps": sizes.num_warps,
        "num_stages": sizes.num_stages,
    }


def _strides(batch: PagedBatch) -> tuple[int, ...]:
    return (
        *batch.query.stride()[:2], *batch.key_cache.stride()[:2], batch.block_tables.stride(0),
    )  # fmt: skip


def _split(
    batch: PagedBatch,
    results: Results,
    sizes: LatentSizes,
    first_rows: Tensor,
    query_lengths: Tensor,
    longest: int,
) -> None:
    """The sequences with a few queries and many keys; the lengths of the others are 0 here."""
    options, out, (num_tokens, num_heads, _) = batch.options, results.out, batch.query.shape
    most_tokens = min(num_tokens, sizes.few * len(query_lengths))
    num_splits = -(-longest // sizes.split)
    space = {"dtype": torch.float32, "device": out.device}
    maxima = torch.empty((most_tokens, num_heads, num_splits), **space)
    totals = torch.empty_like(maxima)
    weighted_sums = torch.empty((most_tokens, num_heads, num_splits, batch.value_size), **space)
    ends = torch.cumsum(query_lengths, 0, dtype=torch.int64)
    most, tile_ends, tile_sequences = _tiles(batch, sizes, query_lengths, most_tokens)
    common = _common(batch, sizes)
    latent_splits[most, num_splits](
        batch.query, batch.key_cache, batch.block_tables, batch.kv_lengths, query_lengths,
        first_rows, ends - query_lengths, tile_ends, tile_sequences, maxima, totals, weighted_sums,
        options.scale * options.key_scale, options.softcap or 0.0, *_strides(batch),
        len(query_lengths), num_heads, num_splits, SPLIT=sizes.split, **common,
    )  # fmt: skip
    # Each query is merged as a sequence of its own, which ends with it.
    numbers = torch.arange(most_tokens, device=out.device)
    sequences = torch.searchsorted(ends, numbers, right=True)
    there, sequences = sequences < len(ends), sequences.clamp(max=len(ends) - 1)
    queries = numbers - (ends - query_lengths)[sequences]
    lengths = batch.kv_lengths.long()[sequences]
    if options.causal:
        # A query without any key has the position -1.
        seen = lengths - query_lengths[sequences] + queries + 1
        lengths = torch.minimum(lengths, seen.clamp(min=0))
    merge_splits[most_tokens, num_heads](
        maxima, totals, weighted_sums, lengths, there.int(), first_rows[sequences] + queries,
        options.sinks, out, results.lse, options.value_scale, *out.stride()[:2],
        *results.lse_strides, num_splits, common["window"], HAS_WINDOW=common["HAS_WINDOW"],
        HAS_SINKS=options.sinks is not None, HAS_LSE=results.lse is not None,
        HEAD_SIZE=batch.value_size, HEAD_PADDED=common["LATENT_PADDED"], SPLIT=sizes.split,
        MERGED=sizes.merged, IN_FLOAT32=common["IN_FLOAT32"],
    )  # fmt: skip


def _whole(
    batch: PagedBatch,
    results: Results,
    sizes: LatentSizes,
    first_rows: Tensor,
    tiles: tuple[int, Tensor, Tensor],
) -> None:
    """The other sequences."""
    options, out = batch.options, results.out
    most, tile_ends, tile_sequences = tiles
    latent_tiles[(most,)](
        batch.query, batch.key_cache, batch.block_tables, batch.kv_lengths, batch.query_lengths,
        first_rows, tile_ends, tile_sequences, options.sinks, out, results.lse,
        options.scale * options.key_scale, options.softcap or 0.0, options.value_scale,
        *_strides(batch), *out.stride()[:2], *results.lse_strides, len(first_rows),
        batch.query.shape[1], HAS_SINKS=options.sinks is not None,
        HAS_LSE=results.lse is not None, **_common(batch, sizes),
    )  # fmt: skip
