"""What a kernel touched, held against what it may touch.

Keys and values: every visible slot is read, whole; nothing else, or with `window_reads: tile` what
the sequence has in front of its window as well. Tables: the needed entries of each row. Written is
the output, all of it, and nothing else that was handed in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from poolproof.kernels.batch import PagedBatch
from poolproof.kernels.declaration import Declaration
from poolproof.kernels.ownership import ownership
from poolproof.kernels.read_sets.recorder import Accesses

__all__ = ["named_tensors", "unlawful_accesses"]


def named_tensors(batch: PagedBatch, out: Tensor | None) -> dict[str, Tensor]:
    """The tensors of a call by name."""
    options = batch.options
    tensors = {name: getattr(batch, name) for name in batch.__slots__[:6]}
    tensors |= {"alibi_slopes": options.alibi_slopes, "sinks": options.sinks, "out": out}
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def unlawful_accesses(
    accesses: Accesses, batch: PagedBatch, out: Tensor | None, declared: Declaration
) -> Iterator[str]:
    """A sentence for each kind of access that is not allowed or is missing."""
    for stray in accesses.strays:
        verb = "reads" if stray.kind == "load" else "writes"
        yield (
            f"{verb} {stray.count} addresses outside of every tensor, the first {stray.distance} "
            f"bytes from {stray.nearest}"
        )
    yield from _cache_reads(accesses, batch, declared)
    yield from _table_reads(accesses, batch, declared)
    for name, tensor in named_tensors(batch, None).items():
        written = accesses.elements("store", tensor)
        if len(written) and not (declared.cache_writes == "newest" and name.endswith("_cache")):
            yield f"writes {len(written)} elements of {name}"
    if out is not None:
        missing = np.setdiff1d(_elements(out), accesses.elements("store", out))
        # A row without keys may be left as it was, where that is declared.
        if len(missing) and declared.empty_row == "zeros":
            yield f"leaves {len(missing)} of the {out.numel()} elements of out unwritten"


def _elements(tensor: Tensor) -> Any:
    """The numbers of a tensor's elements within its storage, in its shape."""
    numbers = np.full(tensor.shape, tensor.storage_offset(), dtype=np.int64)
    for dimension, stride in enumerate(tensor.stride()):
        steps = np.arange(tensor.shape[dimension]) * stride
        numbers += steps.reshape([-1 if d == dimension else 1 for d in range(tensor.dim())])
    return numbers


def _cache_reads(accesses: Accesses, batch: PagedBatch, declared: Declaration) -> Iterator[str]:
    owned = ownership(batch)
    exact = declared.window_reads == "exact"
    allowed_slots = owned.visible if exact else _read_by_anybody(batch)
    for name in ("key_cache", "value_cache"):
        cache = getattr(batch, name)
        numbers = _elements(cache)
        read = accesses.elements("load", cache)
        missing = np.setdiff1d(numbers[owned.visible.numpy()], read)
        if len(missing):
            yield f"does not read {len(missing)} elements of visible slots of {name}"
        extra = np.setdiff1d(read, numbers[allowed_slots.numpy()])
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
    numbers = _elements(table)
    needed = np.zeros(numbers.shape, dtype=bool)
    for sequence in batch.sequences():
        needed[sequence.index, : len(batch.blocks_of(sequence))] = True
    extra = np.setdiff1d(accesses.elements("load", table), numbers[needed])
    if len(extra) and declared.promises("table_tail"):
        found = np.argwhere(np.isin(numbers, extra))
        where = f"row {found[0][0]}, entry {found[0][1]}" if len(found) else "between the rows"
        yield f"reads {len(extra)} entries of block_tables that no sequence needs, first {where}"
