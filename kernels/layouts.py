"""Where the elements of a cache stand: layouts, slices of larger tensors, and caches of any size.

A layout is a view over memory in another order, so that a kernel sees it in the strides alone. A
large cache is address space that the system has promised to nobody (MAP_NORESERVE): only the blocks
that are written take memory, so a cache of 2^31 slots fits everywhere. What was never written reads
as zeros.
"""

from __future__ import annotations

import math
import mmap
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

__all__ = [
    "LAYOUTS",
    "REACHES",
    "caches_over",
    "in_layout",
    "little_memory_left",
    "num_blocks_of",
    "placed",
    "reserved",
    "restrided",
    "spread_beside",
    "spread_out",
]

LAYOUTS = ("slots-heads", "heads-slots", "cross-layer", "interleaved")
"""Order of slots and heads in memory; `cross-layer` has the planes of other layers between blocks,
`interleaved` the keys and values of a slot side by side."""

REACHES = ("small", "65,535 blocks", "2^31 elements", "2^31 slots")
"""What the number of blocks, of elements or of slots of a cache exceeds: the widths of integers
that count them."""

# Not every Python has a name for MAP_NORESERVE; elsewhere such pages are lazy without it.
_PRIVATE = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000} if sys.platform == "linux" else {}
)

Allocate = Callable[[tuple[int, ...], torch.dtype], Tensor]


def in_layout(cache: Tensor, layout: str) -> Tensor:
    """The same elements elsewhere: a view with the strides of the layout."""
    return placed(cache, cache, (layout, "slots-heads"))[0]


def placed(keys: Tensor, values: Tensor, layouts: tuple[str, str]) -> tuple[Tensor, Tensor]:
    """Keys and values in their layouts; interleaved ones share their memory."""

    def zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        # torch makes no zeros of every eight-bit type.
        return torch.zeros(shape, dtype=torch.float32).to(dtype).to(keys.device)

    views = caches_over(tuple(keys.shape), keys.dtype, layouts, zeros, values.shape[-1])
    for view, cache in zip(views, (keys, values), strict=True):
        view.copy_(cache)
    return views


def caches_over(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    layouts: tuple[str, str],
    allocate: Allocate,
    value_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Two caches of a shape in their layouts, over memory from `allocate`.

    Heads of the values have `value_size` elements; None is as many as those of the keys.
    """
    shapes = shape, (*shape[:-1], value_size or shape[-1])
    if layouts == ("interleaved", "interleaved"):
        widths = [math.prod(heads) for _, _, *heads in shapes]
        both = allocate((*shape[:2], sum(widths)), dtype).split(widths, -1)
        keys, values = (part.unflatten(-1, one[2:]) for part, one in zip(both, shapes, strict=True))
    else:
        keys, values = (
            _plane(one, dtype, layout, allocate)
            for one, layout in zip(shapes, layouts, strict=True)
        )
    return keys, values


def _plane(shape: tuple[int, ...], dtype: torch.dtype, layout: str, allocate: Allocate) -> Tensor:
    blocks, slots, *heads = shape
    if layout == "heads-slots":
        return allocate((blocks, heads[0], slots, *heads[1:]), dtype).transpose(1, 2)
    if layout == "cross-layer":
        # The planes of two other layers stand between the blocks of this one.
        return allocate((blocks, 3, slots, *heads), dtype)[:, 1]
    if layout == "interleaved":
        return allocate((blocks, slots, 2, *heads), dtype)[:, :, 0]
    return allocate(shape, dtype)


def restrided(tensor: Tensor, strides: tuple[int, ...], offset: int, elements: int) -> Tensor:
    """The same numbers with these strides, in memory of so many elements that holds NaN else."""
    memory = torch.full((elements,), float("nan"), dtype=torch.float32)
    view = memory.to(tensor.dtype).to(tensor.device).as_strided(tensor.shape, strides, offset)
    return view.copy_(tensor)


def num_blocks_of(reach: str, shape: tuple[int, ...]) -> int:
    """How many blocks a cache has whose blocks have this shape."""
    slots = shape[0]
    count = {
        "65,535 blocks": 70_000,
        "2^31 elements": 2**31 // math.prod(shape) + 64,
        "2^31 slots": 2**31 // slots + 64,
    }[reach]
    # A table's entries are int32.
    return min(max(count, 70_000), 2**31 - 1)


def spread_out(
    caches: tuple[Tensor, Tensor], layouts: tuple[str, str], table: Tensor, reach: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Small caches as parts of large ones, and the table of their blocks there; on a CPU only.

    Every second block goes to the far end; the null block stays where it is.
    """
    count = num_blocks_of(reach, tuple(caches[0].shape[1:]))
    places = _far_places(len(caches[0]), count)
    return *_spread(caches, layouts, count), places[table.long()].to(table)


def spread_beside(
    tensors: tuple[Tensor, Tensor], layouts: tuple[str, str], reach: str, block: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """What the blocks of a large cache have beside their numbers, which have the shape `block`."""
    return _spread(tensors, layouts, num_blocks_of(reach, block))


def _far_places(number: int, count: int) -> Tensor:
    numbers = torch.arange(number)
    return torch.where(numbers % 2 == 1, count - 1 - numbers, numbers)


def _spread(
    tensors: tuple[Tensor, Tensor], layouts: tuple[str, str], count: int
) -> tuple[Tensor, Tensor]:
    shape = tuple(tensors[0].shape[1:])
    far = caches_over((count, *shape), tensors[0].dtype, layouts, reserved, tensors[1].shape[-1])
    for there, tensor in zip(far, tensors, strict=True):
        for number, place in enumerate(_far_places(len(tensor), count).tolist()):
            there[place] = tensor[number]
    return far


def reserved(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Zeros that take no memory until they are written."""
    size = math.prod(shape) * dtype.itemsize
    memory = mmap.mmap(-1, size, **_PRIVATE)
    return torch.frombuffer(memory, dtype=torch.uint8).view(dtype).view(shape)


@contextmanager
def little_memory_left(mib: int) -> Iterator[None]:
    """Within the block this process may take so much more address space.

    A copy of a large cache is then refused, and not made until the machine is full. Where nothing
    says how much the process has, there is no limit.
    """
    status = Path("/proc/self/statm")
    if not status.is_file():
        yield
        return
    import resource  # not on every system

    pages = int(status.read_text(encoding="ascii").split()[0])
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * os.sysconf("SC_PAGE_SIZE") + (mib << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, hard))
