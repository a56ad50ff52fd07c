"""The kernels that fill a cache, against torch and bit for bit: new tokens, copies, swaps."""

from __future__ import annotations

import random

import torch
from torch import Tensor

from poolproof.contract.violation import Severity
from poolproof.kernels.batch import FP8_DTYPES, PagedBatch
from poolproof.kernels.case import Case, build
from poolproof.kernels.checks.check import Check, Outcome
from poolproof.kernels.layouts import in_layout
from poolproof.kernels.target import KernelTarget

__all__ = ["STORAGE_CHECKS"]


def _bits(tensor: Tensor) -> Tensor:
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
    return tensor.contiguous().view(kinds[tensor.element_size()])


def _first_difference(expected: Tensor, found: Tensor) -> str | None:
    if torch.equal(_bits(expected), _bits(found)):
        return None
    block, slot = (int(i) for i in (_bits(expected) != _bits(found)).nonzero()[0, :2])
    return f"block {block} slot {slot} is not what it should be"


def _copied(cache: Tensor) -> Tensor:
    return torch.empty_strided(
        cache.shape, cache.stride(), dtype=cache.dtype, device=cache.device
    ).copy_(cache)


def _write(target: KernelTarget, case: Case) -> Outcome:
    """New tokens into random slots, padding among them; every other slot keeps its bits."""
    assert target.storage is not None
    batch = build(case, target.device)
    draw = random.Random(case.seed)
    num_slots = batch.key_cache.shape[0] * batch.block_size
    slots = draw.sample(range(num_slots), min(num_slots, 1 + draw.randrange(6)))
    slots = [-1 if draw.randrange(5) == 0 else slot for slot in slots]
    noise = torch.Generator().manual_seed(case.seed)
    shape = (len(slots), batch.num_kv_heads, case.head_size)
    dtype = getattr(torch, case.dtype)
    # Of the numbers for an fp8 cache every third is beyond its range.
    size = torch.finfo(batch.key_cache.dtype).max * 0.3 if batch.is_fp8 else 1.0
    new = [(torch.randn(shape, generator=noise) * size).to(dtype).to(target.device) for _ in "kv"]
    scales = (batch.options.key_scale, batch.options.value_scale)
    caches = [_copied(batch.key_cache), _copied(batch.value_cache)]
    target.storage.write(
        *new,
        *caches,
        torch.tensor(slots, device=target.device),
        key_scale=scales[0],
        value_scale=scales[1],
    )
    for name, source, before, scale, found in zip(
        ("key", "value"), new, (batch.key_cache, batch.value_cache), scales, caches, strict=True
    ):
        expected = _copied(before)
        for token, slot in enumerate(slots):
            if slot >= 0:
                row = _stored(source[token], expected.dtype, scale)
                expected[slot // case.block_size, slot % case.block_size] = row
        wrong = _first_difference(expected, found)
        if wrong:
            return Outcome(1, f"writing {len(slots)} tokens to slots {slots}: {name}_cache {wrong}")
    return Outcome(1)


def _stored(numbers: Tensor, dtype: torch.dtype, scale: float) -> Tensor:
    """What one token looks like in a cache of a type: divided, cut to the range, rounded."""
    if dtype not in FP8_DTYPES:
        return numbers.to(dtype)
    largest = torch.finfo(dtype).max
    inverse = torch.tensor(1.0 / scale, dtype=torch.float32)
    return (numbers.float() * inverse).clamp(-largest, largest).to(dtype)


def _copy(target: KernelTarget, case: Case) -> Outcome:
    """A list of copies in which blocks are source and destination at once."""
    assert target.storage is not None
    batch = build(case, target.device)
    count = batch.key_cache.shape[0]
    draw = random.Random(case.seed)
    destinations = draw.sample(range(count), draw.randrange(1, count + 1))
    pairs = [(draw.randrange(count), there) for there in destinations]
    caches = [_copied(batch.key_cache), _copied(batch.value_cache)]
    target.storage.copy(*caches, pairs)
    for name, before, found in zip(
        ("key_cache", "value_cache"), (batch.key_cache, batch.value_cache), caches, strict=True
    ):
        expected = _copied(before)
        for source, there in pairs:
            expected[there] = before[source]
        wrong = _first_difference(expected, found)
        if wrong:
            return Outcome(1, f"copying blocks {pairs} at once: {name} {wrong}")
    return Outcome(1)


def _swap(target: KernelTarget, case: Case) -> Outcome:
    """Blocks to a cache of another size and layout, and back into other places."""
    assert target.storage is not None
    batch = build(case, target.device)
    draw = random.Random(case.seed)
    count = batch.key_cache.shape[0]
    away = _host_cache(batch, count + 2)
    out = list(zip(range(count), draw.sample(range(count + 2), count), strict=True))
    expected = _copied(away)
    for here, there in out:
        expected[there] = batch.key_cache[here]
    target.storage.swap(batch.key_cache, away, out)
    wrong = _first_difference(expected, away)
    if wrong:
        return Outcome(1, f"swapping out blocks {out}: {wrong}")
    home = torch.zeros_like(batch.key_cache)
    target.storage.swap(away, home, [(there, here) for here, there in out])
    wrong = _first_difference(batch.key_cache, home)
    return Outcome(2, wrong and f"swapping blocks {out} out and in again: {wrong}")


def _host_cache(batch: PagedBatch, count: int) -> Tensor:
    shape = (count, *batch.key_cache.shape[1:])
    zeros = torch.zeros(shape, dtype=torch.float32).to(batch.key_cache.dtype)
    return in_layout(zeros.to(batch.key_cache.device), "heads-slots")


def _has_storage(target: KernelTarget) -> bool:
    return target.storage is not None


STORAGE_CHECKS = (
    Check(
        name="cache write",
        sentence="a new token's keys and values land in its slot and nowhere else",
        severity=Severity.WRONG_DATA_OF_ANOTHER,
        run=_write,
        applies=_has_storage,
    ),
    Check(
        name="block copy",
        sentence="a list of block copies acts at once, overlapping ones included",
        severity=Severity.WRONG_DATA_OF_ANOTHER,
        run=_copy,
        applies=_has_storage,
    ),
    Check(
        name="swap",
        sentence="blocks swapped out and in again are the same, in whatever place",
        severity=Severity.WRONG_DATA_OF_ANOTHER,
        run=_swap,
        applies=_has_storage,
    ),
)
