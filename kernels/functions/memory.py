"""Memory of caches as bits: filled at random, compared byte for byte, watched while it is written.

A function that writes a cache has an exact answer, and everything that it must not write keeps its
bits: the slots of others, what stands between the blocks of a layout, and what it reads from.
Random bits hold NaN and infinity of every kind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from poolproof.kernels.layouts import REACHES, caches_over, num_blocks_of, reserved
from poolproof.kernels.read_sets import Accesses, element_numbers

__all__ = [
    "Memory",
    "bits",
    "changed_bytes",
    "far_place",
    "make_caches",
    "random_bits",
    "storage_of",
    "unlawful_stores",
]

Memory = Mapping[str, Tensor]


def bits(tensor: Tensor) -> Tensor:
    """The same elements as integers, so that NaN equals itself; contiguous."""
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.contiguous().view(kinds[tensor.element_size()])


def storage_of(tensor: Tensor) -> Tensor:
    """All of the memory in which a tensor stands, as bytes: its own elements and all between."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def random_bits(shape: tuple[int, ...], dtype: torch.dtype, draw: torch.Generator) -> Tensor:
    """Every pattern of bits, so also every NaN."""
    size = math.prod(shape) * dtype.itemsize
    return torch.randint(256, (size,), dtype=torch.uint8, generator=draw).view(dtype).view(shape)


def make_caches(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    layouts: tuple[str, str],
    *,
    reach: str,
    draw: torch.Generator,
    device: str,
) -> tuple[Tensor, Tensor]:
    """Two caches of random bits; the blocks of a large one hold zeros and take no memory."""
    if reach != REACHES[0]:
        return caches_over((num_blocks_of(reach, shape[1:]), *shape[1:]), dtype, layouts, reserved)

    def allocate(size: tuple[int, ...], kind: torch.dtype) -> Tensor:
        return random_bits(size, kind, draw).to(device)

    return caches_over(shape, dtype, layouts, allocate)


def far_place(block: int, cache: Tensor, reach: str) -> int:
    """Where a block of a small cache stands in a large one: every second one at the far end."""
    return cache.shape[0] - 1 - block if reach != REACHES[0] and block % 2 else block


def changed_bytes(before: Tensor, now: Tensor) -> int:
    """How many bytes of the memory of two tensors differ."""
    old, new = storage_of(before), storage_of(now)
    return 0 if torch.equal(old, new) else int((old != new).sum())


def unlawful_stores(
    accesses: Accesses, tensors: Memory, allowed: Mapping[str, list[Tensor]]
) -> str | None:
    """The first store, or load outside of every tensor, that is not allowed; None if all are.

    `allowed` are parts of the tensors that may be written, by name.
    """
    for stray in accesses.strays:
        verb = "reads" if stray.kind == "load" else "writes"
        return (
            f"{verb} {stray.count} addresses outside of every tensor, the first {stray.distance} "
            f"bytes from {stray.nearest}"
        )
    lawful: dict[int, list[np.ndarray]] = {}
    for name, parts in allowed.items():
        numbers = lawful.setdefault(tensors[name].untyped_storage().data_ptr(), [])
        numbers += [element_numbers(part).reshape(-1) for part in parts]
    for name, tensor in tensors.items():
        own = lawful.get(tensor.untyped_storage().data_ptr(), [])
        there = np.concatenate(own) if own else np.zeros(0, np.int64)
        extra = np.setdiff1d(accesses.elements("store", tensor), there)
        if len(extra):
            return f"stores {len(extra)} elements of {name} that are not its to write"
    return None
