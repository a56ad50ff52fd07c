"""Scales and zero points that each slot of a cache has: they go where the slots go.

A block that moves takes them along, a sequence's own ones are found through its table, and what may
stand in a slot may stand in its scale: 0 times a scale that is not a number is not a number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from poolproof.kernels.batch import AttentionOptions, PagedBatch
from poolproof.kernels.quantised_cache import Factor, code_range

__all__ = ["Poison", "factors", "moved", "per_slot", "poisons", "with_factors"]

_OF_QUANTISATION = ("key_zeros", "value_zeros")


@dataclass(frozen=True, slots=True)
class Poison:
    """What is put where nothing must be read: numbers in the cache, scales, or both."""

    word: str
    numbers: float | None
    scales: float | None = None

    @property
    def of_queries(self) -> float:
        """The same in a query, which has no scale of its own."""
        number = self.scales if self.numbers is None else self.numbers
        assert number is not None, self.word
        return number


def factors(batch: PagedBatch) -> dict[str, Factor]:
    """Scales of keys and values, and their zero points if there are any, by name."""
    options, zeros = batch.options, batch.options.quantisation
    named = {"key_scale": options.key_scale, "value_scale": options.value_scale}
    for name in _OF_QUANTISATION:
        factor = getattr(zeros, name)
        if factor is not None:
            named[name] = factor
    return named


def per_slot(batch: PagedBatch) -> dict[str, Tensor]:
    """Those that each slot has, (num_blocks, block_size, num_kv_heads)."""
    return {
        name: factor
        for name, factor in factors(batch).items()
        if isinstance(factor, Tensor) and factor.dim() == 3
    }


def with_factors(options: AttentionOptions, changed: Mapping[str, Factor]) -> AttentionOptions:
    """The options with other scales or zero points."""
    zeros: dict[str, Any] = {n: factor for n, factor in changed.items() if n in _OF_QUANTISATION}
    scales: dict[str, Any] = {n: factor for n, factor in changed.items() if n not in zeros}
    quantisation = replace(options.quantisation, **zeros)
    return replace(options, **scales, quantisation=quantisation)


def moved(batch: PagedBatch, change: Callable[[Tensor], Tensor]) -> PagedBatch:
    """The batch with what each slot has beside its numbers changed in the same way."""
    tensors = per_slot(batch)
    if not tensors:
        return batch
    changed = {name: change(tensor) for name, tensor in tensors.items()}
    return replace(batch, options=with_factors(batch.options, changed))


def poisons(batch: PagedBatch, only_finite: bool) -> list[Poison]:
    """NaN, infinity, and a large number; in the scales of slots as well.

    0 * NaN is seen where 0 * 1e30 is not, and a mask that subtracts 10,000 is seen with 1e30 and
    not with 1e4. fp8 has no infinity that both forms share, and a code of an integer cache is
    always a number: there the scales say whether one is read.
    """
    dtype, found = batch.key_cache.dtype, []
    if per_slot(batch) and not only_finite:
        found += [Poison("NaN as a scale", None, float("nan")),
                  Poison("infinity as a scale", None, float("inf"))]  # fmt: skip
    if dtype.is_floating_point:
        largest = torch.finfo(dtype).max
        finite = Poison("1e30" if largest > 1e30 else f"{largest:g}", min(largest, 1e30))
        if not only_finite:
            found.append(Poison("NaN", float("nan")))
            found += [] if dtype.itemsize == 1 else [Poison("infinity", float("inf"))]
    else:
        finite = Poison("the largest code", float(_largest_code(batch)))
    if per_slot(batch):
        # What a half type holds is large enough: finite is what the number is, not what overflows.
        scale = min(1e30, torch.finfo(batch.out_dtype).max / (1e5 if dtype.itemsize > 1 else 2e3))
        if dtype == torch.float8_e5m2:
            scale = min(scale, torch.finfo(batch.out_dtype).max / 57_344 / 2)
        finite = replace(finite, word=f"{finite.word} under a scale of {scale:.3g}", scales=scale)
    return [*found, finite]


def _largest_code(batch: PagedBatch) -> int:
    """In every place of a slot; two of them in a byte."""
    if not batch.is_packed:
        return int(code_range("int8", "absent")[1])
    most = int(code_range("int4", batch.options.quantisation.zero_points)[1])
    return most << 4 | most
