"""Read sets: each address that a kernel loads or stores, compared with what it may touch.

Recorded in Triton's interpreter. Tensors that are handed to a launch are known by their storage;
tensors with names are given by the caller. Addresses are kept as element numbers within a storage.
An unmasked load outside every tensor returns whatever memory holds there, silently on a CPU and
with luck on a GPU: here it is kept as a stray address.

Keys and values: every visible slot must be read completely, and nothing else, except with
`window_reads: tile` what the sequence has before its window, and with a mask all that it has.
Tables: the needed entries of each row. Scales and zero points that slots have: those of slots that
may be read. All of the output must be written, and nothing else that was passed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from poolproof.kernels.batch import PagedBatch, ownership
from poolproof.kernels.declaration import Declaration
from poolproof.kernels.token_scales import factors, per_slot

__all__ = [
    "Accesses",
    "Stray",
    "element_numbers",
    "named_tensors",
    "recorded",
    "stray_accesses",
    "unlawful_accesses",
]

OWN = "a tensor of the target's own"

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
    is_named: bool
    touched: dict[str, list[Array]] = field(default_factory=lambda: {"load": [], "store": []})


class Accesses:
    """What was loaded and stored, by name of the tensor."""

    def __init__(self, named: dict[str, torch.Tensor]) -> None:
        self._storages: dict[int, _Storage] = {}
        self.strays: list[Stray] = []
        for name, tensor in named.items():
            self.register(name, tensor)

    def register(self, name: str, tensor: torch.Tensor) -> None:
        """Register the storage of a tensor; the first name of a storage stays.

        Named tensors outlive the recording. One of the target's own may be freed, and its address
        be given to another: then the numbers are those of the present one.
        """
        storage = tensor.untyped_storage()
        begin, end = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
        if not begin:
            return
        known = self._storages.get(begin)
        if known is not None and (known.is_named or known.end == end):
            return
        for other in list(self._storages.values()):
            if not other.is_named and other.begin < end and begin < other.end:
                del self._storages[other.begin]
        is_named = name != OWN
        self._storages[begin] = _Storage(name, begin, end, tensor.element_size(), is_named)

    def note(self, kind: str, pointers: Array, mask: Array, size: int) -> None:
        """Note one load or store of the interpreter: addresses, mask, bytes per element."""
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
    """Record every load and store within the block; only one recording per process at a time."""
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
                accesses.register(OWN, value)
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


def named_tensors(batch: PagedBatch, out: Tensor | None) -> dict[str, Tensor]:
    """The tensors of a call by name."""
    options = batch.options
    tensors = {name: getattr(batch, name) for name in batch.__slots__[:6]}
    tensors |= {name: getattr(options, name) for name in ("alibi_slopes", "sinks", "mask")}
    tensors["out"] = out
    tensors |= {
        name: factor for name, factor in factors(batch).items() if isinstance(factor, Tensor)
    }
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def stray_accesses(accesses: Accesses) -> str | None:
    """A sentence for the first access outside of every tensor, a store before all loads."""
    for kind, verb in (("store", "writes"), ("load", "reads")):
        for stray in accesses.strays:
            if stray.kind == kind:
                return (
                    f"{verb} {stray.count} addresses outside of every tensor, the first "
                    f"{stray.distance} bytes from {stray.nearest}"
                )
    return None


def unlawful_accesses(
    accesses: Accesses, batch: PagedBatch, out: Tensor | None, declared: Declaration
) -> Iterator[str]:
    """A sentence for each kind of access to a tensor that is not allowed or is missing."""
    yield from _cache_reads(accesses, batch, declared)
    yield from _scale_reads(accesses, batch, allowed_slots(batch, declared))
    yield from _table_reads(accesses, batch, declared)
    for name, tensor in named_tensors(batch, None).items():
        written = accesses.elements("store", tensor)
        if len(written) and not (declared.cache_writes == "newest" and name.endswith("_cache")):
            yield f"writes {len(written)} elements of {name}"
    if out is not None:
        missing = np.setdiff1d(element_numbers(out), accesses.elements("store", out))
        # A row without keys may be left as it was, where that is declared.
        if len(missing) and declared.empty_row == "zeros":
            yield f"leaves {len(missing)} of the {out.numel()} elements of out unwritten"


def element_numbers(tensor: Tensor) -> Array:
    """The numbers of a tensor's elements within its storage, in its shape."""
    numbers = np.full(tensor.shape, tensor.storage_offset(), dtype=np.int64)
    for dimension, stride in enumerate(tensor.stride()):
        steps = np.arange(tensor.shape[dimension]) * stride
        numbers += steps.reshape([-1 if d == dimension else 1 for d in range(tensor.dim())])
    return numbers


def _cache_reads(accesses: Accesses, batch: PagedBatch, declared: Declaration) -> Iterator[str]:
    owned = ownership(batch)
    allowed = allowed_slots(batch, declared)
    # Latent values stand in the keys: who has read these has read those.
    needed = owned.visible
    if declared.cache_writes == "newest":
        # The target gets the newest keys and values beside the cache, and need not read them there.
        needed = needed & ~_newest(batch)
    for name in ("key_cache",) if batch.is_latent else ("key_cache", "value_cache"):
        cache = getattr(batch, name)
        numbers = element_numbers(cache)
        read = accesses.elements("load", cache)
        missing = np.setdiff1d(numbers[needed.numpy()], read)
        if len(missing):
            yield f"does not read {len(missing)} elements of visible slots of {name}"
        extra = np.setdiff1d(read, numbers[allowed.numpy()])
        other = other_of(name, batch).untyped_storage().data_ptr()
        if cache.untyped_storage().data_ptr() == other and not batch.is_latent:
            # Interleaved: what is read of the other stands in the same memory.
            extra = np.setdiff1d(extra, element_numbers(other_of(name, batch)))
        if not len(extra):
            continue
        within = np.isin(extra, numbers)
        if not within.all():
            yield f"reads {int((~within).sum())} elements between the blocks of {name}"
        if within.any():
            first = np.argwhere(numbers == extra[within][0])[0]
            block, slot = int(first[0]), int(first[1])
            yield (
                f"reads {int(within.sum())} elements of {name} that it must not, the first in "
                f"block {block} slot {slot}: {owned.word_for(block, slot)}"
            )


def allowed_slots(batch: PagedBatch, declared: Declaration) -> Tensor:
    """The slots that a target may read: (num_blocks, block_size), of bool."""
    # A mask is looked at where its keys are loaded: those that it hides may be read.
    exact = declared.window_reads == "exact" and batch.options.mask is None
    return ownership(batch).visible if exact else _read_by_anybody(batch)


def _scale_reads(accesses: Accesses, batch: PagedBatch, allowed: Tensor) -> Iterator[str]:
    """Scales and zero points of slots that must not be read."""
    for name, tensor in per_slot(batch).items():
        numbers = element_numbers(tensor)
        lawful = [numbers[allowed.numpy()]]
        lawful += [
            element_numbers(other)[allowed.numpy()]
            for other in per_slot(batch).values()
            if other.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
        ]
        extra = np.setdiff1d(accesses.elements("load", tensor), np.concatenate(lawful, axis=None))
        if len(extra):
            yield f"reads {len(extra)} elements of {name} of slots that it must not read"


def other_of(name: str, batch: PagedBatch) -> Tensor:
    """The values for the keys, and the other way round."""
    return batch.value_cache if name == "key_cache" else batch.key_cache


def _newest(batch: PagedBatch) -> Tensor:
    """The slots of the tokens that ask, which a model has just computed."""
    newest = torch.zeros_like(ownership(batch).written)
    for sequence in batch.sequences():
        blocks = torch.tensor(batch.blocks_of(sequence), dtype=torch.int64)
        positions = torch.arange(max(0, sequence.first_position), sequence.kv_length)
        newest[blocks[positions // batch.block_size], positions % batch.block_size] = True
    return newest


def _read_by_anybody(batch: PagedBatch) -> Tensor:
    """Every written slot of the sequences that ask."""
    asking = torch.zeros_like(ownership(batch).written)
    for sequence in batch.sequences():
        if sequence.query_length:
            blocks = torch.tensor(batch.blocks_of(sequence), dtype=torch.int64)
            positions = torch.arange(sequence.kv_length)
            asking[blocks[positions // batch.block_size], positions % batch.block_size] = True
    return asking


def _table_reads(accesses: Accesses, batch: PagedBatch, declared: Declaration) -> Iterator[str]:
    table = batch.block_tables
    numbers = element_numbers(table)
    needed = np.zeros(numbers.shape, dtype=bool)
    for sequence in batch.sequences():
        needed[sequence.index, : len(batch.blocks_of(sequence))] = True
    extra = np.setdiff1d(accesses.elements("load", table), numbers[needed])
    if len(extra) and declared.promises("table_tail"):
        found = np.argwhere(np.isin(numbers, extra))
        where = f"row {found[0][0]}, entry {found[0][1]}" if len(found) else "between the rows"
        yield f"reads {len(extra)} entries of block_tables that no sequence needs, first {where}"
