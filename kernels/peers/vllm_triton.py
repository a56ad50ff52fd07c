"""vLLM's unified attention in Triton, its 2D kernel."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor

from poolproof.kernels.declaration import Declaration
from poolproof.kernels.peers.starts import starts_of
from poolproof.kernels.peers.vllm_modules import NAMES, dtypes_on, vllm_module, vllm_version
from poolproof.kernels.target import KernelTarget

__all__ = ["vllm_triton_target"]

FEATURES = ("sliding_window", "softcap", "alibi", "sinks")


def vllm_triton_target(device: str) -> KernelTarget:
    """The target without the 3D kernel, which needs buffers of its caller."""
    unified_attention = vllm_module("triton_unified_attention", device).unified_attention
    return KernelTarget(
        name="vllm-triton",
        attend=partial(_attend, unified_attention),
        declaration=Declaration(
            features=FEATURES,
            dtypes=dtypes_on(device),
            block_sizes=(16, 32),
            head_sizes=(32, 64, 80),
            out=True,
        ),
        version=vllm_version(),
        source=f"{NAMES}.triton_unified_attention",
        device=device,
        uses_triton=True,
    )


def _attend(
    unified_attention: Any,
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
    )
    return out
