"""Dense attention in float64, and for each element how far a correct kernel may be away from it.

A fixed tolerance is blind where answers are small and unfair where they are large: with inputs
drawn from +-0.001 the tolerances in use pass a kernel that has no softmax at all. The bound here
is a forward error bound of the usual algorithm, taken element by element from the float64 values.

With p the weights, v the values, A = sum p|v|, Q = sqrt(sum p^2 v^2), u the unit roundoff of the
output's type, S the largest sum of |query||key| times scale, n keys and head size D:

    |o - o*| <= 2.02 u |o*|  +  6 u Q  +  (2 e + 6 2^-24 (sqrt(n) + 8)) A
    e = 6 2^-24 (sqrt(D) + 3) S  +  2^-21 softcap  +  2^-22 max |slope * distance|

A target that keeps scores in the query's own type rounds the product, the scaled, capped and
biased score each once: e grows by u (2 |s| + softcap + |bias|), of the largest of each.

A quantised cache holds what it holds: its codes, scales and zero points are exact, and |key| and
|v| above are the sizes of the terms, |code| scale + |zero| scale (`quantised_cache.as_numbers`),
which a kernel may add up apart. A target that dequantises to the query's type (the output's, for
queries in fp8) rounds scale, zero point and product each once:

    e grows by 3.03 u S,  the whole by 3.03 u A

One that rounds its weights to the type of an fp8 cache, with u' = 2^-4 and a = 2^-10 in e4m3, 2^-3
and 2^-17 in e5m2, a half of its smallest number, and m the largest weight, the sink's included:

    |o - o*| grows by 6 u' (Q + |o*| sqrt(sum p^2)) + a m (sum |v| + n |o*|)

First term: the output is rounded, and before that once more where it is merged from parts that are
kept in its type (a shared prefix, splits). Second: the weights are rounded to the cache's type
before they meet the values (not in float32). Third: scores, exponentials and sums in float32, whose
errors grow with the square root of the number of terms (Higham, Accuracy and Stability of Numerical
Algorithms, 2nd ed., 4.3, with a factor of 6 for what is not random).

The log-sum-exp in base e, with L the largest of its own size and that of a score:

    |lse - lse*| <= e + 2^-24 (4 L + 6 (sqrt(n) L + sqrt(n) + 8))

No score is off by more than e, so neither is the log-sum-exp; maxima that are subtracted and added
again, and brought to another base, are rounded to 2^-24 of their size, and the steps between them
add up to at most 2 L; a relative error of the sum is an absolute one of its logarithm. A kernel
that keeps the log-sum-exp itself from tile to tile rounds it to 2^-24 of its size at each, n times
at most.

`max_ratio` in a report is the largest error over its bound; correct kernels stay below 0.8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from poolproof.kernels.batch import PagedBatch, SequenceRows
from poolproof.kernels.gather import gathered, visible_keys
from poolproof.kernels.quantised_cache import Factor, as_numbers, unpack

__all__ = ["Expected", "Rounded", "dense_attention"]

FLOAT32 = 2.0**-24
FACTOR = 6.0
ROUNDOFF = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
# Below the smallest normal number of a type the error is absolute.
SMALLEST = {torch.float32: 1e-38, torch.float16: 2.0**-24, torch.bfloat16: 1e-38}
# Of weights in an fp8 type: the unit roundoff, and half of the smallest number.
FP8_WEIGHTS = {
    torch.float8_e4m3fn: (2.0**-4, 2.0**-10),
    torch.float8_e5m2: (2.0**-3, 2.0**-17),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounded:
    """What a target declares that it keeps in a narrow type: the rows of the same names.

    `scores` and `dequantised` numbers are in the query's type, `weights` in that of an fp8 cache.
    """

    scores: bool = False
    dequantised: bool = False
    weights: bool = False


KEPT = Rounded()
"""Nothing is rounded more than it has to be."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected output, and how far off each element may be; all float64, on the CPU.

    `lse` and `lse_bound`, (num_tokens, num_heads), are log-sum-exps in base e.
    """

    output: Tensor
    bound: Tensor
    lse: Tensor
    lse_bound: Tensor

    def lse_ratio(self, lse: Tensor, base: str) -> Tensor:
        """Error over bound of log-sum-exps in a base: (num_tokens, num_heads)."""
        found = lse.detach().cpu().double() * (math.log(2) if base == "2" else 1.0)
        error = torch.where(found == self.lse, 0.0, (found - self.lse).abs())
        return torch.nan_to_num(error / self.lse_bound, nan=float("inf"), posinf=float("inf"))

    def ratio(self, output: Tensor) -> Tensor:
        """Error over bound for each element; infinite where the output is not a number."""
        error = (output.detach().cpu().double() - self.output).abs()
        return torch.nan_to_num(error / self.bound, nan=float("inf"), posinf=float("inf"))

    def max_ratio(self, output: Tensor) -> float:
        """The worst element; above 1 the output is wrong."""
        return float(self.ratio(output).max()) if output.numel() else 0.0


def dense_attention(batch: PagedBatch, *, rounded: Rounded = KEPT) -> Expected:
    """The output that `batch` must give. Reads the cache only through the tables."""
    shape = batch.out_shape
    output = torch.zeros(shape, dtype=torch.float64)
    bound = torch.full(shape, SMALLEST[batch.out_dtype], dtype=torch.float64)
    lse = torch.full(shape[:2], float("-inf"), dtype=torch.float64)
    expected = Expected(output, bound, lse, torch.full_like(lse, FLOAT32))
    for sequence in batch.sequences():
        first = sequence.first_visible(batch.options)
        if sequence.query_length and first < sequence.kv_length:
            _attend(batch, sequence, first, expected, rounded)
    return expected


def _attend(
    batch: PagedBatch,
    sequence: SequenceRows,
    first: int,
    expected: Expected,
    rounded: Rounded,
) -> None:
    options, group, head_size = batch.options, batch.queries_per_kv_head, batch.query.shape[2]
    query = batch.query[sequence.rows].cpu().double().unflatten(1, (-1, group))
    query = query * options.quantisation.query_scale
    keys, key_sizes = _numbers_of(batch, "key", sequence, first)
    values, value_sizes = _numbers_of(batch, "value", sequence, first)
    scale, roundoff = abs(options.scale), ROUNDOFF[batch.out_dtype]
    # h: head of the cache, g: query head of its group, q: query, k: key, d: element of a head.
    scores = torch.einsum("qhgd,khd->hgqk", query, keys) * options.scale
    sizes = torch.einsum("qhgd,khd->hgqk", query.abs(), key_sizes) * scale
    seen = visible_keys(options, sequence, first)
    score_error = FACTOR * FLOAT32 * (head_size**0.5 + 3) * sizes
    if rounded.dequantised:
        score_error = score_error + 3.03 * roundoff * sizes
    rounding = roundoff if rounded.scores else 0.0
    score_error = score_error + 2 * rounding * scores.abs()
    if options.softcap is not None:
        scores = options.softcap * torch.tanh(scores / options.softcap)
        score_error = score_error + (8 * FLOAT32 + rounding) * options.softcap
    if options.alibi_slopes is not None:
        slopes = options.alibi_slopes.cpu().double().unflatten(0, (-1, group))
        positions = torch.arange(sequence.query_length) + sequence.first_position
        distance = torch.arange(first, sequence.kv_length)[None, :] - positions[:, None]
        bias = slopes[:, :, None, None] * distance.double()
        scores = scores + bias
        score_error = score_error + (4 * FLOAT32 + rounding) * bias.abs()
    masked = scores.masked_fill(~seen, float("-inf"))
    # What no query sees may be no number.
    hidden = ~seen.any(0)[:, None, None]
    values, value_sizes = values.masked_fill(hidden, 0.0), value_sizes.masked_fill(hidden, 0.0)
    weights, lse = _softmax(masked, options.sinks, group)
    exact = torch.einsum("hgqk,khd->qhgd", weights, values)
    absolute = torch.einsum("hgqk,khd->qhgd", weights, value_sizes)
    worst = score_error.masked_fill(~seen, 0.0).amax(-1)
    relative = 2 * worst + FACTOR * FLOAT32 * (seen.shape[1] ** 0.5 + 8)
    if rounded.dequantised:
        relative = relative + 3.03 * roundoff
    allowed = 2.02 * roundoff * exact.abs()
    allowed += relative.permute(2, 0, 1)[..., None] * absolute
    if batch.out_dtype != torch.float32:
        squares = torch.einsum("hgqk,khd->qhgd", weights**2, value_sizes**2)
        allowed += FACTOR * roundoff * squares.sqrt()
    if rounded.weights and batch.is_fp8:
        allowed += _of_weights_in_fp8(batch, weights, value_sizes, exact, seen)
    expected.output[sequence.rows] = exact.flatten(1, 2)
    expected.bound[sequence.rows] += allowed.flatten(1, 2)
    largest = torch.maximum(
        masked.abs().masked_fill(~seen, 0.0).amax(-1), lse.abs().nan_to_num(posinf=0.0)
    )
    root = seen.shape[1] ** 0.5
    lse_error = worst + FLOAT32 * (4 * largest + FACTOR * (root * largest + root + 8))
    expected.lse[sequence.rows] = lse.flatten(0, 1).T
    expected.lse_bound[sequence.rows] += lse_error.flatten(0, 1).T


def _numbers_of(
    batch: PagedBatch, which: str, sequence: SequenceRows, first: int
) -> tuple[Tensor, Tensor]:
    """Keys or values (`which`) from a position on, and the size of the terms that they are made of.

    Both are (num_keys, num_kv_heads, head_size), float64, on the CPU. Scales and zero points are
    read at the slots of the sequence alone.
    """
    options, quantisation = batch.options, batch.options.quantisation
    codes = gathered(batch, getattr(batch, f"{which}_cache"), sequence, first).cpu()
    if batch.is_packed:
        signed = quantisation.zero_points == "absent"
        codes = unpack(codes, quantisation.nibbles, signed=signed)
    scale, zeros = getattr(options, f"{which}_scale"), getattr(quantisation, f"{which}_zeros")
    return as_numbers(
        codes.double(),
        _at(batch, scale, sequence, first),
        None if zeros is None else _at(batch, zeros, sequence, first),
        quantisation.zero_points,
    )


def _at(batch: PagedBatch, factor: Factor, sequence: SequenceRows, first: int) -> Any:
    """A factor in float64, broadcast over (num_keys, num_kv_heads, head_size)."""
    if not isinstance(factor, Tensor):
        return torch.tensor(factor, dtype=torch.float64)
    if factor.dim() == 1:
        return factor.cpu().double()[:, None]
    return gathered(batch, factor, sequence, first).cpu().double()[..., None]


def _of_weights_in_fp8(
    batch: PagedBatch, weights: Tensor, values: Tensor, exact: Tensor, seen: Tensor
) -> Tensor:
    """How far weights in the cache's type may move the output: (queries, heads, group, size)."""
    roundoff, half = FP8_WEIGHTS[batch.key_cache.dtype]
    squares = torch.einsum("hgqk,khd->qhgd", weights**2, values**2)
    by_query = (weights**2).sum(-1).sqrt().permute(2, 0, 1)[..., None]
    rounding = FACTOR * roundoff * (squares.sqrt() + exact.abs() * by_query)
    highest = torch.maximum(weights.amax(-1), 1 - weights.sum(-1)).permute(2, 0, 1)[..., None]
    count = seen.sum(-1).double()[:, None, None, None]
    there = torch.einsum("qk,khd->qhd", seen.double(), values)[:, :, None]
    return rounding + half * highest * (there + count * exact.abs())


def _softmax(scores: Tensor, sinks: Tensor | None, group: int) -> tuple[Tensor, Tensor]:
    """Weights of the keys, zeros where a query sees none, and log-sum-exps.

    -inf marks what is not seen.
    """
    if sinks is None:
        weights = torch.nan_to_num(torch.softmax(scores, dim=-1), nan=0.0)
        return weights, torch.logsumexp(scores, dim=-1)
    rows = sinks.cpu().double().unflatten(0, (-1, group))[:, :, None, None]
    rows = rows.expand(*scores.shape[:3], 1)
    scores = torch.cat([scores, rows], dim=-1)
    return torch.softmax(scores, dim=-1)[..., :-1], torch.logsumexp(scores, dim=-1)
