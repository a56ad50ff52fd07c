"""One call of paged attention: tensors, lengths, options, in the form that every target gets.

Sequence s has `kv_lengths[s]` tokens in the cache, the last `query_lengths[s]` of which are its
queries. Query i has position `kv_length - query_length + i`; key j is in slot
`j % block_size` of block `block_tables[s, j // block_size]`. Nothing is checked here.

`ownership` classifies the slots of the cache: visible, out of sight, tail, unowned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from poolproof.kernels.quantised_cache import PLAIN, Factor, Quantisation

__all__ = ["AttentionOptions", "Ownership", "PagedBatch", "SequenceRows", "ownership"]

FP8_DTYPES = (torch.float8_e4m3fn, torch.float8_e5m2)

SIGHT_KEYWORDS = {
    "chunked": "attention_chunk",
    "window_ahead": "window_ahead",
    "mask": "mask",
    "tree_mask": "mask",
}
"""Features that have a keyword of their own, which only targets that declare them get."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionOptions:
    """How a score is changed between the dot product and the softmax.

    score = dot(query, key * key_scale) * scale. A soft cap turns it into `softcap * tanh(score /
    softcap)`; slopes add `alibi_slopes[head] * (key position - query position)`. With `causal` a
    query sees the keys up to its own position, with a window only the last `sliding_window` of
    those, including its own. `sinks[head]` is a score that counts in the sum of the softmax and has
    no value. Slopes and sinks are float32 and have a row for each query head. Scales may be
    tensors, see `quantised_cache.py`.

    With an `attention_chunk` a causal query at position p sees the keys from the last multiple of
    the chunk on, `p // attention_chunk * attention_chunk` (Llama 4's local layers). `window_ahead`
    is for queries that are not causal: they see so many keys behind their own position and, with a
    window too, the last `sliding_window` up to it. A `mask`, (num_tokens, at least the longest kv
    length) of bool, is the whole truth where it is given: True where a query sees a key.
    """

    scale: float
    causal: bool = True
    sliding_window: int | None = None
    softcap: float | None = None
    alibi_slopes: Tensor | None = None
    sinks: Tensor | None = None
    key_scale: Factor = 1.0
    value_scale: Factor = 1.0
    quantisation: Quantisation = PLAIN
    attention_chunk: int | None = None
    window_ahead: int | None = None
    mask: Tensor | None = None

    def keywords(self, features: Collection[str] = ()) -> dict[str, Any]:
        """The options as keyword arguments of a target that declares these features.

        What only some targets know is left out for the others, unless it has a value; what
        quantisation brings is told apart.
        """
        known = {keyword for name, keyword in SIGHT_KEYWORDS.items() if name in features}
        left_out = set(SIGHT_KEYWORDS.values()) - known
        values = {name: getattr(self, name) for name in self.__slots__ if name != "quantisation"}
        return {
            name: value
            for name, value in values.items()
            if value is not None or name not in left_out
        }


@dataclass(frozen=True, slots=True)
class SequenceRows:
    """One sequence in a batch: its rows of the query and its positions."""

    index: int
    first_row: int
    query_length: int
    kv_length: int

    @property
    def rows(self) -> slice:
        """Its rows of query and output."""
        return slice(self.first_row, self.first_row + self.query_length)

    @property
    def first_position(self) -> int:
        """The position of its first query; below 0 if it has more queries than keys."""
        return self.kv_length - self.query_length

    def first_visible(self, options: AttentionOptions) -> int:
        """The first key position that any of its queries may see by window or chunk."""
        first = self.first_position
        if options.attention_chunk is not None:
            first -= first % options.attention_chunk
        elif options.sliding_window is not None:
            first -= options.sliding_window - 1
        else:
            return 0
        return min(self.kv_length, max(0, first))

    def visible(self, options: AttentionOptions) -> Tensor:
        """Which of its keys some query of it sees: (kv_length,), of bool, on the CPU."""
        if not self.query_length:
            return torch.zeros(self.kv_length, dtype=torch.bool)
        if options.mask is not None:
            return options.mask[self.rows, : self.kv_length].any(0).cpu()
        return torch.arange(self.kv_length) >= self.first_visible(options)


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedBatch:
    """The arguments of one call.

    Shapes: `query` (num_tokens, num_heads, head_size), `key_cache` and `value_cache` (num_blocks,
    block_size, num_kv_heads, head_size) with any strides, half as many elements of int4 in uint8,
    `block_tables` (num_sequences, max_blocks) int32, `kv_lengths` and `query_lengths`
    (num_sequences,) int32. Values may be smaller than keys; latent ones are the first elements of
    the keys, in the same memory.
    """

    query: Tensor
    key_cache: Tensor
    value_cache: Tensor
    block_tables: Tensor
    kv_lengths: Tensor
    query_lengths: Tensor
    options: AttentionOptions

    @property
    def block_size(self) -> int:
        """Slots per block."""
        return int(self.key_cache.shape[1])

    @property
    def num_kv_heads(self) -> int:
        """Heads of the cache."""
        return int(self.key_cache.shape[2])

    @property
    def queries_per_kv_head(self) -> int:
        """Query heads that share a head of the cache."""
        return int(self.query.shape[1]) // self.num_kv_heads

    @property
    def value_size(self) -> int:
        """Elements of a head of the values, and of the output."""
        return int(self.value_cache.shape[3]) * (2 if self.is_packed else 1)

    @property
    def is_latent(self) -> bool:
        """Whether the values stand in the memory of the keys, as their first elements."""
        return bool(self.value_cache.data_ptr() == self.key_cache.data_ptr())

    @property
    def out_shape(self) -> tuple[int, int, int]:
        """The shape of the output: (num_tokens, num_heads, value_size)."""
        num_tokens, num_heads, _ = self.query.shape
        return num_tokens, num_heads, self.value_size

    @property
    def out_dtype(self) -> torch.dtype:
        """The type of the output: the query's, or what is asked for with queries in fp8."""
        return self.options.quantisation.out_dtype or self.query.dtype

    def new_out(self, value: float = 0.0) -> Tensor:
        """An output tensor that holds one number everywhere."""
        return self.query.new_full(self.out_shape, value, dtype=self.out_dtype)

    @property
    def is_packed(self) -> bool:
        """Whether two codes of keys or values share a byte."""
        return bool(self.key_cache.dtype == torch.uint8)

    @property
    def is_fp8(self) -> bool:
        """Whether keys and values are stored in eight bits."""
        return self.key_cache.dtype in FP8_DTYPES

    def sequences(self) -> Iterator[SequenceRows]:
        """Each sequence, in order."""
        first_row = 0
        lengths = zip(self.query_lengths.tolist(), self.kv_lengths.tolist(), strict=True)
        for index, (query_length, kv_length) in enumerate(lengths):
            yield SequenceRows(index, first_row, query_length, kv_length)
            first_row += query_length

    def blocks_of(self, sequence: SequenceRows) -> list[int]:
        """The blocks that hold its tokens, in order of position."""
        count = -(-sequence.kv_length // self.block_size)
        blocks: list[int] = self.block_tables[sequence.index, :count].tolist()
        return blocks


@dataclass(frozen=True, slots=True)
class Ownership:
    """Masks over (num_blocks, block_size), on the CPU; a slot may be in several of the first two.

    `visible`: some query sees it. `written`: it holds a token of some sequence. `owned_block`:
    (num_blocks,), the block is in the table of a sequence.
    """

    visible: Tensor
    written: Tensor
    owned_block: Tensor

    @property
    def tail(self) -> Tensor:
        """Slots of owned blocks that hold no token yet."""
        return self.owned_block[:, None] & ~self.written

    @property
    def unowned(self) -> Tensor:
        """All slots of blocks that no sequence has."""
        return (~self.owned_block)[:, None].expand_as(self.written)

    def word_for(self, block: int, slot: int) -> str:
        """Whose slot it is, for a sentence."""
        if not self.owned_block[block]:
            return "the null block" if block == 0 else "a block of nobody"
        if not self.written[block, slot]:
            return "behind the last token of its sequence"
        return "a visible slot" if self.visible[block, slot] else "out of every query's sight"


def ownership(batch: PagedBatch) -> Ownership:
    """Who owns what in a batch."""
    shape = batch.key_cache.shape[:2]
    visible = torch.zeros(shape, dtype=torch.bool)
    written = torch.zeros(shape, dtype=torch.bool)
    owned = torch.zeros(shape[0], dtype=torch.bool)
    for sequence in batch.sequences():
        blocks = torch.tensor(batch.blocks_of(sequence), dtype=torch.int64)
        owned[blocks] = True
        positions = torch.arange(sequence.kv_length)
        where = blocks[positions // batch.block_size], positions % batch.block_size
        written[where] = True
        seen = sequence.visible(batch.options)
        visible[where[0][seen], where[1][seen]] = True
    return Ownership(visible, written, owned)
