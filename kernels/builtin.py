"""The built-in kernel targets: our own kernels and the torch gather reference."""

from __future__ import annotations

from poolproof.kernels.declaration import Declaration
from poolproof.kernels.target import KernelTarget, Storage

__all__ = ["gather_target", "paged_target"]


def paged_target(device: str) -> KernelTarget:
    """Our Triton kernels; interpreted on a CPU, compiled on a GPU."""
    import triton

    from poolproof.kernels.paged.attention import paged_attention
    from poolproof.kernels.paged.block_copy import copy_blocks, swap_blocks
    from poolproof.kernels.paged.cache_write import reshape_and_cache

    return KernelTarget(
        name="paged",
        attend=paged_attention,
        declaration=Declaration(out=True),
        version=f"triton {triton.__version__}",
        source="poolproof.kernels.paged",
        device=device,
        uses_triton=True,
        storage=Storage(reshape_and_cache, copy_blocks, swap_blocks),
    )


def gather_target(device: str) -> KernelTarget:
    """The torch reference: one sequence after another, so that its bits depend on no batch."""
    import torch

    from poolproof.kernels.gather import gather_attention

    return KernelTarget(
        name="gather",
        attend=gather_attention,
        declaration=Declaration(out=True),
        version=f"torch {torch.__version__}",
        source="poolproof.kernels.gather",
        device=device,
    )
