"""Compiles our kernels for a GPU that need not be present, so that CI exercises the CUDA path.

Run as `python -m poolproof.kernels.compile_for_gpu` with TRITON_INTERPRET unset or 0; prints a line
for each kernel and type. Whether the result runs fast, or right, only a GPU shows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

__all__ = ["compiled_kernels"]

COMPUTE_CAPABILITY = 90
WARP_SIZE = 32


def compiled_kernels() -> Iterator[tuple[str, int]]:
    """Name and size of the PTX of each kernel, for bfloat16, float32 and an fp8 cache."""
    from poolproof.kernels.paged.block_copy import copy_rows
    from poolproof.kernels.paged.cache_write import write_tokens
    from poolproof.kernels.paged.decode import decode_splits, merge_splits
    from poolproof.kernels.paged.prefill import prefill_tiles

    for query, cache in (("bf16", "bf16"), ("fp32", "fp32"), ("bf16", "fp8e4nv")):
        tensors = {"query": query, "key_cache": cache, "value_cache": cache, "out": query,
                   "source": query, "cache": cache}  # fmt: skip
        for kernel, warps in ((decode_splits, 4), (merge_splits, 4), (prefill_tiles, 8),
                              (write_tokens, 4)):  # fmt: skip
            # float32 needs smaller tiles, as `tile_sizes` says.
            rows, tile = (64, 32) if query == "fp32" else (128, 64)
            sizes = {"ROWS": rows, "TILE": tile, "FROM_FP8": cache.startswith("fp8")}
            size = _compile(kernel, tensors, sizes, warps)
            yield f"{kernel.__name__} {query}, cache {cache}", size
    yield "copy_rows", _compile(copy_rows, {"source": "i16", "destination": "i16"}, {}, 4)


SIZES: dict[str, Any] = {
    "WINDOW": 128, "HAS_SOFTCAP": True, "HAS_SLOPES": True, "HAS_SINKS": True, "CAUSAL": True,
    "GROUP": 8, "GROUP_PADDED": 16, "HEAD_SIZE": 128, "HEAD_PADDED": 128, "BLOCK_SIZE": 16,
    "SPLIT": 512, "IN_FLOAT32": False, "HEADS_PADDED": 8, "SCALED": True,
}  # fmt: skip
FLOATS = {"alibi_slopes", "sinks", "maxima", "totals", "weighted_sums"}
SCALARS = {"scale", "softcap", "value_scale", "inverse_scale", "largest"}
LONG = {"first_rows", "tile_ends", "tile_sequences", "slots", "source_ids", "destination_ids"}


def _compile(kernel: Any, tensors: dict[str, str], sizes: dict[str, int], warps: int) -> int:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature: dict[str, str] = {}
    constants: dict[tuple[int, ...], Any] = {}
    attributes: dict[tuple[int, ...], Any] = {}
    for place, name in enumerate(kernel.arg_names):
        if name.isupper():
            signature[name] = "constexpr"
            constants[place,] = {**SIZES, **sizes}[name]
        elif name in SCALARS:
            signature[name] = "fp32"
        elif name.startswith(("stride_", "num_")):
            signature[name] = "i32"
        else:
            kinds = {**dict.fromkeys(FLOATS, "fp32"), **dict.fromkeys(LONG, "i64"), **tensors}
            signature[name] = "*" + kinds.get(name, "i32")
        # Pointers and strides are multiples of 16, as those of a real cache are.
        if name.startswith("stride_") or signature[name].startswith("*"):
            attributes[place,] = [["tt.divisibility", 16]]
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=attributes)
    target = GPUTarget("cuda", COMPUTE_CAPABILITY, WARP_SIZE)
    compiled = triton.compile(source, target=target, options={"num_warps": warps})
    return len(compiled.asm["ptx"])


def main() -> int:
    """Compile all of them."""
    for name, size in compiled_kernels():
        print(f"{name}: {size:,} characters of PTX")
    return 0


if __name__ == "__main__":
    sys.exit(main())
