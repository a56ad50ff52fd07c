"""Refuses queries, caches, scales and zero points that do not belong together, by name."""

from __future__ import annotations

import torch
from torch import Tensor

from poolproof.kernels.arguments import DTYPES, check_values, require, require_tensor
from poolproof.kernels.batch import FP8_DTYPES, PagedBatch
from poolproof.kernels.quantised_cache import Factor
from poolproof.kernels.token_scales import factors

__all__ = ["check_quantised"]


def check_quantised(batch: PagedBatch) -> None:
    """Check types, sizes, scales and zero points, then lengths. Raises KernelArgumentError."""
    _check_types(batch)
    for name, factor in factors(batch).items():
        _check_factor(batch, name, factor)
    scale = batch.options.quantisation.query_scale
    is_fp8 = batch.query.dtype in FP8_DTYPES
    require(scale > 0 and scale < float("inf"), "query_scale", scale, "a finite number above 0")
    require(is_fp8 or scale == 1, "query_scale", scale, "1 with a query that is not in fp8")
    check_values(batch)


def _check_types(batch: PagedBatch) -> None:
    query, cache, quantisation = batch.query, batch.key_cache, batch.options.quantisation
    require_tensor("query", query, ("num_tokens", "num_heads", "head_size"), (*DTYPES, *FP8_DTYPES))
    is_fp8 = query.dtype in FP8_DTYPES
    types = [query.dtype] if is_fp8 else [query.dtype, *FP8_DTYPES, torch.int8, torch.uint8]
    slots = ("num_blocks", "block_size", "num_kv_heads", "head_size")
    require_tensor("key_cache", cache, slots, types)
    require_tensor("value_cache", batch.value_cache, slots, [cache.dtype])
    size = cache.shape[3] * (2 if batch.is_packed else 1)
    require(
        size == query.shape[2],
        "key_cache",
        f"of head size {size}{' in bytes of two' if batch.is_packed else ''}",
        f"of the query's head size, {query.shape[2]}",
    )
    if is_fp8:
        require(batch.out_dtype in DTYPES, "out_dtype", batch.out_dtype, "a type of outputs")
    for name in ("key_zeros", "value_zeros"):
        has_zeros = getattr(quantisation, name) is not None
        needed = batch.is_packed and quantisation.zero_points != "absent"
        was = "a zero point" if has_zeros else "None"
        must = "given with unsigned int4 codes" if needed else "None with other codes"
        require(has_zeros == needed, name, was, must)


def _check_factor(batch: PagedBatch, name: str, factor: Factor) -> None:
    if not isinstance(factor, Tensor):
        is_number = isinstance(factor, int | float) and abs(factor) < float("inf")
        is_right = is_number and (factor > 0 or name.endswith("zeros"))
        require(is_right, name, factor, "a finite number, above 0 if it is a scale")
        return
    heads, slots = (batch.num_kv_heads,), tuple(batch.key_cache.shape[:3])
    require(
        tuple(factor.shape) in {heads, slots},
        name,
        f"of shape {tuple(factor.shape)}",
        f"of shape {heads}, one for each head, or {slots}, one for each token and head",
    )
    require(
        factor.dtype == torch.float32, name, str(factor.dtype).removeprefix("torch."), "float32"
    )
    require(
        factor.device == batch.query.device,
        name,
        f"on {factor.device}",
        f"on the query's device, {batch.query.device}",
    )
