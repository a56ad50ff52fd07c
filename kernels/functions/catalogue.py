"""The kinds of functions beside attention, by the name that a declaration gives."""

from __future__ import annotations

from poolproof.kernels.functions.block_copy import BLOCK_COPY, BLOCK_SWAP
from poolproof.kernels.functions.cache_write import CACHE_WRITE
from poolproof.kernels.functions.merge import MERGE
from poolproof.kernels.kind import Kind

__all__ = ["FUNCTION_KINDS"]

FUNCTION_KINDS: dict[str, Kind] = {
    kind.name: kind for kind in (CACHE_WRITE, BLOCK_COPY, BLOCK_SWAP, MERGE)
}
