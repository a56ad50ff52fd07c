"""What a relation is: from a batch, others whose output is known from the first one's.

No oracle and no tolerance is needed, so a relation sees what a bound has to let pass, and runs the
same on every device.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from poolproof.kernels.batch import PagedBatch
from poolproof.kernels.case import Case
from poolproof.kernels.ownership import Ownership

__all__ = ["Relation", "Subject", "Variant", "differing_rows", "poisons", "same_bits"]


@dataclass(frozen=True, slots=True)
class Subject:
    """A batch to vary, with all that is known about it."""

    case: Case
    batch: PagedBatch
    owned: Ownership
    draw: random.Random


@dataclass(frozen=True, slots=True)
class Variant:
    """Another batch, and which rows of the first one's output it must give (None: all)."""

    what: str
    batch: PagedBatch
    rows: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """`promise` is the row of the declaration that promises it.

    `variants` yields nothing where the batch has no room for the relation. With the row at a
    weaker value `weaker` may still give variants; without, nothing is promised. `is_foreign`:
    what is broken here shows one request another's data. `also_by` are values of the row that
    promise it as well.
    """

    name: str
    sentence: str
    promise: str
    variants: Callable[[Subject, str], Iterator[Variant]]
    is_foreign: bool = False
    also_by: tuple[str, ...] = ()


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two outputs agree in every bit, but for which NaN it is."""
    return bool(torch.equal(one, other) or torch.equal(one.nan_to_num(7e3), other.nan_to_num(7e3)))


def differing_rows(one: Tensor, other: Tensor) -> list[int]:
    """Rows of the query whose outputs differ."""
    differ = ~((one == other) | (one.isnan() & other.isnan()))
    rows: list[int] = differ.flatten(1).any(1).nonzero().flatten().tolist()
    return rows


def poisons(dtype: torch.dtype, only_finite: bool) -> list[tuple[str, float]]:
    """What is put where nothing must be read: NaN, infinity, and a large number.

    0 * NaN is seen where 0 * 1e30 is not, and a mask that subtracts 10,000 is seen with 1e30 and
    not with 1e4. fp8 has no infinity that both forms share.
    """
    largest = torch.finfo(dtype).max
    finite = [("1e30" if largest > 1e30 else f"{largest:g}", min(largest, 1e30))]
    if only_finite:
        return finite
    infinite = [] if dtype.itemsize == 1 else [("infinity", float("inf"))]
    return [("NaN", float("nan")), *infinite, *finite]


def with_caches(batch: PagedBatch, key_cache: Tensor, value_cache: Tensor) -> PagedBatch:
    """The batch over other caches."""
    return replace(batch, key_cache=key_cache, value_cache=value_cache)


def filled(cache: Tensor, where: Tensor, value: float) -> Tensor:
    """A copy, in the same layout, with `value` in the slots of the mask."""
    copy = torch.empty_strided(
        cache.shape, cache.stride(), dtype=cache.dtype, device=cache.device
    ).copy_(cache)
    poison = torch.tensor(value, dtype=torch.float32).to(cache.dtype).to(cache.device)
    # torch fills no fp8 by mask; its bits are bytes.
    bits = copy.view(torch.uint8) if cache.dtype.itemsize == 1 else copy
    bits[where.to(cache.device)] = poison.view(bits.dtype)
    return copy
