"""What the codes of a cache stand for, in float64: exact, so that no answer is off by them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from poolproof.kernels.batch import PagedBatch, SequenceRows
from poolproof.kernels.gather import gathered
from poolproof.kernels.quantised_cache import Factor, as_numbers, unpack

__all__ = ["numbers_of"]


def numbers_of(
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
