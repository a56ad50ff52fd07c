"""Paged attention over quantised caches, in torch, as a reference to read: fp8, int8 and int4.

Codes, scales and zero points are gathered through the block table, and numbers made of them, in
float32: one step after another, each of which a correct oddity or a fault replaces. What the codes
mean is said in `quantised_cache.py`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from poolproof.kernels.arguments import check_quantised
from poolproof.kernels.batch import AttentionOptions, PagedBatch
from poolproof.kernels.declaration import FEATURES, QUANTISED_FEATURES
from poolproof.kernels.quantised_cache import SCALES, Factor, Quantisation, unpack
from poolproof.kernels.target import KernelTarget
from poolproof.kernels.torch_attention import Rows, TorchAttention

__all__ = ["TorchQuantised", "quantised_target"]


class TorchQuantised(TorchAttention):
    """Attention over codes; `which` is key or value in all steps.

    `nibbles` and `zero_points` are those of int4 caches.
    """

    title = "poolproof.kernels.torch_quantised"
    nibbles = "low-first"
    zero_points = "before-scale"

    def options(
        self,
        query_scale: float = 1.0,
        out_dtype: torch.dtype | None = None,
        key_zeros: Factor | None = None,
        value_zeros: Factor | None = None,
        **options: Any,
    ) -> AttentionOptions:
        """The keywords, those of queries in fp8 and of zero points among them."""
        quantisation = Quantisation(
            query_scale=query_scale,
            out_dtype=out_dtype,
            key_zeros=key_zeros,
            value_zeros=value_zeros,
            nibbles=self.nibbles,
            zero_points=self.zero_points,
        )
        return AttentionOptions(**options, quantisation=quantisation)

    def target(self, name: str, **declared: Any) -> KernelTarget:
        """This kernel as a target."""
        rows: dict[str, Any] = {
            "features": (*FEATURES, *QUANTISED_FEATURES), "scales": SCALES,
            "nibbles": self.nibbles, "zero_points": self.zero_points,
        }  # fmt: skip
        return super().target(name, **{**rows, **declared})

    def taken(self, batch: PagedBatch) -> PagedBatch:
        """The arguments. Raises KernelArgumentError."""
        check_quantised(batch)
        return batch

    def attend(self, rows: Rows) -> Tensor:
        """(num_heads, queries, head_size)."""
        keys, values = self.numbers(rows, "key"), self.numbers(rows, "value")
        weighted, total = self.softmax(rows, self.scores(rows, keys), values)
        return (weighted / torch.where(total > 0, total, 1.0)[..., None]).flatten(0, 1)

    def scale(self, rows: Rows) -> Any:
        """By what a product of numbers is multiplied."""
        return rows.batch.options.scale * self.query_scale(rows)

    def query_scale(self, rows: Rows) -> float:
        """What a code of a query counts."""
        return rows.batch.options.quantisation.query_scale

    def numbers(self, rows: Rows, which: str) -> Tensor:
        """Keys or values of the positions: (num_kv_heads, num_keys, size)."""
        codes, zeros = self.codes(rows, which), self.zeros(rows, which)
        return self.dequantised(rows, which, codes, self.scales(rows, which), zeros)

    def codes(self, rows: Rows, which: str) -> Tensor:
        """Codes of the positions: (num_kv_heads, num_keys, size)."""
        stored = self.loaded(rows, getattr(rows.batch, f"{which}_cache"))
        return self.unpacked(stored, which).float() if rows.batch.is_packed else stored

    def unpacked(self, stored: Tensor, which: str) -> Tensor:  # noqa: ARG002 -- faults look at it
        """Codes of bytes."""
        return unpack(stored.to(torch.uint8), self.nibbles, signed=self.zero_points == "absent")

    def scales(self, rows: Rows, which: str) -> Tensor:
        """Scales of keys or values, broadcast over (num_kv_heads, num_keys, size)."""
        return self.of_positions(rows, getattr(rows.batch.options, f"{which}_scale"))

    def zeros(self, rows: Rows, which: str) -> Tensor | None:
        """The same of zero points; None where there are none."""
        zeros = getattr(rows.batch.options.quantisation, f"{which}_zeros")
        return None if zeros is None else self.of_positions(rows, zeros)

    def of_positions(self, rows: Rows, factor: Factor) -> Tensor:
        """A factor of the cache, of heads, or of slots, at the positions."""
        if not isinstance(factor, Tensor):
            return torch.tensor(factor)
        if factor.dim() == 1:
            return factor[:, None, None]
        return self.of_slots(rows, factor).transpose(0, 1)[..., None]

    def of_slots(self, rows: Rows, factor: Tensor) -> Tensor:
        """(num_keys, num_kv_heads), found through the table."""
        size = rows.batch.block_size
        return factor[self.table(rows)[rows.positions // size], rows.positions % size]

    def dequantised(
        self,
        rows: Rows,  # noqa: ARG002 -- faults look at it
        which: str,  # noqa: ARG002 -- the same
        codes: Tensor,
        scales: Tensor,
        zeros: Tensor | None,
    ) -> Tensor:
        """What the codes stand for."""
        if zeros is None:
            return codes * scales
        return (
            codes * scales + zeros
            if self.zero_points == "after-scale"
            else (codes - zeros) * scales
        )


def quantised_target(device: str) -> KernelTarget:
    """The reference as a target; it runs on a CPU, whatever the device of others."""
    del device
    return TorchQuantised().target("gather-quantised")
