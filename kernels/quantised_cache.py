"""Caches in eight and four bits: what a stored code means, how codes are packed, what scales are.

A stored code becomes a number by its scale: `code * scale`. A scale is a float, one for the cache;
or a float32 tensor (num_kv_heads,), one for each head; or (num_blocks, block_size, num_kv_heads),
one for each token and head, found through the block table like the slots, with any strides. int8
codes are symmetric. Two int4 codes share a byte of uint8, so that such a cache has half as many
elements in its last dimension: `nibbles` says which. They are signed, or unsigned with a zero
point, which has the form of the scales.

What serving engines have: one scale and one for each head (vLLM and FlashAttention with fp8,
TensorRT-LLM with int8), one for each token and head (vLLM's `int8_per_token_head`,
`fp8_per_token_head` and `int4_per_token_head`, LMDeploy's `quant_policy` 4, which has zero points).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

__all__ = [
    "CACHE_TYPES",
    "NIBBLES",
    "PLAIN",
    "SCALES",
    "ZERO_POINTS",
    "Factor",
    "Quantisation",
    "Quantised",
    "as_numbers",
    "code_range",
    "pack",
    "quantised",
    "quantised_query",
    "unpack",
]

CACHE_TYPES = ("float8_e4m3fn", "float8_e5m2", "int8", "int4")
"""Of a cache that is not in the query's type."""

SCALES = ("tensor", "head", "token")
"""What has a scale of its own: the cache, each head of it, or each token and head."""

NIBBLES = ("low-first", "high-first", "halves")
"""Where an int4 code stands. Of a byte's two codes, which are neighbours, the first one is in the
low four bits, or in the high ones; with `halves` byte i holds code i in the low bits and code
i + head_size / 2 in the high ones."""

ZERO_POINTS = ("absent", "before-scale", "whole-before-scale", "after-scale")
"""int4 codes are signed, two's complement; or they are from 0 to 15 and stand for
`(code - zero) * scale`, with any zero point or with whole ones alone; or for
`code * scale + zero`."""

Factor: TypeAlias = "float | Tensor"
"""A scale or a zero point: for the cache, for its heads, or for its tokens and heads."""

_LARGEST_FP8 = 448.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantisation:
    """What quantised queries and int4 caches have beyond the scales of keys and values.

    `query_scale` belongs to queries in fp8, whose output is in `out_dtype`; None is the query's
    own type. Without zero points `key_zeros` and `value_zeros` are None.
    """

    query_scale: float = 1.0
    out_dtype: torch.dtype | None = None
    key_zeros: Factor | None = None
    value_zeros: Factor | None = None
    nibbles: str = NIBBLES[0]
    zero_points: str = ZERO_POINTS[0]


PLAIN = Quantisation()
"""Queries in their own type, and no int4 codes."""


@dataclass(frozen=True, slots=True)
class Quantised:
    """The codes of keys or values, packed where they are int4, their scales and zero points."""

    codes: Tensor
    scale: Factor
    zeros: Factor | None = None


def code_range(cache_type: str, zero_points: str) -> tuple[float, float]:
    """The smallest and the largest code that is drawn for a type of cache.

    Zero points are those of int4 alone.
    """
    if cache_type == "int8":
        return -127.0, 127.0
    if cache_type == "int4":
        return (-8.0, 7.0) if zero_points == "absent" else (0.0, 15.0)
    return -_LARGEST_FP8, _LARGEST_FP8


def pack(codes: Tensor, nibbles: str) -> Tensor:
    """int4 codes, whole numbers (..., size), as bytes (..., size / 2) of uint8."""
    low4 = codes.to(torch.int16) & 15
    if nibbles == "halves":
        low, high = low4.chunk(2, -1)
    else:
        low, high = low4[..., ::2], low4[..., 1::2]
    if nibbles == "high-first":
        low, high = high, low
    return (low | high << 4).to(torch.uint8)


def unpack(stored: Tensor, nibbles: str, *, signed: bool) -> Tensor:
    """Codes (..., size) of int16 from bytes (..., size / 2)."""
    low, high = stored.to(torch.int16) & 15, stored.to(torch.int16) >> 4
    if signed:
        low, high = (torch.where(part > 7, part - 16, part) for part in (low, high))
    if nibbles == "halves":
        return torch.cat([low, high], -1)
    pair = (high, low) if nibbles == "high-first" else (low, high)
    return torch.stack(pair, -1).flatten(-2)


def quantised(
    numbers: Tensor,
    cache_type: str,
    scales: str,
    draw: torch.Generator,
    *,
    nibbles: str = NIBBLES[0],
    zero_points: str = ZERO_POINTS[0],
) -> Quantised:
    """Numbers (num_blocks, block_size, num_kv_heads, size) as a quantised cache.

    Each scale is up to twice as large as needed, by chance, so that no two are alike.
    """
    least, most = code_range(cache_type, zero_points)
    over = {"tensor": (0, 1, 2, 3), "head": (0, 1, 3), "token": (3,)}[scales]
    low, high = numbers.amin(over, keepdim=True), numbers.amax(over, keepdim=True)
    if zero_points in {"before-scale", "whole-before-scale"}:
        # Zero itself has a code.
        low, high = low.clamp(max=0), high.clamp(min=0)
    largest = torch.maximum(low.abs(), high.abs())
    width = largest if zero_points == "absent" else high - low
    scale = width.clamp(min=1e-6) / most * (1 + torch.rand(low.shape, generator=draw))
    zeros: Tensor | None = None
    if zero_points == "absent":
        codes = numbers / scale
    elif zero_points == "after-scale":
        zeros, codes = low, (numbers - low) / scale
    else:
        zeros = -low / scale
        zeros = zeros.round() if zero_points == "whole-before-scale" else zeros
        codes = numbers / scale + zeros
    stored = _stored(codes.clamp(least, most), cache_type, nibbles)
    return Quantised(
        stored, _factor(scale, scales), None if zeros is None else _factor(zeros, scales)
    )


def quantised_query(query: Tensor, cache_type: str, draw: torch.Generator) -> tuple[Tensor, float]:
    """Queries in fp8, and their scale."""
    largest = float(query.abs().max()) if query.numel() else 1.0
    scale = max(1e-6, largest / _LARGEST_FP8) * (1 + float(torch.rand((), generator=draw)))
    return (query / scale).to(getattr(torch, cache_type)), scale


def as_numbers(
    codes: Tensor, scale: Factor, zeros: Factor | None, zero_points: str
) -> tuple[Tensor, Tensor]:
    """What codes stand for, and the size of the terms that add up to it.

    Scales and zero points are broadcast. What a kernel may round is proportional to the second one.
    """
    if zeros is None:
        return codes * scale, (codes * scale).abs()
    if zero_points == "after-scale":
        return codes * scale + zeros, (codes * scale).abs() + abs(zeros)
    return (codes - zeros) * scale, (codes.abs() + abs(zeros)) * abs(scale)


def _factor(factor: Tensor, scales: str) -> Factor:
    """From (blocks, slots, heads, 1) with ones where it is reduced to the form of scales."""
    if scales == "tensor":
        return float(factor)
    reduced: Tensor = factor[0, 0, :, 0] if scales == "head" else factor[..., 0]
    return reduced.contiguous()


def _stored(codes: Tensor, cache_type: str, nibbles: str) -> Tensor:
    if cache_type == "int4":
        return pack(codes.round(), nibbles)
    if cache_type == "int8":
        return codes.round().to(torch.int8)
    return codes.to(getattr(torch, cache_type))
