"""Cache writes and block copies in torch, cut into steps: each can be replaced, rightly or wrongly.

The families of faults and the correct oddities are these with a step of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from poolproof.kernels.functions.block_copy import BLOCK_COPY, BLOCK_SWAP
from poolproof.kernels.functions.cache_write import CACHE_WRITE
from poolproof.kernels.functions.declaration import CASTS, FunctionDeclaration
from poolproof.kernels.functions.stored_forms import LEAST_SCALE
from poolproof.kernels.functions.target import FunctionTarget
from poolproof.kernels.kind import Kind

__all__ = ["MEASURED", "TorchCopy", "TorchSwap", "TorchWrite", "function_target"]


def function_target(
    kind: Kind, function: Callable[..., Any], name: str, **declared: Any
) -> FunctionTarget:
    """A function of this kind as a target, strict but for what is declared."""
    return FunctionTarget(
        name=name,
        function=function,
        declaration=FunctionDeclaration.from_mapping({"kind": kind.name, **declared}),
        kind=kind,
        version=f"torch {torch.__version__}",
        source=type(function).__module__,
    )


MEASURED = {"scales": "measured", "casts": ("fp8", "int8")}
"""What a write declares that measures a scale for each token and head."""


class TorchWrite:
    """A cache write; with caches of scales it measures those of each token and head."""

    def __call__(
        self,
        key: Tensor,
        value: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        slot_mapping: Tensor,
        *,
        key_scale: float = 1.0,
        value_scale: float = 1.0,
        key_scales: Tensor | None = None,
        value_scales: Tensor | None = None,
    ) -> None:
        """The target's function."""
        self.write(key, key_cache, slot_mapping, key_scale, key_scales)
        self.write(value, value_cache, slot_mapping, value_scale, value_scales)

    def write(
        self, rows: Tensor, cache: Tensor, slots: Tensor, scale: float, scales: Tensor | None
    ) -> None:
        """Keys or values."""
        tokens = self.kept(slots)
        block, offset = self.place(slots[tokens], cache)
        kept = self.source(rows, tokens)
        if scales is None:
            self.put(cache, block, offset, self.stored(kept, cache, scale))
            return
        measured = self.measured(kept.float(), cache.dtype)
        self.put_scales(scales, block, offset, measured)
        self.put(
            cache, block, offset, self.quantised(self.scaled(kept.float(), measured), cache.dtype)
        )

    def measured(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """The scale of each token and head, (num_tokens, num_kv_heads)."""
        return (self.largest(rows) / self.range_of(dtype)).clamp(min=LEAST_SCALE)

    def largest(self, rows: Tensor) -> Tensor:
        """The size of the largest element of each head."""
        return rows.abs().amax(-1)

    def range_of(self, dtype: torch.dtype) -> float:
        """The largest number of a type."""
        return 127.0 if dtype is torch.int8 else torch.finfo(dtype).max

    def scaled(self, rows: Tensor, scales: Tensor) -> Tensor:
        """The tokens in steps of their scales."""
        return rows / scales[..., None]

    def put_scales(self, cache: Tensor, block: Tensor, offset: Tensor, scales: Tensor) -> None:
        """Store the scales."""
        cache[block, offset] = scales

    def kept(self, slots: Tensor) -> Tensor:
        """The numbers of the tokens that are stored."""
        return (slots >= 0).nonzero().flatten()

    def source(self, rows: Tensor, tokens: Tensor) -> Tensor:
        """The rows of those tokens."""
        return rows[tokens]

    def place(self, slots: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        """Block, and place in the block, of each slot."""
        return slots.long() // cache.shape[1], slots.long() % cache.shape[1]

    def stored(self, rows: Tensor, cache: Tensor, scale: float) -> Tensor:
        """The numbers as the cache holds them."""
        if cache.element_size() == 1:
            return self.quantised(rows.float() / scale, cache.dtype)
        return rows.to(cache.dtype)

    def quantised(self, numbers: Tensor, dtype: torch.dtype) -> Tensor:
        """Numbers that are scaled already, cut to the range of the type."""
        if dtype is torch.int8:
            return numbers.round().clamp(-128, 127).to(dtype)
        most = torch.finfo(dtype).max
        return numbers.clamp(-most, most).to(dtype)

    def put(self, cache: Tensor, block: Tensor, offset: Tensor, rows: Tensor) -> None:
        """Store the numbers."""
        cache[block, offset] = rows

    def target(self, name: str, **declared: Any) -> FunctionTarget:
        """This function as a target, of all caches that there are."""
        return function_target(CACHE_WRITE, self, name, **{"casts": CASTS, **declared})


class TorchCopy:
    """A copy of blocks within a cache, all at once."""

    def __call__(self, key_cache: Tensor, value_cache: Tensor, block_mapping: Tensor) -> None:
        """The target's function."""
        for cache in (key_cache, value_cache):
            self.move(cache, cache, self.pairs(block_mapping))

    def pairs(self, mapping: Tensor) -> Tensor:
        """The pairs that are copied."""
        return mapping.long()

    def move(self, source: Tensor, destination: Tensor, pairs: Tensor) -> None:
        """Copy the blocks of one cache."""
        self.put(destination, pairs[:, 1], source[pairs[:, 0]])

    def put(self, cache: Tensor, blocks: Tensor, held: Tensor) -> None:
        """Store the blocks."""
        cache[blocks] = held

    def target(self, name: str, **declared: Any) -> FunctionTarget:
        """This function as a target."""
        return function_target(BLOCK_COPY, self, name, **declared)


class TorchSwap(TorchCopy):
    """A copy of blocks from one cache to another."""

    def __call__(self, source: Tensor, destination: Tensor, block_mapping: Tensor) -> None:
        """The target's function."""
        self.move(source, destination, self.pairs(block_mapping))

    def target(self, name: str, **declared: Any) -> FunctionTarget:
        """This function as a target."""
        return function_target(BLOCK_SWAP, self, name, **declared)
