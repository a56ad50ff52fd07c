"""FlashInfer's wrapper for prefill over a paged cache, which takes decodes as well, on a GPU.

Never run so far: no GPU was at hand.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from poolproof.contract.target import TargetError
from poolproof.kernels.batch import AttentionOptions, PagedBatch
from poolproof.kernels.declaration import Declaration
from poolproof.kernels.target import KernelTarget

__all__ = ["flashinfer_target"]

WORKSPACE_BYTES = 128 * 1024 * 1024


def flashinfer_target(device: str) -> KernelTarget:
    """The target. Raises TargetError without a GPU."""
    if device != "cuda":
        raise TargetError("flashinfer needs a CUDA device, and this run has none")
    import flashinfer

    workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device)

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
        blocks = [batch.blocks_of(sequence) for sequence in batch.sequences()]
        counts = torch.tensor([len(own) for own in blocks])
        last = (kv_lengths - 1) % batch.block_size + 1
        window = options["sliding_window"]
        wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD")
        wrapper.plan(
            torch.nn.functional.pad(torch.cumsum(query_lengths, 0), (1, 0)).int(),
            torch.nn.functional.pad(torch.cumsum(counts, 0), (1, 0)).int().to(device),
            torch.tensor([b for own in blocks for b in own], dtype=torch.int32, device=device),
            last.int(),
            query.shape[1],
            batch.num_kv_heads,
            query.shape[2],
            batch.block_size,
            causal=options["causal"],
            sm_scale=options["scale"],
            window_left=-1 if window is None else window - 1,
            logits_soft_cap=options["softcap"] or 0.0,
            q_data_type=query.dtype,
        )
        result: Tensor = wrapper.run(query, (key_cache, value_cache))
        return result

    return KernelTarget(
        name="flashinfer",
        attend=attend,
        declaration=Declaration(
            features=("sliding_window", "softcap", "non_causal"),
            dtypes=("float16", "bfloat16"),
            layouts=("slots-heads",),
            head_sizes=(64, 128),
            block_sizes=(8, 16),
            empty_row="undefined",
        ),
        version=f"flashinfer {flashinfer.__version__}",
        source="flashinfer.BatchPrefillWithPagedKVCacheWrapper",
        device=device,
    )
