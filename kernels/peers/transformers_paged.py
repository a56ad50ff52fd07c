"""Transformers' paged attention for continuous batching, its `eager` and `sdpa` forms, unmodified.

The batch is one long sequence there: the keys of all requests are selected by index, and a mask
that is added to the scores keeps the requests apart. The mask comes from Transformers as well. What
is replaced is the cache's `update`, which selects the keys from the case's cache, as
`FullAttentionCacheAllocator.update` does, and writes none, since they are there.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from poolproof.kernels.batch import AttentionOptions, PagedBatch
from poolproof.kernels.declaration import Declaration
from poolproof.kernels.target import KernelTarget

__all__ = ["transformers_eager_target", "transformers_sdpa_target"]


def _attend(forward: Callable[..., Any], batch: PagedBatch) -> Tensor:
    from transformers.generation.continuous_batching.cache import PagedAttentionCache
    from transformers.generation.continuous_batching.utils import build_attention_mask

    class Selected(PagedAttentionCache):  # type: ignore[misc] # its class has no types here
        """The keys and values of a batch, whatever is handed in."""

        def __init__(self, *selected: Tensor) -> None:
            self.selected = selected

        def update(self, **_: Any) -> tuple[Tensor, ...]:
            return self.selected

    slots, ends = _read_index(batch)
    # Each has num_kv_heads rows, of num_keys heads.
    keys, values = (
        torch.index_select(cache.flatten(0, 1), 0, slots).transpose(0, 1)[None]
        for cache in (batch.key_cache, batch.value_cache)
    )
    rows = [0, *torch.cumsum(batch.query_lengths, 0).tolist()]
    shape = (1, 1, rows[-1], ends[-1])
    mask = torch.full(shape, torch.finfo(batch.query.dtype).min, dtype=batch.query.dtype)
    build_attention_mask(mask, rows, ends, batch.options.sliding_window or 1)
    module = SimpleNamespace(
        layer_idx=0, num_key_value_groups=batch.queries_per_kv_head, is_causal=True
    )
    if batch.options.sinks is not None:
        module.sinks = batch.options.sinks
    output, _ = forward(
        module,
        batch.query.transpose(0, 1)[None],
        keys,
        values,
        mask,
        scaling=batch.options.scale,
        cache=Selected(keys, values),
    )
    result: Tensor = output[0].to(batch.query.dtype)
    return result


def _read_index(batch: PagedBatch) -> tuple[Tensor, list[int]]:
    """The slots of all keys that are in somebody's sight, and where each sequence's end."""
    slots, ends = [], [0]
    for sequence in batch.sequences():
        positions = torch.arange(sequence.first_visible(batch.options), sequence.kv_length)
        blocks = batch.block_tables[sequence.index].long()[positions // batch.block_size]
        slots.append(blocks * batch.block_size + positions % batch.block_size)
        ends.append(ends[-1] + len(positions))
    return torch.cat(slots), ends


def _target(name: str, forward: Callable[..., Any], features: tuple[str, ...]) -> KernelTarget:
    import transformers

    def attend(
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
        return _attend(forward, batch)

    return KernelTarget(
        name=name,
        attend=attend,
        declaration=Declaration(
            features=features,
            layouts=("slots-heads",),
            # Keys of the whole batch are multiplied at once, so bits follow the batch.
            placement="close",
            batch="close",
            block_size="close",
            scores="query",
            # 1 stands for no window.
            smallest_window=2,
            # A batch holds requests that ask; padding has no keys and no meaning.
            idle=False,
            empty_row="undefined",
        ),
        version=f"transformers {transformers.__version__}",
        source=f"{forward.__module__}.{forward.__name__}",
    )


def transformers_eager_target(device: str) -> KernelTarget:  # noqa: ARG001 -- the same on each device
    """`paged|eager`."""
    from transformers.integrations.eager_paged import eager_paged_attention_forward

    return _target("transformers-eager", eager_paged_attention_forward, ("sliding_window", "sinks"))


def transformers_sdpa_target(device: str) -> KernelTarget:  # noqa: ARG001 -- the same
    """`paged|sdpa`."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    return _target("transformers-sdpa", sdpa_attention_forward, ("sliding_window",))
