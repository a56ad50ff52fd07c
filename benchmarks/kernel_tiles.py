"""Times ways of cutting the work of our attention kernels, on one GPU in one run; needs CUDA.

What `tile_sizes` in kernels/paged/attention.py takes for a GPU is chosen from this. Each way is
compiled first, in several processes; then each is timed, one after another, as `kernel_bandwidth`
does it: decode against the bandwidth of a copy, a prompt against torch's attention over dense
tensors.

Usage: python benchmarks/kernel_tiles.py [--record]            exit status 2 without a GPU
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from kernel_bandwidth import (
    HEAD_SIZE,
    HEADS,
    Decode,
    Prefill,
    copy_bandwidth,
    paged_batch,
    prefilled,
    rates,
)
from record import add_destination, write_record

DECODES = (Decode(32, 4096), Decode(1, 32768), Decode(128, 8192), Decode(1, 4096))
FP8_DECODE = Decode(32, 4096, cache="float8_e4m3fn")
PROMPT = Prefill(1, 8192)

DECODE_WAYS = [
    {"keys": keys, "split": split, "decode_warps": warps, "decode_stages": stages}
    for keys, warps, stages, splits in (
        (32, 1, 4, (512,)),
        (32, 2, 3, (512,)),
        (32, 4, 4, (256, 512, 1024, 2048)),
        (64, 2, 2, (256, 512, 1024)),
        (64, 4, 2, (256, 512, 1024, 2048)),
        (64, 4, 3, (256, 512, 1024, 2048)),
        (128, 4, 2, (512,)),
        (128, 8, 2, (256, 512, 1024, 2048)),
    )
    for split in splits
]
PREFILL_WAYS = [
    {"rows": rows, "prefill_keys": keys, "prefill_warps": warps, "prefill_stages": stages}
    for rows, keys, warps, stages in (
        (64, 64, 4, 2),
        (64, 64, 4, 3),
        (128, 32, 4, 3),
        (128, 64, 8, 2),
        (128, 64, 8, 3),
        (128, 128, 8, 2),
        (128, 128, 8, 3),
        (256, 64, 8, 2),
        (256, 64, 8, 3),
        (256, 128, 8, 2),
    )
]
BASE: dict[str, int] = {"keys": 64, "split": 512, "rows": 128, "prefill_keys": 64}


def main() -> int:
    """Compile, time, write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_destination(parser, "kernel_tiles")
    arguments = parser.parse_args()
    # Before triton is imported: these kernels are compiled.
    os.environ["TRITON_INTERPRET"] = "0"
    import torch

    if not torch.cuda.is_available():
        print("no CUDA device is visible to torch: nothing was measured", file=sys.stderr)
        return 2
    cases = [*jobs()]
    with multiprocessing.get_context("spawn").Pool(min(15, os.cpu_count() or 1)) as pool:
        fits = pool.map(compiles, cases, chunksize=1)
    copy = copy_bandwidth()
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "copy_gb_per_s": copy}
    found["ways"] = []
    for (case, way), error in zip(cases, fits, strict=True):
        row: dict[str, Any] = {"case": case.words, "way": way, "error": error}
        if not error:
            call, amount, unit = work(case, way)
            row |= rates(call, amount, unit)
        if "gb_per_s" in row:
            row["over_copy"] = round(row["gb_per_s"] / copy, 3)
        found["ways"].append(row)
        print(row, flush=True)
        write_record(arguments.json, found, indent=1, tells=False)
    found["prompt"] = prefilled(PROMPT)
    print(found["prompt"])
    return 0 if write_record(arguments.json, found, indent=1) else 2


def jobs() -> Iterator[tuple[Decode | Prefill, dict[str, int]]]:
    """Each case with each way of cutting it."""
    for case in (*DECODES, FP8_DECODE):
        yield from ((case, way) for way in DECODE_WAYS)
    yield from ((PROMPT, way) for way in PREFILL_WAYS)


def compiles(job: tuple[Decode | Prefill, dict[str, int]]) -> str:
    """Compile one, into Triton's cache on the disk; why it cannot run, or nothing."""
    import torch

    try:
        call, _, _ = work(*job)
        call()
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001 -- whatever a compiler says is what is recorded
        return f"{type(error).__name__}: {error}"[:200]
    return ""


def work(case: Decode | Prefill, way: dict[str, int]) -> tuple[Callable[[], object], float, str]:
    """The call, and how many bytes it has to read or operations to do."""
    import torch

    from poolproof.kernels.paged.attention import TileSizes, paged_attention

    if isinstance(case, Decode):
        new, longest, block_size = 1, case.tokens, case.block_size
        cache = getattr(torch, case.cache)
    else:
        new, longest, block_size, cache = case.new, case.new, 16, torch.bfloat16
    lengths = torch.full((case.sequences,), longest, dtype=torch.int32)
    keys, values, table, on_device = paged_batch(lengths, block_size, cache)
    query = torch.randn(case.sequences * new, HEADS, HEAD_SIZE, dtype=torch.bfloat16, device="cuda")
    queries = torch.full_like(on_device, new)
    sizes = TileSizes(**{**BASE, **way})

    def call() -> object:
        return paged_attention(
            query, keys, values, table, on_device, queries, scale=HEAD_SIZE**-0.5, sizes=sizes,
            values_checked=True, max_kv_length=longest, max_query_length=new,
        )  # fmt: skip

    if isinstance(case, Decode):
        return call, 2 * case.sequences * longest * keys[0, 0].nbytes, "gb_per_s"
    return call, 2 * 2 * HEADS * HEAD_SIZE * case.sequences * new**2 / 2, "tflop_per_s"


if __name__ == "__main__":
    sys.exit(main())
