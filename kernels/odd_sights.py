"""Correct kernels that find out in other ways who sees which key; see `odd_kernels.py`."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from poolproof.kernels.batch import PagedBatch
from poolproof.kernels.gather import visible_keys
from poolproof.kernels.torch_attention import Rows, TorchAttention

__all__ = ["AddedMask", "AsMask", "OwnKeys", "PackedMask", "SeenTiles", "WalkedTree"]


class AsMask(TorchAttention):
    """Chunks, windows and causality all become one mask, before anything else is done."""

    def taken(self, batch: PagedBatch) -> PagedBatch:
        options = batch.options
        if options.mask is not None:
            return batch
        longest = int(batch.kv_lengths.max()) if len(batch.kv_lengths) else 0
        mask = torch.zeros(len(batch.query), longest, dtype=torch.bool)
        for sequence in batch.sequences():
            mask[sequence.rows, : sequence.kv_length] = visible_keys(options, sequence)
        plain = replace(options, attention_chunk=None, window_ahead=None, sliding_window=None)
        return replace(batch, options=replace(plain, causal=False, mask=mask))


class SeenTiles(TorchAttention):
    """Tiles of `tile` keys of which no query sees any are skipped."""

    def __init__(self, tile: int) -> None:
        self.tile = tile

    def softmax(self, rows: Rows, scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        seen = self.seen(rows).any(0)
        tiles = seen.split(self.tile)
        kept = torch.cat([tile.any().expand(len(tile)) for tile in tiles])
        if not bool(kept.any()):
            kept[:1] = True
        return super().softmax(rows, scores[..., kept], values[:, kept])


class PackedMask(TorchAttention):
    """The mask is packed into bytes, eight keys in each, and read bit by bit."""

    def mask(self, rows: Rows) -> Tensor | None:
        mask = rows.batch.options.mask
        if mask is None:
            return None
        room = -mask.shape[1] % 8
        bits = torch.nn.functional.pad(mask, (0, room)).unflatten(1, (-1, 8)).long()
        packed = (bits << torch.arange(8)).sum(-1).to(torch.uint8)
        own = packed[self.mask_rows(rows)][:, rows.positions // 8]
        return (own.long() >> (rows.positions % 8) & 1).bool()


class WalkedTree(TorchAttention):
    """Of a tree only each draft's parent is kept, and its ancestors are walked up to the root."""

    def mask(self, rows: Rows) -> Tensor | None:
        mask, context = super().mask(rows), rows.sequence.first_position
        if mask is None:
            return None
        own = mask[:, context:]
        depths = own.sum(1)
        walked = mask.clone()
        walked[:, context:] = False
        for number in range(len(own)):
            draft = number
            while True:
                walked[number, context + draft] = True
                above = own[draft] & (depths == depths[draft] - 1)
                if not bool(above.any()):
                    break
                draft = int(above.nonzero()[0, 0])
        return walked


class AddedMask(TorchAttention):
    """A mask is a bias of 0 or minus infinity, so keys that it hides have to be numbers."""

    def masked(self, rows: Rows, scores: Tensor) -> Tensor:
        bias = torch.zeros(()).masked_fill(~self.seen(rows), float("-inf"))
        return scores + bias


class OwnKeys(TorchAttention):
    """One query after another, each over the keys alone that it sees."""

    def attend(self, rows: Rows) -> Tensor:
        parts = []
        for number, seen in enumerate(self.seen(rows)):
            there = slice(number, number + 1)
            own, positions = rows.query_positions[there], rows.positions[seen]
            query = rows.query[:, :, there]
            if len(positions):
                one = Rows(rows.batch, rows.sequence, query, positions, own)
                parts.append(super().attend(one))
            else:
                parts.append(torch.zeros((*query.shape[:3], rows.batch.value_size)).flatten(0, 1))
        return torch.cat(parts, 1)
