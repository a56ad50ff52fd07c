"""Decode: one query per sequence; its keys are cut into splits that run in parallel and merge.

Each split gives the maximum of its scores, the sum of the exponentials above it, and the weighted
sum of the values, all in float32 and unnormalised; the merge brings them to one maximum, which is
exact except for rounding. Splits are cut by logical position, so a sequence gives the same bits
alone and in a batch. The prefill kernel handles sequences with more or fewer queries than one.
"""

import triton
import triton.language as tl

from poolproof.kernels.paged.tile import add_tile, finish, load_tile, scores_of

__all__ = ["decode_splits", "merge_splits"]


@triton.jit
def decode_splits(
    query,
    key_cache,
    value_cache,
    block_tables,
    kv_lengths,
    query_lengths,
    first_rows,
    alibi_slopes,
    maxima,
    totals,
    weighted_sums,
    scale,
    softcap,
    stride_query,
    stride_query_head,
    stride_key_block,
    stride_key_slot,
    stride_key_head,
    stride_value_block,
    stride_value_slot,
    stride_value_head,
    stride_table,
    num_kv_heads,
    num_splits,
    WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_SLOPES: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_PADDED: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    SPLIT: tl.constexpr,
    FROM_FP8: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
):
    """One program: one split of one sequence, for the query heads that share a head."""
    sequence = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    split = tl.program_id(2)
    length = tl.load(kv_lengths + sequence)
    if tl.load(query_lengths + sequence) != 1:
        return
    first = tl.maximum(length - WINDOW, 0) if WINDOW else 0
    begin = tl.maximum(split * SPLIT, first)
    end = tl.minimum(split * SPLIT + SPLIT, length)
    if begin >= end:
        return
    members = tl.arange(0, GROUP_PADDED)
    heads = head * GROUP + members
    is_member = members < GROUP
    elements = tl.arange(0, HEAD_PADDED)
    row = tl.load(first_rows + sequence).to(tl.int64)
    query_mask = is_member[:, None] & (elements < HEAD_SIZE)[None, :]
    queries = tl.load(
        query + row * stride_query + heads[:, None] * stride_query_head + elements[None, :],
        mask=query_mask,
        other=0.0,
    )
    slopes = tl.zeros([GROUP_PADDED], tl.float32)
    if HAS_SLOPES:
        slopes = tl.load(alibi_slopes + heads, mask=is_member, other=0.0)
    table = block_tables + sequence * stride_table
    query_positions = tl.zeros([GROUP_PADDED], tl.int32) + (length - 1)
    maximum = tl.full([GROUP_PADDED], float("-inf"), tl.float32)
    total = tl.zeros([GROUP_PADDED], tl.float32)
    weighted = tl.zeros([GROUP_PADDED, HEAD_PADDED], tl.float32)
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
        scores = scores_of(
            queries, keys, positions, query_positions, slopes, readable[None, :], scale, softcap,
            HAS_SOFTCAP, HAS_SLOPES, IN_FLOAT32,
        )  # fmt: skip
        values = values.to(queries.dtype)
        maximum, total, weighted = add_tile(scores, values, maximum, total, weighted, IN_FLOAT32)
    place = (sequence * num_kv_heads * GROUP + heads) * num_splits + split
    tl.store(maxima + place, maximum, mask=is_member)
    tl.store(totals + place, total, mask=is_member)
    tl.store(weighted_sums + place[:, None] * HEAD_SIZE + elements[None, :], weighted, query_mask)


@triton.jit
def merge_splits(
    maxima,
    totals,
    weighted_sums,
    kv_lengths,
    query_lengths,
    first_rows,
    sinks,
    out,
    value_scale,
    stride_out,
    stride_out_head,
    num_kv_heads,
    num_splits,
    WINDOW: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_PADDED: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    SPLIT: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
):
    """One program: the splits of one sequence, for the query heads that share a head."""
    sequence = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    length = tl.load(kv_lengths + sequence)
    if tl.load(query_lengths + sequence) != 1:
        return
    first = tl.maximum(length - WINDOW, 0) if WINDOW else 0
    members = tl.arange(0, GROUP_PADDED)
    heads = head * GROUP + members
    is_member = members < GROUP
    elements = tl.arange(0, HEAD_PADDED)
    mask = is_member[:, None] & (elements < HEAD_SIZE)[None, :]
    maximum = tl.full([GROUP_PADDED], float("-inf"), tl.float32)
    total = tl.zeros([GROUP_PADDED], tl.float32)
    weighted = tl.zeros([GROUP_PADDED, HEAD_PADDED], tl.float32)
    # A sequence merges its own splits, however many the longest one of the batch has.
    for split in range(first // SPLIT, tl.cdiv(length, SPLIT)):
        place = (sequence * num_kv_heads * GROUP + heads) * num_splits + split
        split_maximum = tl.load(maxima + place, mask=is_member, other=0.0)
        split_total = tl.load(totals + place, mask=is_member, other=0.0)
        split_weighted = tl.load(
            weighted_sums + place[:, None] * HEAD_SIZE + elements[None, :], mask=mask, other=0.0
        )
        higher = tl.maximum(maximum, split_maximum)
        old = tl.exp(maximum - higher)
        new = tl.exp(split_maximum - higher)
        total = total * old + split_total * new
        weighted = weighted * old[:, None] + split_weighted * new[:, None]
        maximum = higher
    sink_scores = tl.zeros([GROUP_PADDED], tl.float32)
    if HAS_SINKS:
        sink_scores = tl.load(sinks + heads, mask=is_member, other=0.0)
    output = finish(maximum, total, weighted, sink_scores, value_scale, out, HAS_SINKS, IN_FLOAT32)
    row = tl.load(first_rows + sequence).to(tl.int64)
    addresses = out + row * stride_out + heads[:, None] * stride_out_head + elements[None, :]
    tl.store(addresses, output, mask=mask)
