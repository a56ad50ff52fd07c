"""torch's scaled_dot_product_attention, given the pages of each sequence gathered.

It knows no pages, so what is certified is dense attention of a peer behind a gather of ours: tails
and unowned blocks never reach it. It shows what a good dense kernel's errors look like.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from poolproof.kernels.batch import AttentionOptions, PagedBatch
from poolproof.kernels.declaration import Declaration
from poolproof.kernels.gather import gathered, visible_keys
from poolproof.kernels.target import KernelTarget

__all__ = ["sdpa_target"]


def _attend(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    kv_lengths: Tensor,
    query_lengths: Tensor,
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
    result = torch.zeros_like(query)
    for sequence in batch.sequences():
        first = sequence.first_visible(batch.options)
        if not sequence.query_length or first == sequence.kv_length:
            continue
        keys = gathered(batch, key_cache, sequence, first).transpose(0, 1)
        values = gathered(batch, value_cache, sequence, first).transpose(0, 1)
        rows = query[sequence.rows].transpose(0, 1)
        result[sequence.rows] = torch.nn.functional.scaled_dot_product_attention(
            rows[None],
            keys[None],
            values[None],
            attn_mask=visible_keys(batch.options, sequence, first).to(query.device),
            scale=batch.options.scale,
            enable_gqa=True,
        )[0].transpose(0, 1)
    return result


def sdpa_target(device: str) -> KernelTarget:
    """The target; its bits follow the shapes that it is given."""
    return KernelTarget(
        name="torch-sdpa",
        attend=_attend,
        declaration=Declaration(features=("sliding_window", "non_causal")),
        version=f"torch {torch.__version__}",
        source="torch.nn.functional.scaled_dot_product_attention",
        device=device,
    )
