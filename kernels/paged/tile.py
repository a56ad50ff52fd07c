"""Tiles of keys against some rows of queries: scores, running softmax, end of the softmax.

Shared by decode and prefill, so that a score is defined once. Tiles are cut by logical position and
never by block, batch or placement: the order in which numbers are added, and so every bit of the
result, depends on the sequence alone (pytorch#182593 shows what breaks that). Whatever may lie
beyond a sequence is masked, because a slot that was never written may hold NaN, and 0 * NaN is NaN
(vllm#641).

Scores are logarithms to the base 2: a GPU has an instruction for 2^x, and `exp` is that instruction
behind a multiplication for each score. Here the multiplication is part of the scale.
"""

import triton
import triton.language as tl

LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)

__all__ = [
    "add_tile",
    "attend_tiles",
    "finish",
    "load_tile",
    "products_of",
    "scaled",
    "scores_of",
    "to_bfloat16",
]


@triton.jit
def attend_tiles(
    queries,
    query_positions,
    is_row,
    slopes,
    key_cache,
    value_cache,
    block_table,
    head,
    begin,
    end,
    first_tile,
    last_tile,
    window,
    scale,
    softcap,
    stride_key_block,
    stride_key_slot,
    stride_key_head,
    stride_value_block,
    stride_value_slot,
    stride_value_head,
    maximum,
    total,
    weighted,
    CAUSAL: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_SLOPES: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    BY_FLOAT32: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """Take the tiles from `first_tile` up to `last_tile` into the running softmax, and return it.

    Keys are read at positions from `begin` to `end`. Of a WHOLE tile every row sees every key, so
    nothing is masked; that is most of a long prompt.
    """
    for tile in range(first_tile, last_tile, TILE):
        positions = tile + tl.arange(0, TILE)
        readable = (positions >= begin) & (positions < end)
        keys = load_tile(
            key_cache, block_table, positions, readable, head,
            stride_key_block, stride_key_slot, stride_key_head,
            HEAD_SIZE, HEAD_PADDED, BLOCK_SIZE, BY_FLOAT32, WHOLE,
        )  # fmt: skip
        values = load_tile(
            value_cache, block_table, positions, readable, head,
            stride_value_block, stride_value_slot, stride_value_head,
            HEAD_SIZE, HEAD_PADDED, BLOCK_SIZE, BY_FLOAT32, WHOLE,
        )  # fmt: skip
        visible = readable[None, :] & is_row[:, None]
        if CAUSAL:
            visible = visible & (positions[None, :] <= query_positions[:, None])
        if HAS_WINDOW:
            visible = visible & (positions[None, :] > query_positions[:, None] - window)
        scores = scores_of(
            queries, keys, positions, query_positions, slopes, visible, scale, softcap,
            HAS_SOFTCAP, HAS_SLOPES, IN_FLOAT32, WHOLE,
        )  # fmt: skip
        values = values.to(queries.dtype)
        maximum, total, weighted = add_tile(scores, values, maximum, total, weighted, IN_FLOAT32)
    return maximum, total, weighted


@triton.jit
def load_tile(
    cache,
    block_table,
    positions,
    readable,
    head,
    stride_block,
    stride_slot,
    stride_head,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BY_FLOAT32: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """Keys or values at `positions`, zero where not `readable`: (tile, padded head size).

    A tile is WHOLE where every position is readable: nothing but the head's padding is masked.
    """
    if WHOLE:
        blocks = tl.load(block_table + positions // BLOCK_SIZE)
    else:
        blocks = tl.load(block_table + positions // BLOCK_SIZE, mask=readable, other=0)
    # A cache has more than 2^31 elements: offsets are 64 bits wide (vllm#47671, flashinfer#3130).
    rows = blocks.to(tl.int64) * stride_block + (positions % BLOCK_SIZE) * stride_slot
    elements = tl.arange(0, HEAD_PADDED)
    addresses = cache + rows[:, None] + head * stride_head + elements[None, :]
    if WHOLE and HEAD_SIZE == HEAD_PADDED:
        numbers = tl.load(addresses)
    else:
        mask = (elements < HEAD_SIZE)[None, :]
        if not WHOLE:
            mask = mask & readable[:, None]
        numbers = tl.load(addresses, mask=mask, other=0.0)
    if BY_FLOAT32:
        # fp8, interpreted. Exact, as the hardware's own way is; the interpreter's way from e5m2 to
        # float16 loses the smallest numbers.
        numbers = numbers.to(tl.float32)
    return numbers


@triton.jit
def scores_of(
    queries,
    keys,
    key_positions,
    query_positions,
    slopes,
    visible,
    scale,
    softcap,
    HAS_SOFTCAP: tl.constexpr,
    HAS_SLOPES: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """Scores of rows against a tile, -inf where not `visible`: (rows, tile) in float32, base 2.

    In a WHOLE tile everything is visible.
    """
    products = products_of(queries, keys, IN_FLOAT32)
    scores = scaled(products, scale, softcap, HAS_SOFTCAP)
    if HAS_SLOPES:
        distance = key_positions[None, :] - query_positions[:, None]
        scores += (slopes * LOG2_E)[:, None] * distance.to(tl.float32)
    if WHOLE:
        return scores
    return tl.where(visible, scores, float("-inf"))


@triton.jit
def products_of(queries, keys, IN_FLOAT32: tl.constexpr):
    """Dot products of rows and the keys of a tile: (rows, tile) in float32."""
    keys = keys.to(queries.dtype)
    if IN_FLOAT32:
        # The interpreter multiplies the bit patterns of bfloat16 (triton#11584).
        return tl.dot(queries.to(tl.float32), tl.trans(keys.to(tl.float32)))
    return tl.dot(queries, tl.trans(keys), input_precision="ieee")


@triton.jit
def scaled(scores, scale, softcap, HAS_SOFTCAP: tl.constexpr):
    """Scores to the base 2 of dot products, without slopes."""
    if HAS_SOFTCAP:
        # tanh that never divides infinity by infinity (vllm#56578).
        doubled = tl.exp(2.0 * (scores * scale) / softcap)
        return (softcap - 2.0 * softcap / (doubled + 1.0)) * LOG2_E
    return scores * (scale * LOG2_E)


@triton.jit
def add_tile(scores, values, maximum, total, weighted, IN_FLOAT32: tl.constexpr):
    """Take a tile into the running softmax: (new maximum, new total, new weighted sums)."""
    higher = tl.maximum(maximum, tl.max(scores, axis=1))
    # A row that has seen no key yet: -inf minus -inf is not a number (vllm#57094).
    base = tl.where(higher == float("-inf"), 0.0, higher)
    rescale = tl.exp2(maximum - base)
    weights = tl.exp2(scores - base[:, None])
    total = total * rescale + tl.sum(weights, axis=1)
    if IN_FLOAT32:
        product = tl.dot(to_bfloat16(weights).to(tl.float32), values.to(tl.float32))
    else:
        product = tl.dot(weights.to(values.dtype), values, input_precision="ieee")
    return higher, total, weighted * rescale[:, None] + product


@triton.jit
def to_bfloat16(numbers):
    """Round float32 to the nearest bfloat16, ties to even; the interpreter's own cast truncates."""
    bits = numbers.to(tl.int32, bitcast=True)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & -0x10000
    return bits.to(tl.float32, bitcast=True).to(tl.bfloat16)


@triton.jit
def finish(
    maximum,
    total,
    weighted,
    sinks,
    value_scale,
    out,
    HAS_SINKS: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
):
    """Rows of the output, in its type, and their log-sum-exps, float32 in base e.

    The output is weighted sums over totals. Where no key was seen it is zero, and the log-sum-exp
    minus infinity, whatever the sink is: a merge with other keys gives it no weight.
    """
    saw_nothing = maximum == float("-inf")
    if HAS_SINKS:
        sinks = sinks * LOG2_E
        highest = tl.maximum(maximum, sinks)
        rescale = tl.exp2(maximum - highest)
        total = total * rescale + tl.exp2(sinks - highest)
        weighted = weighted * rescale[:, None]
        maximum = highest
    sums = tl.where(total > 0, total, 1.0)
    output = weighted * value_scale / sums[:, None]
    lse = tl.where(saw_nothing, float("-inf"), (maximum + tl.log2(sums)) / LOG2_E)
    if IN_FLOAT32:
        output = to_bfloat16(output)
    return output.to(out.dtype.element_ty), lse
