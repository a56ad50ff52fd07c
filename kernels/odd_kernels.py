"""Correct kernels that look unlike ours: nothing of them may be refused.

Each computes attention in another order, another base, another precision within the bound, or reads
its pages in another way. A check that accuses one of them is a false alarm.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from poolproof.kernels.batch import PagedBatch, SequenceRows
from poolproof.kernels.declaration import FEATURES, SIGHTS
from poolproof.kernels.gather import visible_keys
from poolproof.kernels.odd_quantised import ODD_QUANTISED
from poolproof.kernels.target import KernelTarget
from poolproof.kernels.torch_attention import Rows, TorchAttention
from poolproof.kernels.torch_lse import TorchLse
from poolproof.kernels.torch_mla import KEY_SIZES, LATENT_SIZES, TorchMla

__all__ = ["ODD_KERNELS", "odd_kernel"]


class _Online(TorchAttention):
    """Softmax online, in tiles of `tile` keys, from the first or from the last."""

    def __init__(self, tile: int, *, backwards: bool = False) -> None:
        self.tile, self.backwards = tile, backwards

    def softmax(self, rows: Rows, scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        highest = torch.full(scores.shape[:-1], float("-inf"))
        total = torch.zeros_like(highest)
        weighted = torch.zeros((*highest.shape, values.shape[-1]))
        starts = list(range(0, scores.shape[-1], self.tile))
        for start in reversed(starts) if self.backwards else starts:
            part, there = scores[..., start : start + self.tile], slice(start, start + self.tile)
            higher = torch.maximum(highest, part.amax(-1))
            base = torch.where(higher == float("-inf"), 0.0, higher)
            weights = torch.exp(part - base[..., None])
            keep = torch.exp(highest - base)
            total = total * keep + weights.sum(-1)
            product = torch.einsum("hgqk,hkd->hgqd", weights, values[:, there])
            weighted, highest = weighted * keep[..., None] + product, higher
        sinks = self.sinks(rows)
        if sinks is None:
            return weighted, total
        base = torch.maximum(highest, sinks)
        keep = torch.exp(highest - base)
        return weighted * keep[..., None], total * keep + torch.exp(sinks - base)


class _Merged(TorchAttention):
    """Splits of `split` keys, normalised, in the output's type, each with its log-sum-exp."""

    def __init__(self, split: int) -> None:
        self.split = split

    def softmax(self, rows: Rows, scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        outputs, sums = [], []
        for start in range(0, scores.shape[-1], self.split):
            there = slice(start, start + self.split)
            part = scores[..., there]
            weights = torch.softmax(part, -1).nan_to_num(0.0)
            output = torch.einsum("hgqk,hkd->hgqd", weights, values[:, there])
            outputs.append(output.to(rows.batch.query.dtype).float())
            sums.append(torch.logsumexp(part, -1))
        sinks = self.sinks(rows)
        if sinks is not None:
            sums.append(sinks.expand_as(sums[0]))
            outputs.append(torch.zeros_like(outputs[0]))
        weights = torch.softmax(torch.stack(sums, -1), -1).nan_to_num(0.0)
        merged = torch.einsum("hgqs,shgqd->hgqd", weights, torch.stack(outputs))
        return merged, weights.sum(-1)


class _Exp2(TorchAttention):
    """Powers of two, with the logarithm of e in the scores."""

    def softmax(self, rows: Rows, scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        factor = 1.4426950408889634
        base = self.base(rows, scores)
        weights = torch.exp2((scores - base[..., None]) * factor)
        total = weights.sum(-1)
        sinks = self.sinks(rows)
        if sinks is not None:
            total = total + torch.exp2((sinks - base) * factor)
        return self.weighted(rows, weights, values), total


class _HalfWeights(TorchAttention):
    """Weights rounded to the query's type before they meet the values, as on tensor cores."""

    def weighted(self, rows: Rows, weights: Tensor, values: Tensor) -> Tensor:
        return super().weighted(rows, weights.to(rows.batch.query.dtype).float(), values)


class _NormalisedHalfWeights(_HalfWeights):
    """The same with the weights divided by their sum first."""

    def softmax(self, rows: Rows, scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        weights = torch.exp(scores - self.base(rows, scores)[..., None])
        sinks, total = self.sinks(rows), weights.sum(-1)
        if sinks is not None:
            total = total + torch.exp(sinks - self.base(rows, scores))
        weights = weights / torch.where(total > 0, total, 1.0)[..., None]
        return self.weighted(rows, weights, values), (total > 0).float()


class _Float64(TorchAttention):
    """Everything in float64."""

    def loaded(self, rows: Rows, cache: Tensor) -> Tensor:
        return super().loaded(rows, cache).double()

    def products(self, rows: Rows, keys: Tensor) -> Tensor:
        return torch.einsum("hgqd,hkd->hgqk", rows.query.double(), keys)


class _Repeated(TorchAttention):
    """Heads of the cache repeated for the query heads that share them."""

    def products(self, rows: Rows, keys: Tensor) -> Tensor:
        group = rows.query.shape[1]
        repeated = keys.repeat_interleave(group, 0)
        product = rows.query.flatten(0, 1) @ repeated.transpose(1, 2)
        return product.unflatten(0, (-1, group))


class _FlatSlots(TorchAttention):
    """Pages gathered by the numbers of their slots, in a cache that is seen as a row of slots."""

    def loaded(self, rows: Rows, cache: Tensor) -> Tensor:
        size = rows.batch.block_size
        slots = self.table(rows)[rows.positions // size] * size + rows.positions % size
        blocks = torch.div(slots, size, rounding_mode="floor")
        return cache[blocks, slots - blocks * size].float().transpose(0, 1)


class _ByBlock(TorchAttention):
    """Whole blocks one after another, cut behind the last token before anything is computed."""

    def loaded(self, rows: Rows, cache: Tensor) -> Tensor:
        size = rows.batch.block_size
        first, last = int(rows.positions[0]), int(rows.positions[-1])
        ids = self.table(rows)[first // size : last // size + 1].tolist()
        pages = torch.cat([cache[block].float() for block in ids])
        start = first - first // size * size
        return pages[start : start + len(rows.positions)].transpose(0, 1)


class _OrderedKeys(TorchAttention):
    """Keys in an order of the kernel's own: sorted by physical block, or odd positions first."""

    def __init__(self, *, by_block: bool) -> None:
        self.by_block = by_block

    def rows(self, batch: PagedBatch, sequence: SequenceRows) -> Rows:
        rows = super().rows(batch, sequence)
        positions = rows.positions
        if self.by_block:
            blocks = self.table(rows)[positions // batch.block_size]
            positions = positions[torch.argsort(blocks, stable=True)]
        else:
            positions = torch.cat([positions[1::2], positions[::2]])
        return Rows(batch, sequence, rows.query, positions, rows.query_positions)


class _PaddedHeads(TorchAttention):
    """Heads padded with zeros to a power of two."""

    def products(self, rows: Rows, keys: Tensor) -> Tensor:
        size = keys.shape[-1]
        room = (1 << (size - 1).bit_length()) - size
        return torch.einsum(
            "hgqd,hkd->hgqk",
            torch.nn.functional.pad(rows.query, (0, room)),
            torch.nn.functional.pad(keys, (0, room)),
        )


class _SplitScale(TorchAttention):
    """Half of the scale on the queries and half on the keys, in float32."""

    def products(self, rows: Rows, keys: Tensor) -> Tensor:
        half = super().scale(rows) ** 0.5
        return torch.einsum("hgqd,hkd->hgqk", rows.query * half, keys * half)

    def scale(self, rows: Rows) -> float:  # noqa: ARG002 -- it is in the products
        return 1.0


class _ByElement(TorchAttention):
    """Products added up in chunks of `chunk` elements of a head."""

    def __init__(self, chunk: int) -> None:
        self.chunk = chunk

    def products(self, rows: Rows, keys: Tensor) -> Tensor:
        parts = zip(rows.query.split(self.chunk, -1), keys.split(self.chunk, -1), strict=True)
        return sum(
            (torch.einsum("hgqd,hkd->hgqk", one, other) for one, other in parts),
            start=torch.zeros(()),
        )


class _OneQuery(TorchAttention):
    """One query after another, and every one a decode."""

    def attend(self, rows: Rows) -> Tensor:
        parts = []
        for number in range(rows.query.shape[2]):
            there = slice(number, number + 1)
            own = rows.query_positions[there]
            one = Rows(rows.batch, rows.sequence, rows.query[:, :, there], rows.positions, own)
            parts.append(super().attend(one))
        return torch.cat(parts, 1)


class _Kept(TorchAttention):
    """Only the keys that count are kept: those that no query sees are cut before the softmax."""

    def seen(self, rows: Rows) -> Tensor:
        return super().seen(rows)

    def softmax(self, rows: Rows, scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        kept = self.seen(rows).any(0)
        return super().softmax(rows, scores[..., kept], values[:, kept])


class _ShiftedBase(TorchAttention):
    """One more than the maximum is subtracted, so that every weight is below 1."""

    def base(self, rows: Rows, scores: Tensor) -> Tensor:
        return super().base(rows, scores) + 1.0


class _LogSums(TorchAttention):
    """Weights as exponentials of scores minus their log-sum-exp; the sum of weights is 1."""

    def softmax(self, rows: Rows, scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        sinks, sums = self.sinks(rows), torch.logsumexp(scores, -1)
        sums = sums if sinks is None else torch.logaddexp(sums, sinks.expand_as(sums))
        is_empty = sums == float("-inf")
        weights = torch.exp(scores - torch.where(is_empty, 0.0, sums)[..., None])
        return self.weighted(rows, weights, values), (~is_empty).float()


class _TiledLse(TorchLse):
    """A log-sum-exp that grows with every tile of `tile` keys, from the last."""

    def __init__(self, tile: int) -> None:
        self.tile = tile

    def lse(self, rows: Rows, scores: Tensor) -> Tensor:
        sinks = self.sinks(rows)
        total = torch.full(scores.shape[:-1], float("-inf"))
        for part in reversed(scores.split(self.tile, -1)):
            total = torch.logaddexp(total, torch.logsumexp(part, -1))
        return total if sinks is None else torch.logaddexp(total, sinks.expand_as(total))


class _BinaryLse(TorchLse):
    """Scores in base 2 from the begin, and a log-sum-exp of that base."""

    def lse(self, rows: Rows, scores: Tensor) -> Tensor:
        factor = 1.4426950408889634
        base = self.base(rows, scores)
        total = torch.exp2((scores - base[..., None]) * factor).sum(-1)
        sinks = self.sinks(rows)
        if sinks is not None:
            total = total + torch.exp2((sinks - base) * factor)
        return base * factor + torch.log2(total)


class _AsMask(TorchAttention):
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


class _SeenTiles(TorchAttention):
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


class _PackedMask(TorchAttention):
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


class _WalkedTree(TorchAttention):
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


class _AddedMask(TorchAttention):
    """A mask is a bias of 0 or minus infinity, so keys that it hides have to be numbers."""

    def masked(self, rows: Rows, scores: Tensor) -> Tensor:
        bias = torch.zeros(()).masked_fill(~self.seen(rows), float("-inf"))
        return scores + bias


class _OwnKeys(TorchAttention):
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


_BLOCK = {"block_size": "close", "strides": "close"}
# What sorts by physical block adds up in another order elsewhere.
_PLACE = {**_BLOCK, "placement": "close"}
# Those that know nothing of latent keys read the values where they are said to stand.
_LATENT = {"head_sizes": KEY_SIZES, "value_sizes": LATENT_SIZES, "latent": True}
_SIGHTS = {"features": (*FEATURES, *SIGHTS)}
_TREES = {"features": (*FEATURES, "tree_mask")}
_OTHER_VALUES = {"head_sizes": (24, 48, 192), "value_sizes": (16, 64, 128)}

ODD_KERNELS: dict[str, tuple[TorchAttention, dict[str, Any]]] = {
    "in tiles of 7": (_Online(7), {}),
    "in tiles of 100": (_Online(100), {}),
    "in tiles of 13, from the last": (_Online(13, backwards=True), {}),
    "splits of 33, merged by log-sum-exp": (_Merged(33), {}),
    "splits of 512, merged by log-sum-exp": (_Merged(512), {}),
    "powers of two": (_Exp2(), {}),
    "weights in the query's type": (_HalfWeights(), {}),
    "normalised weights in the query's type": (_NormalisedHalfWeights(), {}),
    "float64": (_Float64(), {}),
    "repeated heads": (_Repeated(), {}),
    "flat slots": (_FlatSlots(), {}),
    "block after block": (_ByBlock(), _BLOCK),
    "sorted blocks": (_OrderedKeys(by_block=True), _PLACE),
    "odd positions first": (_OrderedKeys(by_block=False), {}),
    "padded heads": (_PaddedHeads(), {}),
    "the scale in two halves": (_SplitScale(), {}),
    "eight elements at a time": (_ByElement(8), {}),
    "query after query": (_OneQuery(), {}),
    "unseen keys cut away": (_Kept(), {}),
    "more than the maximum subtracted": (_ShiftedBase(), {}),
    "logarithms of sums": (_LogSums(), {}),
    "log-sum-exps returned": (TorchLse(), {}),
    "log-sum-exps in tiles of 5": (_TiledLse(5), {}),
    "log-sum-exps in tiles of 128": (_TiledLse(128), {}),
    "log-sum-exps in base 2": (_BinaryLse(), {"lse": "2"}),
    "latent keys": (TorchMla(), {}),
    "latent keys in tiles of 7": (_Online(7), _LATENT),
    "latent keys, splits of 33 merged": (_Merged(33), _LATENT),
    "latent keys, weights in the query's type": (_HalfWeights(), _LATENT),
    "latent keys with log-sum-exps": (TorchLse(), _LATENT),
    "latent keys, eight elements at a time": (_ByElement(8), _LATENT),
    "values of another size": (TorchAttention(), _OTHER_VALUES),
    "values of another size, in tiles of 13 from the last": (
        _Online(13, backwards=True),
        _OTHER_VALUES,
    ),
    **ODD_QUANTISED,
    "all sights": (TorchAttention(), _SIGHTS),
    "all sights as a mask": (_AsMask(), _SIGHTS),
    "all sights, unseen tiles of 16 skipped": (_SeenTiles(16), _SIGHTS),
    "all sights, in tiles of 13 from the last": (_Online(13, backwards=True), _SIGHTS),
    "all sights, splits of 33 merged": (_Merged(33), _SIGHTS),
    "all sights, query after query": (_OneQuery(), _SIGHTS),
    "all sights, each query over its own keys": (_OwnKeys(), _SIGHTS),
    "all sights, log-sum-exps in tiles of 5": (_TiledLse(5), _SIGHTS),
    "all sights over latent keys": (TorchMla(), {**_SIGHTS, **_LATENT}),
    "a mask of packed bits": (_PackedMask(), _SIGHTS),
    "a mask that is added": (_AddedMask(), {**_SIGHTS, "masked": "finite"}),
    "a tree that is walked": (_WalkedTree(), _TREES),
    "whole blocks in a chunk": (_SeenTiles(100), {**_SIGHTS, "chunks": "blocks"}),
}
"""Each with what it does not promise."""


def odd_kernel(name: str) -> KernelTarget:
    """One of them as a target."""
    kernel, weaker = ODD_KERNELS[name]
    return kernel.target(f"odd kernel: {name}", **weaker)
