"""SGLang's attention in Triton: decode, MLA decode, extend, and the extend of deterministic runs.

A slot of its pool is a page of its own for these kernels: they get the slots of each sequence in
one list, `kv_indices`, and where in it each sequence starts, `kv_indptr`. The adapter makes both of
block tables. Of a decode with a window it lists the window's slots alone, as SGLang does.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from poolproof.kernels.batch import AttentionOptions, PagedBatch
from poolproof.kernels.catalogue import SGLANG
from poolproof.kernels.declaration import Declaration
from poolproof.kernels.peers.sglang_modules import sglang_module
from poolproof.kernels.peers.starts import newest_of, slots_of, starts_of
from poolproof.kernels.peers.vllm_modules import dtypes_on
from poolproof.kernels.target import Attention, KernelTarget

__all__ = [
    "sglang_decode_target",
    "sglang_extend_target",
    "sglang_mla_target",
    "sglang_unified_target",
]

SPLITS = 8
"""--triton-attention-num-kv-splits as SGLang has it without being told."""

Sequences = tuple[Tensor, Tensor]
"""`kv_indptr` and `kv_indices`."""


def sglang_decode_target(device: str) -> KernelTarget:
    """Decode: one query for each sequence.

    Without groups it rounds each product of query and key to their type (its comment says: for the
    sake of the tile), so that large scores in a half type are as coarse as rounded ones.
    """
    forward = sglang_module("decode_attention").decode_attention_fwd
    return _target(
        "sglang-decode", partial(_decode, forward), device, modes=("decode",), mixed=False,
        idle=False, features=("sliding_window", "softcap", "sinks"), scores="query",
    )  # fmt: skip


def sglang_mla_target(device: str) -> KernelTarget:
    """Decode over latent keys; the kernel has these two sizes. Of one head it rounds the same."""
    forward = partial(sglang_module("decode_attention").decode_attention_fwd, has_mla=True)
    return _target(
        "sglang-mla", partial(_decode, forward), device, modes=("decode",), mixed=False,
        idle=False, features=(), head_sizes=(288, 576), value_sizes=(256, 512), latent=True,
        scores="query",
    )  # fmt: skip


def sglang_extend_target(device: str) -> KernelTarget:
    """Extend: the newest keys and values come from the model, those before from the cache."""
    forward = sglang_module("extend_attention").extend_attention_fwd
    return _target(
        "sglang-extend", partial(_extend, forward), device, smallest_window=2,
        features=("sliding_window", "softcap", "sinks", "non_causal"),
        # The cache is not written; what the newest tokens have in it is not read either.
        cache_writes="newest",
    )  # fmt: skip


def sglang_unified_target(device: str) -> KernelTarget:
    """Extend of deterministic inference: everything comes from the cache.

    Keys of a tile in front of the window are loaded, and their values get weights of 0: SGLang pads
    the lists of a window's slots to whole tiles (`align_window_kv_to_tiles`).
    """
    forward = sglang_module("extend_attention").extend_attention_fwd_unified
    return _target(
        "sglang-unified", partial(_unified, forward), device, smallest_window=2,
        features=("sliding_window", "softcap", "sinks", "non_causal"), window_reads="tile",
        behind_window="finite",
    )  # fmt: skip


def _target(
    name: str, attend: Attention, device: str, *, head_sizes: tuple[int, ...] = (32, 64, 80),
    **declared: Any,
) -> KernelTarget:  # fmt: skip
    def attention(
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
        batch = PagedBatch(
            query=query,
            key_cache=key_cache,
            value_cache=value_cache,
            block_tables=block_tables,
            kv_lengths=kv_lengths,
            query_lengths=query_lengths,
            options=AttentionOptions(**options),
        )
        attend(batch, out)
        return out

    return KernelTarget(
        name=name,
        attend=attention,
        declaration=Declaration(
            dtypes=dtypes_on(device),
            # Its pool is (slots, heads, elements), whatever the page size.
            layouts=("slots-heads",),
            block_sizes=(1, 16),
            # A decode without keys divides 0 by 0. SGLang pads a captured graph with sequences of
            # one key (get_cuda_graph_seq_len_fill_value); the keys of an extend are its queries'.
            empty_row="undefined",
            head_sizes=head_sizes,
            tiles=(32, 64),
            out=True,
            **declared,
        ),
        version=SGLANG.replace("-", " "),
        source="sglang.kernels.ops.attention",
        device=device,
        uses_triton=True,
    )


def _pool(cache: Tensor) -> Tensor:
    """(num_slots, num_kv_heads, size), a view."""
    return cache.view(-1, *cache.shape[2:])


def _listed(batch: PagedBatch, ranges: list[tuple[int, int]]) -> Sequences:
    """`kv_indptr` and `kv_indices` of a range of positions in each sequence."""
    listed = [slots_of(batch, s, *ranges[s.index]) for s in batch.sequences()]
    lengths = torch.tensor([len(slots) for slots in listed], device=batch.query.device)
    return starts_of(lengths), torch.cat(listed)


def _decode(forward: Any, batch: PagedBatch, out: Tensor) -> None:
    num_tokens, num_heads, _ = batch.query.shape
    device, options = batch.query.device, batch.options
    ranges = [(s.first_visible(options), s.kv_length) for s in batch.sequences()]
    shape = num_tokens, num_heads, SPLITS
    # In a captured graph both live on: whatever another step left is in them.
    outputs, sums = (
        torch.full(size, float("nan"), dtype=torch.float32, device=device)
        for size in ((*shape, batch.value_size), shape)
    )
    splits = torch.full((num_tokens,), SPLITS, dtype=torch.int32, device=device)
    forward(
        batch.query,
        _pool(batch.key_cache),
        _pool(batch.value_cache),
        out,
        *_listed(batch, ranges),
        outputs,
        sums,
        splits,
        SPLITS,
        options.scale,
        1.0,
        1.0,
        logit_cap=options.softcap or 0.0,
        sinks=options.sinks,
    )


def _extend(forward: Any, batch: PagedBatch, out: Tensor) -> None:
    options = batch.options
    # Of a window no more than its first query sees, as SGLang lists it.
    ranges = [
        (min(s.first_visible(options), s.first_position), s.first_position)
        for s in batch.sequences()
    ]
    window = options.sliding_window
    forward(
        batch.query,
        *newest_of(batch),
        out,
        _pool(batch.key_cache),
        _pool(batch.value_cache),
        starts_of(batch.query_lengths),
        *_listed(batch, ranges),
        None,
        options.causal,
        None,
        int(batch.query_lengths.max()),
        1.0,
        1.0,
        sm_scale=options.scale,
        logit_cap=options.softcap or 0.0,
        # How many keys before its own a query sees.
        sliding_window_size=-1 if window is None else window - 1,
        sinks=options.sinks,
    )


def _unified(forward: Any, batch: PagedBatch, out: Tensor) -> None:
    options = batch.options
    ranges = [(0, s.kv_length) for s in batch.sequences()]
    window = options.sliding_window
    forward(
        batch.query,
        out,
        _pool(batch.key_cache),
        _pool(batch.value_cache),
        1.0,
        1.0,
        starts_of(batch.query_lengths),
        *_listed(batch, ranges),
        (batch.kv_lengths - batch.query_lengths).int(),
        int(batch.query_lengths.max()),
        sm_scale=options.scale,
        logit_cap=options.softcap or 0.0,
        is_causal=options.causal,
        sliding_window_size=-1 if window is None else window - 1,
        sinks=options.sinks,
    )
