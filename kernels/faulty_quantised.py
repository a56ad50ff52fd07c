"""Families of faults over quantised caches: the reference of `torch_quantised.py` with one mistake.

Scales and zero points of another head, slot, block, sequence or tensor; some that are dropped, in a
mode or from a key on, rounded, or read where nobody may; codes whose bits mean something else. A
`quick` run must refuse every one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from poolproof.kernels.batch import PagedBatch, SequenceRows
from poolproof.kernels.fault_family import FaultFamily, sized
from poolproof.kernels.quantised_cache import unpack
from poolproof.kernels.target import KernelTarget
from poolproof.kernels.token_scales import per_slot
from poolproof.kernels.torch_attention import Rows
from poolproof.kernels.torch_quantised import TorchQuantised

__all__ = ["QUANTISED_FAMILIES"]

Step = Callable[[Tensor], Tensor]
OfSlots = Callable[[Rows, Tensor, Tensor, Tensor], Tensor]
"""Of a factor (num_blocks, block_size, num_kv_heads), the blocks of the positions, and their slots
within these, what is taken: (num_keys, num_kv_heads)."""

_WINDOW = ("sliding_window", "fp8", "int8")


class _Faulty(TorchQuantised):
    """Declares what the mistake is about, and no cache that is not quantised."""

    declared: dict[str, Any] = {}  # noqa: RUF012 -- no member changes it

    def target(self, name: str, **declared: Any) -> KernelTarget:
        return super().target(name, **{"unquantised": False, **self.declared, **declared})


class _ByToken(_Faulty):
    """Each token and head has a scale."""

    declared = {"scales": ("token",)}  # noqa: RUF012 -- the same


class _OtherHeads(_Faulty):
    """Head h takes the scale of another: `step` gives the numbers of these."""

    declared = {"scales": ("head", "token")}  # noqa: RUF012 -- the same

    def __init__(self, step: Step) -> None:
        self.step = step

    def scales(self, rows: Rows, which: str) -> Tensor:
        scales = super().scales(rows, which)
        return scales[self.step(torch.arange(len(scales)))]


def _modulo(most: int) -> _OtherHeads:
    return _OtherHeads(lambda heads: heads % most)


class _OtherSlots(_ByToken):
    """The scale of a token is taken somewhere else; zero points and codes are not."""

    def __init__(self, step: OfSlots, which: tuple[str, ...] = ("key", "value")) -> None:
        self.step, self.which = step, which

    def scales(self, rows: Rows, which: str) -> Tensor:
        if which not in self.which:
            return super().scales(rows, which)
        factor, size = getattr(rows.batch.options, f"{which}_scale"), rows.batch.block_size
        blocks, slots = self.table(rows)[rows.positions // size], rows.positions % size
        return self.step(rows, factor, blocks, slots).transpose(0, 1)[..., None]


def _flat(factor: Tensor, numbers: Tensor) -> Tensor:
    """Factors by the number of their slot, within the cache."""
    size = factor.shape[1]
    there = numbers % (factor.shape[0] * size)
    return factor[torch.div(there, size, rounding_mode="floor"), there % size]


def _own_positions(rows: Rows, factor: Tensor, blocks: Tensor, slots: Tensor) -> Tensor:  # noqa: ARG001 -- a step
    return _flat(factor, rows.positions)


def _by_block_id(rows: Rows, factor: Tensor, blocks: Tensor, slots: Tensor) -> Tensor:  # noqa: ARG001 -- the same
    return _flat(factor, blocks)


def _of_row(row: Callable[[int, int], int]) -> OfSlots:
    """Through the table of another sequence."""

    def step(rows: Rows, factor: Tensor, blocks: Tensor, slots: Tensor) -> Tensor:  # noqa: ARG001 -- the same
        batch = rows.batch
        other = row(rows.sequence.index, len(batch.block_tables))
        table = batch.block_tables[other].long().clamp(min=0, max=len(factor) - 1)
        return factor[table[rows.positions // batch.block_size], slots]

    return step


def _place_in_batch(rows: Rows, factor: Tensor, blocks: Tensor, slots: Tensor) -> Tensor:  # noqa: ARG001 -- the same
    before = int(rows.batch.kv_lengths[: rows.sequence.index].sum())
    return _flat(factor, before + rows.positions)


def _strided(strides: Callable[[Tensor, Rows], tuple[int, ...]]) -> OfSlots:
    """By other strides than the tensor's, within its memory."""

    def step(rows: Rows, factor: Tensor, blocks: Tensor, slots: Tensor) -> Tensor:
        block, slot, head = strides(factor, rows)
        begins = factor.storage_offset() + blocks * block + slots * slot
        numbers = begins[:, None] + torch.arange(factor.shape[2]) * head
        length = factor.untyped_storage().nbytes() // factor.element_size()
        return factor.as_strided((length,), (1,), 0)[numbers.clamp(max=length - 1)]

    return step


def _of_cache(factor: Tensor, rows: Rows) -> tuple[int, ...]:
    """Those of the keys, in units of a head."""
    size = rows.batch.key_cache.shape[3]
    del factor
    strides = rows.batch.key_cache.stride()
    return tuple(stride // size for stride in strides[:3])


class _OtherFactor(_Faulty):
    """Keys or values take the scales of the others; `taken` says whose."""

    def __init__(self, taken: dict[str, tuple[str, ...]]) -> None:
        self.taken_by = taken

    def scales(self, rows: Rows, which: str) -> Tensor:
        scale = torch.ones(())
        for other in self.taken_by.get(which, (which,)):
            scale = scale * super().scales(rows, other)
        return scale


class _Late(_ByToken):
    """Scales from key `most` on are that of the key before, or 1."""

    def __init__(self, most: int, *, which: str = "key", dropped: bool = False) -> None:
        self.most, self.which, self.dropped = most, which, dropped

    def scales(self, rows: Rows, which: str) -> Tensor:
        scales = super().scales(rows, which)
        late = (rows.positions >= self.most)[None, :, None]
        if which != self.which or not late.any():
            return scales
        if self.dropped:
            return torch.where(late, 1.0, scales)
        last = max(0, self.most - 1 - int(rows.positions[0]))
        return torch.where(late, scales[:, last : last + 1], scales)


class _Tiles(_ByToken):
    """Keys of a tile have the scale of its first one."""

    def __init__(self, tile: int) -> None:
        self.tile = tile

    def scales(self, rows: Rows, which: str) -> Tensor:
        scales = super().scales(rows, which)
        return scales[:, torch.arange(scales.shape[1]) // self.tile * self.tile]


def _is_decode(rows: Rows) -> bool:
    return rows.sequence.query_length == 1


class _OneMode(_Faulty):
    """In one mode the scales of keys or of values are dropped."""

    def __init__(self, which: str, *, decode: bool) -> None:
        self.which, self.decode = which, decode

    def scales(self, rows: Rows, which: str) -> Tensor:
        scales = super().scales(rows, which)
        is_lost = which == self.which and _is_decode(rows) is self.decode
        return torch.ones_like(scales) if is_lost else scales


class _Kept(_Faulty):
    """Scales go through a narrower type."""

    def __init__(self, step: Step) -> None:
        self.step = step

    def scales(self, rows: Rows, which: str) -> Tensor:
        return self.step(super().scales(rows, which))


class _LateScale(_Faulty):
    """Products with codes are rounded to a type, and only then multiplied by the scales."""

    declared = {"features": ("fp8", "int8")}  # noqa: RUF012 -- the same

    def __init__(self, dtype: torch.dtype | None, *, of_keys: bool = True) -> None:
        self.dtype, self.of_keys = dtype, of_keys

    def _rounded(self, rows: Rows, numbers: Tensor) -> Tensor:
        return numbers.to(self.dtype or rows.batch.out_dtype).float()

    def products(self, rows: Rows, keys: Tensor) -> Tensor:
        if not self.of_keys:
            return super().products(rows, keys)
        products = super().products(rows, self.codes(rows, "key"))
        scales = self.scales(rows, "key")
        of_keys = scales if scales.dim() == 0 else scales.transpose(1, 2)[:, None]
        return self._rounded(rows, products) * of_keys

    def weighted(self, rows: Rows, weights: Tensor, values: Tensor) -> Tensor:
        if self.of_keys:
            return super().weighted(rows, weights, values)
        scales = self.scales(rows, "value")
        of_keys = scales if scales.dim() == 0 else scales.transpose(1, 2)[:, None]
        scaled = self._rounded(rows, weights * of_keys / 4096) * 4096
        return super().weighted(rows, scaled, self.codes(rows, "value"))


class _ScaledTotal(_ByToken):
    """The sum of the weights holds scales that belong to the values alone."""

    def __init__(self, step: Step) -> None:
        self.step = step

    def total(self, rows: Rows, weights: Tensor) -> Tensor:
        scales = self.step(self.scales(rows, "value"))
        return (weights * (scales / scales.mean()).transpose(1, 2)[:, None]).sum(-1)


class _Codes(_Faulty):
    """Codes are taken for others: `step` makes these of them, of keys or of values or of both."""

    def __init__(self, step: Step, which: tuple[str, ...] = ("key", "value"),
                 features: tuple[str, ...] = ("int8",)) -> None:  # fmt: skip
        self.step, self.which = step, which
        self.declared = {"features": features}

    def codes(self, rows: Rows, which: str) -> Tensor:
        codes = super().codes(rows, which)
        return self.step(codes) if which in self.which else codes


class _Nibbles(_Faulty):
    """The nibbles of a byte stand elsewhere than they are taken from."""

    declared = {"features": ("int4",)}  # noqa: RUF012 -- the same

    def __init__(
        self, order: str, which: tuple[str, ...] = ("key", "value"), first: int = 0
    ) -> None:
        self.order, self.which, self.first = order, which, first

    def unpacked(self, stored: Tensor, which: str) -> Tensor:
        right = super().unpacked(stored, which)
        if which not in self.which:
            return right
        other = unpack(stored.to(torch.uint8), self.order, signed=False)
        return torch.cat([right[..., : self.first], other[..., self.first :]], -1)


def _signed(step: Step, which: tuple[str, ...] = ("key", "value")) -> _Codes:
    """Over signed int4 codes."""
    faulty = _Codes(step, which, ("int4",))
    faulty.zero_points = "absent"
    return faulty


class _Zeros(_Faulty):
    """Zero points count in another way: `step` takes codes, scales, zeros and gives numbers."""

    declared = {"features": ("int4",)}  # noqa: RUF012 -- the same

    def __init__(
        self,
        step: Callable[[Tensor, Tensor, Tensor], Tensor],
        which: tuple[str, ...] = ("key", "value"),
        *,
        after: bool = False,
    ) -> None:
        self.step, self.which = step, which
        self.zero_points = "after-scale" if after else "before-scale"

    def dequantised(
        self, rows: Rows, which: str, codes: Tensor, scales: Tensor, zeros: Tensor | None
    ) -> Tensor:
        if which not in self.which or zeros is None:
            return super().dequantised(rows, which, codes, scales, zeros)
        return self.step(codes, scales, zeros)


class _KeyZeros(_Faulty):
    """Values take the zero points of keys."""

    declared = {"features": ("int4",)}  # noqa: RUF012 -- the same

    def zeros(self, rows: Rows, which: str) -> Tensor | None:
        del which
        return super().zeros(rows, "key")


class _FirstZeros(_Faulty):
    """Zero points are those of the first token, or of the first head."""

    declared = {"features": ("int4",), "scales": ("head", "token")}  # noqa: RUF012 -- the same

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension

    def zeros(self, rows: Rows, which: str) -> Tensor | None:
        zeros = super().zeros(rows, which)
        assert zeros is not None
        return zeros.narrow(self.dimension, 0, 1)


class _QueryScale(_Faulty):
    """The scale of queries in fp8 counts in another way."""

    declared = {"features": ("fp8", "fp8_query"), "scales": ("tensor",)}  # noqa: RUF012 -- the same

    def __init__(self, step: Callable[[float, Rows], float]) -> None:
        self.step = step

    def query_scale(self, rows: Rows) -> float:
        return self.step(super().query_scale(rows), rows)


class _Output(_Faulty):
    """The output of queries in fp8 goes through a type that is too narrow."""

    declared = {"features": ("fp8", "fp8_query")}  # noqa: RUF012 -- the same

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def store(self, result: Tensor, sequence: SequenceRows, output: Tensor) -> None:
        if self.batch_has_fp8_query:
            output = output.to(self.dtype).float()
        super().store(result, sequence, output)

    def taken(self, batch: PagedBatch) -> PagedBatch:
        self.batch_has_fp8_query = batch.query.dtype.itemsize == 1
        return super().taken(batch)


class _Leak(_Faulty):
    """Scales or zero points that are nobody's business are read, and multiplied by 0."""

    def __init__(
        self, name: str, where: Callable[[Rows], Tensor], step: Step | None = None
    ) -> None:
        self.name, self.where, self.step = name, where, step
        features = ("int4", "sliding_window") if name.endswith("zeros") else _WINDOW
        self.declared = {"scales": ("token",), "features": features}

    def attend(self, rows: Rows) -> Tensor:
        factor = per_slot(rows.batch)[self.name]
        read = factor.reshape(-1, factor.shape[2])[self.where(rows)]
        return super().attend(rows) + (read if self.step is None else self.step(read)).sum() * 0.0


def _slots_of(batch: PagedBatch, sequence: SequenceRows) -> Tensor:
    """All slots of the blocks of a sequence, the one behind the other."""
    blocks = torch.tensor(batch.blocks_of(sequence), dtype=torch.int64)
    return (blocks[:, None] * batch.block_size + torch.arange(batch.block_size)).flatten()


def _of_others(rows: Rows) -> Tensor:
    return torch.cat([_slots_of(rows.batch, other) for other in rows.batch.sequences()])


def _of_last_block(rows: Rows) -> Tensor:
    return _slots_of(rows.batch, rows.sequence)[-rows.batch.block_size :]


def _of_null_block(rows: Rows) -> Tensor:
    return torch.arange(rows.batch.block_size)


def _in_front(rows: Rows) -> Tensor:
    return _slots_of(rows.batch, rows.sequence)[: rows.sequence.kv_length]


def _leaks(where: Callable[[Rows], Tensor], *names: str) -> tuple[Any, ...]:
    words = {
        "key_scale": "key scales",
        "value_scale": "value scales",
        "key_zeros": "zero points of keys",
        "value_zeros": "zero points of values",
    }
    return tuple((words[name], partial(_Leak, name, where)) for name in names)


_ALL = ("key_scale", "value_scale", "key_zeros", "value_zeros")


def _narrow(step: Step) -> OfSlots:
    """The numbers of blocks go through a type that is too narrow."""

    def of_slots(rows: Rows, factor: Tensor, blocks: Tensor, slots: Tensor) -> Tensor:  # noqa: ARG001 -- the same
        return factor[step(blocks) % len(factor), slots]

    return of_slots


def _slots_in(bits: int) -> OfSlots:
    """Slots are numbered in so many bits; the highest of 32 is a sign."""

    def of_slots(rows: Rows, factor: Tensor, blocks: Tensor, slots: Tensor) -> Tensor:
        numbers = (blocks * rows.batch.block_size + slots) & ((1 << bits) - 1)
        if bits == 32:
            numbers = torch.where(numbers >= 1 << 31, numbers - (1 << 32), numbers)
        return _flat(factor, numbers)

    return of_slots


def _magnitude(codes: Tensor) -> Tensor:
    """The highest bit of a nibble is the sign of the others."""
    bits = codes.to(torch.int16) & 15
    return torch.where(bits > 7, -(bits & 7), bits).float()


def _unsigned(codes: Tensor) -> Tensor:
    return (codes.to(torch.int16) & 15).float()


QUANTISED_FAMILIES = (
    FaultFamily("QH", "a head takes the scale of {}", (
        ("the first", partial(_OtherHeads, lambda heads: heads * 0)),
        ("the last", partial(_OtherHeads, lambda heads: heads * 0 + len(heads) - 1)),
        ("the one before", partial(_OtherHeads, lambda heads: heads.roll(1))),
        ("the same number from the end", partial(_OtherHeads, lambda heads: heads.flip(0))),
        ("the one with half its number", partial(_OtherHeads, lambda heads: heads // 2)),
    )),
    FaultFamily("QM", "head h takes the scale of head h mod {}", sized(_modulo, 2, 3, 4, 5)),
    FaultFamily("QB", "a token takes the scale of {}", (
        ("its block's first slot", partial(_OtherSlots, lambda _, factor, blocks, slots:
            factor[blocks, slots * 0])),
        ("its block's last slot", partial(_OtherSlots, lambda _, factor, blocks, slots:
            factor[blocks, slots * 0 - 1])),
        ("the token before", partial(_OtherSlots, lambda _, factor, blocks, slots:
            factor[blocks, slots].roll(1, 0))),
        ("the next token", partial(_OtherSlots, lambda _, factor, blocks, slots:
            factor[blocks, slots].roll(-1, 0))),
        ("its slot in the first block", partial(_OtherSlots, lambda _, factor, blocks, slots:
            factor[blocks[:1].expand_as(blocks), slots])),
        ("its block's first slot, for values alone", partial(
            _OtherSlots, lambda _, factor, blocks, slots: factor[blocks, slots * 0], ("value",))),
    )),
    FaultFamily("QL", "scales are looked up {}", (
        ("at the logical slot", partial(_OtherSlots, _own_positions)),
        ("at the logical slot, for keys alone", partial(_OtherSlots, _own_positions, ("key",))),
        ("at the number of the block", partial(_OtherSlots, _by_block_id)),
        ("at the place in the batch", partial(_OtherSlots, _place_in_batch)),
        ("through the first row of the table", partial(_OtherSlots, _of_row(lambda *_: 0))),
        ("through the next row of the table", partial(
            _OtherSlots, _of_row(lambda row, count: (row + 1) % count))),
    )),
    FaultFamily("QP", "scales are taken to have {}", (
        ("packed strides", partial(_OtherSlots, _strided(
            lambda factor, _: (factor.shape[1] * factor.shape[2], factor.shape[2], 1)))),
        ("packed blocks", partial(_OtherSlots, _strided(lambda factor, _: (
            factor.shape[1] * factor.shape[2], factor.stride(1), factor.stride(2))))),
        ("packed slots", partial(_OtherSlots, _strided(lambda factor, _: (
            factor.stride(0), factor.shape[2], factor.stride(2))))),
        ("heads before slots", partial(_OtherSlots, _strided(
            lambda factor, _: (factor.shape[1] * factor.shape[2], 1, factor.shape[1])))),
        ("heads side by side", partial(_OtherSlots, _strided(
            lambda factor, _: (factor.stride(0), factor.stride(1), 1)))),
        ("the strides of the keys", partial(_OtherSlots, _strided(_of_cache))),
    )),
    FaultFamily("QV", "{}", (
        ("values take the scales of keys", partial(_OtherFactor, {"value": ("key",)})),
        ("keys take the scales of values", partial(_OtherFactor, {"key": ("value",)})),
        ("scales of keys and values are exchanged", partial(
            _OtherFactor, {"key": ("value",), "value": ("key",)})),
        ("values take both scales", partial(_OtherFactor, {"value": ("key", "value")})),
        ("the scales of keys are dropped", partial(_OtherFactor, {"key": ()})),
        ("the scales of values are dropped", partial(_OtherFactor, {"value": ()})),
        ("the scales of keys count twice", partial(_OtherFactor, {"key": ("key", "key")})),
        ("the scales of values count twice", partial(_OtherFactor, {"value": ("value", "value")})),
    )),
    FaultFamily("QK", "keys from number {} on have the scale of the one before",
                sized(_Late, 16, 64, 130, 512, 1024, 2000)),
    FaultFamily("QW", "values from number {} on have the scale of the one before",
                sized(partial(_Late, which="value"), 16, 64, 130, 512, 1024, 2000)),
    FaultFamily("QC", "scales of keys from number {} on are dropped",
                sized(partial(_Late, dropped=True), 32, 256, 777, 1999)),
    FaultFamily("QT", "{} keys have the scale of the first of them",
                sized(_Tiles, 2, 4, 16, 32, 64, 128)),
    FaultFamily("QD", "the scales of {} are dropped", (
        ("keys in decode", partial(_OneMode, "key", decode=True)),
        ("keys in prefill", partial(_OneMode, "key", decode=False)),
        ("values in decode", partial(_OneMode, "value", decode=True)),
        ("values in prefill", partial(_OneMode, "value", decode=False)),
    )),
    FaultFamily("QU", "scales are kept in {}", (
        ("float16", partial(_Kept, lambda scales: scales.half().float())),
        ("bfloat16", partial(_Kept, lambda scales: scales.bfloat16().float())),
        ("powers of two", partial(_Kept, lambda scales: torch.exp2(torch.log2(scales).round()))),
        ("steps of 1/1024", partial(_Kept, lambda scales: (scales * 1024).round() / 1024)),
    )),
    FaultFamily("QR", "before their scales count, {}", (
        ("scores are rounded to the query's type", partial(_LateScale, None)),
        ("scores are rounded to float16", partial(_LateScale, torch.float16)),
        ("scores are rounded to bfloat16", partial(_LateScale, torch.bfloat16)),
        ("scores are rounded to whole numbers", partial(_LateScale, torch.int32)),
        ("scaled weights are rounded to float16", partial(
            _LateScale, torch.float16, of_keys=False)),
    )),
    FaultFamily("QS", "the sum of the weights holds {}", (
        ("the scales of values", partial(_ScaledTotal, lambda scales: scales)),
        ("their squares", partial(_ScaledTotal, torch.square)),
        ("their roots", partial(_ScaledTotal, torch.sqrt)),
        ("those of the first head", partial(_ScaledTotal, lambda s: s[:1].expand_as(s))),
    )),
    FaultFamily("QI", "int8 codes are taken {}", (
        ("without a sign", partial(_Codes, lambda codes: codes % 256)),
        ("without a sign in keys", partial(_Codes, lambda codes: codes % 256, ("key",))),
        ("without a sign in values", partial(_Codes, lambda codes: codes % 256, ("value",))),
        ("by their size", partial(_Codes, torch.abs)),
        ("from 0 to 255 around 128", partial(_Codes, lambda codes: codes % 256 - 128)),
        ("by their low seven bits", partial(_Codes, lambda codes: codes % 128)),
        ("as 127ths of 128", partial(_Codes, lambda codes: codes * (128 / 127))),
    )),
    FaultFamily("QN", "nibbles are {}", (
        ("exchanged", partial(_Nibbles, "high-first")),
        ("taken from the halves of a head", partial(_Nibbles, "halves")),
        ("exchanged in keys", partial(_Nibbles, "high-first", ("key",))),
        ("exchanged in values", partial(_Nibbles, "high-first", ("value",))),
        ("taken from the halves of a head in values", partial(_Nibbles, "halves", ("value",))),
        ("exchanged from element 32 on", partial(_Nibbles, "high-first", first=32)),
        ("exchanged from element 128 on", partial(_Nibbles, "high-first", first=128)),
    )),
    FaultFamily("QX", "signs of int4 codes are {}", (
        ("not extended", partial(_signed, _unsigned)),
        ("not extended in keys", partial(_signed, _unsigned, ("key",))),
        ("not extended in values", partial(_signed, _unsigned, ("value",))),
        ("beside a magnitude", partial(_signed, _magnitude)),
        ("an offset of 8", partial(_signed, lambda codes: _unsigned(codes) - 8)),
        ("an offset of 8 in values", partial(
            _signed, lambda codes: _unsigned(codes) - 8, ("value",))),
        ("extended from three bits", partial(
            _signed, lambda codes: (_unsigned(codes) + 4) % 8 - 4)),
    )),
    FaultFamily("QZ", "zero points are {}", (
        ("dropped", partial(_Zeros, lambda codes, scales, _: codes * scales)),
        ("dropped in keys", partial(_Zeros, lambda codes, scales, _: codes * scales, ("key",))),
        ("dropped in values", partial(
            _Zeros, lambda codes, scales, _: codes * scales, ("value",))),
        ("subtracted after the scale", partial(
            _Zeros, lambda codes, scales, zeros: codes * scales - zeros)),
        ("added before the scale", partial(
            _Zeros, lambda codes, scales, zeros: (codes + zeros) * scales)),
        ("8 for all", partial(_Zeros, lambda codes, scales, _: (codes - 8) * scales)),
        ("cut to whole numbers", partial(
            _Zeros, lambda codes, scales, zeros: (codes - zeros.round()) * scales)),
        ("multiplied by the scale, too", partial(
            _Zeros, lambda codes, scales, zeros: (codes + zeros) * scales, after=True)),
        ("subtracted, not added", partial(
            _Zeros, lambda codes, scales, zeros: codes * scales - zeros, after=True)),
        ("dropped, where they are added after the scale", partial(
            _Zeros, lambda codes, scales, _: codes * scales, after=True)),
        ("those of keys for values", _KeyZeros),
        ("those of the first head", partial(_FirstZeros, 0)),
        ("those of the first token", partial(_FirstZeros, 1)),
    )),
    FaultFamily("QQ", "the scale of queries is {}", (
        ("dropped", partial(_QueryScale, lambda *_: 1.0)),
        ("counted twice", partial(_QueryScale, lambda scale, _: scale**2)),
        ("dropped in decode", partial(
            _QueryScale, lambda scale, rows: 1.0 if _is_decode(rows) else scale)),
        ("dropped in prefill", partial(
            _QueryScale, lambda scale, rows: scale if _is_decode(rows) else 1.0)),
        ("that of keys", partial(
            _QueryScale, lambda _, rows: rows.batch.options.key_scale)),
        ("its inverse", partial(_QueryScale, lambda scale, _: 1 / scale)),
    )),
    FaultFamily("QO", "the output of queries in fp8 goes through {}", (
        ("float8_e4m3fn", partial(_Output, torch.float8_e4m3fn)),
        ("float8_e5m2", partial(_Output, torch.float8_e5m2)),
        ("bfloat16", partial(_Output, torch.bfloat16)),
        ("float16", partial(_Output, torch.float16)),
    )),
    FaultFamily("QG", "of other requests the {} are read, with weights of 0",
                _leaks(_of_others, *_ALL), checks=("isolation",)),
    FaultFamily("QE", "behind the last token {} are read, with weights of 0", (
        *_leaks(_of_last_block, "value_scale", "value_zeros"),
        ("value scales of the whole block, for their largest,", partial(
            _Leak, "value_scale", _of_last_block, torch.max)),
        ("value scales of the whole block, for their mean,", partial(
            _Leak, "value_scale", _of_last_block, torch.mean)),
    ), checks=("value tail",)),
    FaultFamily("QF", "behind the last token {} are read, with weights of 0", (
        *_leaks(_of_last_block, "key_scale", "key_zeros"),
        ("key scales of the whole block, for their largest,", partial(
            _Leak, "key_scale", _of_last_block, torch.max)),
        ("key scales of the whole block, for their mean,", partial(
            _Leak, "key_scale", _of_last_block, torch.mean)),
    ), checks=("key tail",)),
    FaultFamily("QY", "of the null block {} are read, with weights of 0",
                _leaks(_of_null_block, *_ALL), checks=("null block",)),
    FaultFamily("QJ", "in front of a window {} are read, with weights of 0",
                _leaks(_in_front, *_ALL), checks=("behind the window",)),
    FaultFamily("QA", "of scales, {}", (
        ("block ids go through int16", partial(
            _OtherSlots, _narrow(lambda ids: ids.to(torch.int16).long()))),
        ("block ids go through 16 bits", partial(_OtherSlots, _narrow(lambda ids: ids & 0xFFFF))),
        ("block ids go through float16", partial(
            _OtherSlots, _narrow(lambda ids: ids.half().nan_to_num().long()))),
        ("block ids go through bfloat16", partial(
            _OtherSlots, _narrow(lambda ids: ids.bfloat16().long()))),
        ("slots are numbered in int32", partial(_OtherSlots, _slots_in(32))),
        ("slots are numbered in 31 bits", partial(_OtherSlots, _slots_in(31))),
    ), checks=("64-bit offsets",)),
)  # fmt: skip
"""The mistakes; a quick run refuses each."""
