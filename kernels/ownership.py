"""Which slots of a cache belong to whom in a batch: visible, behind a window, tail, nobody's."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from poolproof.kernels.batch import PagedBatch

__all__ = ["Ownership", "ownership"]


@dataclass(frozen=True, slots=True)
class Ownership:
    """Masks over (num_blocks, block_size), on the CPU; a slot may be in several of the first two.

    `visible`: some query sees it. `written`: it holds a token of some sequence. `owned_block`:
    (num_blocks,), the block stands in the table of a sequence.
    """

    visible: Tensor
    written: Tensor
    owned_block: Tensor

    @property
    def tail(self) -> Tensor:
        """Slots of owned blocks that hold no token yet."""
        return self.owned_block[:, None] & ~self.written

    @property
    def unowned(self) -> Tensor:
        """All slots of blocks that no sequence has."""
        return (~self.owned_block)[:, None].expand_as(self.written)

    def word_for(self, block: int, slot: int) -> str:
        """Whose a slot is, for a sentence."""
        if not self.owned_block[block]:
            return "the null block" if block == 0 else "a block of nobody"
        if not self.written[block, slot]:
            return "behind the last token of its sequence"
        return "a visible slot" if self.visible[block, slot] else "out of every query's sight"


def ownership(batch: PagedBatch) -> Ownership:
    """Who owns what in a batch."""
    shape = batch.key_cache.shape[:2]
    visible = torch.zeros(shape, dtype=torch.bool)
    written = torch.zeros(shape, dtype=torch.bool)
    owned = torch.zeros(shape[0], dtype=torch.bool)
    for sequence in batch.sequences():
        blocks = torch.tensor(batch.blocks_of(sequence), dtype=torch.int64)
        owned[blocks] = True
        positions = torch.arange(sequence.kv_length)
        where = blocks[positions // batch.block_size], positions % batch.block_size
        written[where] = True
        if sequence.query_length:
            seen = positions >= sequence.first_visible(batch.options)
            visible[where[0][seen], where[1][seen]] = True
    return Ownership(visible, written, owned)
