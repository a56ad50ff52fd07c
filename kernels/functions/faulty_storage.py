"""Families of faulty cache writes, block copies and swaps: one mistake each, several constants.

All of them must be refused by a `quick` run, by the check that is named.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from poolproof.kernels.fault_family import FaultFamily, sized
from poolproof.kernels.functions.target import FunctionTarget
from poolproof.kernels.functions.torch_storage import MEASURED, TorchCopy, TorchSwap, TorchWrite

__all__ = ["STORAGE_FAMILIES"]

Step = Callable[[Tensor], Tensor]


class _Padding(TorchWrite):
    """Padding is not skipped as it should be."""

    def __init__(self, mistake: str) -> None:
        self.mistake = mistake

    def kept(self, slots: Tensor) -> Tensor:
        padding = (slots < 0).nonzero().flatten()
        every = torch.arange(len(slots))
        if self.mistake == "only -1 is skipped":
            return (slots != -1).nonzero().flatten()
        if self.mistake == "what follows the first is dropped" and len(padding):
            return every[: int(padding[0])]
        if self.mistake == "what follows it moves up":
            return every[: len(slots) - len(padding)]
        return every if "slot" in self.mistake else super().kept(slots)

    def place(self, slots: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        if self.mistake == "it goes to slot 0":
            slots = slots.clamp(min=0)
        return super().place(slots, cache)


class _Short(TorchWrite):
    """Tokens, heads or elements from some number on are not stored."""

    def __init__(self, what: str, most: int) -> None:
        self.what, self.most = what, most

    def kept(self, slots: Tensor) -> Tensor:
        tokens = super().kept(slots)
        return tokens[tokens < self.most] if self.what == "tokens" else tokens

    def put(self, cache: Tensor, block: Tensor, offset: Tensor, rows: Tensor) -> None:
        if self.what == "heads":
            cache, rows = cache[:, :, : self.most], rows[:, : self.most]
        if self.what == "elements":
            cache, rows = cache[..., : self.most], rows[..., : self.most]
        super().put(cache, block, offset, rows)


class _Narrow(TorchWrite):
    """Slots or blocks go through a type that does not hold them all."""

    def __init__(self, step: Step, *, blocks: bool = False) -> None:
        self.step, self.blocks = step, blocks

    def place(self, slots: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        most = cache.shape[0] * cache.shape[1]
        if not self.blocks:
            # Whatever comes out is stored somewhere in the cache.
            return super().place(self.step(slots).long() % most, cache)
        block, offset = super().place(slots, cache)
        return self.step(block).long() % cache.shape[0], offset


class _Elements32(TorchWrite):
    """Elements of the cache are numbered in int32."""

    def put(self, cache: Tensor, block: Tensor, offset: Tensor, rows: Tensor) -> None:
        size = cache.untyped_storage().nbytes() // cache.element_size()
        memory = cache.as_strided((size,), (1,), 0)
        first = block * cache.stride(0) + offset * cache.stride(1) + cache.storage_offset()
        heads = torch.arange(rows.shape[1])[:, None] * cache.stride(2)
        numbers = first[:, None, None] + heads + torch.arange(rows.shape[2])
        memory[numbers.int().long() % size] = rows


class _Strides(TorchWrite):
    """Tensors are taken to be packed, or to have the strides of others."""

    def __init__(self, mistake: str) -> None:
        self.mistake = mistake

    def __call__(self, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor,
                 slot_mapping: Tensor, **scales: Any) -> None:  # fmt: skip
        if self.mistake == "the values' cache has the strides of the keys'":
            value_cache = _within(value_cache, key_cache.stride())
        if self.mistake == "the keys' cache has the strides of the values'":
            key_cache = _within(key_cache, value_cache.stride())
        if self.mistake == "both caches are packed":
            key_cache, value_cache = map(_packed, (key_cache, value_cache))
        if self.mistake == "keys and values are packed":
            key, value = map(_packed, (key, value))
        if self.mistake == "values have the strides of the keys":
            value = _within(value, key.stride())
        super().__call__(key, value, key_cache, value_cache, slot_mapping, **scales)


def _packed(tensor: Tensor) -> Tensor:
    strides: list[int] = []
    step = 1
    for length in reversed(tensor.shape):
        strides.insert(0, step)
        step *= length
    return _within(tensor, tuple(strides))


def _within(tensor: Tensor, strides: tuple[int, ...]) -> Tensor:
    """The tensor by other strides, or as it is where these would leave its memory."""
    last = sum((length - 1) * step for length, step in zip(tensor.shape, strides, strict=True))
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    if not tensor.numel() or tensor.storage_offset() + last >= size:
        return tensor
    return tensor.as_strided(tensor.shape, strides)


class _Beside(TorchWrite):
    """More than the slots is written."""

    def __init__(self, mistake: str) -> None:
        self.mistake = mistake

    def put(self, cache: Tensor, block: Tensor, offset: Tensor, rows: Tensor) -> None:
        if not len(block):
            return
        if self.mistake == "the rest of a block whose first slot is written":
            for number in block[offset == 0].tolist():
                cache[number] = 0
        if self.mistake == "the slot behind the last token":
            after = int(block[-1]) * cache.shape[1] + int(offset[-1]) + 1
            if after < cache.shape[0] * cache.shape[1]:
                cache[after // cache.shape[1], after % cache.shape[1]] = 0
        super().put(cache, block, offset, rows)
        if self.mistake == "the last slot of a block":
            full = block[offset != cache.shape[1] - 1]
            taken = set(block[offset == cache.shape[1] - 1].tolist())
            for number in set(full.tolist()) - taken:
                cache[number, -1, -1, -1] = 1
        if self.mistake == "the null block" and not bool((block == 0).any()):
            cache[0, 0] = rows[0]
        if self.mistake == "what stands between the blocks":
            size = cache.untyped_storage().nbytes() // cache.element_size()
            end = cache.storage_offset() + cache.shape[1] * cache.shape[2] * cache.shape[3]
            if cache.stride(0) > cache[0].numel() and end < size:
                cache.as_strided((1,), (1,), end)[0] = 1


class _Cast(TorchWrite):
    """Numbers are stored in the wrong way."""

    def __init__(self, mistake: str) -> None:
        self.mistake = mistake

    def __call__(self, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor,
                 slot_mapping: Tensor, *, key_scale: float = 1.0, value_scale: float = 1.0,
                 **measured: Any) -> None:  # fmt: skip
        if self.mistake == "the keys' scale for values":
            value_scale = key_scale
        if self.mistake == "the source is scaled where it stands" and key_scale != 1:
            key.div_(key_scale)
            key_scale = 1.0
        super().__call__(key, value, key_cache, value_cache, slot_mapping,
                         key_scale=key_scale, value_scale=value_scale, **measured)  # fmt: skip

    def stored(self, rows: Tensor, cache: Tensor, scale: float) -> Tensor:
        is_cut = rows.dtype == torch.float32 and cache.dtype == torch.bfloat16
        if self.mistake == "half types are cut and not rounded" and is_cut:
            return (rows.view(torch.int32) & -65536).view(torch.float32).to(cache.dtype)
        if self.mistake == "everything goes through bfloat16":
            rows = rows.bfloat16()
        if self.mistake == "everything goes through float16":
            rows = rows.half()
        if cache.element_size() > 1:
            return super().stored(rows, cache, scale)
        if self.mistake == "numbers are multiplied by the scale":
            return self.quantised(rows.float() * scale, cache.dtype)
        if self.mistake == "the scale is dropped":
            return self.quantised(rows.float(), cache.dtype)
        if cache.dtype is torch.int8:
            return super().stored(rows, cache, scale)
        if self.mistake == "numbers beyond the range are not cut":
            return (rows.float() / scale).to(cache.dtype)
        if self.mistake == "numbers are cut at 240":
            return (rows.float() / scale).clamp(-240, 240).to(cache.dtype)
        return super().stored(rows, cache, scale)


class _Int8(TorchWrite):
    """Numbers become whole ones in the wrong way."""

    def __init__(self, mistake: str, step: Step) -> None:
        self.mistake, self.step = mistake, step

    def quantised(self, numbers: Tensor, dtype: torch.dtype) -> Tensor:
        if dtype is not torch.int8:
            return super().quantised(numbers, dtype)
        return self.step(numbers).to(torch.int32).to(torch.int8)


def _int8(mistake: str, step: Step) -> tuple[str, Any]:
    return mistake, partial(_Int8, mistake, step)


class _Rows(TorchWrite):
    """The rows of the keys are counted, and not the slots."""

    def __init__(self, mistake: str) -> None:
        self.mistake = mistake

    def write(
        self, rows: Tensor, cache: Tensor, slots: Tensor, scale: float, scales: Tensor | None
    ) -> None:
        more = len(rows) - len(slots)
        if self.mistake == "rows behind the last slot go to slot 0":
            slots = torch.cat([slots, slots.new_zeros(more)])
        if self.mistake == "rows behind the last slot go behind it" and len(slots):
            total = cache.shape[0] * cache.shape[1]
            behind = (slots[-1] + 1 + torch.arange(more)).clamp(max=total - 1)
            slots = torch.cat([slots, behind.to(slots)])
        if self.mistake == "tokens are counted from the last row" and more:
            rows = rows[more:]
        if self.mistake == "a call with more rows is dropped" and more:
            return
        super().write(rows, cache, slots, scale, scales)


class _Measured(TorchWrite):
    """A scale is measured in the wrong way, or is not the one that its token is divided by."""

    def __init__(self, mistake: str) -> None:
        self.mistake = mistake

    def __call__(self, *tensors: Tensor, key_scales: Tensor | None = None,
                 value_scales: Tensor | None = None, **scales: Any) -> None:  # fmt: skip
        if self.mistake == "those of the values go to the keys'":
            value_scales = key_scales
        super().__call__(*tensors, key_scales=key_scales, value_scales=value_scales, **scales)

    def largest(self, rows: Tensor) -> Tensor:
        if self.mistake == "the largest number and not the largest size":
            return rows.amax(-1)
        if self.mistake == "the mean size":
            return rows.abs().mean(-1)
        size = super().largest(rows)
        if self.mistake == "one for all heads of a token":
            return size.amax(-1, keepdim=True).expand_as(size)
        if self.mistake == "one for all tokens of a call" and len(size):
            return size.amax(0, keepdim=True).expand_as(size)
        return size

    def range_of(self, dtype: torch.dtype) -> float:
        most = super().range_of(dtype)
        wide = {"twice as coarse": 0.5, "a range of 128": 128 / 127, "a range of 255": 255 / 127}
        return most * wide.get(self.mistake, 1.0)

    def measured(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        scales = super().measured(rows, dtype)
        if self.mistake == "never under 0.001":
            return scales.clamp(min=1e-3)
        if self.mistake == "a head of zeros is divided by 0":
            return self.largest(rows) / self.range_of(dtype)
        return scales

    def put_scales(self, cache: Tensor, block: Tensor, offset: Tensor, scales: Tensor) -> None:
        if self.mistake == "they are not stored":
            return
        if self.mistake == "the inverse is stored":
            scales = 1 / scales
        if self.mistake == "that of head 0 is stored for all":
            scales = scales[:, :1].expand_as(scales)
        if self.mistake == "they are stored in order and not by slot":
            numbers = torch.arange(len(block))
            block, offset = numbers // cache.shape[1], numbers % cache.shape[1]
        if self.mistake == "they go through float16":
            scales = scales.half().float()
        super().put_scales(cache, block, offset, scales)
        if self.mistake == "a block's first one is stored too" and len(block):
            taken = set(block[offset == 0].tolist())
            for number in set(block.tolist()) - taken:
                cache[number, 0] = scales[0]
        if self.mistake == "that of slot 0 is cleared" and not bool(((block + offset) == 0).any()):
            cache[0, 0] = 0
        if self.mistake == "the next head's is stored too" and len(block):
            cache[(block + 1).clamp(max=len(cache) - 1), offset, -1] = scales[:, -1]

    def target(self, name: str, **declared: Any) -> FunctionTarget:
        return super().target(name, **MEASURED, **declared)


class _MeasuredShort(_Measured):
    """Elements from some number on do not count for the scale."""

    def __init__(self, most: int) -> None:
        super().__init__("")
        self.counted = most

    def largest(self, rows: Tensor) -> Tensor:
        return super().largest(rows[..., : self.counted])


class _Chain(TorchCopy):
    """A list of copies does not act at once."""

    def __init__(self, at_a_time: int, *, backwards: bool = False) -> None:
        self.at_a_time, self.backwards = at_a_time, backwards

    def move(self, source: Tensor, destination: Tensor, pairs: Tensor) -> None:
        pairs = pairs.flip(0) if self.backwards else pairs
        for part in pairs.split(self.at_a_time):
            super().move(source, destination, part)


class _Fewer(TorchCopy):
    """Pairs, slots, heads or elements from some number on are not copied."""

    def __init__(self, what: str, most: int) -> None:
        self.what, self.most = what, most

    def pairs(self, mapping: Tensor) -> Tensor:
        pairs = super().pairs(mapping)
        return pairs[: self.most] if self.what == "pairs" else pairs

    def put(self, cache: Tensor, blocks: Tensor, held: Tensor) -> None:
        dimension = {"slots": 1, "heads": 2, "elements": 3}.get(self.what)
        if dimension is None:
            super().put(cache, blocks, held)
            return
        most = min(self.most, cache.shape[dimension])
        part = cache.narrow(dimension, 0, most)
        super().put(part, blocks, held.narrow(dimension, 0, most))


class _NarrowBlocks(TorchCopy):
    """Block ids go through a type that does not hold them all."""

    def __init__(self, step: Step) -> None:
        self.step = step

    def move(self, source: Tensor, destination: Tensor, pairs: Tensor) -> None:
        pairs = self.step(pairs).long()
        ends = torch.tensor([source.shape[0], destination.shape[0]])
        super().move(source, destination, pairs % ends)


class _WrongCopy(TorchCopy):
    """Something else is copied, or written too."""

    def __init__(self, mistake: str) -> None:
        self.mistake = mistake

    def __call__(self, key_cache: Tensor, value_cache: Tensor, block_mapping: Tensor) -> None:
        if self.mistake == "keys alone":
            self.move(key_cache, key_cache, self.pairs(block_mapping))
        elif self.mistake == "values over keys":
            self.move(key_cache, key_cache, self.pairs(block_mapping))
            self.move(key_cache, value_cache, self.pairs(block_mapping))
        else:
            super().__call__(key_cache, value_cache, block_mapping)

    def pairs(self, mapping: Tensor) -> Tensor:
        if self.mistake == "the destination to the source":
            return super().pairs(mapping).flip(1)
        if self.mistake == "the mapping as packed by columns":
            return mapping.long().t().reshape(-1, 2)
        return super().pairs(mapping)

    def put(self, cache: Tensor, blocks: Tensor, held: Tensor) -> None:
        if self.mistake == "the next block too":
            cache[(blocks + 1).clamp(max=len(cache) - 1)] = held
        super().put(cache, blocks, held)


class _WrongSwap(TorchSwap):
    """Something else is swapped, or written too."""

    def __init__(self, mistake: str) -> None:
        self.mistake = mistake

    def move(self, source: Tensor, destination: Tensor, pairs: Tensor) -> None:
        if self.mistake == "to the place that they had":
            pairs = pairs[:, :1].expand(-1, 2) % len(destination)
        if self.mistake == "as packed":
            destination = _packed(destination)
        held = destination[pairs[:, 1]].clone()
        super().move(source, destination, pairs)
        if self.mistake == "and the source is cleared":
            source[pairs[:, 0]] = 0
        if self.mistake == "both ways":
            source[pairs[:, 0]] = held


class _ThroughFloats(TorchSwap):
    """Numbers are copied and not bits."""

    def __init__(self, step: Step) -> None:
        self.step = step

    def put(self, cache: Tensor, blocks: Tensor, held: Tensor) -> None:
        cache[blocks] = self.step(held).to(cache.dtype)


def _members(kind: Callable[[str], Any], *mistakes: str) -> tuple[tuple[str, Any], ...]:
    return tuple((mistake, partial(kind, mistake)) for mistake in mistakes)


def _cut_to(count: int, numbers: Tensor) -> Tensor:
    return numbers & ((1 << count) - 1)


_WRITTEN, _WRITE_SET = ("written slots",), ("write set",)
_COPIED = ("copied blocks",)

STORAGE_FAMILIES = (
    FaultFamily("FP", "padding: {}", _members(
        _Padding, "only -1 is skipped", "what follows the first is dropped",
        "what follows it moves up"), (*_WRITTEN, "padding")),
    FaultFamily("FQ", "padding: {}", _members(
        _Padding, "it goes to slot 0", "it goes to the last slot"), _WRITE_SET,
        thread="https://github.com/sgl-project/sglang/issues/36207"),
    FaultFamily("FT", "tokens from number {} on are not stored",
                   sized(partial(_Short, "tokens"), 8, 64, 256, 1024, 2000), _WRITTEN),
    FaultFamily("FH", "heads from number {} on are not stored",
                   sized(partial(_Short, "heads"), 1, 2, 8, 16), _WRITTEN),
    FaultFamily("FE", "elements of a head from number {} on are not stored",
                   sized(partial(_Short, "elements"), 16, 64, 128, 192, 255), _WRITTEN),
    FaultFamily("FI", "{}", (
        ("slots go through int32", partial(_Narrow, lambda s: s.int())),
        ("slots go through float32", partial(_Narrow, lambda s: s.float())),
        ("slots are cut to 31 bits", partial(_Narrow, partial(_cut_to, 31))),
        ("block ids go through int16", partial(_Narrow, lambda s: s.short(), blocks=True)),
        ("block ids are cut to 16 bits", partial(_Narrow, partial(_cut_to, 16), blocks=True)),
        ("elements are numbered in int32", _Elements32),
    ), ("64-bit slots",)),
    FaultFamily("FS", "strides: {}", _members(
        _Strides, "the values' cache has the strides of the keys'",
        "the keys' cache has the strides of the values'", "both caches are packed",
        "keys and values are packed", "values have the strides of the keys"), _WRITTEN),
    FaultFamily("FN", "{} is written too", _members(
        _Beside, "the rest of a block whose first slot is written",
        "the slot behind the last token", "the last slot of a block", "the null block",
        "what stands between the blocks"), _WRITE_SET),
    FaultFamily("FC", "{}", _members(
        _Cast, "the keys' scale for values", "half types are cut and not rounded",
        "everything goes through bfloat16", "everything goes through float16",
        "numbers are multiplied by the scale", "the scale is dropped",
        "numbers beyond the range are not cut", "numbers are cut at 240"), _WRITTEN,
        thread="https://github.com/flashinfer-ai/flashinfer/issues/1023"),
    FaultFamily("FO", "in int8 {}", (
        _int8("numbers are cut off and not rounded", lambda n: n.clamp(-128, 127).trunc()),
        _int8("numbers are rounded down", lambda n: n.clamp(-128, 127).floor()),
        _int8("numbers are rounded up", lambda n: n.clamp(-128, 127).ceil()),
        _int8("numbers beyond the range wrap around", lambda n: n.round()),
        _int8("numbers above 127 wrap around", lambda n: n.round().clamp(min=-128)),
        _int8("numbers are cut at 63", lambda n: n.round().clamp(-64, 63)),
        _int8("numbers are cut at 0", lambda n: n.round().clamp(0, 127)),
        _int8("numbers stand 128 higher", lambda n: n.round().clamp(-128, 127) + 128),
        _int8("even numbers alone are stored", lambda n: 2 * (n.clamp(-128, 127) / 2).round()),
    ), _WRITTEN),
    FaultFamily("FG", "a measured scale: {}", _members(
        _Measured, "the largest number and not the largest size", "the mean size",
        "one for all heads of a token", "one for all tokens of a call", "twice as coarse",
        "a range of 128", "a range of 255", "never under 0.001",
        "a head of zeros is divided by 0", "they are not stored", "the inverse is stored",
        "that of head 0 is stored for all", "they are stored in order and not by slot",
        "they go through float16", "those of the values go to the keys'"), _WRITTEN),
    FaultFamily("FM", "elements from number {} on do not count for a measured scale",
                   sized(_MeasuredShort, 8, 32, 64, 128, 192, 255), _WRITTEN),
    FaultFamily("FW", "a measured scale: {}", _members(
        _Measured, "a block's first one is stored too", "that of slot 0 is cleared",
        "the next head's is stored too"), _WRITE_SET),
    FaultFamily("FV", "{}", _members(
        _Cast, "the source is scaled where it stands"), ("sources",)),
    FaultFamily("FR", "{}", _members(
        _Rows, "rows behind the last slot go to slot 0",
        "rows behind the last slot go behind it"), _WRITE_SET),
    FaultFamily("FA", "{}", _members(
        _Rows, "tokens are counted from the last row", "a call with more rows is dropped"),
        _WRITTEN),
    FaultFamily("BC", "copies act {} at a time",
                   (*sized(_Chain, 1, 2, 3, 32),
                    ("backwards, one", partial(_Chain, 1, backwards=True))), _COPIED),
    FaultFamily("BP", "pairs from number {} on are not copied",
                   sized(partial(_Fewer, "pairs"), 4, 16, 128, 256), _COPIED),
    FaultFamily("BS", "slots of a block from number {} on are not copied",
                   sized(partial(_Fewer, "slots"), 2, 8, 16, 63), _COPIED),
    FaultFamily("BH", "heads from number {} on are not copied",
                   sized(partial(_Fewer, "heads"), 1, 3, 8, 16), _COPIED),
    FaultFamily("BE", "elements of a head from number {} on are not copied",
                   sized(partial(_Fewer, "elements"), 16, 64, 128, 255), _COPIED),
    FaultFamily("BI", "block ids go through {}", (
        ("int16", partial(_NarrowBlocks, lambda ids: ids.short())),
        ("16 bits", partial(_NarrowBlocks, partial(_cut_to, 16))),
        ("float16", partial(_NarrowBlocks, lambda ids: ids.clamp(max=65504).half())),
        ("float32", partial(_NarrowBlocks, lambda ids: ids.float())),
    ), ("64-bit blocks",)),
    FaultFamily("BW", "copied: {}", _members(
        _WrongCopy, "keys alone", "values over keys", "the destination to the source",
        "the mapping as packed by columns"), _COPIED),
    FaultFamily("BN", "copied: {}", _members(_WrongCopy, "the next block too"), _WRITE_SET),
    FaultFamily("SW", "swapped {}", _members(
        _WrongSwap, "to the place that they had", "as packed"), (*_COPIED, "there and back")),
    FaultFamily("SN", "swapped {}", _members(
        _WrongSwap, "and the source is cleared", "both ways"), _WRITE_SET),
    FaultFamily("SF", "numbers are swapped through {}", (
        ("float16", partial(_ThroughFloats, lambda held: held.half())),
        ("bfloat16", partial(_ThroughFloats, lambda held: held.bfloat16())),
        ("float32, NaN as 0", partial(_ThroughFloats, lambda held: held.float().nan_to_num(0.0))),
        ("a sum with 0", partial(_ThroughFloats, lambda held: held.float() + 0.0)),
    ), _COPIED),
)  # fmt: skip
"""Each is refused with every one of its constants."""
