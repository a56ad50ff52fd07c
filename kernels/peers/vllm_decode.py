"""vLLM's `decode_attention_fwd`: one query for each sequence, keys split; and MLA decode with it.

With one query head for each head of the cache it takes another kernel than with groups.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from poolproof.kernels.declaration import Declaration
from poolproof.kernels.peers.vllm_modules import NAMES, dtypes_on, vllm_module, vllm_version
from poolproof.kernels.target import KernelTarget

__all__ = ["vllm_decode_target", "vllm_mla_target"]

SPLITS = 4
"""vLLM takes more for longer sequences and more processors; 1 where outputs must not depend on the
batch."""


def vllm_decode_target(device: str) -> KernelTarget:
    """The target with keys and values of one size."""
    return _target("vllm-decode", device, is_mla=False, features=("softcap",),
                   head_sizes=(32, 64, 80), block_sizes=(16, 32, 1))  # fmt: skip


def vllm_mla_target(device: str) -> KernelTarget:
    """The target over latent keys; sizes are those of models."""
    return _target("vllm-mla", device, is_mla=True, features=(), head_sizes=(288, 576),
                   value_sizes=(256, 512), latent=True, block_sizes=(16, 32, 1))  # fmt: skip


def _target(name: str, device: str, *, is_mla: bool, **declared: Any) -> KernelTarget:
    forward = vllm_module("triton_decode_attention", device).decode_attention_fwd
    return KernelTarget(
        name=name,
        attend=partial(_attend, partial(forward, is_mla=is_mla)),
        declaration=Declaration(
            modes=("decode",),
            mixed=False,
            idle=False,
            dtypes=dtypes_on(device),
            tiles=(32, 64),
            lse="e",
            out=True,
            **declared,
        ),
        version=vllm_version(),
        source=f"{NAMES}.triton_decode_attention",
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
    **options: Any,
) -> tuple[Tensor, Tensor]:
    del query_lengths
    num_tokens, num_heads, _ = query.shape
    shape = num_tokens, num_heads, SPLITS, value_cache.shape[-1] + 1
    # In vLLM this is a workspace: whatever another layer left is in it.
    partial_outputs = torch.full(shape, float("nan"), dtype=torch.float32, device=query.device)
    lse = torch.full(shape[:2], float("nan"), dtype=torch.float32, device=query.device)
    forward(
        query,
        key_cache,
        value_cache,
        out,
        lse,
        block_tables,
        kv_lengths,
        partial_outputs,
        SPLITS,
        options["scale"],
        page_size=key_cache.shape[1],
        logit_cap=options["softcap"] or 0.0,
    )
    return out, lse
