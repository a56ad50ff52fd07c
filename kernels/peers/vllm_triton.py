"""vLLM's unified attention in Triton: its 2D kernel, and its 3D kernel, which splits keys."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from triton import next_power_of_2

from poolproof.kernels.declaration import Declaration
from poolproof.kernels.peers.starts import starts_of
from poolproof.kernels.peers.vllm_modules import NAMES, dtypes_on, vllm_module, vllm_version
from poolproof.kernels.target import KernelTarget

__all__ = ["vllm_triton_3d_target", "vllm_triton_target"]

FEATURES = ("sliding_window", "softcap", "alibi", "sinks")

SEGMENTS = 16
"""NUM_PAR_SOFTMAX_SEGMENTS of its backend."""


def vllm_triton_target(device: str) -> KernelTarget:
    """The target without the 3D kernel, which needs buffers of its caller."""
    return _target("vllm-triton", device, _no_buffers)


def vllm_triton_3d_target(device: str) -> KernelTarget:
    """Decode with the 3D kernel, as vLLM has it for small batches."""
    return _target("vllm-triton-3d", device, _buffers, modes=("decode",))


def _target(
    name: str, device: str, buffers: Callable[[Tensor, int], dict[str, Any]], **declared: Any
) -> KernelTarget:
    unified_attention = vllm_module("triton_unified_attention", device).unified_attention
    return KernelTarget(
        name=name,
        attend=partial(_attend, unified_attention, buffers),
        declaration=Declaration(
            features=FEATURES,
            dtypes=dtypes_on(device),
            block_sizes=(16, 32),
            head_sizes=(32, 64, 80),
            # Tiles begin at multiples of their length, wherever a window does.
            window_reads="tile",
            out=True,
            **declared,
        ),
        version=vllm_version(),
        source=f"{NAMES}.triton_unified_attention",
        device=device,
        uses_triton=True,
    )


def _no_buffers(query: Tensor, num_sequences: int) -> dict[str, Any]:
    del query, num_sequences
    return {}


def _buffers(query: Tensor, num_sequences: int) -> dict[str, Any]:
    """What another step left is in them: vLLM makes them once."""
    num_tokens, num_heads, head_size = query.shape
    shape = max(num_tokens, num_sequences), num_heads, SEGMENTS
    sizes = {
        "softmax_segm_output": (*shape, next_power_of_2(head_size)),
        "softmax_segm_max": shape,
        "softmax_segm_expsum": shape,
    }
    made = {
        name: torch.full(size, float("nan"), dtype=torch.float32, device=query.device)
        for name, size in sizes.items()
    }
    return {**made, "seq_threshold_3D": num_sequences, "num_par_softmax_segments": SEGMENTS}


def _attend(
    unified_attention: Any,
    buffers: Callable[[Tensor, int], dict[str, Any]],
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    kv_lengths: Tensor,
    query_lengths: Tensor,
    *,
    out: Tensor,
    **options: Any,
) -> Tensor:
    window = options["sliding_window"]
    unified_attention(
        q=query,
        k=key_cache,
        v=value_cache,
        out=out,
        cu_seqlens_q=starts_of(query_lengths),
        max_seqlen_q=int(query_lengths.max()),
        seqused_k=kv_lengths,
        max_seqlen_k=int(kv_lengths.max()),
        softmax_scale=options["scale"],
        causal=True,
        window_size=(-1, -1) if window is None else (window - 1, 0),
        block_table=block_tables,
        softcap=options["softcap"] or 0.0,
        q_descale=None,
        k_descale=None,
        v_descale=None,
        alibi_slopes=options["alibi_slopes"],
        sinks=options["sinks"],
        **buffers(query, len(kv_lengths)),
    )
    return out
