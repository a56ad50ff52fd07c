"""torch's flex_attention over its experimental `PagedAttention`.

`PagedAttention` keeps its own page table and hands pages out itself; here its table is set to the
case's, so that block tables with shared prefixes and permuted blocks can be given. Masks and scores
go through its own `convert_logical_block_mask` and `get_score_mod`. flex_attention runs eagerly:
compiling it takes 20 s for each shape.

The pages of one sequence are in one mapping from physical to logical pages, so sequences can share
a page, but one sequence cannot have it twice.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from poolproof.kernels.declaration import Declaration
from poolproof.kernels.target import KernelTarget

__all__ = ["flex_target"]


def _attend(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    kv_lengths: Tensor,
    query_lengths: Tensor,
    **options: Any,
) -> Tensor:
    from torch.nn.attention.experimental._paged_attention import PagedAttention
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    num_pages, page_size = key_cache.shape[:2]
    count, longest = len(kv_lengths), int(query_lengths.max())
    num_tokens = block_tables.shape[1] * page_size
    paged = PagedAttention(num_pages, page_size, count, device=str(query.device))
    pages = (kv_lengths + page_size - 1) // page_size
    for sequence in range(count):
        own = block_tables[sequence, : int(pages[sequence])].long()
        paged.page_table[sequence, : len(own)] = own
        paged.physical_to_logical[sequence, own] = torch.arange(len(own), device=query.device)
        paged.capacity[sequence] = len(own) * page_size
    # Sequences are padded to the longest: (sequences, heads, queries, head size).
    padded = query.new_zeros((count, longest, *query.shape[1:]))
    rows = torch.arange(longest, device=query.device)[None, :] < query_lengths[:, None]
    padded[rows] = query
    first = kv_lengths - query_lengths
    window = options["sliding_window"]

    def mask(b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:  # noqa: ARG001 -- flex's signature
        position = q + first[b]
        seen = kv < kv_lengths[b]
        if options["causal"]:
            seen = seen & (kv <= position)
        if window is not None:
            seen = seen & (kv > position - window)
        return seen

    def score(s: Tensor, b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        if options["softcap"] is not None:
            s = options["softcap"] * torch.tanh(s / options["softcap"])
        if options["alibi_slopes"] is not None:
            s = s + options["alibi_slopes"][h] * (kv - q - first[b])
        return s

    caches = [
        cache.reshape(1, num_pages * page_size, *cache.shape[2:]).transpose(1, 2)
        for cache in (key_cache, value_cache)
    ]
    with warnings.catch_warnings():
        # It warns that it was not compiled.
        warnings.simplefilter("ignore")
        blocks = create_block_mask(
            mask, count, None, longest, num_tokens, device=str(query.device),
            BLOCK_SIZE=(page_size, page_size),
        )  # fmt: skip
        output = flex_attention(
            padded.transpose(1, 2),
            *caches,
            score_mod=paged.get_score_mod(score, kv_lengths),
            block_mask=paged.convert_logical_block_mask(blocks, kv_len=kv_lengths),
            scale=options["scale"],
            enable_gqa=True,
        )
    result: Tensor = output.transpose(1, 2)[rows]
    return result


def flex_target(device: str) -> KernelTarget:
    """The target. pytorch#182593: that bits depend on placement is intended."""
    return KernelTarget(
        name="torch-flex",
        attend=_attend,
        declaration=Declaration(
            features=("sliding_window", "softcap", "alibi", "non_causal"),
            layouts=("slots-heads",),
            block_sizes=(16, 32),
            dtypes=("float32",),
            placement="close",
            block_size="close",
            batch="close",
            # Run eagerly it weighs every slot of the cache.
            cache_reads="copied",
        ),
        version=f"torch {torch.__version__}",
        source="torch.nn.attention.experimental._paged_attention",
        device=device,
    )
