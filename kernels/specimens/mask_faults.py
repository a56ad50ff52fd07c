"""Faults of masks: tails, null block, table ends, windows, causality, lengths."""

from __future__ import annotations

from poolproof.kernels.specimens.specimen import Change, Specimen

__all__ = ["MASK_FAULTS"]

DENSE = ("dense",)
WHOLE_BLOCKS = "positions < tl.cdiv(length, BLOCK_SIZE) * BLOCK_SIZE"

MASK_FAULTS = (
    Specimen(
        "M1",
        "values behind the last token are loaded, with weights of 0",
        "https://github.com/vllm-project/vllm/issues/641",
        ("value tail", "read set"),
        (Change("decode", "            value_cache, table, positions, readable, head,",
                f"            value_cache, table, positions, {WHOLE_BLOCKS}, head,"),),
    ),
    Specimen(
        "M2",
        "keys behind the last token are loaded and masked by adding -10,000",
        "https://github.com/vllm-project/vllm/issues/936",
        ("key tail",),
        (Change("decode", "            key_cache, table, positions, readable, head,",
                f"            key_cache, table, positions, {WHOLE_BLOCKS}, head,"),
         Change("tile", 'return tl.where(visible, scores, float("-inf"))',
                "return scores + tl.where(visible, 0.0, -10000.0)")),
    ),
    Specimen(
        "M3",
        "keys behind the last token are loaded and masked well: no number shows it",
        "https://github.com/vllm-project/vllm/issues/42496",
        ("read set",),
        (Change("decode", "            key_cache, table, positions, readable, head,",
                f"            key_cache, table, positions, {WHOLE_BLOCKS}, head,"),),
    ),
    Specimen(
        "M4",
        "masked lanes load the null block",
        "https://github.com/vllm-project/vllm/issues/57156",
        ("null block",),
        (Change("tile", "mask = readable[:, None] & (elements < HEAD_SIZE)[None, :]",
                "mask = (positions >= 0)[:, None] & (elements < HEAD_SIZE)[None, :]"),),
    ),
    Specimen(
        "M5",
        "the table is read without a mask, past its end",
        "https://github.com/vllm-project/vllm/issues/42494",
        ("read set",),
        (Change("tile", "tl.load(block_table + positions // BLOCK_SIZE, mask=readable, other=0)",
                "tl.load(block_table + positions // BLOCK_SIZE)"),),
    ),
    Specimen(
        "M6",
        "the window is one token too long in prefill",
        "https://github.com/zml/zml/issues/763",
        DENSE,
        (Change("prefill", "> query_positions[:, None] - WINDOW)",
                ">= query_positions[:, None] - WINDOW)"),),
    ),
    Specimen(
        "M7",
        "the window is one token too short in decode",
        "https://github.com/lightseekorg/tokenspeed/issues/578",
        DENSE,
        (Change("decode", "first = tl.maximum(length - WINDOW, 0) if WINDOW else 0",
                "first = tl.maximum(length - WINDOW + (WINDOW > 1), 0) if WINDOW else 0", 2),),
    ),
    Specimen(
        "M8",
        "the window is ignored in decode",
        "https://github.com/EricLBuehler/mistral.rs/issues/2094",
        (*DENSE, "behind the window"),
        (Change("decode", "first = tl.maximum(length - WINDOW, 0) if WINDOW else 0",
                "first = 0", 2),),
    ),
    Specimen(
        "M9",
        "values in front of the window are loaded, with weights of 0",
        "",
        ("behind the window", "read set"),
        (Change("decode", "            value_cache, table, positions, readable, head,",
                "            value_cache, table, positions, positions < end, head,"),),
    ),
    Specimen(
        "M10",
        "a query does not see its own position",
        "",
        DENSE,
        (Change("prefill", "positions[None, :] <= query_positions[:, None]",
                "positions[None, :] < query_positions[:, None]"),),
    ),
    Specimen(
        "M11",
        "queries of a prompt see later keys of their tile",
        "",
        DENSE,
        (Change("prefill", "positions[None, :] <= query_positions[:, None]",
                "positions[None, :] < end"),),
    ),
    Specimen(
        "M12",
        "the last token is not seen in decode",
        "",
        DENSE,
        (Change("decode", "end = tl.minimum(split * SPLIT + SPLIT, length)",
                "end = tl.minimum(split * SPLIT + SPLIT, tl.maximum(length - 1, 1))"),),
    ),
    Specimen(
        "M13",
        "one token too many is seen in decode",
        "",
        DENSE,
        (Change("decode", "end = tl.minimum(split * SPLIT + SPLIT, length)",
                "end = tl.minimum(split * SPLIT + SPLIT, length + 1)"),),
    ),
    Specimen(
        "M14",
        "the last block is taken to be full",
        "",
        DENSE,
        (Change("decode", "end = tl.minimum(split * SPLIT + SPLIT, length)",
                "end = tl.minimum(split * SPLIT + SPLIT, tl.cdiv(length, BLOCK_SIZE) * BLOCK_SIZE)",
                ),),
    ),
    Specimen(
        "M15",
        "a last block that is not full is dropped",
        "https://github.com/HabanaAI/vllm-fork/issues/1395",
        DENSE,
        (Change("decode", "end = tl.minimum(split * SPLIT + SPLIT, length)",
                "end = tl.minimum(split * SPLIT + SPLIT, "
                "tl.maximum(length // BLOCK_SIZE * BLOCK_SIZE, 1))"),),
    ),
    Specimen(
        "M16",
        "the last row of a tile of queries is not stored",
        "",
        ("dense", "output rows"),
        (Change("prefill", "    tl.store(addresses + elements[None, :], output, mask=mask)",
                "    mask = mask & (lanes < QUERIES * GROUP - 1)[:, None]\n"
                "    tl.store(addresses + elements[None, :], output, mask=mask)"),),
    ),
)  # fmt: skip
