"""Correct cache writes, copies and swaps that look unlike ours: nothing of them may be refused."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from poolproof.kernels.functions.torch_storage import MEASURED, TorchCopy, TorchSwap, TorchWrite

__all__ = ["ODD_STORAGE"]


class _OneByOne(TorchWrite):
    """Token after token, from the last; each head for itself."""

    def put(self, cache: Tensor, block: Tensor, offset: Tensor, rows: Tensor) -> None:
        for token in reversed(range(len(rows))):
            for head in range(rows.shape[1]):
                cache[block[token], offset[token], head] = rows[token, head]


class _Inverse(TorchWrite):
    """Multiplies by the inverse of the scale."""

    def stored(self, rows: Tensor, cache: Tensor, scale: float) -> Tensor:
        if cache.element_size() > 1:
            return rows.to(cache.dtype)
        return self.quantised(rows.float() * (torch.tensor(1.0) / torch.tensor(scale)), cache.dtype)


class _AwayFromZero(TorchWrite):
    """Rounds halves away from 0, and has as many numbers below 0 as above."""

    def quantised(self, numbers: Tensor, dtype: torch.dtype) -> Tensor:
        if dtype is not torch.int8:
            return super().quantised(numbers, dtype)
        whole = (numbers.double().abs() + 0.5).floor().clamp(max=127)
        return (whole * numbers.sign()).to(dtype)


class _LeastScale(TorchWrite):
    """Measures a scale as small as float32 holds, and multiplies by its inverse."""

    def measured(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        return (self.largest(rows) / self.range_of(dtype)).clamp(min=1e-30)

    def scaled(self, rows: Tensor, scales: Tensor) -> Tensor:
        return rows * (1 / scales)[..., None]


class _RoundedUp(TorchWrite):
    """Measures a scale that is one step of float32 larger."""

    def measured(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        return torch.nextafter(super().measured(rows, dtype), torch.tensor(torch.inf))


class _ByBlock(TorchWrite):
    """Gathers each block, changes it and puts it back: the others' bits stay."""

    def put(self, cache: Tensor, block: Tensor, offset: Tensor, rows: Tensor) -> None:
        for number in sorted(set(block.tolist())):
            there = block == number
            whole = cache[number].clone()
            whole[offset[there]] = rows[there]
            cache[number] = whole


class _FlatMemory(TorchWrite):
    """Numbers every element of the memory in int64."""

    def put(self, cache: Tensor, block: Tensor, offset: Tensor, rows: Tensor) -> None:
        size = cache.untyped_storage().nbytes() // cache.element_size()
        memory = cache.as_strided((size,), (1,), 0)
        first = block * cache.stride(0) + offset * cache.stride(1) + cache.storage_offset()
        heads = torch.arange(rows.shape[1])[:, None] * cache.stride(2)
        memory[first[:, None, None] + heads + torch.arange(rows.shape[2])] = rows


class _Elementwise(TorchWrite):
    """Eight elements of the heads at a time; returns the caches."""

    def __call__(self, key: Tensor, value: Tensor, key_cache: Tensor, *rest: Any,
                 **scales: Any) -> Any:  # fmt: skip
        super().__call__(key, value, key_cache, *rest, **scales)
        return key_cache, rest[0]

    def put(self, cache: Tensor, block: Tensor, offset: Tensor, rows: Tensor) -> None:
        for first in range(0, rows.shape[2], 8):
            cache[..., first : first + 8][block, offset] = rows[..., first : first + 8]


class _InOrder(TorchCopy):
    """One pair after another, as it declares."""

    def move(self, source: Tensor, destination: Tensor, pairs: Tensor) -> None:
        for pair in pairs:
            super().move(source, destination, pair[None])


class _Buffered(TorchCopy):
    """Through a buffer of all blocks, from the last."""

    def move(self, source: Tensor, destination: Tensor, pairs: Tensor) -> None:
        held = [source[here].clone() for here in pairs[:, 0].tolist()]
        for there, block in reversed(list(zip(pairs[:, 1].tolist(), held, strict=True))):
            destination[there].copy_(block)


class _Bytes(TorchSwap):
    """Copies bits, slot by slot."""

    def put(self, cache: Tensor, blocks: Tensor, held: Tensor) -> None:
        kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
        kind = kinds[cache.element_size()]
        for slot in range(cache.shape[1]):
            cache.view(kind)[blocks, slot] = held.contiguous().view(kind)[:, slot]


class _Sorted(TorchSwap):
    """In the order of the destinations."""

    def pairs(self, mapping: Tensor) -> Tensor:
        return mapping.long()[mapping[:, 1].long().argsort()]


ODD_STORAGE: dict[str, tuple[Any, dict[str, Any]]] = {
    "write: token after token": (_OneByOne(), {}),
    "write: the inverse of the scale": (_Inverse(), {}),
    "write: halves away from 0": (_AwayFromZero(), {}),
    "write: neither fp8 nor int8": (_OneByOne(), {"casts": ["half"]}),
    "write: measured scales": (TorchWrite(), MEASURED),
    "write: measured scales, in int8 alone": (_AwayFromZero(), {**MEASURED, "casts": ["int8"]}),
    "write: the smallest measured scales": (_LeastScale(), MEASURED),
    "write: measured scales rounded up": (
        _RoundedUp(),
        {**MEASURED, "fp8_types": ["float8_e4m3fn"]},
    ),
    "write: block after block": (_ByBlock(), {}),
    "write: flat memory": (_FlatMemory(), {}),
    "write: eight elements at a time": (_Elementwise(), {}),
    "copy: one pair after another": (_InOrder(), {"overlap": "in-order"}),
    "copy: no overlap": (_InOrder(), {"overlap": "absent"}),
    "copy: through a buffer": (_Buffered(), {}),
    "swap: bits, slot by slot": (_Bytes(), {}),
    "swap: sorted": (_Sorted(), {}),
}
"""Each with what it does not promise."""
