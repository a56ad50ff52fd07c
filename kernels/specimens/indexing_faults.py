"""Faults of indexing: heads, blocks, slots, rows, strides, widths of offsets, order of sums."""

from __future__ import annotations

from poolproof.kernels.specimens.specimen import Change, Specimen

__all__ = ["INDEXING_FAULTS"]

DENSE = ("dense",)

INDEXING_FAULTS = (
    Specimen(
        "X1",
        "every query head reads the first head of the cache",
        "",
        DENSE,
        (Change("tile", "addresses = cache + rows[:, None] + head * stride_head",
                "addresses = cache + rows[:, None] + head * 0"),),
    ),
    Specimen(
        "X2",
        "query heads are dealt out to the cache's heads in turn",
        "https://github.com/LMCache/LMCache/issues/3092",
        DENSE,
        (Change("decode", "heads = head * GROUP + members",
                "heads = head + members * num_kv_heads", 2),),
    ),
    Specimen(
        "X3",
        "every sequence reads the first row of the table",
        "https://github.com/vllm-project/vllm/issues/7018",
        DENSE,
        (Change("decode", "block_tables + sequence * stride_table", "block_tables"),),
    ),
    Specimen(
        "X4",
        "the block size is taken to be 4",
        "https://github.com/flashinfer-ai/flashinfer/issues/4347",
        DENSE,
        (Change("tile", "(positions % BLOCK_SIZE) * stride_slot",
                "(positions % 4 % BLOCK_SIZE) * stride_slot"),),
    ),
    Specimen(
        "X5",
        "the stride of a block is made up from that of a slot",
        "https://github.com/ROCm/aiter/issues/3498",
        (*DENSE, "strides"),
        (Change("tile", "blocks.to(tl.int64) * stride_block",
                "blocks.to(tl.int64) * BLOCK_SIZE * stride_slot"),),
    ),
    Specimen(
        "X6",
        "values are read from the key cache",
        "",
        DENSE,
        (Change("decode", "            value_cache, table, positions",
                "            key_cache, table, positions"),),
    ),
    Specimen(
        "X7",
        "the last element of a head is not read",
        "",
        DENSE,
        (Change("tile", "(elements < HEAD_SIZE)[None, :]",
                "(elements < HEAD_SIZE - 1)[None, :]"),),
    ),
    Specimen(
        "X8",
        "the first block of a long sequence is skipped",
        "",
        DENSE,
        (Change("decode", "begin = tl.maximum(split * SPLIT, first)",
                "begin = tl.maximum(split * SPLIT, tl.minimum(first + BLOCK_SIZE, length - 1))"),),
    ),
    Specimen(
        "X9",
        "offsets are 32 bits wide",
        "https://github.com/vllm-project/vllm/issues/47671",
        ("64-bit offsets",),
        (Change("tile", "blocks.to(tl.int64) * stride_block", "blocks * stride_block"),),
    ),
    Specimen(
        "X10",
        "a chunk of a prompt forgets what is cached before it",
        "",
        DENSE,
        (Change("prefill", "query_positions = length - query_length + numbers",
                "query_positions = numbers"),),
    ),
    Specimen(
        "X11",
        "the row of a decode is its number in the batch, also beside prompts",
        "https://github.com/sgl-project/sglang/issues/20389",
        DENSE,
        (Change("decode", "row = tl.load(first_rows + sequence).to(tl.int64)\n    query_mask",
                "row = sequence\n    query_mask"),),
    ),
    Specimen(
        "X12",
        "tiles follow the block size, so bits depend on it",
        "https://github.com/pytorch/pytorch/issues/182593",
        ("block size",),
        (Change("attention", '"TILE": sizes.keys', '"TILE": 32 if batch.block_size > 4 else 16'),),
    ),
    Specimen(
        "X13",
        "splits follow the longest sequence of the batch, so bits depend on it",
        "https://github.com/vllm-project/vllm/issues/51902",
        ("batch of one",),
        (Change("attention", "    first_rows = torch.cumsum",
                "    sizes = TileSizes(16, 16 if longest > 32 else 32, 32)\n"
                "    first_rows = torch.cumsum"),),
    ),
    Specimen(
        "X14",
        "the output is summed up in the output tensor",
        "",
        ("output rows",),
        (Change("decode", "    tl.store(addresses, output, mask=mask)",
                "    tl.store(addresses, output + 0 * tl.load(addresses, mask=mask), mask=mask)"),),
    ),
)  # fmt: skip
