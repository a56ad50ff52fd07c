"""Records what kernels load and store while they run in Triton's interpreter.

Tensors that are handed to a launch are known by their storage; tensors with names are given by the
caller. Addresses are kept as element numbers within a storage. An unmasked load outside of every
tensor returns whatever memory holds there, on a CPU without a sign and on a GPU with luck: here it
is kept as a stray address.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

__all__ = ["Accesses", "Stray", "recorded"]

Array = Any  # numpy's, whose element types this file does not vary


@dataclass(frozen=True, slots=True)
class Stray:
    """Addresses outside of every tensor: how many, and how far from the nearest one's end."""

    kind: str
    count: int
    nearest: str
    distance: int


@dataclass(slots=True)
class _Storage:
    name: str
    begin: int
    end: int
    element_size: int
    touched: dict[str, list[Array]] = field(default_factory=lambda: {"load": [], "store": []})


class Accesses:
    """What was loaded and stored, by name of the tensor."""

    def __init__(self, named: dict[str, torch.Tensor]) -> None:
        self._storages: dict[int, _Storage] = {}
        self.strays: list[Stray] = []
        for name, tensor in named.items():
            self.register(name, tensor)

    def register(self, name: str, tensor: torch.Tensor) -> None:
        """Know the storage of a tensor; the first name of a storage stays."""
        storage = tensor.untyped_storage()
        begin = storage.data_ptr()
        if begin and begin not in self._storages:
            self._storages[begin] = _Storage(
                name, begin, begin + storage.nbytes(), tensor.element_size()
            )

    def note(self, kind: str, pointers: Array, mask: Array, size: int) -> None:
        """One load or store of the interpreter: addresses, mask, bytes an element."""
        addresses = np.asarray(pointers).reshape(-1)
        active = np.broadcast_to(np.asarray(mask), np.shape(pointers)).reshape(-1).astype(bool)
        addresses = addresses[active].astype(np.uint64)
        left = np.ones(addresses.size, dtype=bool)
        for storage in self._storages.values():
            begin, end = np.uint64(storage.begin), np.uint64(storage.end)
            inside = (addresses >= begin) & (addresses + np.uint64(size) <= end)
            if inside.any():
                numbers = (addresses[inside] - begin) // np.uint64(storage.element_size)
                storage.touched[kind].append(numbers.astype(np.int64))
                left &= ~inside
        if left.any():
            self.strays.append(self._stray(kind, addresses[left]))

    def elements(self, kind: str, tensor: torch.Tensor) -> Array:
        """Element numbers in a tensor's storage that were touched, each once, in order."""
        storage = self._storages.get(tensor.untyped_storage().data_ptr())
        # A tensor without elements has no memory, so nothing of it was touched.
        touched = storage.touched[kind] if storage is not None else []
        return np.unique(np.concatenate(touched)) if touched else np.zeros(0, np.int64)

    def _stray(self, kind: str, addresses: Array) -> Stray:
        first = int(addresses[0])
        ends = {abs(first - s.end): f"the end of {s.name}" for s in self._storages.values()}
        begins = {abs(first - s.begin): f"the start of {s.name}" for s in self._storages.values()}
        distance, nearest = min({**begins, **ends}.items())
        return Stray(kind, len(addresses), nearest, distance)


@contextmanager
def recorded(named: dict[str, torch.Tensor]) -> Iterator[Accesses]:
    """Record every load and store within the block; one at a time in a process."""
    from triton.runtime import interpreter

    accesses = Accesses(named)
    builder = interpreter.interpreter_builder
    executor = interpreter.GridExecutor
    load, store = builder.create_masked_load, builder.create_masked_store
    update, to_host = builder.create_atomic_rmw, executor._init_args_hst  # noqa: SLF001 -- no public form

    def width(pointers: Any) -> int:
        return max(1, int(pointers.get_element_ty().primitive_bitwidth) // 8)

    def noted_load(pointers: Any, mask: Any, *rest: Any, **keywords: Any) -> Any:
        accesses.note("load", pointers.data, mask.data, width(pointers))
        return load(pointers, mask, *rest, **keywords)

    def noted_store(pointers: Any, value: Any, mask: Any, *rest: Any, **keywords: Any) -> Any:
        accesses.note("store", pointers.data, mask.data, width(pointers))
        return store(pointers, value, mask, *rest, **keywords)

    def noted_update(operation: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        for kind in ("load", "store"):
            accesses.note(kind, pointers.data, mask.data, width(pointers))
        return update(operation, pointers, value, mask, *rest)

    def noted_arguments(self: Any, arguments: Any, keywords: Any) -> Any:
        for value in (*arguments, *keywords.values()):
            if isinstance(value, torch.Tensor):
                accesses.register("a tensor of the target's own", value)
        return to_host(self, arguments, keywords)

    builder.create_masked_load = noted_load
    builder.create_masked_store = noted_store
    builder.create_atomic_rmw = noted_update
    executor._init_args_hst = noted_arguments  # noqa: SLF001 -- the same
    try:
        yield accesses
    finally:
        executor._init_args_hst = to_host  # noqa: SLF001 -- the same
        for name in ("create_masked_load", "create_masked_store", "create_atomic_rmw"):
            delattr(builder, name)
