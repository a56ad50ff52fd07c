"""One tile of keys against some rows of queries: scores, running softmax, end of the softmax.

Shared by decode and prefill, so that a score is defined once. Tiles are cut by logical position and
never by block, batch or placement: the order in which numbers are added, and so every bit of the
result, depends on the sequence alone (pytorch#182593 shows what breaks that). Everything that is
loaded is masked, because a slot that was never written may hold NaN, and 0 * NaN is NaN (vllm#641).
"""

import triton
import triton.language as tl

__all__ = ["add_tile", "finish", "load_tile", "scores_of", "to_bfloat16"]


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
    FROM_FP8: tl.constexpr,
):
    """Keys or values at `positions`, zero where not `readable`: (tile, padded head size)."""
    blocks = tl.load(block_table + positions // BLOCK_SIZE, mask=readable, other=0)
    # A cache has more than 2^31 elements: offsets are 64 bits wide (vllm#47671, flashinfer#3130).
    rows = blocks.to(tl.int64) * stride_block + (positions % BLOCK_SIZE) * stride_slot
    elements = tl.arange(0, HEAD_PADDED)
    mask = readable[:, None] & (elements < HEAD_SIZE)[None, :]
    addresses = cache + rows[:, None] + head * stride_head + elements[None, :]
    numbers = tl.load(addresses, mask=mask, other=0.0)
    if FROM_FP8:
        # Exact, and the interpreter's own way from e5m2 to float16 loses the smallest numbers.
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
):
    """Scores of rows against a tile, -inf where not `visible`: (rows, tile) in float32."""
    keys = keys.to(queries.dtype)
    if IN_FLOAT32:
        # The interpreter multiplies the bit patterns of bfloat16 (triton#11584).
        scores = tl.dot(queries.to(tl.float32), tl.trans(keys.to(tl.float32)))
    else:
        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee")
    scores = scores * scale
    if HAS_SOFTCAP:
        # tanh that never divides infinity by infinity (vllm#56578).
        scores = softcap - 2.0 * softcap / (tl.exp(2.0 * scores / softcap) + 1.0)
    if HAS_SLOPES:
        distance = key_positions[None, :] - query_positions[:, None]
        scores += slopes[:, None] * distance.to(tl.float32)
    return tl.where(visible, scores, float("-inf"))


@triton.jit
def add_tile(scores, values, maximum, total, weighted, IN_FLOAT32: tl.constexpr):
    """Take a tile into the running softmax: (new maximum, new total, new weighted sum)."""
    higher = tl.maximum(maximum, tl.max(scores, axis=1))
    # A row that has seen no key yet: -inf minus -inf is not a number (vllm#57094).
    base = tl.where(higher == float("-inf"), 0.0, higher)
    rescale = tl.exp(maximum - base)
    weights = tl.exp(scores - base[:, None])
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
    """Rows of the output, in its type: weighted sums over totals; zeros where no key was seen."""
    if HAS_SINKS:
        highest = tl.maximum(maximum, sinks)
        rescale = tl.exp(maximum - highest)
        total = total * rescale + tl.exp(sinks - highest)
        weighted = weighted * rescale[:, None]
    output = weighted * value_scale / tl.where(total > 0, total, 1.0)[:, None]
    if IN_FLOAT32:
        output = to_bfloat16(output)
    return output.to(out.dtype.element_ty)
