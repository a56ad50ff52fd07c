"""vLLM's `context_attention_fwd`: what is cached of a sequence, and then the newest tokens.

Its cache is (num_blocks, num_kv_heads, head_size / x, block_size, x) for keys and (num_blocks,
num_kv_heads, head_size, block_size) for values; all strides are arguments, so the adapter passes
views. Keys and values of the newest tokens come from the model, or from the cache as well, for
layers that attend once more to what is cached (`KV_FROM_CACHE`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from poolproof.kernels.batch import AttentionOptions, PagedBatch
from poolproof.kernels.declaration import Declaration
from poolproof.kernels.peers.starts import newest_of, starts_of
from poolproof.kernels.peers.vllm_modules import NAMES, dtypes_on, vllm_module, vllm_version
from poolproof.kernels.target import KernelTarget

__all__ = ["vllm_prefix_cached_target", "vllm_prefix_target"]

FEATURES = ("sliding_window", "sinks", "non_causal")
"""ALiBi is a kernel of its own, which takes no window."""

CACHES = {torch.float8_e4m3fn: "fp8_e4m3", torch.float8_e5m2: "fp8_e5m2"}
"""How vLLM calls a cache of a type; it gets the bytes alone."""


def vllm_prefix_target(device: str) -> KernelTarget:
    """The target whose newest keys and values come from the model."""
    return _target(
        "vllm-prefix", device, from_model=True, features=FEATURES,
        # The cache is not written; what the newest tokens have in it is not read either.
        cache_writes="newest",
    )  # fmt: skip


def vllm_prefix_cached_target(device: str) -> KernelTarget:
    """The target that gets queries alone."""
    return _target(
        "vllm-prefix-cached", device, from_model=False, features=(*FEATURES, "fp8"),
        # What is cached in fp8 is rounded to the query's type once it is scaled.
        dequantised="query",
    )  # fmt: skip


def _target(name: str, device: str, *, from_model: bool, **declared: Any) -> KernelTarget:
    forward = vllm_module("prefix_prefill", device).context_attention_fwd
    return KernelTarget(
        name=name,
        attend=partial(_attend, forward, from_model=from_model),
        declaration=Declaration(
            dtypes=dtypes_on(device),
            block_sizes=(16, 32),
            head_sizes=(32, 64, 80),
            tiles=(32, 64, 128),
            # Every key in front of a window is loaded, and masked.
            window_reads="tile",
            behind_window="finite",
            # The newest tokens of a sequence are its queries: none asks without keys.
            empty_row="undefined",
            out=True,
            **declared,
        ),
        version=vllm_version(),
        source=f"{NAMES}.prefix_prefill",
        device=device,
        uses_triton=True,
    )


def _attend(
    forward: Any,
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    kv_lengths: Tensor,
    query_lengths: Tensor,
    *,
    out: Tensor,
    from_model: bool,
    **options: Any,
) -> Tensor:
    batch = PagedBatch(
        query=query,
        key_cache=key_cache,
        value_cache=value_cache,
        block_tables=block_tables,
        kv_lengths=kv_lengths,
        query_lengths=query_lengths,
        options=AttentionOptions(**options),
    )
    newest = newest_of(batch) if from_model else (None, None)
    cache_type = CACHES.get(key_cache.dtype, "auto")
    if batch.is_fp8:
        key_cache, value_cache = key_cache.view(torch.uint8), value_cache.view(torch.uint8)
    x = 16 // key_cache.element_size()
    forward(
        query,
        *newest,
        out,
        cache_type,
        key_cache.unflatten(3, (-1, x)).permute(0, 2, 3, 1, 4),
        value_cache.permute(0, 2, 3, 1),
        block_tables,
        starts_of(query_lengths),
        kv_lengths,
        int(kv_lengths.max()),
        int(query_lengths.max()),
        torch.tensor(batch.options.key_scale, device=query.device),
        torch.tensor(batch.options.value_scale, device=query.device),
        sliding_window=batch.options.sliding_window,
        sm_scale=batch.options.scale,
        sinks=batch.options.sinks,
        causal=batch.options.causal,
    )
    return out
