"""vLLM's C++ attention for CPUs, `cpu_attention_with_kv_cache`.

Its cache has a layout of its own, which its own `cpu_attn_reshape_and_cache` writes: each slot of a
case is written through it, unowned and poisoned slots too. The wrapper of the Python backend is
not used; arguments are what that wrapper passes (vllm/v1/attention/backends/cpu_attn.py).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from poolproof.kernels.declaration import Declaration
from poolproof.kernels.target import KernelTarget

__all__ = ["vllm_cpu_target"]

BLOCK_SIZES = (16, 32)
HEAD_SIZES = (32, 64, 80, 96)


def _allow_matrix_tiles() -> None:
    """Let this process use AMX, where the processor has it.

    Linux gives a process the tile registers when it asks for them; before that each tile
    instruction ends it with SIGILL (Documentation/arch/x86/xstate.rst). The kernel does not ask: in
    an engine the layers before it have, because oneDNN asks with its first product of bfloat16.
    """
    ones = torch.ones((64, 64), dtype=torch.bfloat16)
    torch.mm(ones, ones)


def vllm_cpu_target(device: str) -> KernelTarget:
    """The target. Nothing is promised in vLLM's documents, so the strictest promises are asked."""
    import vllm
    from vllm import _custom_ops
    from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

    _allow_matrix_tiles()

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
        num_blocks, block_size, num_kv_heads, head_size = key_cache.shape
        isa = _get_attn_isa(query.dtype, block_size, head_size)
        keys, values = (
            torch.empty((num_blocks, num_kv_heads, block_size, 2 * head_size), dtype=query.dtype)
            .view(num_blocks, num_kv_heads, 2 * block_size, head_size)
            .chunk(2, dim=2)
        )
        slots = torch.arange(num_blocks * block_size)
        _custom_ops.cpu_attn_reshape_and_cache(
            key_cache.reshape(-1, num_kv_heads, head_size).contiguous(),
            value_cache.reshape(-1, num_kv_heads, head_size).contiguous(),
            keys,
            values,
            slots,
            isa,
        )
        starts = torch.zeros(len(query_lengths) + 1, dtype=torch.int32)
        starts[1:] = torch.cumsum(query_lengths, 0)
        window = options["sliding_window"]
        window = -1 if window is None else window
        plan = _custom_ops.cpu_attn_get_scheduler_metadata(
            len(kv_lengths),
            query.shape[1],
            num_kv_heads,
            head_size,
            kv_lengths,
            query.dtype,
            starts,
            options["causal"],
            window,
            isa,
            enable_kv_split=True,
        )
        _custom_ops.cpu_attention_with_kv_cache(
            query,
            keys,
            values,
            out,
            starts,
            kv_lengths,
            options["scale"],
            options["causal"],
            options["alibi_slopes"],
            window,
            block_tables,
            options["softcap"] or 0.0,
            plan,
            options["sinks"],
        )
        return out

    return KernelTarget(
        name="vllm-cpu",
        attend=attend,
        declaration=Declaration(
            features=("sliding_window", "softcap", "alibi", "sinks", "non_causal"),
            layouts=("slots-heads",),
            head_sizes=HEAD_SIZES,
            block_sizes=BLOCK_SIZES,
            # Its backend hands in an output of its own, always packed.
            views=("query", "table"),
            # The adapter writes the whole cache into the kernel's layout.
            cache_reads="copied",
            out=True,
        ),
        version=f"vllm {vllm.__version__}",
        source="torch.ops._C.cpu_attention_with_kv_cache",
        device=device,
    )
