"""Our own Triton kernels that fill a cache, as targets of their own."""

from __future__ import annotations

from typing import Any

import triton
from torch import Tensor

from poolproof.kernels.functions.block_copy import BLOCK_COPY, BLOCK_SWAP
from poolproof.kernels.functions.cache_write import CACHE_WRITE
from poolproof.kernels.functions.declaration import FunctionDeclaration
from poolproof.kernels.functions.target import FunctionTarget
from poolproof.kernels.kind import Kind
from poolproof.kernels.paged.block_copy import copy_blocks, swap_blocks
from poolproof.kernels.paged.cache_write import reshape_and_cache

__all__ = ["copy_target", "swap_target", "write_target"]


def write_target(device: str) -> FunctionTarget:
    """`reshape_and_cache`; it casts to fp8 alone, and wants as many rows as slots."""
    rows = {"casts": ["fp8"], "extra_rows": "absent"}
    return _target(CACHE_WRITE, reshape_and_cache, device, **rows)


def copy_target(device: str) -> FunctionTarget:
    """`copy_blocks`."""

    def copy(key_cache: Tensor, value_cache: Tensor, block_mapping: Tensor) -> None:
        copy_blocks(key_cache, value_cache, [(a, b) for a, b in block_mapping.tolist()])

    return _target(BLOCK_COPY, copy, device)


def swap_target(device: str) -> FunctionTarget:
    """`swap_blocks`."""

    def swap(source: Tensor, destination: Tensor, block_mapping: Tensor) -> None:
        swap_blocks(source, destination, [(a, b) for a, b in block_mapping.tolist()])

    return _target(BLOCK_SWAP, swap, device)


def _target(kind: Kind, function: Any, device: str, **rows: Any) -> FunctionTarget:
    return FunctionTarget(
        name=f"paged-{kind.name.rpartition('-')[2]}",
        function=function,
        declaration=FunctionDeclaration.from_mapping({"kind": kind.name, **rows}),
        kind=kind,
        version=f"triton {triton.__version__}",
        source="poolproof.kernels.paged",
        device=device,
        uses_triton=True,
    )
