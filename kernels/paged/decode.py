"""Decode: one query per sequence; its keys are cut into splits that run in parallel and merge.

Each split gives the maximum of its scores, the sum of the exponentials above it, and the weighted
sum of the values, all in float32 and unnormalised; the merge brings them to one maximum, which is
exact except for rounding. Splits are cut by logical position, so a sequence gives the same bits
alone and in a batch. The prefill kernel handles sequences with more or fewer queries than one.
"""

import triton
import triton.language as tl

from poolproof.kernels.paged.tile import attend_tiles, finish

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
    window,
    HAS_WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_SLOPES: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_PADDED: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    SPLIT: tl.constexpr,
    BY_FLOAT32: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
):
    """One program: one split of one sequence, for the query heads that share a head."""
    sequence = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    split = tl.program_id(2)
    length = tl.load(kv_lengths + sequence)
    if tl.load(query_lengths + sequence) != 1:
        return
    first = tl.maximum(length - window, 0) if HAS_WINDOW else 0
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
    # All tiles but the last, and but the first where a window begins inside it.
    first_tile = begin // TILE * TILE
    first_whole = tl.cdiv(begin, TILE) * TILE
    last_whole = tl.maximum(end // TILE * TILE, first_whole)
    if HAS_WINDOW:
        maximum, total, weighted = attend_tiles(
            queries, query_positions, is_member, slopes, key_cache, value_cache, table, head,
            begin, end, first_tile, tl.minimum(first_whole, end), window, scale, softcap,
            stride_key_block, stride_key_slot, stride_key_head,
            stride_value_block, stride_value_slot, stride_value_head, maximum, total, weighted,
            False, False, HAS_SOFTCAP, HAS_SLOPES, HEAD_SIZE, HEAD_PADDED, BLOCK_SIZE, TILE,
            BY_FLOAT32, IN_FLOAT32, WHOLE=False,
        )  # fmt: skip
    maximum, total, weighted = attend_tiles(
        queries, query_positions, is_member, slopes, key_cache, value_cache, table, head,
        begin, end, first_whole, last_whole, window, scale, softcap,
        stride_key_block, stride_key_slot, stride_key_head,
        stride_value_block, stride_value_slot, stride_value_head, maximum, total, weighted,
        False, False, HAS_SOFTCAP, HAS_SLOPES, HEAD_SIZE, HEAD_PADDED, BLOCK_SIZE, TILE,
        BY_FLOAT32, IN_FLOAT32, WHOLE=True,
    )  # fmt: skip
    maximum, total, weighted = attend_tiles(
        queries, query_positions, is_member, slopes, key_cache, value_cache, table, head,
        begin, end, last_whole, end, window, scale, softcap,
        stride_key_block, stride_key_slot, stride_key_head,
        stride_value_block, stride_value_slot, stride_value_head, maximum, total, weighted,
        False, False, HAS_SOFTCAP, HAS_SLOPES, HEAD_SIZE, HEAD_PADDED, BLOCK_SIZE, TILE,
        BY_FLOAT32, IN_FLOAT32, WHOLE=False,
    )  # fmt: skip
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
    lse,
    value_scale,
    stride_out,
    stride_out_head,
    stride_lse,
    stride_lse_head,
    num_splits,
    window,
    HAS_WINDOW: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    HAS_LSE: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    SPLIT: tl.constexpr,
    MERGED: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
):
    """One program: the splits of one query head of one sequence, MERGED of them at a time."""
    sequence = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    length = tl.load(kv_lengths + sequence)
    if tl.load(query_lengths + sequence) != 1:
        return
    first = tl.maximum(length - window, 0) // SPLIT if HAS_WINDOW else 0
    # A sequence merges its own splits, however many the longest one of the batch has.
    end = tl.cdiv(length, SPLIT)
    elements = tl.arange(0, HEAD_PADDED)
    is_element = elements < HEAD_SIZE
    place = (sequence * tl.num_programs(1) + head) * num_splits
    maximum = tl.full([1], float("-inf"), tl.float32)
    total = tl.zeros([1], tl.float32)
    weighted = tl.zeros([HEAD_PADDED], tl.float32)
    # From a multiple of MERGED, so that a window does not change how sums are grouped.
    for begin in range(first // MERGED * MERGED, end, MERGED):
        splits = begin + tl.arange(0, MERGED)
        is_split = (splits >= first) & (splits < end)
        split_maxima = tl.load(maxima + place + splits, mask=is_split, other=float("-inf"))
        split_totals = tl.load(totals + place + splits, mask=is_split, other=0.0)
        split_weighted = tl.load(
            weighted_sums + (place + splits)[:, None] * HEAD_SIZE + elements[None, :],
            mask=is_split[:, None] & is_element[None, :],
            other=0.0,
        )
        higher = tl.maximum(maximum, tl.max(split_maxima, axis=0))
        old = tl.exp2(maximum - higher)
        new = tl.exp2(split_maxima - higher)
        total = total * old + tl.sum(split_totals * new, axis=0)
        weighted = weighted * old + tl.sum(split_weighted * new[:, None], axis=0)
        maximum = higher
    sink = tl.zeros([1], tl.float32)
    if HAS_SINKS:
        sink += tl.load(sinks + head)
    output, log_sum_exp = finish(
        maximum, total, weighted[None, :], sink, value_scale, out, HAS_SINKS, IN_FLOAT32
    )
    row = tl.load(first_rows + sequence).to(tl.int64)
    addresses = out + row * stride_out + head * stride_out_head + elements[None, :]
    tl.store(addresses, output, mask=is_element[None, :])
    if HAS_LSE:
        places = lse + row * stride_lse + head * stride_lse_head + tl.arange(0, 1)
        tl.store(places, log_sum_exp)
