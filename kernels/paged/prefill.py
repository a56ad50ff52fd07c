"""Prefill and chunked prefill: many queries per sequence, over a batch of unequal lengths.

A program takes a tile of queries of one sequence together with the query heads that share a head
of the cache, so that each key is loaded once for all of them. The last tile of a sequence is
short, and sequences with one query are left to the decode kernel.
"""

import triton
import triton.language as tl

from poolproof.kernels.paged.tile import add_tile, finish, load_tile, scores_of

__all__ = ["prefill_tiles"]


@triton.jit
def prefill_tiles(
    query,
    key_cache,
    value_cache,
    block_tables,
    kv_lengths,
    query_lengths,
    first_rows,
    tile_ends,
    tile_sequences,
    alibi_slopes,
    sinks,
    out,
    scale,
    softcap,
    value_scale,
    stride_query,
    stride_query_head,
    stride_key_block,
    stride_key_slot,
    stride_key_head,
    stride_value_block,
    stride_value_slot,
    stride_value_head,
    stride_table,
    stride_out,
    stride_out_head,
    num_sequences,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_SLOPES: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    FROM_FP8: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
):
    """One program: ROWS // GROUP queries of one sequence, one head of the cache."""
    QUERIES: tl.constexpr = ROWS // GROUP
    head = tl.program_id(1)
    sequence = tl.load(tile_sequences + tl.program_id(0)).to(tl.int64)
    # There are as many programs as the worst batch of this size needs.
    if sequence >= num_sequences:
        return
    query_length = tl.load(query_lengths + sequence)
    length = tl.load(kv_lengths + sequence)
    tiles_behind = (tl.load(tile_ends + sequence) - tl.program_id(0)).to(tl.int32)
    first_query = (tl.cdiv(query_length, QUERIES) - tiles_behind) * QUERIES
    lanes = tl.arange(0, ROWS)
    numbers = first_query + lanes // GROUP
    heads = head * GROUP + lanes % GROUP
    is_row = (lanes < QUERIES * GROUP) & (numbers < query_length)
    elements = tl.arange(0, HEAD_PADDED)
    mask = is_row[:, None] & (elements < HEAD_SIZE)[None, :]
    rows = tl.load(first_rows + sequence).to(tl.int64) + numbers
    queries = tl.load(
        query + rows[:, None] * stride_query + heads[:, None] * stride_query_head
        + elements[None, :],
        mask=mask,
        other=0.0,
    )  # fmt: skip
    slopes = tl.zeros([ROWS], tl.float32)
    if HAS_SLOPES:
        slopes = tl.load(alibi_slopes + heads, mask=is_row, other=0.0)
    sink_scores = tl.zeros([ROWS], tl.float32)
    if HAS_SINKS:
        sink_scores = tl.load(sinks + heads, mask=is_row, other=0.0)
    table = block_tables + sequence * stride_table
    query_positions = length - query_length + numbers
    begin = 0
    end = length
    if CAUSAL:
        last_query = tl.minimum(first_query + QUERIES, query_length) - 1
        end = tl.minimum(length, length - query_length + last_query + 1)
    if WINDOW:
        begin = tl.maximum(length - query_length + first_query - WINDOW + 1, 0)
    maximum = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    weighted = tl.zeros([ROWS, HEAD_PADDED], tl.float32)
    for tile in range(begin // TILE * TILE, end, TILE):
        positions = tile + tl.arange(0, TILE)
        readable = (positions >= begin) & (positions < end)
        keys = load_tile(
            key_cache, table, positions, readable, head,
            stride_key_block, stride_key_slot, stride_key_head,
            HEAD_SIZE, HEAD_PADDED, BLOCK_SIZE, FROM_FP8,
        )  # fmt: skip
        values = load_tile(
            value_cache, table, positions, readable, head,
            stride_value_block, stride_value_slot, stride_value_head,
            HEAD_SIZE, HEAD_PADDED, BLOCK_SIZE, FROM_FP8,
        )  # fmt: skip
        visible = readable[None, :] & is_row[:, None]
        if CAUSAL:
            visible = visible & (positions[None, :] <= query_positions[:, None])
        if WINDOW:
            visible = visible & (positions[None, :] > query_positions[:, None] - WINDOW)
        scores = scores_of(
            queries, keys, positions, query_positions, slopes, visible, scale, softcap,
            HAS_SOFTCAP, HAS_SLOPES, IN_FLOAT32,
        )  # fmt: skip
        values = values.to(queries.dtype)
        maximum, total, weighted = add_tile(scores, values, maximum, total, weighted, IN_FLOAT32)
    output = finish(maximum, total, weighted, sink_scores, value_scale, out, HAS_SINKS, IN_FLOAT32)
    addresses = out + rows[:, None] * stride_out + heads[:, None] * stride_out_head
    tl.store(addresses + elements[None, :], output, mask=mask)
