"""Faults of the kernels that fill a cache."""

from __future__ import annotations

from poolproof.kernels.specimens.specimen import Change, Specimen

__all__ = ["STORAGE_FAULTS"]

STORAGE_FAULTS = (
    Specimen(
        "C1",
        "a padding token is written into the null block",
        "https://github.com/sgl-project/sglang/issues/36207",
        ("cache write",),
        (Change("cache_write", "    if slot < 0:\n        return\n",
                "    slot = tl.maximum(slot, 0)\n"),),
    ),
    Specimen(
        "C2",
        "numbers are multiplied by the scale of fp8 and not divided",
        "https://github.com/flashinfer-ai/flashinfer/issues/1023",
        ("cache write",),
        (Change("cache_write", "source, target, places, 1.0 / scale",
                "source, target, places, scale"),),
    ),
    Specimen(
        "C3",
        "numbers beyond the range of fp8 are not cut",
        "",
        ("cache write",),
        (Change("cache_write", "numbers = tl.minimum(tl.maximum(numbers, -largest), largest)",
                "numbers = numbers"),),
    ),
    Specimen(
        "C4",
        "the block size is taken to be 4 when a token is stored",
        "https://github.com/flashinfer-ai/flashinfer/issues/527",
        ("cache write",),
        (Change("cache_write", "slot // BLOCK_SIZE * stride_block + slot % BLOCK_SIZE",
                "slot // BLOCK_SIZE * stride_block + slot % 4 % BLOCK_SIZE"),),
    ),
    Specimen(
        "C5",
        "a list of block copies acts one after another",
        "",
        ("block copy",),
        (Change("block_copy", "overwritten = {there for _, there in moved}",
                "overwritten: set[int] = set()"),),
    ),
    Specimen(
        "C6",
        "the last slot of a block is not copied",
        "",
        ("block copy", "swap"),
        (Change("block_copy", "copy_rows[(len(pairs), source.shape[1])]",
                "copy_rows[(len(pairs), max(1, source.shape[1] - 1))]"),),
    ),
    Specimen(
        "C7",
        "blocks are swapped to the place that they had",
        "",
        ("swap",),
        (Change("block_copy", "    _copy(source, destination, pairs)\n\n\ndef _copy",
                "    _copy(source, destination, [(here, here) for here, _ in pairs])\n\n\n"
                "def _copy"),),
    ),
)  # fmt: skip
