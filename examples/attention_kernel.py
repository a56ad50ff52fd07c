"""Paged attention of one's own, to be certified: one that is right, and one with a usual mistake.

    poolproof kernels examples/attention_kernel.py:attention
    poolproof kernels examples/attention_kernel.py:leaky_attention

The second loads whole blocks and trusts that a weight of 0 removes what stands behind the last
token. It does, until a slot that nobody wrote holds NaN.
"""

from __future__ import annotations

import torch


def attention(  # noqa: PLR0917 -- the order of every target
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    kv_lengths: torch.Tensor,
    query_lengths: torch.Tensor,
    *,
    scale: float,
    **_: object,
) -> torch.Tensor:
    """Causal attention, one sequence after another."""
    return _attend(query, key_cache, value_cache, block_tables, kv_lengths, query_lengths, scale)


def leaky_attention(  # noqa: PLR0917 -- the order of every target
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    kv_lengths: torch.Tensor,
    query_lengths: torch.Tensor,
    *,
    scale: float,
    **_: object,
) -> torch.Tensor:
    """The same over whole blocks, whose tail is masked in the scores alone."""
    return _attend(
        query, key_cache, value_cache, block_tables, kv_lengths, query_lengths, scale, whole=True
    )


# What is not named here is promised: `poolproof kernels` prints it as assumed.
attention.declaration = {  # type: ignore[attr-defined] # read by Poolproof
    "features": [],
    "batch": "close",
    "layouts": ["slots-heads", "heads-slots", "cross-layer"],
}
# How many keys are summed depends on the size of a block here, so bits may too.
leaky_attention.declaration = {  # type: ignore[attr-defined] # the same
    **attention.declaration,  # type: ignore[attr-defined] # the same
    "block_size": "close",
}


def _attend(  # noqa: PLR0917 -- the order of every target
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    kv_lengths: torch.Tensor,
    query_lengths: torch.Tensor,
    scale: float,
    whole: bool = False,
) -> torch.Tensor:
    output = torch.zeros_like(query)
    block_size = key_cache.shape[1]
    group = query.shape[1] // key_cache.shape[2]
    row = 0
    for sequence, (keys, queries) in enumerate(
        zip(kv_lengths.tolist(), query_lengths.tolist(), strict=True)
    ):
        rows = slice(row, row + queries)
        row += queries
        if not keys or not queries:
            continue
        blocks = block_tables[sequence, : -(-keys // block_size)].long()
        loaded = len(blocks) * block_size if whole else keys
        key, value = (
            cache[blocks].flatten(0, 1)[:loaded].float().repeat_interleave(group, 1)
            for cache in (key_cache, value_cache)
        )
        scores = torch.einsum("qhd,khd->hqk", query[rows].float(), key) * scale
        positions = torch.arange(queries)[:, None] + keys - queries
        scores = scores.masked_fill(torch.arange(loaded)[None, :] > positions, float("-inf"))
        weights = torch.softmax(scores, dim=2)
        output[rows] = torch.einsum("hqk,khd->qhd", weights, value).to(query.dtype)
    return output
