"""torch's experimental `PagedAttention` with its own page table, after a request has ended.

Before each batch a request takes every page as sequence 0 and is erased; then the batch's sequences
reserve pages and are assigned. This certifies `reserve`, `assign` and `erase` together with
flex_attention: the case's own block tables only supply the keys and values.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from poolproof.kernels.batch import AttentionOptions, PagedBatch
from poolproof.kernels.declaration import Declaration
from poolproof.kernels.gather import gathered
from poolproof.kernels.target import KernelTarget

__all__ = ["flex_reused_target"]


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

    page_size, num_kv_heads, head_size = key_cache.shape[1:]
    batch = PagedBatch(
        query=query,
        key_cache=key_cache,
        value_cache=value_cache,
        block_tables=block_tables,
        kv_lengths=kv_lengths,
        query_lengths=query_lengths,
        options=AttentionOptions(**options),
    )
    count, longest = len(kv_lengths), int(query_lengths.max())
    num_pages = sum(len(batch.blocks_of(sequence)) for sequence in batch.sequences())
    device = str(query.device)
    paged = PagedAttention(num_pages, page_size, count, device=device)
    paged.reserve(torch.tensor([0], device=device), torch.tensor([num_pages * page_size]))
    paged.erase(torch.tensor([0], device=device))
    shape = (1, num_kv_heads, num_pages * page_size, head_size)
    keys, values = query.new_zeros(shape), query.new_zeros(shape)
    padded = query.new_zeros((count, longest, *query.shape[1:]))
    for sequence in batch.sequences():
        place = torch.tensor([sequence.index], device=device)
        paged.reserve(place, torch.tensor([sequence.kv_length], device=device))
        new = [
            gathered(batch, cache, sequence).transpose(0, 1)[None]
            for cache in (key_cache, value_cache)
        ]
        positions = torch.arange(sequence.kv_length, device=device)[None]
        paged.assign(place, positions, *new, keys, values)
        padded[sequence.index, : sequence.query_length] = query[sequence.rows]
    first = kv_lengths - query_lengths

    def mask(b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:  # noqa: ARG001 -- flex's signature
        return (kv < kv_lengths[b]) & (kv <= q + first[b])

    with warnings.catch_warnings():
        # It warns that it was not compiled.
        warnings.simplefilter("ignore")
        blocks = create_block_mask(
            mask, count, None, longest, num_pages * page_size, device=device,
            BLOCK_SIZE=(page_size, page_size),
        )  # fmt: skip
        output = flex_attention(
            padded.transpose(1, 2),
            keys,
            values,
            score_mod=paged.get_score_mod(None, kv_lengths),
            block_mask=paged.convert_logical_block_mask(blocks, kv_len=kv_lengths),
            scale=options["scale"],
            enable_gqa=True,
        )
    rows = torch.arange(longest, device=device)[None, :] < query_lengths[:, None]
    result: Tensor = output.transpose(1, 2)[rows]
    return result


def flex_reused_target(device: str) -> KernelTarget:
    """The target; it has pages of its own, so only what it computes is of interest."""
    return KernelTarget(
        name="torch-flex-reused",
        attend=_attend,
        declaration=Declaration(
            features=(),
            layouts=("slots-heads",),
            block_sizes=(16,),
            dtypes=("float32",),
            placement="close",
            block_size="close",
            batch="close",
            empty_row="undefined",
            cache_reads="copied",
        ),
        version=f"torch {torch.__version__}",
        source="torch.nn.attention.experimental._paged_attention",
        device=device,
    )
