"""Elements of a head in another order, in queries, keys and values, give the output in that order.

A product of vectors does not know the order of their elements, so a kernel whose keys and values
have sizes of their own must not either. Latent keys are permuted within the part that is the value
and within the rest; others as a whole, and their values in an order of their own. The numbers stay
what they are, only sums are added up in another order: both outputs are within their bound b of
the same one, so they differ by 2 b at most. No oracle is needed for what must agree; a kernel that
mixes up where one part ends and the next one begins breaks it.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from poolproof.contract.violation import Severity
from poolproof.kernels.batch import PagedBatch
from poolproof.kernels.case import Case, build
from poolproof.kernels.checks.check import Check, Outcome
from poolproof.kernels.checks.dense import rows_with_keys
from poolproof.kernels.relations import with_caches
from poolproof.kernels.target import KernelTarget

__all__ = ["ELEMENT_CHECKS"]


def _orders(batch: PagedBatch, seed: int) -> tuple[Tensor, Tensor]:
    """New orders of the elements of keys and of values."""
    draw = torch.Generator().manual_seed(seed)
    size, whole = batch.value_size, batch.query.shape[2]
    values = torch.randperm(size, generator=draw)
    if not batch.is_latent:
        return torch.randperm(whole, generator=draw), values
    return torch.cat([values, size + torch.randperm(whole - size, generator=draw)]), values


def _reordered(tensor: Tensor, order: Tensor) -> Tensor:
    """The last dimension in another order, with the strides that the tensor has."""
    room = torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )
    return room.copy_(tensor[..., order.to(tensor.device)])


def _permuted(target: KernelTarget, case: Case) -> Outcome:
    batch = build(case, target.device)
    rows = rows_with_keys(case)
    if not rows.any() or batch.is_packed:
        return Outcome(0)
    of_keys, of_values = _orders(batch, case.seed)
    permuted = with_caches(
        replace(batch, query=_reordered(batch.query, of_keys)),
        _reordered(batch.key_cache, of_keys),
        _reordered(batch.value_cache, of_values),
    )
    output, other = (target(one).cpu().double()[rows] for one in (batch, permuted))
    bound = target.expected(batch).bound[rows]
    difference = (output[..., of_values] - other).abs() / (2 * bound[..., of_values])
    worst = float(torch.nan_to_num(difference, nan=float("inf"), posinf=float("inf")).max())
    if worst > 1:
        return Outcome(
            1,
            "with the elements of queries, keys and values in another order the output is another, "
            f"off by {worst:.3g} times what two correct outputs may differ by",
        )
    return Outcome(1)


ELEMENT_CHECKS = (
    Check(
        name="permuted elements",
        sentence="elements of a head in another order give the output in that order",
        severity=Severity.WRONG_DATA_OF_ONES_OWN,
        run=_permuted,
        applies=lambda target: bool(target.declaration.value_sizes),
        takes_large_cases=True,
    ),
)
