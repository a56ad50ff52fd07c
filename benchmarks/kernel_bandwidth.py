"""Decode against the copy bandwidth of the same GPU, prefill against torch's best; needs CUDA.

One run: the bandwidth of a device-to-device copy of 4 GB (bytes read and bytes written) is measured
first; then decode (bytes of keys and values that have to be read, over the time) for batches,
lengths, block sizes and types of cache; then prefill and chunked prefill. Beside ours stand the
paged kernels that are installed here, and torch's own attention over dense tensors, which reads no
table. Each call is captured in a CUDA graph, so that no time of the host counts; what plans a call
does so before. Caches are flushed between calls. A row gives the median and both quartiles.

What was measured is written after each part: a run that is stopped loses nothing.

Usage: python benchmarks/kernel_bandwidth.py [--seconds N] [--record]
Exit status 2 without a GPU, 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from record import add_destination, write_record

HEADS, KV_HEADS, HEAD_SIZE = 64, 8, 128
REPEATS = 25


@dataclass(frozen=True)
class Decode:
    """One new token for each of some sequences; ragged ones have 1/8 to all of the tokens."""

    sequences: int
    tokens: int
    block_size: int = 16
    cache: str = "bfloat16"
    ragged: bool = False

    @property
    def words(self) -> str:
        """The row of a table."""
        ragged = "up to " if self.ragged else ""
        fp8 = ", fp8 cache" if self.cache != "bfloat16" else ""
        return (
            f"{self.sequences} x {ragged}{self.tokens:,} tokens, blocks of {self.block_size}{fp8}"
        )


@dataclass(frozen=True)
class Prefill:
    """So many new tokens for each of some sequences, behind so many that are cached."""

    sequences: int
    new: int
    cached: int = 0

    @property
    def words(self) -> str:
        """The row of a table."""
        behind = f" behind {self.cached:,}" if self.cached else ""
        return f"{self.sequences} x {self.new:,} tokens{behind}"


DECODES = (
    Decode(32, 4096),
    Decode(1, 32768),
    Decode(64, 4096),
    Decode(128, 8192),
    Decode(1, 4096),
    Decode(8, 4096),
    Decode(256, 2048),
    Decode(64, 8192, ragged=True),
    Decode(32, 4096, block_size=32),
    Decode(32, 4096, block_size=64),
    Decode(32, 4096, block_size=256),
    Decode(32, 4096, cache="float8_e4m3fn"),
    Decode(128, 8192, cache="float8_e4m3fn"),
)
PREFILLS = (Prefill(1, 8192), Prefill(4, 2048), Prefill(1, 32768), Prefill(8, 512, cached=4096))

GOALS = {
    "decode over copy, 32 or more sequences of 4,096 or more": 0.85,
    "decode over copy, one sequence of 32,768": 0.60,
    "prefill over torch's best": 0.70,
}
PAGED_PEERS = ("flash-attn", "flashinfer", "vllm-triton")


def main() -> int:
    """Measure and write, part by part; say which goals are met."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=300.0, help="begin nothing after these")
    add_destination(parser, "kernel_bandwidth")
    arguments = parser.parse_args()
    # Before triton is imported: these kernels are compiled.
    os.environ["TRITON_INTERPRET"] = "0"
    import torch

    if not torch.cuda.is_available():
        print("no CUDA device is visible to torch: nothing was measured", file=sys.stderr)
        return 2
    found = measured(arguments.json, arguments.seconds)
    for goal, (wanted, best) in found["goals"].items():
        reached = "not measured" if best is None else f"{best:.3f}"
        print(f"{goal}: {reached}, wanted {wanted}")
    return int(any(best is None or best < wanted for wanted, best in found["goals"].values()))


def measured(path: Path, seconds: float) -> dict[str, Any]:
    """All rows that fit into the time, written to `path` after each."""
    import torch
    import triton

    until = time.monotonic() + seconds
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "copy_gb_per_s": copy_bandwidth(),
        "decode": [],
        "prefill": [],
        "left_out": [],
    }
    found["goals"] = goals(found)
    print(f"{found['device']}: copy {found['copy_gb_per_s']:,.0f} GB/s")
    for case in (*DECODES, *PREFILLS):
        if time.monotonic() > until:
            found["left_out"].append(case.words)
            continue
        if isinstance(case, Decode):
            row = {**asdict(case), "words": case.words, "kernels": decoded(case)}
            for one in row["kernels"].values():
                one["over_copy"] = round(one["gb_per_s"] / found["copy_gb_per_s"], 3)
            found["decode"].append(row)
        else:
            row = {**asdict(case), "words": case.words, "kernels": prefilled(case)}
            found["prefill"].append(row)
        print(f"{case.words}: {row['kernels']}", flush=True)
        torch.cuda.empty_cache()
        found["goals"] = goals(found)
        write_record(path, found, indent=1, tells=False)
    return found


def goals(found: dict[str, Any]) -> dict[str, tuple[float, float | None]]:
    """What is wanted, and the smallest figure of the rows that it speaks of; None if there is none.

    Decode is judged in bfloat16 with blocks of 16.
    """
    plain = [
        row
        for row in found["decode"]
        if row["block_size"] == 16 and row["cache"] == "bfloat16" and not row["ragged"]
    ]
    many = [row for row in plain if row["sequences"] >= 32 and row["tokens"] >= 4096]
    one = [row for row in plain if (row["sequences"], row["tokens"]) == (1, 32768)]
    prompts = [row["kernels"] for row in found["prefill"] if not row["cached"]]
    reached = [
        [row["kernels"]["paged"]["over_copy"] for row in many],
        [row["kernels"]["paged"]["over_copy"] for row in one],
        [
            round(kernels["paged"]["tflop_per_s"] / best, 3)
            for kernels in prompts
            if (best := max(row["tflop_per_s"] for row in kernels.values()))
        ],
    ]
    return {
        goal: (wanted, min(values, default=None))
        for (goal, wanted), values in zip(GOALS.items(), reached, strict=True)
    }


def times_ms(call: Callable[[], object]) -> tuple[float, float, float]:
    """Quartiles of the time of a call in milliseconds, by the GPU's own clock, caches flushed."""
    import torch

    flush = torch.empty(256 * 1024 * 1024, dtype=torch.int8, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    times = []
    for _ in range(REPEATS):
        flush.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    low, middle, high = statistics.quantiles(times, n=4)
    return low, middle, high


def rates(call: Callable[[], object], amount: float, unit: str) -> dict[str, Any]:
    """`amount` (bytes or operations) over the time of a call: the median and both quartiles."""
    scale = {"gb_per_s": 1e6, "tflop_per_s": 1e9}[unit]
    low, middle, high = times_ms(call)
    return {
        unit: round(amount / middle / scale, 1),
        "quartiles": [round(amount / high / scale, 1), round(amount / low / scale, 1)],
    }


def copy_bandwidth() -> float:
    """GB/s of a large copy on the device, bytes read and bytes written."""
    import torch

    source = torch.empty(4 * 1024**3, dtype=torch.int8, device="cuda")
    target = torch.empty_like(source)
    return round(2 * source.numel() / times_ms(lambda: target.copy_(source))[1] / 1e6, 1)


def decoded(case: Decode) -> dict[str, dict[str, Any]]:
    """GB/s of ours, of every paged kernel that is installed, and of torch's over dense tensors."""
    import torch

    cache = getattr(torch, case.cache)
    lengths = torch.full((case.sequences,), case.tokens, dtype=torch.int32)
    if case.ragged:
        lengths = torch.linspace(case.tokens // 8, case.tokens, case.sequences).int()
    batch = paged_batch(lengths, case.block_size, cache)
    query = torch.randn(case.sequences, HEADS, HEAD_SIZE, dtype=torch.bfloat16, device="cuda")
    ones = torch.ones(case.sequences, dtype=torch.int32, device="cuda")
    amount = 2 * int(lengths.sum()) * KV_HEADS * HEAD_SIZE * cache.itemsize
    found = {
        name: rates(call, amount, "gb_per_s")
        for name, call in paged_calls(case.block_size, query, *batch, ones, case.tokens, 1)
    }
    if cache == torch.bfloat16 and not case.ragged:
        del batch
        heads = (HEADS, KV_HEADS, KV_HEADS)
        dense = [
            torch.randn(case.sequences, count, rows, HEAD_SIZE, dtype=cache, device="cuda")
            for count, rows in zip(heads, (1, case.tokens, case.tokens), strict=True)
        ]
        found |= dense_rates(dense, amount, "gb_per_s", is_causal=False)
    return found


def prefilled(case: Prefill) -> dict[str, dict[str, Any]]:
    """TFLOP/s of the products, as `decoded` has them; torch's where nothing is cached."""
    import torch

    total = case.new + case.cached
    lengths = torch.full((case.sequences,), total, dtype=torch.int32)
    batch = paged_batch(lengths, 16, torch.bfloat16)
    tokens = case.sequences * case.new
    query = torch.randn(tokens, HEADS, HEAD_SIZE, dtype=torch.bfloat16, device="cuda")
    new = torch.full((case.sequences,), case.new, dtype=torch.int32, device="cuda")
    seen = case.new * (case.cached + case.new / 2)
    amount = 2 * 2 * case.sequences * HEADS * HEAD_SIZE * seen
    found = {
        name: rates(call, amount, "tflop_per_s")
        for name, call in paged_calls(16, query, *batch, new, total, case.new)
    }
    if not case.cached:
        dense = [
            torch.randn(
                case.sequences, count, case.new, HEAD_SIZE, dtype=torch.bfloat16, device="cuda"
            )
            for count in (HEADS, KV_HEADS, KV_HEADS)
        ]
        found |= dense_rates(dense, amount, "tflop_per_s", is_causal=True)
    return found


def paged_batch(lengths: Any, block_size: int, cache: Any) -> tuple[Any, Any, Any, Any]:
    """Caches of random numbers, a table that scatters the blocks over them, and the lengths."""
    import torch

    blocks = -(-int(lengths.max()) // block_size)
    shape = (len(lengths) * blocks + 1, block_size, KV_HEADS, HEAD_SIZE)
    keys, values = (
        torch.randn(shape, dtype=torch.bfloat16, device="cuda").to(cache) for _ in range(2)
    )
    table = 1 + torch.randperm(len(lengths) * blocks, device="cuda")
    return keys, values, table.reshape(len(lengths), blocks).int(), lengths.cuda()


def paged_calls(
    block_size: int, query: Any, *arguments: Any
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Ours and every installed peer; the last two arguments are the largest lengths."""
    import torch

    from poolproof.kernels.catalogue import BUILT_INS

    *tensors, longest, most_queries = arguments
    options: dict[str, Any] = {"scale": HEAD_SIZE**-0.5, "causal": True}
    # Every option that a peer's adapter looks up.
    options |= dict.fromkeys(("sliding_window", "softcap", "alibi_slopes", "sinks"))
    for name in ("paged", *PAGED_PEERS):
        if BUILT_INS[name].missing:
            continue
        target = BUILT_INS[name].make("cuda")
        if block_size not in target.declaration.block_sizes and name != "paged":
            continue
        keywords = dict(options)
        if name == "paged":
            keywords |= {"values_checked": True, "max_kv_length": longest}
            keywords["max_query_length"] = most_queries
        if target.declaration.out:
            keywords["out"] = torch.empty_like(query)
        attend = target.attend
        yield name, lambda attend=attend, keywords=keywords: attend(query, *tensors, **keywords)


def dense_rates(
    dense: list[Any], amount: float, unit: str, *, is_causal: bool
) -> dict[str, dict[str, Any]]:
    """The rates of torch's attention over dense tensors, by each backend that takes them."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def call() -> Any:
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(*dense, is_causal=is_causal, enable_gqa=True)

    backends = {
        "torch flash, dense": SDPBackend.FLASH_ATTENTION,
        "torch cuDNN, dense": SDPBackend.CUDNN_ATTENTION,
    }
    found = {}
    for name, backend in backends.items():
        with sdpa_kernel(backend), suppress(RuntimeError):
            # What a backend does not take, it refuses so.
            found[name] = rates(call, amount, unit)
    return found


if __name__ == "__main__":
    sys.exit(main())
