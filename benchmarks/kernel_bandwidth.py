"""Decode against the copy bandwidth of the same GPU, prefill against torch's best; needs CUDA.

One run: the bandwidth of a device-to-device copy of 4 GB is measured first, then decode of our
kernels and of every peer that is installed (bytes of keys and values that have to be read, over the
median time), then prefill of ours against torch's scaled_dot_product_attention over dense tensors,
and last the largest error over its bound on the GPU, where the factor of the bound has to be
measured anew. Everything is a ratio within the run.

Usage: python benchmarks/kernel_bandwidth.py [--record]        exit status 2 without a GPU
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
from collections.abc import Callable
from typing import Any

from record import add_destination, write_record

DECODES = ((32, 4096), (64, 4096), (128, 8192))
HEADS, KV_HEADS, HEAD_SIZE, BLOCK_SIZE = 64, 8, 128, 16
PREFILL = 8192
REPEATS = 30
GOALS = {"decode over copy": 0.8, "prefill over torch": 0.5}


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_destination(parser, "kernel_bandwidth")
    arguments = parser.parse_args()
    # Before triton is imported: these kernels are compiled.
    os.environ["TRITON_INTERPRET"] = "0"
    import torch

    if not torch.cuda.is_available():
        print("no CUDA device is visible to torch: nothing was measured", file=sys.stderr)
        return 2
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    found["copy_gb_per_s"] = copy_bandwidth()
    found["decode"] = [decode(count, length, found["copy_gb_per_s"]) for count, length in DECODES]
    found["prefill"] = prefill()
    found["worst_ratio"] = worst_ratios(300)
    best = max(row["ours over copy"] for row in found["decode"])
    found["goals"] = {
        "decode over copy": best >= GOALS["decode over copy"],
        "prefill over torch": found["prefill"]["ours over torch"] >= GOALS["prefill over torch"],
    }
    print(json.dumps(found, indent=1))
    if not write_record(arguments.json, found, indent=1):
        return 2
    return int(not all(found["goals"].values()))


def median_ms(call: Callable[[], object]) -> float:
    """Median time of a call in milliseconds, by the GPU's own clock, caches flushed between."""
    import torch

    flush = torch.empty(256 * 1024 * 1024, dtype=torch.int8, device="cuda")
    for _ in range(3):
        call()
    times = []
    for _ in range(REPEATS):
        flush.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def copy_bandwidth() -> float:
    """GB/s of a large copy on the device, bytes read and bytes written."""
    import torch

    source = torch.empty(4 * 1024**3, dtype=torch.int8, device="cuda")
    target = torch.empty_like(source)
    return round(2 * source.numel() / median_ms(lambda: target.copy_(source)) / 1e6, 1)


def decode(count: int, length: int, copy: float) -> dict[str, Any]:
    """One token of `count` sequences over `length` keys each: ours and every installed peer."""
    import torch

    from poolproof.kernels.catalogue import BUILT_INS

    blocks = -(-length // BLOCK_SIZE)
    shape = (count * blocks + 1, BLOCK_SIZE, KV_HEADS, HEAD_SIZE)
    keys, values = (torch.randn(shape, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    query = torch.randn(count, HEADS, HEAD_SIZE, dtype=torch.bfloat16, device="cuda")
    table = (1 + torch.randperm(count * blocks, device="cuda")).reshape(count, blocks).int()
    lengths = torch.full((count,), length, dtype=torch.int32, device="cuda")
    ones = torch.ones_like(lengths)
    size = 2 * count * length * KV_HEADS * HEAD_SIZE * 2
    row: dict[str, Any] = {"sequences": count, "tokens": length}
    options = {"scale": HEAD_SIZE**-0.5}
    # Every option that a peer's adapter looks up.
    absent = {"sliding_window": None, "softcap": None, "alibi_slopes": None, "sinks": None}
    for name in ("paged", "flash-attn", "flashinfer", "vllm-triton"):
        if BUILT_INS[name].missing:
            continue
        target = BUILT_INS[name].make("cuda")
        if BLOCK_SIZE not in target.declaration.block_sizes:
            continue
        arguments = (query, keys, values, table, lengths, ones)
        keywords: dict[str, Any] = {**options, "causal": True, **absent}
        if name == "paged":
            keywords |= {"values_checked": True, "max_kv_length": length, "max_query_length": 1}
        if target.declaration.out:
            keywords["out"] = torch.empty_like(query)
        attend = target.attend
        took = median_ms(lambda: attend(*arguments, **keywords))  # noqa: B023 -- called at once
        row[f"{name} gb_per_s"] = round(size / took / 1e6, 1)
    row["ours over copy"] = round(row["paged gb_per_s"] / copy, 3)
    return row


def prefill() -> dict[str, Any]:
    """One prompt: ours over pages against torch's best over dense tensors, in TFLOP/s."""
    import torch

    from poolproof.kernels.paged.attention import paged_attention

    blocks = PREFILL // BLOCK_SIZE
    query = torch.randn(PREFILL, HEADS, HEAD_SIZE, dtype=torch.bfloat16, device="cuda")
    shape = (blocks + 1, BLOCK_SIZE, KV_HEADS, HEAD_SIZE)
    keys, values = (torch.randn(shape, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    table = (1 + torch.randperm(blocks, device="cuda")).reshape(1, blocks).int()
    lengths = torch.tensor([PREFILL], dtype=torch.int32, device="cuda")
    ours = median_ms(
        lambda: paged_attention(
            query, keys, values, table, lengths, lengths, scale=HEAD_SIZE**-0.5,
            values_checked=True, max_kv_length=PREFILL, max_query_length=PREFILL,
        )
    )  # fmt: skip
    dense = [torch.randn(1, heads, PREFILL, HEAD_SIZE, dtype=torch.bfloat16, device="cuda")
             for heads in (HEADS, HEADS, HEADS)]  # fmt: skip
    torchs = median_ms(
        lambda: torch.nn.functional.scaled_dot_product_attention(*dense, is_causal=True)
    )
    operations = 2 * 2 * HEADS * HEAD_SIZE * PREFILL**2 / 2
    return {
        "ours tflop_per_s": round(operations / ours / 1e9, 1),
        "torch tflop_per_s": round(operations / torchs / 1e9, 1),
        "ours over torch": round(torchs / ours, 3),
    }


def worst_ratios(examples: int) -> dict[str, float]:
    """Largest error over its bound for each precision, over drawn cases."""
    from poolproof.kernels.checks.catalogue import CHECKS
    from poolproof.kernels.grammar import draw_case
    from poolproof.kernels.target import paged_target

    target, draw = paged_target("cuda"), random.Random(2026)
    worst: dict[str, float] = {}
    for _ in range(examples):
        case = draw_case(draw.randrange, target.declaration)
        ratio = CHECKS["dense"].run(target, case).ratio
        worst[case.dtype] = max(worst.get(case.dtype, 0.0), round(ratio or 0.0, 3))
    return worst


if __name__ == "__main__":
    sys.exit(main())
