"""Families of faults that begin at a size: torch kernels with a mistake, its constants parameters.

None of these shows in a batch of a few dozen keys with packed tensors. Each family is one mistake;
its members differ in the constant, the tensor or the type, so that a check that is tuned to one of
them misses the others. All of them must be refused by a `quick` run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from poolproof.kernels.batch import PagedBatch, SequenceRows
from poolproof.kernels.fault_family import FaultFamily, sized
from poolproof.kernels.torch_attention import Rows, TorchAttention

__all__ = ["FAMILIES"]


class _FewerKeys(TorchAttention):
    """Keys from position `most` on are not read, in some modes."""

    def __init__(self, most: int, modes: tuple[str, ...] = ("decode", "prefill")) -> None:
        self.most, self.modes = most, modes

    def end(self, batch: PagedBatch, sequence: SequenceRows) -> int:
        mode = "decode" if sequence.query_length == 1 else "prefill"
        end = super().end(batch, sequence)
        first = sequence.first_visible(batch.options)
        return max(first + 1, min(end, self.most)) if mode in self.modes else end


class _LateTile(TorchAttention):
    """Queries from number `tile` on are masked as if they were the first of the sequence again."""

    def __init__(self, tile: int) -> None:
        self.tile = tile

    def rows(self, batch: PagedBatch, sequence: SequenceRows) -> Rows:
        rows = super().rows(batch, sequence)
        number = torch.arange(sequence.query_length) % self.tile
        own = number + sequence.first_position
        return Rows(batch, sequence, rows.query, rows.positions, own)


class _LateSequence(TorchAttention):
    """Sequences from `first` on read the row of the table of another."""

    def __init__(self, first: int) -> None:
        self.first = first

    def table(self, rows: Rows) -> Tensor:
        index = rows.sequence.index
        row = index if index < self.first else index % self.first
        return rows.batch.block_tables[row].long()


class _LateHead(TorchAttention):
    """Query heads of a group from number `most` on take the query of the first."""

    def __init__(self, most: int) -> None:
        self.most = most

    def grouped(self, batch: PagedBatch, query: Tensor) -> Tensor:
        query = super().grouped(batch, query).clone()
        query[:, self.most :] = query[:, :1]
        return query


class _ShortHead(TorchAttention):
    """Elements of a head from number `most` on do not count in the products, or in the output."""

    def __init__(self, most: int, *, in_values: bool = False) -> None:
        self.most, self.in_values = most, in_values

    def products(self, rows: Rows, keys: Tensor) -> Tensor:
        if self.in_values:
            return super().products(rows, keys)
        there = slice(0, self.most)
        return torch.einsum("hgqd,hkd->hgqk", rows.query[..., there], keys[..., there])

    def values(self, rows: Rows) -> Tensor:
        values = super().values(rows)
        if self.in_values:
            values = values.clone()
            values[..., self.most :] = 0
        return values


class _FixedScale(TorchAttention):
    """The caller's scale is not taken as it is."""

    def __init__(self, scale: Callable[[Rows], float]) -> None:
        self._scale = scale

    def scale(self, rows: Rows) -> Any:
        return self._scale(rows) * rows.batch.options.key_scale


def _head_size(rows: Rows) -> int:
    return int(rows.query.shape[-1])


class _BorrowedStrides(TorchAttention):
    """Some of the strides of one cache are used for the other."""

    def __init__(self, dimensions: tuple[int, ...], *, of_values: bool = False) -> None:
        self.dimensions, self.of_values = dimensions, of_values

    def taken(self, batch: PagedBatch) -> PagedBatch:
        keys, values = batch.key_cache, batch.value_cache
        mine, other = (keys, values) if self.of_values else (values, keys)
        strides = list(mine.stride())
        for dimension in self.dimensions:
            strides[dimension] = other.stride(dimension)
        seen = _restrided_within(mine, tuple(strides))
        name = "key_cache" if self.of_values else "value_cache"
        return replace(batch, **{name: seen})


def _restrided_within(tensor: Tensor, strides: tuple[int, ...]) -> Tensor:
    """The tensor as a kernel sees it that goes by other strides; a copy, within its memory."""
    numbers = torch.full(tensor.shape, tensor.storage_offset(), dtype=torch.int64)
    for dimension, stride in enumerate(strides):
        shape = [-1 if d == dimension else 1 for d in range(tensor.dim())]
        numbers += (torch.arange(tensor.shape[dimension]) * stride).reshape(shape)
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    memory = tensor.as_strided((size,), (1,), 0)
    return memory[numbers.clamp(max=size - 1)]


def _packed_strides(shape: torch.Size) -> tuple[int, ...]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return tuple(strides)


class _Packed(TorchAttention):
    """The strides of some tensors are made up from their shapes."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def taken(self, batch: PagedBatch) -> PagedBatch:
        changes = {}
        for name in self.names:
            tensor = getattr(batch, name)
            if not tensor.is_contiguous():
                changes[name] = _restrided_within(tensor, _packed_strides(tensor.shape))
        return replace(batch, **changes)


class _PackedOut(TorchAttention):
    """The output goes where it would be in a packed tensor; or its rows do, or its heads."""

    def store(self, result: Tensor, sequence: SequenceRows, output: Tensor) -> None:
        size = result.untyped_storage().nbytes() // result.element_size()
        memory = result.as_strided((size,), (1,), 0)
        rows, heads, elements = result.shape
        begin = result.storage_offset()
        there = memory[begin : begin + rows * heads * elements]
        packed = there.view(-1, heads, elements)
        packed[sequence.rows] = output.transpose(0, 1).to(result.dtype)


class _NarrowBlocks(TorchAttention):
    """Block ids go through a type that is too narrow for them."""

    def __init__(self, narrow: Callable[[Tensor], Tensor]) -> None:
        self.narrow = narrow

    def table(self, rows: Rows) -> Tensor:
        # A wrapped id reads what is somebody else's; beyond the cache it would end the process.
        wrapped = self.narrow(super().table(rows))
        return wrapped.long() % rows.batch.key_cache.shape[0]


def _through(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    return lambda ids: ids.to(dtype).long()


def _cut_to(bits: int, ids: Tensor) -> Tensor:
    return ids & ((1 << bits) - 1)


class _NarrowOffsets(TorchAttention):
    """Numbers of slots or of elements go through 32 bits."""

    def __init__(self, *, elements: bool, bits: int = 32, only: str = "") -> None:
        self.elements, self.bits, self.only = elements, bits, only

    def loaded(self, rows: Rows, cache: Tensor) -> Tensor:
        if self.only and cache is not getattr(rows.batch, self.only):
            return super().loaded(rows, cache)
        size = rows.batch.block_size
        unit = cache.stride(0) if self.elements else size
        blocks = self.table(rows)[rows.positions // size]
        wrapped = blocks * unit & ((1 << self.bits) - 1)
        if self.bits == 32:
            wrapped = torch.where(wrapped >= 1 << 31, wrapped - (1 << 32), wrapped)
        there = torch.div(wrapped, unit, rounding_mode="floor") % cache.shape[0]
        return cache[there, rows.positions % size].float().transpose(0, 1)


class _WithoutQuery(TorchAttention):
    """Rows of the query are counted wrongly behind a sequence that has none."""

    def __init__(self, mistake: str) -> None:
        self.mistake = mistake

    def sequences(self, batch: PagedBatch) -> list[SequenceRows]:
        right = super().sequences(batch)
        total = len(batch.query)
        if self.mistake == "one row each":
            starts = torch.cumsum(batch.query_lengths.clamp(min=1), 0) - batch.query_lengths.clamp(
                min=1
            )
            return [
                replace(s, first_row=min(int(start), total - s.query_length))
                for s, start in zip(right, starts, strict=True)
            ]
        if self.mistake == "rows of the table move up":
            asking = [s for s in right if s.query_length]
            return [replace(s, index=number) for number, s in enumerate(asking)]
        if self.mistake == "the batch ends there":
            lengths = [s.query_length for s in right]
            return right[: lengths.index(0)] if 0 in lengths else right
        if self.mistake == "it asks for one":
            return [
                replace(s, query_length=1, first_row=min(s.first_row, total - 1))
                if s.query_length == 0 and s.kv_length
                else s
                for s in right
            ]
        raise AssertionError(self.mistake)


class _Base(TorchAttention):
    """What is subtracted before the exponential is not the maximum."""

    def __init__(self, mistaken: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
        self.mistaken, self.dtype = mistaken, dtype

    def softmax(self, rows: Rows, scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        highest = super().base(rows, scores)
        base = self.mistaken(highest)
        is_kept = rows.batch.query.dtype != torch.float32
        kind = self.dtype if is_kept else torch.float32
        weights = torch.exp(scores - base[..., None]).to(kind).float()
        total, sinks = weights.sum(-1), self.sinks(rows)
        total = total if sinks is None else total + torch.exp(sinks - base)
        return self.weighted(rows, weights, values), total


class _HalfSums(TorchAttention):
    """Sums are kept in the query's type: of the weights, or of the weighted values, by tiles."""

    def __init__(
        self, tile: int, *, of_values: bool = False, dtype: torch.dtype | None = None
    ) -> None:
        self.tile, self.of_values, self.dtype = tile, of_values, dtype

    def _kind(self, rows: Rows) -> torch.dtype:
        return self.dtype or rows.batch.query.dtype

    def total(self, rows: Rows, weights: Tensor) -> Tensor:
        if self.of_values:
            return super().total(rows, weights)
        total = torch.zeros(weights.shape[:-1], dtype=self._kind(rows))
        for part in weights.split(self.tile, -1):
            total = total + part.sum(-1).to(total.dtype)
        return total.float()

    def weighted(self, rows: Rows, weights: Tensor, values: Tensor) -> Tensor:
        if not self.of_values:
            return super().weighted(rows, weights, values)
        shape = (*weights.shape[:-1], values.shape[-1])
        total = torch.zeros(shape, dtype=self._kind(rows))
        for part, there in zip(
            weights.split(self.tile, -1), values.split(self.tile, 1), strict=True
        ):
            total = total + torch.einsum("hgqk,hkd->hgqd", part, there).to(total.dtype)
        return total.float()


class _Together(TorchAttention):
    """The whole cache, or the whole batch, is computed at once, and masks keep requests apart."""

    def __init__(self, mistake: str) -> None:
        self.mistake = mistake

    def attend(self, rows: Rows) -> Tensor:
        batch, size = rows.batch, rows.batch.block_size
        leak = torch.zeros(())
        for other in batch.sequences():
            if other.index == rows.sequence.index or not other.kv_length:
                continue
            ids = batch.block_tables[other.index].long()
            positions = torch.arange(other.kv_length)
            slots = ids[positions // size], positions % size
            leak = leak + self._leak(batch, other, slots)
        return super().attend(rows) + leak

    def _leak(self, batch: PagedBatch, other: SequenceRows, slots: tuple[Tensor, ...]) -> Tensor:
        """0, if everything that is masked is finite."""
        values, keys = (c[slots].float() for c in (batch.value_cache, batch.key_cache))
        if self.mistake == "values":
            return (values * 0.0).sum()
        if self.mistake == "keys":
            return torch.exp(keys.sum() * 0.0 + float("-inf"))
        if self.mistake == "queries":
            return (batch.query[other.rows].float() * 0.0).sum()
        if self.mistake == "last value":
            return (values[-1] * 0.0).sum()
        raise AssertionError(self.mistake)


class _ShortWindow(TorchAttention):
    """A window has at most `most` positions."""

    def __init__(self, most: int) -> None:
        self.most = most

    def window(self, rows: Rows) -> int | None:
        window = super().window(rows)
        return None if window is None else min(window, self.most)


class _LateWindow(TorchAttention):
    """Up to eight queries begin in the tile in which the window of the last one does."""

    def __init__(self, tile: int) -> None:
        self.tile = tile

    def seen(self, rows: Rows) -> Tensor:
        seen, window = super().seen(rows), self.window(rows)
        if window is None or rows.sequence.query_length > 8:
            return seen
        begin = max(0, rows.sequence.kv_length - window) // self.tile * self.tile
        return seen & (rows.positions >= begin)[None, :]


class _ShortPrefix(TorchAttention):
    """A chunk of a prompt sees the last `most` cached keys alone, and its own."""

    def __init__(self, most: int) -> None:
        self.most = most

    def seen(self, rows: Rows) -> Tensor:
        seen = super().seen(rows)
        if rows.sequence.query_length == 1:
            return seen
        return seen & (rows.positions >= rows.sequence.first_position - self.most)[None, :]


class _NarrowTable(TorchAttention):
    """Entries of the table from number `most` on are taken from its begin again."""

    def __init__(self, most: int) -> None:
        self.most = most

    def table(self, rows: Rows) -> Tensor:
        row = super().table(rows)
        return row[torch.arange(len(row)) % self.most]


class _LateRow(TorchAttention):
    """Queries of a batch from row `most` on are not computed."""

    def __init__(self, most: int) -> None:
        self.most = most

    def store(self, result: Tensor, sequence: SequenceRows, output: Tensor) -> None:
        super().store(result, sequence, output)
        result[self.most :] = 0


class _ManyHeads(TorchAttention):
    """Heads of the cache from number `most` on are read as the last that is known."""

    def __init__(self, most: int) -> None:
        self.most = most

    def loaded(self, rows: Rows, cache: Tensor) -> Tensor:
        loaded = super().loaded(rows, cache)
        return loaded[torch.arange(len(loaded)).clamp(max=self.most - 1)]


FAMILIES = (
    FaultFamily("LK", "keys from number {} on are dropped",
           sized(_FewerKeys, 64, 130, 200, 512, 777, 1024, 1500, 2000)),
    FaultFamily("LD", "keys from number {} on are dropped in decode",
           sized(partial(_FewerKeys, modes=("decode",)), 96, 256, 600, 1024, 1999)),
    FaultFamily("LP", "keys from number {} on are dropped in prefill",
           sized(partial(_FewerKeys, modes=("prefill",)), 96, 256, 600, 1024, 1999)),
    FaultFamily("LQ", "queries from number {} on are masked as the first",
           sized(_LateTile, 48, 64, 96, 128, 256, 270)),
    FaultFamily("LB", "sequences from number {} on read another's table",
           sized(_LateSequence, 4, 8, 12, 16, 24, 30)),
    FaultFamily("LG", "heads of a group from number {} on take the first one's query",
           sized(_LateHead, 4, 6, 8, 12, 15)),
    FaultFamily("LE", "elements of a head from number {} on are left out of the products",
           sized(_ShortHead, 64, 96, 128, 192, 250)),
    FaultFamily("LV", "elements of a head from number {} on are left out of the values",
           sized(partial(_ShortHead, in_values=True), 64, 100, 128, 192, 250)),
    FaultFamily("LH", "heads of the cache from number {} on are read as the one before",
           sized(_ManyHeads, 2, 3, 4, 5)),
    FaultFamily("LR", "rows of the batch from number {} on are not computed",
           sized(_LateRow, 64, 128, 200, 256)),
    FaultFamily("LC", "of what is cached before a chunk {} keys are seen",
           sized(_ShortPrefix, 128, 500, 1024, 1800)),
    FaultFamily("LW", "a window is cut to {}",
           sized(_ShortWindow, 32, 64, 100, 128, 256)),
    FaultFamily("LS", "drafts begin in the tile of {} keys in which the last one's window does",
           sized(_LateWindow, 64, 96, 128, 256, 512)),
    FaultFamily("LT", "entries of a table from number {} on are taken from its begin",
           sized(_NarrowTable, 16, 32, 64, 100)),
    FaultFamily("VS", "the scale is {}", (
        ("head_size ** -0.5", lambda: _FixedScale(lambda rows: _head_size(rows) ** -0.5)),
        ("that of the padded head", lambda: _FixedScale(
            lambda rows: rows.batch.options.scale
            * (_head_size(rows) / (1 << (_head_size(rows) - 1).bit_length())) ** 0.5)),
        ("0.125", lambda: _FixedScale(lambda _: 0.125)),
        ("at most 0.5", lambda: _FixedScale(lambda rows: min(0.5, rows.batch.options.scale))),
        ("at least 0.1", lambda: _FixedScale(lambda rows: max(0.1, rows.batch.options.scale))),
    )),
    FaultFamily("VB", "{} of the other cache are used", (
        ("all strides of the keys", lambda: _BorrowedStrides((0, 1, 2))),
        ("the block strides of the keys", lambda: _BorrowedStrides((0,))),
        ("the slot strides of the keys", lambda: _BorrowedStrides((1,))),
        ("the head strides of the keys", lambda: _BorrowedStrides((2,))),
        ("all strides of the values", lambda: _BorrowedStrides((0, 1, 2), of_values=True)),
    )),
    FaultFamily("VP", "strides are made up: {} packed", (
        ("the keys are taken to be", lambda: _Packed("key_cache")),
        ("the values are taken to be", lambda: _Packed("value_cache")),
        ("keys and values are taken to be", lambda: _Packed("key_cache", "value_cache")),
        ("the query is taken to be", lambda: _Packed("query")),
        ("the table is taken to be", lambda: _Packed("block_tables")),
        ("the output is taken to be", _PackedOut),
    )),
    FaultFamily("WB", "block ids go through {}", (
        ("int16", lambda: _NarrowBlocks(_through(torch.int16))),
        ("16 bits", lambda: _NarrowBlocks(partial(_cut_to, 16))),
        ("int8", lambda: _NarrowBlocks(_through(torch.int8))),
        ("float16", lambda: _NarrowBlocks(lambda ids: ids.clamp(max=65504).half().long())),
        ("bfloat16", lambda: _NarrowBlocks(_through(torch.bfloat16))),
        ("float32", lambda: _NarrowBlocks(_through(torch.float32))),
        ("20 bits", lambda: _NarrowBlocks(partial(_cut_to, 20))),
    ), checks=("64-bit offsets",)),
    FaultFamily("WO", "{}", (
        ("slots are numbered in int32", lambda: _NarrowOffsets(elements=False)),
        ("elements are numbered in int32", lambda: _NarrowOffsets(elements=True)),
        ("elements of the keys are numbered in int32",
         lambda: _NarrowOffsets(elements=True, only="key_cache")),
        ("elements of the values are numbered in int32",
         lambda: _NarrowOffsets(elements=True, only="value_cache")),
        ("slots are numbered in 31 bits", lambda: _NarrowOffsets(elements=False, bits=31)),
        ("elements are numbered in 31 bits", lambda: _NarrowOffsets(elements=True, bits=31)),
    ), checks=("64-bit offsets",)),
    FaultFamily("VQ", "a sequence without a query: {}", tuple(
        (mistake, partial(_WithoutQuery, mistake))
        for mistake in ("one row each", "rows of the table move up", "the batch ends there",
                        "it asks for one"))),
    FaultFamily("NB", "{} is subtracted before the exponential", (
        ("nothing", lambda: _Base(lambda base: base * 0, torch.float32)),
        ("at most 50", lambda: _Base(lambda base: base.clamp(max=50), torch.float32)),
        ("at most 200", lambda: _Base(lambda base: base.clamp(max=200), torch.float32)),
        ("nothing, weights in float16,", lambda: _Base(lambda base: base * 0, torch.float16)),
        ("half of the maximum", lambda: _Base(lambda base: base / 2, torch.float32)),
    )),
    FaultFamily("NS", "{}", (
        ("the weights are added up in the query's type, one by one", lambda: _HalfSums(1)),
        ("the weights are added up in the query's type, by 16", lambda: _HalfSums(16)),
        ("the weights are added up in bfloat16, by 64",
         lambda: _HalfSums(64, dtype=torch.bfloat16)),
        ("the weights are added up in bfloat16, by 128",
         lambda: _HalfSums(128, dtype=torch.bfloat16)),
        ("the weighted values are added up in the query's type, by 16",
         lambda: _HalfSums(16, of_values=True)),
        ("the weighted values are added up in the query's type, by 64",
         lambda: _HalfSums(64, of_values=True)),
    )),
    FaultFamily("IR", "other requests are masked with weights of 0: their {} are read", tuple(
        (mistake, partial(_Together, mistake))
        for mistake in ("values", "keys", "queries", "last value")
    ), checks=("isolation",),
        thread="https://github.com/vllm-project/vllm/issues/641"),
)  # fmt: skip
"""The mistakes; each is refused with every one of its constants."""
