"""Correct oddities over quantised caches: where scales and zero points count, and in which type."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from poolproof.kernels.torch_attention import Rows, TorchAttention
from poolproof.kernels.torch_mla import KEY_SIZES, LATENT_SIZES
from poolproof.kernels.torch_quantised import TorchQuantised

__all__ = ["ODD_QUANTISED"]


class _Int4(TorchQuantised):
    """Other orders of nibbles and other zero points."""

    def __init__(self, nibbles: str, zero_points: str) -> None:
        self.nibbles, self.zero_points = nibbles, zero_points


class _ScaledQuery(TorchQuantised):
    """The scale of queries, and that of keys where each head has one, is part of the query."""

    def products(self, rows: Rows, keys: Tensor) -> Tensor:
        codes, scales = self.codes(rows, "key"), self.scales(rows, "key")
        if (scales.dim() == 3 and scales.shape[1] > 1) or self.zeros(rows, "key") is not None:
            return super().products(rows, keys) * self.query_scale(rows)
        of_heads = scales.reshape(-1, 1, 1, 1) * self.query_scale(rows)
        return torch.einsum("hgqd,hkd->hgqk", rows.query * of_heads, codes)

    def scale(self, rows: Rows) -> Any:
        return rows.batch.options.scale


class _ScaledSoftmax(TorchQuantised):
    """One scale of all keys is a part of the scale of the softmax, others follow the products."""

    def products(self, rows: Rows, keys: Tensor) -> Tensor:
        if self.zeros(rows, "key") is not None:
            return super().products(rows, keys)
        scales, products = self.scales(rows, "key"), super().products(rows, self.codes(rows, "key"))
        return products if scales.dim() == 0 else products * scales.transpose(1, 2)[:, None]

    def scale(self, rows: Rows) -> Any:
        own, scales = super().scale(rows), self.scales(rows, "key")
        is_one = scales.dim() == 0 and self.zeros(rows, "key") is None
        return own * scales if is_one else own


class _LateZeros(TorchQuantised):
    """Zero points count in the sums of queries and of weights, not in the codes."""

    def products(self, rows: Rows, keys: Tensor) -> Tensor:
        zeros = self.zeros(rows, "key")
        if zeros is None:
            return super().products(rows, keys)
        scales = _by_key(self.scales(rows, "key"))
        products = super().products(rows, self.codes(rows, "key"))
        of_zeros = rows.query.sum(-1, keepdim=True) * _by_key(zeros)
        return (products - of_zeros) * scales

    def weighted(self, rows: Rows, weights: Tensor, values: Tensor) -> Tensor:
        zeros = self.zeros(rows, "value")
        if zeros is None:
            return super().weighted(rows, weights, values)
        scaled = weights * _by_key(self.scales(rows, "value"))
        codes = super().weighted(rows, scaled, self.codes(rows, "value"))
        return codes - (scaled * _by_key(zeros)).sum(-1, keepdim=True)


class _ScaledWeights(TorchQuantised):
    """The scales of values are multiplied into the weights."""

    def weighted(self, rows: Rows, weights: Tensor, values: Tensor) -> Tensor:
        if self.zeros(rows, "value") is not None:
            return super().weighted(rows, weights, values)
        scaled = weights * _by_key(self.scales(rows, "value"))
        return super().weighted(rows, scaled, self.codes(rows, "value"))


class _WholePages(TorchQuantised):
    """Whole pages are dequantised, and cut behind the last token before anything is computed."""

    def numbers(self, rows: Rows, which: str) -> Tensor:
        size, positions = rows.batch.block_size, rows.positions
        first, last = int(positions[0]) // size, int(positions[-1]) // size
        pages = torch.arange(first * size, (last + 1) * size)
        whole = Rows(rows.batch, rows.sequence, rows.query, pages, rows.query_positions)
        begin = int(positions[0]) - first * size
        return super().numbers(whole, which)[:, begin : begin + len(positions)]


class _HalfNumbers(TorchQuantised):
    """Scales, zero points and what is made of them are in the query's type, or the output's."""

    def dequantised(
        self, rows: Rows, which: str, codes: Tensor, scales: Tensor, zeros: Tensor | None
    ) -> Tensor:
        del which
        dtype = rows.batch.out_dtype
        if zeros is None:
            return (codes.to(dtype) * scales.to(dtype)).float()
        return ((codes.to(dtype) - zeros.to(dtype)) * scales.to(dtype)).float()


class _NarrowWeights(TorchQuantised):
    """Weights are rounded to the cache's type where it is fp8, or to the output's."""

    def __init__(self, *, in_fp8: bool) -> None:
        self.in_fp8 = in_fp8

    def weighted(self, rows: Rows, weights: Tensor, values: Tensor) -> Tensor:
        is_fp8 = self.in_fp8 and rows.batch.is_fp8
        dtype = rows.batch.key_cache.dtype if is_fp8 else rows.batch.out_dtype
        return super().weighted(rows, weights.to(dtype).float(), values)


def _by_key(factor: Tensor) -> Tensor:
    """A factor of keys over (num_kv_heads, group, queries, num_keys)."""
    return factor if factor.dim() == 0 else factor.transpose(1, 2)[:, None]


_LATENT = {
    "head_sizes": KEY_SIZES, "value_sizes": LATENT_SIZES, "latent": True,
    "features": ("sliding_window", "fp8", "int8", "fp8_query"),
}  # fmt: skip

ODD_QUANTISED: dict[str, tuple[TorchAttention, dict[str, Any]]] = {
    "signed int4": (_Int4("low-first", "absent"), {}),
    "signed int4, high nibbles first": (_Int4("high-first", "absent"), {}),
    "int4 in halves, zero points added": (_Int4("halves", "after-scale"), {}),
    "int4 in halves, whole zero points": (_Int4("halves", "whole-before-scale"), {}),
    "int4 alone": (_Int4("high-first", "before-scale"), {
        "features": ("int4",), "scales": ("token",), "unquantised": False}),
    "scales of keys in the query": (_ScaledQuery(), {}),
    "scales of keys in the softmax's": (_ScaledSoftmax(), {}),
    "zero points in the sums": (_LateZeros(), {}),
    "scales of values in the weights": (_ScaledWeights(), {}),
    "whole pages dequantised": (_WholePages(), {}),
    "dequantised to the query's type": (_HalfNumbers(), {"dequantised": "query"}),
    "weights in fp8": (_NarrowWeights(in_fp8=True), {"weights": "cache"}),
    "weights in the output's type": (_NarrowWeights(in_fp8=False), {}),
    "quantised latent keys": (TorchQuantised(), _LATENT),
}  # fmt: skip
"""Each with what it does not promise."""
