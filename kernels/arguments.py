"""Refuses the arguments of a kernel before anything is launched.

A kernel that is launched with wrong arguments silently reads foreign memory, so each wrong argument
raises a `KernelArgumentError` with its name, its value and what is allowed. Shapes, types, strides
and devices cost nothing to check. Lengths and block ids must be read back from the device, which an
engine does not want at every step: `check_values`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from poolproof.kernels.batch import FP8_DTYPES, SIGHT_KEYWORDS, PagedBatch
from poolproof.kernels.quantised_cache import Factor
from poolproof.kernels.token_scales import factors

__all__ = [
    "HEAD_SIZES",
    "KernelArgumentError",
    "check_latent_shapes",
    "check_quantised",
    "check_shapes",
    "check_values",
    "refuse_new_sights",
    "require",
    "require_strides",
    "require_tensor",
]

HEAD_SIZES = range(16, 257)
LATENT_SIZES = range(16, 513)
BLOCK_SIZES = range(1, 257)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int32, torch.int64)


class KernelArgumentError(ValueError):
    """An argument with which no kernel is launched; the message names it."""


def require(holds: bool, name: str, was: object, allowed: str) -> None:
    """Raises KernelArgumentError unless `holds`."""
    if not holds:
        raise KernelArgumentError(f"{name} is {was}; it must be {allowed}")


def require_tensor(name: str, value: Any, dimensions: tuple[str, ...], dtypes: Any) -> None:
    """Require that `value` is a tensor with these dimensions and one of these types."""
    require(isinstance(value, Tensor), name, f"a {type(value).__name__}", "a torch tensor")
    require(
        value.dim() == len(dimensions),
        name,
        f"of shape {tuple(value.shape)}",
        f"of shape ({', '.join(dimensions)})",
    )
    words = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
    require(value.dtype in dtypes, name, str(value.dtype).removeprefix("torch."), words)


def require_strides(name: str, value: Tensor) -> None:
    """Require that the elements of a head are adjacent, and that no two elements overlap."""
    require(
        value.stride(-1) == 1 or value.shape[-1] == 1,
        name,
        f"laid out with strides {tuple(value.stride())}",
        "of stride 1 in its last dimension (elements of a head side by side)",
    )
    spread = [s for size, s in zip(value.shape, value.stride(), strict=True) if size > 1]
    require(
        all(s > 0 for s in spread),
        name,
        f"laid out with strides {tuple(value.stride())}",
        "laid out without strides of 0 (an expanded tensor: call .contiguous())",
    )


def check_shapes(batch: PagedBatch, out: Tensor | None = None, lse: Tensor | None = None) -> None:
    """Check shapes, types, strides, devices and options. Raises KernelArgumentError."""
    _check_tensors(batch)
    _check_cache(batch)
    _check_options(batch)
    _check_results(batch, out, lse)


def _check_results(batch: PagedBatch, out: Tensor | None, lse: Tensor | None) -> None:
    """Check where the results go. Raises KernelArgumentError."""
    if out is not None:
        require_tensor("out", out, ("num_tokens", "num_heads", "head_size"), [batch.query.dtype])
        require(
            out.shape == batch.out_shape,
            "out",
            f"of shape {tuple(out.shape)}",
            f"of shape {tuple(batch.out_shape)}, a row of values for each row of the query",
        )
        require_strides("out", out)
    if lse is not None:
        require_tensor("lse", lse, ("num_tokens", "num_heads"), [torch.float32])
        require(
            lse.shape == batch.query.shape[:2],
            "lse",
            f"of shape {tuple(lse.shape)}",
            f"of shape {tuple(batch.query.shape[:2])}, one for each token and head of the query",
        )
    _check_devices(batch, {"out": out, "lse": lse})


def check_latent_shapes(
    batch: PagedBatch, out: Tensor | None = None, lse: Tensor | None = None
) -> None:
    """The same for a cache whose values are the first elements of its keys (MLA, absorbed).

    Raises KernelArgumentError.
    """
    _check_tensors(batch)
    head_size, value_size = batch.query.shape[2], batch.value_size
    require(
        batch.key_cache.shape[3] == head_size,
        "key_cache",
        f"of head size {batch.key_cache.shape[3]}",
        f"of the query's head size, {head_size}",
    )
    require(batch.num_kv_heads == 1, "key_cache", f"of {batch.num_kv_heads} heads", "of one head")
    require(
        batch.is_latent and batch.value_cache.stride() == batch.key_cache.stride(),
        "value_cache",
        "memory of its own",
        "the first elements of key_cache: key_cache[..., :value_size]",
    )
    require(
        value_size in LATENT_SIZES and 0 <= head_size - value_size <= LATENT_SIZES[-1] // 2,
        "value_cache",
        f"of {value_size} elements of {head_size}",
        f"of {LATENT_SIZES[0]} to {LATENT_SIZES[-1]} latent elements in front of at most "
        f"{LATENT_SIZES[-1] // 2} rotary ones",
    )
    require(
        batch.block_size in BLOCK_SIZES,
        "key_cache",
        f"of block size {batch.block_size}",
        f"of a block size from {BLOCK_SIZES[0]} to {BLOCK_SIZES[-1]}",
    )
    require(batch.options.alibi_slopes is None, "alibi_slopes", "a tensor", "None with latent keys")
    _check_options(batch)
    _check_results(batch, out, lse)


def _check_tensors(batch: PagedBatch) -> None:
    query, cache = batch.query, batch.key_cache
    require_tensor("query", query, ("num_tokens", "num_heads", "head_size"), DTYPES)
    slots = ("num_blocks", "block_size", "num_kv_heads", "head_size")
    cache_types = (query.dtype, *FP8_DTYPES)
    require_tensor("key_cache", cache, slots, cache_types)
    require_tensor("value_cache", batch.value_cache, slots, [cache.dtype])
    require_tensor("block_tables", batch.block_tables, ("num_sequences", "max_blocks"), INTEGERS)
    count = batch.block_tables.shape[0]
    for name in ("kv_lengths", "query_lengths"):
        lengths = getattr(batch, name)
        require_tensor(name, lengths, ("num_sequences",), INTEGERS)
        require(
            lengths.shape[0] == count,
            name,
            f"of {lengths.shape[0]} entries",
            f"of {count} entries, one for each row of block_tables",
        )
    for name in ("query", "key_cache", "value_cache"):
        require_strides(name, getattr(batch, name))


def _check_cache(batch: PagedBatch) -> None:
    query, cache = batch.query, batch.key_cache
    require(
        batch.value_cache.shape == cache.shape,
        "value_cache",
        f"of shape {tuple(batch.value_cache.shape)}",
        f"of key_cache's shape {tuple(cache.shape)}",
    )
    num_heads, head_size = query.shape[1:]
    require(
        head_size in HEAD_SIZES,
        "query",
        f"of head size {head_size}",
        f"of a head size from {HEAD_SIZES[0]} to {HEAD_SIZES[-1]}",
    )
    require(
        cache.shape[3] == head_size,
        "key_cache",
        f"of head size {cache.shape[3]}",
        f"of the query's head size, {head_size}",
    )
    require(
        cache.shape[1] in BLOCK_SIZES,
        "key_cache",
        f"of block size {cache.shape[1]}",
        f"of a block size from {BLOCK_SIZES[0]} to {BLOCK_SIZES[-1]}",
    )
    num_kv_heads = cache.shape[2]
    require(
        num_kv_heads > 0 and num_heads > 0 and num_heads % num_kv_heads == 0,
        "query",
        f"of {num_heads} heads",
        f"of a multiple of the cache's {num_kv_heads} heads",
    )


def _check_options(batch: PagedBatch) -> None:
    options = batch.options
    require(_is_number(options.scale), "scale", options.scale, "a finite number")
    window = options.sliding_window
    require(
        window is None or (type(window) is int and window > 0),
        "sliding_window",
        window,
        "None or a number of tokens of at least 1",
    )
    cap = options.softcap
    require(cap is None or (_is_number(cap) and cap > 0), "softcap", cap, "None or above 0")
    _check_sight(batch)
    for name in ("sliding_window", "alibi_slopes"):
        looks_back = name == "sliding_window" and options.window_ahead is not None
        require(
            options.causal or looks_back or getattr(options, name) is None,
            "causal",
            "False",
            f"True with {name}, which looks back from the query's position",
        )
    for name in ("alibi_slopes", "sinks"):
        value = getattr(options, name)
        if value is not None:
            require_tensor(name, value, ("num_heads",), [torch.float32])
            require(
                value.shape[0] == batch.query.shape[1],
                name,
                f"of {value.shape[0]} entries",
                f"of {batch.query.shape[1]} entries, one for each head of the query",
            )
    for name in ("key_scale", "value_scale"):
        value = getattr(options, name)
        require(_is_number(value) and value > 0, name, value, "a finite number above 0")
        require(
            value == 1 or batch.is_fp8,
            name,
            value,
            f"1 with a cache of {str(batch.key_cache.dtype).removeprefix('torch.')}: "
            "only fp8 caches are scaled",
        )


def _check_sight(batch: PagedBatch) -> None:
    """Chunk, window ahead and mask: what each may be, and beside what it has no meaning."""
    options = batch.options
    for name, least in (("attention_chunk", 1), ("window_ahead", 0)):
        value = getattr(options, name)
        require(
            value is None or (type(value) is int and value >= least),
            name,
            value,
            f"None or a number of tokens of at least {least}",
        )
    if options.mask is not None:
        require_tensor("mask", options.mask, ("num_tokens", "at least the longest kv_length"),
                       [torch.bool])  # fmt: skip
        require(
            options.mask.shape[0] == batch.query.shape[0],
            "mask",
            f"of {options.mask.shape[0]} rows",
            f"of {batch.query.shape[0]} rows, one for each of the query",
        )
    for name, causal, others in (
        ("attention_chunk", True, ("sliding_window",)),
        ("window_ahead", False, ()),
        ("mask", False, ("sliding_window", "window_ahead")),
    ):
        if getattr(options, name) is None:
            continue
        require(options.causal is causal, "causal", options.causal, f"{causal} with {name}")
        for other in others:
            value = getattr(options, other)
            require(value is None, other, value, f"None with {name}, which alone decides")


def refuse_new_sights(batch: PagedBatch) -> None:
    """For kernels that know none of them. Raises KernelArgumentError for chunk, window and mask."""
    for name in sorted(set(SIGHT_KEYWORDS.values())):
        value = getattr(batch.options, name)
        was = "a tensor" if isinstance(value, Tensor) else value
        require(value is None, name, was, "None: this kernel does not know it")


def _check_devices(batch: PagedBatch, results: dict[str, Tensor | None]) -> None:
    device = batch.query.device
    options = batch.options
    others = {name: getattr(batch, name) for name in batch.__slots__[1:6]}
    others |= {name: getattr(options, name) for name in ("alibi_slopes", "sinks", "mask")}
    others |= results
    for name, tensor in others.items():
        require(
            tensor is None or tensor.device == device,
            name,
            f"on {getattr(tensor, 'device', None)}",
            f"on the query's device, {device}",
        )


def check_values(batch: PagedBatch, *, may_cross: bool = False) -> None:
    """Check lengths and block ids, read back from the device. Raises KernelArgumentError.

    `may_cross`: without a causal mask or a window a sequence may have more queries than keys.
    """
    options = batch.options
    may_cross = may_cross and not options.causal and options.window_ahead is None
    kv_lengths, query_lengths = batch.kv_lengths.tolist(), batch.query_lengths.tolist()
    table = batch.block_tables.tolist()
    room = batch.block_tables.shape[1] * batch.block_size
    num_blocks = batch.key_cache.shape[0]
    for index, (query_length, kv_length) in enumerate(zip(query_lengths, kv_lengths, strict=True)):
        require(query_length >= 0, f"query_lengths[{index}]", query_length, "0 or more")
        require(
            0 <= kv_length <= room,
            f"kv_lengths[{index}]",
            kv_length,
            f"from 0 to {room}: {batch.block_tables.shape[1]} table entries of {batch.block_size} "
            "slots",
        )
        require(
            query_length <= kv_length or kv_length == 0 or may_cross,
            f"query_lengths[{index}]",
            query_length,
            f"at most kv_lengths[{index}] = {kv_length}, which counts the new tokens as well",
        )
        for place, block in enumerate(table[index][: -(-kv_length // batch.block_size)]):
            require(
                0 <= block < num_blocks,
                f"block_tables[{index}, {place}]",
                block,
                f"a block from 0 to {num_blocks - 1}",
            )
    if options.mask is not None:
        longest, width = max(kv_lengths, default=0), options.mask.shape[1]
        require(width >= longest, "mask", f"of {width} columns", f"of {longest} at least, the "
                "longest kv_length")  # fmt: skip
    num_tokens = batch.query.shape[0]
    require(
        sum(query_lengths) == num_tokens,
        "query_lengths",
        f"{sum(query_lengths)} in sum",
        f"{num_tokens} in sum, the rows of the query",
    )


def check_quantised(batch: PagedBatch) -> None:
    """For queries and caches of codes: types, sizes, scales and zero points, then lengths and ids.

    Raises KernelArgumentError.
    """
    _check_codes(batch)
    for name, factor in factors(batch).items():
        _check_factor(batch, name, factor)
    scale = batch.options.quantisation.query_scale
    is_fp8 = batch.query.dtype in FP8_DTYPES
    require(scale > 0 and scale < float("inf"), "query_scale", scale, "a finite number above 0")
    require(is_fp8 or scale == 1, "query_scale", scale, "1 with a query that is not in fp8")
    check_values(batch)


def _check_codes(batch: PagedBatch) -> None:
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


def _is_number(value: object) -> bool:
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return is_real and abs(value) < float("inf")  # type: ignore[arg-type] # a number, by is_real
