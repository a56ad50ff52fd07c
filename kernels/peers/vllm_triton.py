"""vLLM's unified attention in Triton, its 2D kernel: compiled on a GPU, interpreted elsewhere.

vLLM for CPUs turns Triton off if no backend for CPUs is installed. During the import a stand-in for
that backend is registered, so that the kernels are defined, and interpreted here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from poolproof.kernels.declaration import Declaration
from poolproof.kernels.target import KernelTarget

__all__ = ["vllm_triton_target"]


@contextmanager
def _backend_for_cpus() -> Iterator[None]:
    from triton.backends import backends

    missing = "cpu" not in backends
    if missing:
        backends["cpu"] = SimpleNamespace(driver=None)
    try:
        yield
    finally:
        if missing:
            del backends["cpu"]


def vllm_triton_target(device: str) -> KernelTarget:
    """The target, without the 3D kernel, which needs buffers of its caller."""
    if device == "cpu":
        with _backend_for_cpus():
            from vllm.v1.attention.ops.triton_unified_attention import unified_attention
    else:
        from vllm.v1.attention.ops.triton_unified_attention import unified_attention
    import vllm

    def attend(
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
        starts = torch.zeros(len(query_lengths) + 1, dtype=torch.int32, device=query.device)
        starts[1:] = torch.cumsum(query_lengths, 0)
        window = options["sliding_window"]
        unified_attention(
            q=query,
            k=key_cache,
            v=value_cache,
            out=out,
            cu_seqlens_q=starts,
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

    # The interpreter cannot multiply bfloat16 (triton#11584), and vLLM's kernel does.
    dtypes = ("float32", "float16") if device == "cpu" else ("float32", "float16", "bfloat16")
    return KernelTarget(
        name="vllm-triton",
        attend=attend,
        declaration=Declaration(
            features=("sliding_window", "softcap", "alibi", "sinks"),
            dtypes=dtypes,
            block_sizes=(16, 32),
            head_sizes=(32, 64, 80),
            out=True,
        ),
        version=f"vllm {vllm.__version__}",
        source="vllm.v1.attention.ops.triton_unified_attention",
        device=device,
        uses_triton=True,
    )
