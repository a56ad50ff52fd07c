"""Paged attention by gathering: copies the pages of a sequence together, torch does the rest.

The obvious form, in float32, with the interface of every target. Compare our kernels with it when
you read them; it also runs without triton. Slow on purpose.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from poolproof.kernels.arguments import check_shapes, check_values
from poolproof.kernels.batch import AttentionOptions, PagedBatch, SequenceRows

__all__ = ["gather_attention", "gathered", "visible_keys"]


def gather_attention(  # noqa: PLR0917 -- the order of every target
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    kv_lengths: Tensor,
    query_lengths: Tensor,
    *,
    out: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """Attention of each query over its sequence's keys; shapes as in `PagedBatch`.

    Raises KernelArgumentError. A query that sees no key gets zeros.
    """
    batch = PagedBatch(
        query=query,
        key_cache=key_cache,
        value_cache=value_cache,
        block_tables=block_tables,
        kv_lengths=kv_lengths,
        query_lengths=query_lengths,
        options=AttentionOptions(**options),
    )
    check_shapes(batch, out)
    check_values(batch, may_cross=True)
    result = torch.empty_like(query) if out is None else out
    for sequence in batch.sequences():
        result[sequence.rows] = _attend(batch, sequence).to(query.dtype)
    return result


def gathered(batch: PagedBatch, cache: Tensor, sequence: SequenceRows, first: int = 0) -> Tensor:
    """Keys or values of the positions from `first` on: (num_keys, num_kv_heads, head_size)."""
    first_block = first // batch.block_size
    blocks = torch.tensor(
        batch.blocks_of(sequence)[first_block:], dtype=torch.int64, device=cache.device
    )
    start = first - first_block * batch.block_size
    count = sequence.kv_length - first
    return cache[blocks].flatten(0, 1)[start : start + count]


def visible_keys(options: AttentionOptions, sequence: SequenceRows, first: int = 0) -> Tensor:
    """Which query sees which key: (query_length, kv_length - first), of bool."""
    if options.mask is not None:
        return options.mask[sequence.rows, first : sequence.kv_length].cpu()
    queries = torch.arange(sequence.query_length)[:, None] + sequence.first_position
    keys = torch.arange(first, sequence.kv_length)[None, :]
    seen = torch.ones(queries.shape[0], keys.shape[1], dtype=torch.bool)
    if options.causal:
        seen &= keys <= queries
    if options.window_ahead is not None:
        seen &= keys <= queries + options.window_ahead
    if options.sliding_window is not None:
        seen &= keys > queries - options.sliding_window
    if options.attention_chunk is not None:
        seen &= keys >= queries - queries % options.attention_chunk
    return seen


def _attend(batch: PagedBatch, sequence: SequenceRows) -> Tensor:
    options, group = batch.options, batch.queries_per_kv_head
    query = batch.query[sequence.rows].float()
    first = sequence.first_visible(options)
    if not sequence.query_length or first == sequence.kv_length:
        return torch.zeros_like(query)
    keys = gathered(batch, batch.key_cache, sequence, first).float() * options.key_scale
    values = gathered(batch, batch.value_cache, sequence, first).float() * options.value_scale
    keys, values = keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)
    scores = torch.einsum("qhd,khd->hqk", query, keys) * options.scale
    if options.softcap is not None:
        scores = options.softcap * torch.tanh(scores / options.softcap)
    if options.alibi_slopes is not None:
        positions = torch.arange(sequence.query_length) + sequence.first_position
        distance = torch.arange(first, sequence.kv_length)[None, :] - positions[:, None]
        scores = scores + options.alibi_slopes[:, None, None] * distance.to(scores)
    seen = visible_keys(options, sequence, first).to(scores.device)
    scores = scores.masked_fill(~seen, float("-inf"))
    # What no query sees may be no number, and 0 times that would be none either.
    values = values.masked_fill(~seen.any(0)[:, None, None], 0.0)
    if options.sinks is not None:
        sinks = options.sinks[:, None, None].expand(-1, scores.shape[1], 1)
        scores = torch.cat([scores, sinks], dim=2)
    weights = torch.softmax(scores, dim=2)[:, :, : keys.shape[0]]
    weights = weights.masked_fill(~seen.any(1)[None, :, None], 0.0)
    return torch.einsum("hqk,khd->qhd", weights, values)
