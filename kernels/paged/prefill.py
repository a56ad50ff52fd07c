"""Prefill and chunked prefill: many queries per sequence, over a batch of unequal lengths.

A program takes a tile of queries of one sequence together with the query heads that share a head
of the cache, so that each key is loaded once for all of them. The last tile of a sequence is
short, and sequences with one query are left to the decode kernel.
"""

import triton
import triton.language as tl

from poolproof.kernels.paged.tile import attend_tiles, finish

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
    lse,
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
    stride_lse,
    stride_lse_head,
    num_sequences,
    window,
    CAUSAL: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_SLOPES: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    HAS_LSE: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    BY_FLOAT32: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
):
    """One program: ROWS // GROUP queries of one sequence, one head of the cache."""
    QUERIES: tl.constexpr = ROWS // GROUP
    head = tl.program_id(1)
    # The last queries of a prompt see the most keys: their programs start first.
    number = tl.num_programs(0) - 1 - tl.program_id(0)
    sequence = tl.load(tile_sequences + number).to(tl.int64)
    # There are as many programs as the worst batch of this size needs.
    if sequence >= num_sequences:
        return
    query_length = tl.load(query_lengths + sequence)
    length = tl.load(kv_lengths + sequence)
    tiles_behind = (tl.load(tile_ends + sequence) - number).to(tl.int32)
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
    first_position = length - query_length + first_query
    last_position = length - query_length + tl.minimum(first_query + QUERIES, query_length) - 1
    begin = 0
    end = length
    first_whole = 0
    last_whole = length // TILE * TILE
    if CAUSAL:
        end = tl.minimum(length, last_position + 1)
        last_whole = tl.minimum(length, first_position + 1) // TILE * TILE
    if HAS_WINDOW:
        begin = tl.maximum(first_position - window + 1, 0)
        first_whole = tl.cdiv(tl.maximum(last_position - window + 1, 0), TILE) * TILE
    last_whole = tl.maximum(last_whole, first_whole)
    maximum = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    weighted = tl.zeros([ROWS, HEAD_PADDED], tl.float32)
    if HAS_WINDOW:
        maximum, total, weighted = attend_tiles(
            queries, query_positions, is_row, slopes, key_cache, value_cache, table, head,
            begin, end, begin // TILE * TILE, tl.minimum(first_whole, end), window, scale, softcap,
            stride_key_block, stride_key_slot, stride_key_head,
            stride_value_block, stride_value_slot, stride_value_head, maximum, total, weighted,
            CAUSAL, HAS_WINDOW, HAS_SOFTCAP, HAS_SLOPES, HEAD_SIZE, HEAD_PADDED, BLOCK_SIZE, TILE,
            BY_FLOAT32, IN_FLOAT32, WHOLE=False,
        )  # fmt: skip
    maximum, total, weighted = attend_tiles(
        queries, query_positions, is_row, slopes, key_cache, value_cache, table, head,
        begin, end, first_whole, last_whole, window, scale, softcap,
        stride_key_block, stride_key_slot, stride_key_head,
        stride_value_block, stride_value_slot, stride_value_head, maximum, total, weighted,
        CAUSAL, HAS_WINDOW, HAS_SOFTCAP, HAS_SLOPES, HEAD_SIZE, HEAD_PADDED, BLOCK_SIZE, TILE,
        BY_FLOAT32, IN_FLOAT32, WHOLE=True,
    )  # fmt: skip
    maximum, total, weighted = attend_tiles(
        queries, query_positions, is_row, slopes, key_cache, value_cache, table, head,
        begin, end, last_whole, end, window, scale, softcap,
        stride_key_block, stride_key_slot, stride_key_head,
        stride_value_block, stride_value_slot, stride_value_head, maximum, total, weighted,
        CAUSAL, HAS_WINDOW, HAS_SOFTCAP, HAS_SLOPES, HEAD_SIZE, HEAD_PADDED, BLOCK_SIZE, TILE,
        BY_FLOAT32, IN_FLOAT32, WHOLE=False,
    )  # fmt: skip
    output, log_sum_exps = finish(
        maximum, total, weighted, sink_scores, value_scale, out, HAS_SINKS, IN_FLOAT32
    )
    addresses = out + rows[:, None] * stride_out + heads[:, None] * stride_out_head
    tl.store(addresses + elements[None, :], output, mask=mask)
    if HAS_LSE:
        tl.store(lse + rows * stride_lse + heads * stride_lse_head, log_sum_exps, mask=is_row)
