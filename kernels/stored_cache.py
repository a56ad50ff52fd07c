"""The cache of a case: numbers as they are stored, with scales and zero points in their places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from poolproof.kernels.layouts import REACHES, placed, spread_beside, spread_out
from poolproof.kernels.quantised_cache import Factor, Quantisation, Quantised, quantised

if TYPE_CHECKING:
    from poolproof.kernels.case import Case

__all__ = ["StoredCache", "store"]

Pair = tuple[Any, Any]

_SCALES_OF_FP8 = (0.3, 0.7)
"""Not powers of two, so that a lost or doubled scale cannot hide."""


@dataclass(frozen=True, slots=True)
class StoredCache:
    """Keys and values in their layouts, what their codes stand for, and a table of their blocks."""

    keys: Tensor
    values: Tensor
    scales: tuple[Factor, Factor]
    quantisation: Quantisation
    table: Tensor


def store(
    case: Case, numbers: tuple[Tensor, Tensor], table: Tensor, draw: torch.Generator, device: str
) -> StoredCache:
    """Keys and values, (num_blocks, block_size, num_kv_heads, size), in the cache of a case."""
    pair = _codes(case, *numbers, draw)
    layouts = case.layout, case.value_layout or case.layout
    if case.reach == REACHES[0]:
        stored = placed(pair[0].codes.to(device), pair[1].codes.to(device), layouts)
    else:
        *far, table = spread_out((pair[0].codes, pair[1].codes), layouts, table, case.reach)
        stored = far[0], far[1]
    if case.latent:
        stored = stored[0], stored[0][..., : case.value_size]

    def in_place(one: Factor, other: Factor) -> Pair:
        return _factors(case, one, other, tuple(pair[0].codes.shape[1:]), device)

    scales = in_place(pair[0].scale, pair[1].scale)
    zeros: Pair = (None, None)
    if pair[0].zeros is not None and pair[1].zeros is not None:
        zeros = in_place(pair[0].zeros, pair[1].zeros)
    quantisation = Quantisation(
        key_zeros=zeros[0], value_zeros=zeros[1], nibbles=case.nibbles, zero_points=case.zero_points
    )
    return StoredCache(*stored, scales, quantisation, table)


def _codes(
    case: Case, keys: Tensor, values: Tensor, draw: torch.Generator
) -> tuple[Quantised, Quantised]:
    kind = case.cache_dtype
    if kind is None:
        dtype = getattr(torch, case.dtype)
        return Quantised(keys.to(dtype), 1.0), Quantised(values.to(dtype), 1.0)
    if kind.startswith("float8") and case.scales == "tensor":
        scales = _SCALES_OF_FP8[0], _SCALES_OF_FP8[not case.latent]
        return _with_scale(keys, kind, scales[0]), _with_scale(values, kind, scales[1])
    form = {"nibbles": case.nibbles, "zero_points": case.zero_points}
    of_keys = quantised(keys, kind, case.scales, draw, **form)
    if case.latent:
        return of_keys, Quantised(of_keys.codes[..., : case.value_size], of_keys.scale)
    return of_keys, quantised(values, kind, case.scales, draw, **form)


def _with_scale(numbers: Tensor, kind: str, scale: float) -> Quantised:
    dtype = getattr(torch, kind)
    limit = torch.finfo(dtype).max
    return Quantised((numbers / scale).clamp(-limit, limit).to(dtype), scale)


def _factors(case: Case, one: Factor, other: Factor, block: tuple[int, ...], device: str) -> Pair:
    """Scales or zero points in their places: those of slots in the layouts of the slots."""
    if not (isinstance(one, Tensor) and isinstance(other, Tensor)):
        return one, other
    if one.dim() == 1:
        both = torch.stack([one, other], -1).to(device)
        apart = both[:, 0].contiguous(), both[:, 1].contiguous()
        return (both[:, 0], both[:, 1]) if case.layout == "interleaved" else apart
    layouts = case.layout, case.value_layout or case.layout
    if case.reach == REACHES[0]:
        pair = placed(one.to(device), other.to(device), layouts)
    else:
        pair = spread_beside((one, other), layouts, case.reach, block)
    # Latent values have the scales of their keys.
    return (pair[0], pair[0]) if case.latent else pair
