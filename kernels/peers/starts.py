"""What kernels get in the place of lengths and tables: running sums, and the slots of tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from poolproof.kernels.batch import PagedBatch, SequenceRows

__all__ = ["newest_of", "slots_of", "starts_of"]


def starts_of(lengths: Tensor) -> Tensor:
    """(num_sequences + 1,) int32: where each sequence starts, and where the last one ends."""
    starts = torch.zeros(len(lengths) + 1, dtype=torch.int32, device=lengths.device)
    starts[1:] = torch.cumsum(lengths, 0)
    return starts


def slots_of(batch: PagedBatch, sequence: SequenceRows, first: int, end: int) -> Tensor:
    """The slots of a sequence's tokens at positions from `first` to before `end`, int64."""
    size = batch.block_size
    positions = torch.arange(first, end, device=batch.block_tables.device)
    blocks = batch.block_tables[sequence.index].long()[positions // size]
    return blocks * size + positions % size


def newest_of(batch: PagedBatch) -> tuple[Tensor, Tensor]:
    """Keys and values of the tokens that ask, as a model's projections give them; copies."""
    size = batch.block_size
    slots = torch.cat(
        [slots_of(batch, s, s.first_position, s.kv_length) for s in batch.sequences()]
    )
    places = slots // size, slots % size
    return batch.key_cache[places], batch.value_cache[places]
