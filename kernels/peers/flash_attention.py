"""FlashAttention's `flash_attn_varlen_func` with a block table, on a GPU.

Never run so far: no GPU was at hand. Its pages are multiples of 256 tokens.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from poolproof.contract.target import TargetError
from poolproof.kernels.declaration import Declaration
from poolproof.kernels.target import KernelTarget

__all__ = ["flash_attention_target"]


def flash_attention_target(device: str) -> KernelTarget:
    """The target. Raises TargetError without a GPU."""
    if device != "cuda":
        raise TargetError("flash-attn needs a CUDA device, and this run has none")
    import flash_attn

    def attend(
        query: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        block_tables: Tensor,
        kv_lengths: Tensor,
        query_lengths: Tensor,
        **options: Any,
    ) -> Tensor:
        starts = [
            torch.nn.functional.pad(torch.cumsum(lengths, 0), (1, 0)).int()
            for lengths in (query_lengths, kv_lengths)
        ]
        window = options["sliding_window"]
        result: Tensor = flash_attn.flash_attn_varlen_func(
            query,
            key_cache,
            value_cache,
            *starts,
            int(query_lengths.max()),
            int(kv_lengths.max()),
            softmax_scale=options["scale"],
            causal=options["causal"],
            window_size=(-1, -1) if window is None else (window - 1, 0),
            softcap=options["softcap"] or 0.0,
            alibi_slopes=options["alibi_slopes"],
            block_table=block_tables,
        )
        return result

    return KernelTarget(
        name="flash-attn",
        attend=attend,
        declaration=Declaration(
            features=("sliding_window", "softcap", "alibi", "non_causal"),
            dtypes=("float16", "bfloat16"),
            layouts=("slots-heads",),
            head_sizes=(32, 64, 128),
            block_sizes=(256,),
        ),
        version=f"flash-attn {flash_attn.__version__}",
        source="flash_attn.flash_attn_varlen_func",
        device=device,
    )
