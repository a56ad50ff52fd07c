"""Paged attention in torch, cut into steps: each can be replaced by another that is right or wrong.

The correct oddities and the families of faults are this with a step or two of their own. One
sequence after another, with one head of the cache as a batch dimension; float32 unless a step says
otherwise. Like every target it gets strides, scales and sizes as they come.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from poolproof.kernels.batch import AttentionOptions, PagedBatch, SequenceRows
from poolproof.kernels.declaration import Declaration
from poolproof.kernels.target import KernelTarget

__all__ = ["Rows", "TorchAttention"]


@dataclass(frozen=True, slots=True)
class Rows:
    """The queries of one sequence and the keys that they may see.

    `query` is (num_kv_heads, group, queries, head_size); `positions` are those of the keys,
    (num_keys,), `query_positions` those of the queries.
    """

    batch: PagedBatch
    sequence: SequenceRows
    query: Tensor
    positions: Tensor
    query_positions: Tensor


class TorchAttention:
    """A kernel; its methods are the steps."""

    title = ""

    def __call__(  # noqa: PLR0917 -- the order of every target
        self,
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
        """The target's function."""
        batch = self.taken(
            PagedBatch(
                query=query,
                key_cache=key_cache,
                value_cache=value_cache,
                block_tables=block_tables,
                kv_lengths=kv_lengths,
                query_lengths=query_lengths,
                options=self.options(**options),
            )
        )
        result = batch.new_out() if out is None else out.zero_()
        for sequence in self.sequences(batch):
            if sequence.query_length and sequence.kv_length:
                self.store(result, sequence, self.attend(self.rows(batch, sequence)))
        return result

    def target(self, name: str, **declared: Any) -> KernelTarget:
        """This kernel as a target, strict but for what is declared."""
        return KernelTarget(
            name=name,
            attend=self,
            declaration=Declaration(out=True, **declared),
            source=self.title,
            version=f"torch {torch.__version__}",
        )

    def options(self, **options: Any) -> AttentionOptions:
        """The keywords."""
        return AttentionOptions(**options)

    def taken(self, batch: PagedBatch) -> PagedBatch:
        """The arguments."""
        return batch

    def sequences(self, batch: PagedBatch) -> list[SequenceRows]:
        """The sequences of a batch."""
        return list(batch.sequences())

    def store(self, result: Tensor, sequence: SequenceRows, output: Tensor) -> None:
        """Put the output of a sequence, (num_heads, queries, head_size), where it belongs."""
        result[sequence.rows] = output.transpose(0, 1).to(result.dtype)

    def rows(self, batch: PagedBatch, sequence: SequenceRows) -> Rows:
        """What one sequence asks."""
        first = sequence.first_visible(batch.options)
        query = self.grouped(batch, batch.query[sequence.rows].float())
        positions = torch.arange(first, self.end(batch, sequence))
        own = torch.arange(sequence.query_length) + sequence.first_position
        return Rows(batch, sequence, query, positions, own)

    def end(self, batch: PagedBatch, sequence: SequenceRows) -> int:  # noqa: ARG002 -- faults look at it
        """The first position that is not read."""
        return sequence.kv_length

    def grouped(self, batch: PagedBatch, query: Tensor) -> Tensor:
        """Queries by head of the cache: (num_kv_heads, group, queries, head_size)."""
        return query.unflatten(1, (batch.num_kv_heads, -1)).permute(1, 2, 0, 3)

    def attend(self, rows: Rows) -> Tensor:
        """(num_heads, queries, head_size)."""
        keys, values = self.loaded(rows, rows.batch.key_cache), self.kept_values(rows)
        scores = self.scores(rows, keys)
        weighted, total = self.softmax(rows, scores, values)
        output = weighted / torch.where(total > 0, total, 1.0)[..., None]
        return (output * rows.batch.options.value_scale).flatten(0, 1)

    def kept_values(self, rows: Rows) -> Tensor:
        """The values, with zeros where a mask hides them from every query: 0 times NaN is NaN."""
        values = self.values(rows)
        if rows.batch.options.mask is None:
            return values
        return values.masked_fill(~self.seen(rows).any(0)[None, :, None], 0.0)

    def values(self, rows: Rows) -> Tensor:
        """Values of the positions: (num_kv_heads, num_keys, head_size)."""
        return self.loaded(rows, rows.batch.value_cache)

    def loaded(self, rows: Rows, cache: Tensor) -> Tensor:
        """Keys or values of the positions: (num_kv_heads, num_keys, head_size)."""
        size = rows.batch.block_size
        blocks = self.table(rows)[rows.positions // size]
        return cache[blocks, rows.positions % size].float().transpose(0, 1)

    def table(self, rows: Rows) -> Tensor:
        """The row of the table, as int64."""
        return rows.batch.block_tables[rows.sequence.index].long()

    def products(self, rows: Rows, keys: Tensor) -> Tensor:
        """(num_kv_heads, group, queries, num_keys)."""
        return torch.einsum("hgqd,hkd->hgqk", rows.query, keys)

    def scale(self, rows: Rows) -> Any:
        """By what a product is multiplied."""
        return rows.batch.options.scale * rows.batch.options.key_scale

    def scores(self, rows: Rows, keys: Tensor) -> Tensor:
        """Scores, -inf where a query does not see the key."""
        options = rows.batch.options
        scores = self.products(rows, keys) * self.scale(rows)
        if options.softcap is not None:
            scores = options.softcap * torch.tanh(scores / options.softcap)
        if options.alibi_slopes is not None:
            slopes = options.alibi_slopes.unflatten(0, (rows.batch.num_kv_heads, -1))
            distance = rows.positions[None, :] - rows.query_positions[:, None]
            scores = scores + slopes[:, :, None, None] * distance.float()
        return self.masked(rows, scores)

    def masked(self, rows: Rows, scores: Tensor) -> Tensor:
        """The scores, -inf where a query does not see the key."""
        return scores.masked_fill(~self.seen(rows), float("-inf"))

    def window(self, rows: Rows) -> int | None:
        """How many positions a query sees."""
        return rows.batch.options.sliding_window

    def ahead(self, rows: Rows) -> int | None:
        """How many positions behind its own a query sees; None for all of them."""
        return 0 if rows.batch.options.causal else rows.batch.options.window_ahead

    def chunk_begin(self, rows: Rows) -> Tensor | None:
        """The first position of each query's chunk, (queries, 1); None without chunks."""
        chunk, queries = rows.batch.options.attention_chunk, rows.query_positions[:, None]
        return None if chunk is None else queries // chunk * chunk

    def mask(self, rows: Rows) -> Tensor | None:
        """The mask of these queries over these keys; None without one."""
        mask = rows.batch.options.mask
        return None if mask is None else mask[self.mask_rows(rows)][:, rows.positions]

    def mask_rows(self, rows: Rows) -> Tensor:
        """The row of the mask for each query."""
        return rows.query_positions - rows.sequence.first_position + rows.sequence.first_row

    def seen(self, rows: Rows) -> Tensor:
        """Which query sees which key: (queries, num_keys)."""
        mask = self.mask(rows)
        if mask is not None:
            return mask
        keys, queries = rows.positions[None, :], rows.query_positions[:, None]
        ahead, window, begin = self.ahead(rows), self.window(rows), self.chunk_begin(rows)
        seen = torch.ones(queries.shape[0], keys.shape[1], dtype=torch.bool)
        seen = seen if ahead is None else seen & (keys <= queries + ahead)
        seen = seen if window is None else seen & (keys > queries - window)
        return seen if begin is None else seen & (keys >= begin)

    def sinks(self, rows: Rows) -> Tensor | None:
        """The sink of each row, broadcast over queries; None without sinks."""
        sinks = rows.batch.options.sinks
        return (
            None if sinks is None else sinks.unflatten(0, (rows.batch.num_kv_heads, -1))[..., None]
        )

    def base(self, rows: Rows, scores: Tensor) -> Tensor:
        """What is subtracted before the exponential: (num_kv_heads, group, queries)."""
        highest = scores.amax(-1)
        sinks = self.sinks(rows)
        highest = highest if sinks is None else torch.maximum(highest, sinks)
        return torch.where(highest == float("-inf"), 0.0, highest)

    def softmax(self, rows: Rows, scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """The weighted sum of the values, and the sum of the weights."""
        base = self.base(rows, scores)
        weights = torch.exp(scores - base[..., None])
        total = self.total(rows, weights)
        sinks = self.sinks(rows)
        if sinks is not None:
            total = total + torch.exp(sinks - base)
        return self.weighted(rows, weights, values), total

    def total(self, rows: Rows, weights: Tensor) -> Tensor:  # noqa: ARG002 -- faults look at it
        """The sum of the weights."""
        return weights.sum(-1)

    def weighted(self, rows: Rows, weights: Tensor, values: Tensor) -> Tensor:  # noqa: ARG002 -- the same
        """The weighted sum of the values."""
        return torch.einsum("hgqk,hkd->hgqd", weights, values)
