"""Compiles our kernels for GPUs that need not be present, so that CI exercises the CUDA path.

Run as `python -m poolproof.kernels.compile_for_gpu [8.0 ...]` with TRITON_INTERPRET unset or 0,
for all GPUs or those of some compute capabilities; prints a line for each GPU, kernel and type, and
fails where a kernel needs more shared memory than that GPU has.
Whether the result runs fast, or right, only a GPU shows.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from typing import Any

__all__ = ["compiled_kernels"]

SHARED_KIB = {80: 163, 89: 99, 90: 227, 100: 227}
"""Shared memory that one program may have, by compute capability (CUDA programming guide, 5.1)."""
MEASURED = 90
"""Where every type is compiled; elsewhere bfloat16 alone, because compiling takes its time."""
WARP_SIZE = 32
HEAD_SIZE = 128


def compiled_kernels(gpus: Collection[int]) -> Iterator[tuple[str, int]]:
    """Name and size of the PTX of each kernel, for bfloat16, float32 and an fp8 cache.

    A GPU is a compute capability, 90 for 9.0.
    """
    import torch

    from poolproof.kernels.paged.attention import tile_sizes
    from poolproof.kernels.paged.block_copy import copy_rows
    from poolproof.kernels.paged.cache_write import write_tokens
    from poolproof.kernels.paged.decode import decode_splits, merge_splits
    from poolproof.kernels.paged.latent import latent_sizes, latent_splits, latent_tiles
    from poolproof.kernels.paged.prefill import prefill_tiles

    for gpu in gpus:
        types = [("bf16", "bf16")]
        if gpu == MEASURED:
            types += [("fp32", "fp32"), ("bf16", "fp8e4nv")]
        for query, cache in types:
            tensors = {"query": query, "key_cache": cache, "value_cache": cache, "out": query,
                       "source": query, "cache": cache}  # fmt: skip
            dtype = torch.float32 if query == "fp32" else torch.bfloat16
            sizes = tile_sizes(HEAD_SIZE, dtype, gpu)
            decode = {"num_warps": sizes.decode_warps, "num_stages": sizes.decode_stages}
            prefill = {"num_warps": sizes.prefill_warps, "num_stages": sizes.prefill_stages}
            split = {"SPLIT": sizes.split, "TILE": sizes.keys, "MERGED": sizes.merged}
            latent = latent_sizes(dtype, gpu)
            rows = {"ROWS": latent.rows, "TILE": latent.keys, "SPLIT": latent.split}
            threads = {"num_warps": latent.num_warps, "num_stages": latent.num_stages}
            for kernel, cut, options in (
                (decode_splits, split, decode),
                (merge_splits, split, {}),
                (prefill_tiles, {"ROWS": sizes.rows, "TILE": sizes.prefill_keys}, prefill),
                (latent_splits, rows, threads),
                (latent_tiles, rows, threads),
                (write_tokens, {}, {}),
            ):
                size = _compile(kernel, gpu, tensors, cut, options)
                yield f"sm_{gpu} {kernel.__name__} {query}, cache {cache}", size
        pair = {"source": "i16", "destination": "i16"}
        yield f"sm_{gpu} copy_rows", _compile(copy_rows, gpu, pair, {}, {})


SIZES: dict[str, Any] = {
    "HAS_WINDOW": True, "HAS_SOFTCAP": True, "HAS_SLOPES": True, "HAS_SINKS": True, "CAUSAL": True,
    "HAS_LSE": True,
    "GROUP": 8, "GROUP_PADDED": 16, "HEAD_SIZE": HEAD_SIZE, "HEAD_PADDED": HEAD_SIZE,
    "BLOCK_SIZE": 16, "IN_FLOAT32": False, "BY_FLOAT32": False, "HEADS_PADDED": 8, "SCALED": True,
    "LATENT": 512, "LATENT_PADDED": 512, "ROTARY": 64, "ROTARY_PADDED": 64,
}  # fmt: skip
FLOATS = {"alibi_slopes", "sinks", "maxima", "totals", "weighted_sums", "lse"}
SCALARS = {"scale", "softcap", "value_scale", "inverse_scale", "largest"}
LONG = {
    "first_rows",
    "first_partials",
    "tile_ends",
    "tile_sequences",
    "slots",
    "source_ids",
    "destination_ids",
}


def _compile(
    kernel: Any, gpu: int, tensors: dict[str, str], sizes: dict[str, int], options: dict[str, int]
) -> int:
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
        elif name == "window" or name.startswith(("stride_", "num_")):
            signature[name] = "i32"
        else:
            kinds = {**dict.fromkeys(FLOATS, "fp32"), **dict.fromkeys(LONG, "i64"), **tensors}
            signature[name] = "*" + kinds.get(name, "i32")
        # Pointers and strides are multiples of 16, as those of a real cache are.
        if name.startswith("stride_") or signature[name].startswith("*"):
            attributes[place,] = [["tt.divisibility", 16]]
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=attributes)
    target = GPUTarget("cuda", gpu, WARP_SIZE)
    compiled = triton.compile(source, target=target, options=options)
    needed_kib = compiled.metadata.shared / 1024
    if needed_kib > SHARED_KIB[gpu]:
        raise MemoryError(
            f"{kernel.__name__} needs {needed_kib:g} KiB of shared memory, and a GPU of compute "
            f"capability {gpu / 10} has {SHARED_KIB[gpu]}: make its tiles smaller in tile_sizes"
        )
    ptx = compiled.asm["ptx"]
    # For tiles that a GPU's matrix unit cannot take, Triton 3.7 leaves nothing of the kernel.
    if "st.global" not in ptx:
        raise RuntimeError(
            f"{kernel.__name__} stores nothing when compiled for compute capability {gpu / 10}: "
            "choose other tiles for it in tile_sizes"
        )
    return len(ptx)


def main() -> int:
    """Compile all of them, or for the GPUs that are named."""
    names = {f"{gpu / 10}": gpu for gpu in SHARED_KIB}
    asked = sys.argv[1:] or list(names)
    if unknown := [name for name in asked if name not in names]:
        print(
            f"unknown compute capability {unknown[0]}; known are {', '.join(names)}",
            file=sys.stderr,
        )
        return 2
    for name, size in compiled_kernels([names[name] for name in asked]):
        print(f"{name}: {size:,} characters of PTX")
    return 0


if __name__ == "__main__":
    sys.exit(main())
