"""What a token looks like in a cache: the exact forms, or how near what is read back must be.

Where the caller gives the scale, a stored number has one right form, or a few. Where the function
measures its own scale for each token and head, the scale is its affair: what a reader gets, the
stored number times the stored scale, must be as near as that type allows.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["FP8_TYPES", "LEAST_SCALE", "SCALED_TYPES", "allowed_error", "stored_forms"]

FP8_TYPES = ("float8_e4m3fn", "float8_e5m2")
SCALED_TYPES = (*FP8_TYPES, "int8")
"""Caches that hold tokens divided by a scale."""
LEAST_SCALE = 1e-6
"""A measured scale may be so large even if its token needs less, as in vLLM: zeros have no scale of
their own."""


def stored_forms(numbers: Tensor, dtype: torch.dtype, scale: float) -> tuple[Tensor, ...]:
    """What tokens may look like in a cache of a type, element by element; the usual form first."""
    if str(dtype).removeprefix("torch.") not in SCALED_TYPES:
        return (numbers.to(dtype),)
    inverse = torch.tensor(1.0, dtype=torch.float32) / torch.tensor(scale, dtype=torch.float32)
    quotients = (numbers.float() / scale, numbers.float() * inverse)
    if dtype is not torch.int8:
        most = torch.finfo(dtype).max
        return tuple(quotient.clamp(-most, most).to(dtype) for quotient in quotients)
    # In float64, where adding a half rounds nothing.
    halves = [
        half for q in quotients for half in ((q.double() - 0.5).ceil(), (q.double() + 0.5).floor())
    ]
    return tuple(half.clamp(least, 127).to(dtype) for half in halves for least in (-128, -127))


def allowed_error(numbers: Tensor, dtype: torch.dtype) -> Tensor:
    """How far from each number what is read back may be, under the scale of its token and head.

    `numbers` are (num_tokens, num_kv_heads, head_size). With a the largest size of a head and M
    that of the type, the scale s = max(a / M, LEAST_SCALE) cuts nothing. In int8 a quotient is
    rounded by at most 1/2, and scale, inverse and product, in float32, are off by 2^-24 each, of
    a quotient of at most 127: s (1/2 + 2^-14) covers both. In fp8 with a precision of eps it is
    rounded by eps / 2 of its size, or of the smallest normal number below that; 1 + 2^-10 covers
    what float32 adds near a tie.
    """
    exact = numbers.double()
    size = exact.abs()
    largest = size.amax(-1, keepdim=True)
    if dtype is torch.int8:
        return ((largest / 127).clamp(min=LEAST_SCALE) * (0.5 + 2.0**-14)).expand_as(exact)
    kind = torch.finfo(dtype)
    scale = (largest / kind.max).clamp(min=LEAST_SCALE)
    return torch.maximum(size, scale * kind.smallest_normal) * (kind.eps / 2 * (1 + 2.0**-10))
