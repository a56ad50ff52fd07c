"""Serve the Mooncake conversation trace with impl and with vLLM's own BlockPool, and compare.

Usage: PYTHON benchmarks/mooncake_against_vllm.py [TRACE] [--requests N] [--repeats N]
                                                  [--compiled FOLDER] [--record]

PYTHON is one that has vLLM and Poolproof (`make vllm` makes `.venv-vllm/bin/python`); TRACE is
mooncake_conversation.jsonl of kvcache-ai/Mooncake, looked for in ../shared/traces without it.
FOLDER has Poolproof compiled by the same Python release, build/compiled (`make compiled`) without
it; where it is not there, the interpreted pool is measured alone.

All pools are driven by the same loop (poolproof.harness.request_workload), and each is called as
its own manager calls it: vLLM's a block at a time when it looks a prefix up, impl's once for a
prompt. 16 tokens a block, 200,000 blocks, 64 live requests, first in first out; all evict blocks
without a hash first and reserve block 0, so their hits must be equal, and that is asserted. No
harness checks; impl's own misuse checks are on. Not timed: the hashes, which are computed
beforehand and handed over as fresh objects for each repeat, as an engine makes them, and the pools'
construction. Before each run the garbage is collected and what lives is frozen, as vLLM's engine
does at its start; the collector stays on. They take turns in one process.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.util
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from record import add_destination, surroundings, write_record

from poolproof.harness.request_trace import (
    RequestTraceError,
    TraceRequest,
    block_hashes,
    read_requests,
)
from poolproof.harness.request_workload import PoolDriver, ReplayCounts, RequestReplay
from poolproof.impl.block_pool import BlockPool

BLOCK_SIZE = 16
NUM_BLOCKS = 200_000
CONCURRENT = 64
HASH_BYTES = 16
GOALS = {"impl compiled": 10.0, "impl": 3.0}
ROOT = Path(__file__).resolve().parent.parent
TRACE = ROOT.parent / "shared" / "traces" / "mooncake_conversation.jsonl"
COMPILED = ROOT / "build" / "compiled"


class ImplDriver:
    """Calls impl's BlockPool as its manager does; block ids are the blocks."""

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool

    def num_free(self) -> int:
        return self._pool.num_free()

    def hold_prefix(self, hashes: list[bytes], at_most: int) -> list[int]:
        found = self._pool.lookup_prefix(hashes[:at_most])
        self._pool.touch(found)
        return found

    def allocate(self, count: int) -> list[int]:
        return self._pool.allocate(count)

    def cache(self, blocks: list[int], hashes: list[bytes], num_cached: int) -> None:
        self._pool.cache(blocks[num_cached : len(hashes)], hashes[num_cached:])

    def free(self, blocks: list[int]) -> None:
        self._pool.free(blocks)


class VllmDriver:
    """Calls vLLM's BlockPool as its managers do; its block objects are the blocks."""

    class _Hashed:
        """The one thing that `cache_full_blocks` reads of a request here."""

        __slots__ = ("block_hashes",)
        block_hashes: list[bytes]

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._request = self._Hashed()

    def num_free(self) -> int:
        return int(self._pool.get_num_free_blocks())

    def hold_prefix(self, hashes: list[bytes], at_most: int) -> list[Any]:
        get_cached_block, groups = self._pool.get_cached_block, [0]
        found = []
        for block_hash in hashes[:at_most]:
            blocks = get_cached_block(block_hash, groups)
            if blocks is None:
                break
            found.append(blocks[0])
        if found:
            self._pool.touch(found)
        return found

    def allocate(self, count: int) -> list[Any]:
        blocks: list[Any] = self._pool.get_new_blocks(count)
        return blocks

    def cache(self, blocks: list[Any], hashes: list[bytes], num_cached: int) -> None:
        self._request.block_hashes = hashes
        self._pool.cache_full_blocks(
            self._request, blocks, num_cached, len(hashes), BLOCK_SIZE, kv_cache_group_id=0
        )

    def free(self, blocks: list[Any]) -> None:
        self._pool.free_blocks(blocks)


@dataclass(slots=True)
class Contender:
    """One of the pools, with the nanoseconds of process time that a block took in each repeat."""

    name: str
    driver: Callable[[], PoolDriver[Any]]
    ns_per_block: list[float] = field(default_factory=list)
    wall_ns_per_block: list[float] = field(default_factory=list)
    counts: ReplayCounts = field(default_factory=ReplayCounts)

    def repeat(self, requests: Sequence[TraceRequest], packed: Sequence[bytes]) -> None:
        """Serve all requests with a fresh pool."""
        replay = RequestReplay(self.driver(), block_size=BLOCK_SIZE, concurrent=CONCURRENT)
        hashes = iter(packed)
        gc.collect()
        gc.freeze()
        replay.run(requests, lambda _request: unpacked(next(hashes)))
        gc.unfreeze()
        self.counts = replay.counts
        self.ns_per_block.append(1e9 * self.counts.process_s / self.counts.blocks)
        self.wall_ns_per_block.append(1e9 * self.counts.wall_s / self.counts.blocks)

    def summary(self) -> dict[str, Any]:
        """The figures of this contender for the JSON file."""
        return {
            "median_ns_per_block": round(statistics.median(self.ns_per_block), 1),
            "median_blocks_per_s": round(1e9 / statistics.median(self.ns_per_block)),
            "median_wall_ns_per_block": round(statistics.median(self.wall_ns_per_block), 1),
            "ns_per_block": [round(value, 1) for value in self.ns_per_block],
            "hit_rate_blocks": self.counts.blocks_hit / self.counts.blocks,
            "hit_rate_tokens": self.counts.tokens_hit / self.counts.tokens,
            "peak_held_blocks": self.counts.peak_held,
        }


def unpacked(packed: bytes) -> list[bytes]:
    """Fresh hash objects, whose own hash values no earlier repeat has computed."""
    return [packed[start : start + HASH_BYTES] for start in range(0, len(packed), HASH_BYTES)]


def pool_class(compiled: Path | None) -> type[BlockPool]:
    """The pool of impl as it is installed, or as it is compiled in a folder, beside the other.

    Raises ImportError where the folder has none that this Python can load.
    """
    others = {name: sys.modules.pop(name) for name in list(sys.modules) if is_of_impl(name)}
    try:
        if compiled is not None:
            package = compiled / "poolproof" / "impl"
            spec = importlib.util.spec_from_file_location("poolproof.impl", package / "__init__.py")
            if spec is None or spec.loader is None or not package.is_dir():
                raise ImportError(f"no compiled Poolproof in {compiled}")
            module = sys.modules["poolproof.impl"] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        found = importlib.import_module("poolproof.impl.block_pool")
        is_compiled = importlib.import_module("poolproof.impl.block_loops").COMPILED
    finally:
        for name in list(sys.modules):
            if is_of_impl(name):
                del sys.modules[name]
        sys.modules.update(others)
    if is_compiled != (compiled is not None):
        raise ImportError(f"{found.__file__} is {'' if is_compiled else 'not '}compiled")
    pool: type[BlockPool] = found.BlockPool
    return pool


def is_of_impl(module: str) -> bool:
    """Whether the pool brings this module along."""
    return module == "poolproof.impl" or module.startswith("poolproof.impl.")


def contenders(compiled: Path) -> tuple[list[Contender], str]:
    """The pools, vLLM's last, and vLLM's version. Raises ImportError without a vLLM."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    import vllm
    from vllm.v1.core.block_pool import BlockPool as VllmBlockPool

    def impl(pool: type[BlockPool]) -> Callable[[], PoolDriver[Any]]:
        return lambda: ImplDriver(pool(NUM_BLOCKS, null_block=0, eviction="unhashed-first"))

    def theirs() -> PoolDriver[Any]:
        return VllmDriver(VllmBlockPool(NUM_BLOCKS, enable_caching=True, hash_block_size=16))

    found = [Contender("impl", impl(pool_class(None)))]
    try:
        found.insert(0, Contender("impl compiled", impl(pool_class(compiled))))
    except ImportError as error:
        print(f"without the compiled pool: {error}; `make compiled`")
    return [*found, Contender("vllm", theirs)], str(vllm.__version__)


def measure(pools: Sequence[Contender], requests: Sequence[TraceRequest], repeats: int) -> None:
    """Let the pools take turns, and see that they did the same work."""
    packed = [b"".join(block_hashes(request, BLOCK_SIZE)) for request in requests]
    for number in range(repeats):
        for contender in pools:
            contender.repeat(requests, packed)
            print(
                f"  {contender.name:13} repeat {number + 1}: "
                f"{contender.ns_per_block[-1]:7.1f} ns a block",
                flush=True,
            )
    work = {
        (c.counts.blocks, c.counts.blocks_hit, c.counts.tokens_hit, c.counts.peak_held)
        for c in pools
    }
    assert len(work) == 1, f"the pools gave different hits: {work}"


def compared(ours: Contender, theirs: Contender) -> dict[str, Any]:
    """How many times as fast as theirs ours is: of medians, and of each pair of repeats."""
    pairs = [b / a for a, b in zip(ours.ns_per_block, theirs.ns_per_block, strict=True)]
    ratio = statistics.median(theirs.ns_per_block) / statistics.median(ours.ns_per_block)
    return {
        "ratio_of_medians": round(ratio, 3),
        "ratio_of_pairs": [round(value, 3) for value in pairs],
        "goal": GOALS[ours.name],
    }


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("trace", nargs="?", type=Path, default=TRACE)
    parser.add_argument("--requests", type=int, help="serve the first N requests only")
    parser.add_argument(
        "--compiled", type=Path, default=COMPILED, metavar="FOLDER", help="(default build/compiled)"
    )
    parser.add_argument("--repeats", type=int, default=5, help="repeats of each (default 5)")
    add_destination(parser, "mooncake_against_vllm")
    return parser.parse_args()


def report(pools: Sequence[Contender], ratios: dict[str, dict[str, Any]]) -> None:
    """Print the table."""
    print(f"{'':14}{'ns a block':>12}{'blocks/s':>12}{'hit rate':>10}   min .. max ns")
    for contender in pools:
        found = contender.summary()
        print(
            f"{contender.name:14}{found['median_ns_per_block']:12.1f}"
            f"{found['median_blocks_per_s']:12,}{found['hit_rate_blocks']:10.4f}"
            f"   {min(contender.ns_per_block):.0f} .. {max(contender.ns_per_block):.0f}"
        )
    for name, found in ratios.items():
        pairs = found["ratio_of_pairs"]
        print(
            f"{name} is {found['ratio_of_medians']:.2f} times as fast per block as vllm (medians "
            f"of process time; pairs {min(pairs):.2f} .. {max(pairs):.2f}; goal {found['goal']})"
        )


def main() -> int:
    """Measure; 0 also where there is nothing to measure with, 1 where a goal is missed."""
    asked = arguments()
    if asked.trace == TRACE and not TRACE.is_file():
        print("skipped: no trace given, and ../shared/traces has none; see docs/workloads.md")
        return 0
    try:
        pools, version = contenders(asked.compiled)
    except ImportError as error:
        print(f"skipped: {error}; `make vllm`, then run this with .venv-vllm/bin/python")
        return 0
    try:
        requests = read_requests(asked.trace, asked.requests)
    except RequestTraceError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{len(requests):,} requests, {asked.repeats} repeats each, vllm {version}", flush=True)
    measure(pools, requests, asked.repeats)
    ratios = {contender.name: compared(contender, pools[-1]) for contender in pools[:-1]}
    report(pools, ratios)
    result = {
        **surroundings(),
        "requests": len(requests),
        "block_size": BLOCK_SIZE,
        "num_blocks": NUM_BLOCKS,
        "concurrent": CONCURRENT,
        "vllm": version,
        "ratios": ratios,
        "pools": {contender.name: contender.summary() for contender in pools},
    }
    if not write_record(asked.json, result):
        return 2
    return int(any(found["ratio_of_medians"] < found["goal"] for found in ratios.values()))


if __name__ == "__main__":
    sys.exit(main())
