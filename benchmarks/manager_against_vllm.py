"""Serve the Mooncake conversation trace with impl's KVCacheManager and with vLLM's, and compare.

Usage: PYTHON benchmarks/manager_against_vllm.py [TRACE] [--requests N] [--blocks N] [--repeats N]
                                                 [--record]

PYTHON is one that has vLLM and Poolproof (`make vllm` makes `.venv-vllm/bin/python`); with
PYTHONPATH=build/compiled (`make compiled`) the pool under impl's manager is the compiled one, which
has a record of its own. TRACE is
mooncake_conversation.jsonl of kvcache-ai/Mooncake, looked for in ../shared/traces without it.

One loop, written below, drives both through the methods that they share: in each step every
running request gets a slot for its next token, then requests are admitted whole while they fit and
fewer than 64 run; when there is no block for a token, the request admitted last is preempted and
waits at the front. One group of full attention, 16 tokens a block, prefix caching on. A request
is the same plain object for both. Its hashes, those of its output included, are made beforehand
and handed over as fresh objects, as an engine makes them. Both must schedule the same: tokens
hit, preemptions and steps are asserted to be equal. Timed is the whole loop; its own share is the
same for both. The garbage is collected and what lives is frozen before each run, as vLLM's engine
does at its start; the collector stays on. The two take turns in one process.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import xxhash
from record import add_destination, surroundings, write_record

from poolproof.harness.request_trace import (
    RequestTraceError,
    TraceRequest,
    block_hashes,
    read_requests,
)
from poolproof.impl.block_loops import COMPILED
from poolproof.impl.kv_cache_manager import KVCacheManager

BLOCK_SIZE = 16
NUM_BLOCKS = 200_000
CONCURRENT = 64
MAX_MODEL_LEN = 1_000_000
HASH_BYTES = 16
GOALS = {"compiled": 6.0, "Python": 3.0}
ROOT = Path(__file__).resolve().parent.parent
TRACE = ROOT.parent / "shared" / "traces" / "mooncake_conversation.jsonl"


class Served:
    """A request as either manager reads it. `hashes` are those of the tokens yet to come."""

    # What vLLM's manager looks at besides, and finds as it is in a plain engine.
    num_in_flight_tokens = 0
    shared_prefix_boundary = 0
    skip_reading_prefix_cache = False
    status = None

    def __init__(self, number: int, request: TraceRequest, packed: bytes) -> None:
        self.request_id = str(number)
        self.num_prompt_tokens = self.num_tokens = request.input_length
        self.last_token = request.input_length + request.output_length
        self.num_computed_tokens = 0
        self.num_preemptions = 0
        # Fresh objects, whose own hash values no earlier repeat has computed.
        hashes = [packed[at : at + HASH_BYTES] for at in range(0, len(packed), HASH_BYTES)]
        num_prompt_blocks = request.input_length // BLOCK_SIZE
        self.block_hashes = hashes[:num_prompt_blocks]
        self.hashes = hashes[num_prompt_blocks:][::-1]


@dataclass(slots=True)
class Work:
    """What was done; the two have to agree on it."""

    requests: int = 0
    steps: int = 0
    tokens_decoded: int = 0
    tokens_admitted: int = 0
    tokens_hit: int = 0
    preemptions: int = 0


def serve(manager: Any, requests: Sequence[Served]) -> Work:
    """Run all requests to their end."""
    work = Work(requests=len(requests))
    waiting, running = deque(requests), list[Served]()
    allocate, computed_blocks = manager.allocate_slots, manager.get_computed_blocks
    while waiting or running:
        manager.new_step_starts()
        work.steps += 1
        preempted = False
        position = 0
        while position < len(running):
            request = running[position]
            while allocate(request, 1) is None:
                last = running.pop()
                manager.free(last)
                last.num_computed_tokens = 0
                last.num_preemptions += 1
                waiting.appendleft(last)
                work.preemptions += 1
                preempted = True
                if last is request:
                    break
            position += 1
        while waiting and len(running) < CONCURRENT and not preempted:
            request = waiting[0]
            blocks, num_hit, *_ = computed_blocks(request)
            if allocate(request, request.num_tokens - num_hit, num_hit, blocks) is None:
                break
            running.append(waiting.popleft())
            work.tokens_admitted += request.num_tokens
            work.tokens_hit += num_hit
        work.tokens_decoded += len(running)
        running = [request for request in running if not advance(manager, request)]
    return work


def advance(manager: Any, request: Served) -> bool:
    """The forward pass and its sampled token; whether the request has ended with it."""
    request.num_computed_tokens = request.num_tokens
    if request.num_tokens >= request.last_token:
        manager.free(request)
        return True
    request.num_tokens += 1
    if request.num_tokens % BLOCK_SIZE == 0:
        request.block_hashes.append(request.hashes.pop())
    return False


@dataclass(slots=True)
class Contender:
    """One of the two, with the microseconds of process time that a request took in each repeat."""

    name: str
    manager: Callable[[], Any]
    us_per_request: list[float] = field(default_factory=list)
    work: Work = field(default_factory=Work)

    def repeat(self, requests: Sequence[TraceRequest], packed: Sequence[bytes]) -> None:
        """Serve all requests with a fresh manager."""
        manager = self.manager()
        served = [
            Served(number, request, hashes)
            for number, (request, hashes) in enumerate(zip(requests, packed, strict=True))
        ]
        gc.collect()
        gc.freeze()
        begin_s = time.process_time()
        self.work = serve(manager, served)
        self.us_per_request.append(1e6 * (time.process_time() - begin_s) / len(requests))
        gc.unfreeze()


def all_hashes(number: int, request: TraceRequest) -> bytes:
    """The hashes of a request's prompt, and of its output, which nobody shares."""
    hashes = block_hashes(request, BLOCK_SIZE)
    parent = hashes[-1] if hashes else b"root"
    for _ in range((request.input_length + request.output_length) // BLOCK_SIZE - len(hashes)):
        parent = xxhash.xxh3_128_digest(parent + number.to_bytes(8, "little"))
        hashes.append(parent)
    return b"".join(hashes)


def contenders(num_blocks: int) -> tuple[Contender, Contender, str]:
    """The two managers, and vLLM's version. Raises ImportError without a vLLM."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    import torch
    import vllm
    from vllm.v1.core.kv_cache_manager import KVCacheManager as VllmManager
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec

    spec = FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=8, dtype=torch.float16
    )
    config = KVCacheConfig(num_blocks, [], [KVCacheGroupSpec(["layer"], spec)])

    def impl() -> KVCacheManager:
        return KVCacheManager(num_blocks, BLOCK_SIZE, max_model_len=MAX_MODEL_LEN)

    def theirs() -> Any:
        return VllmManager(config, MAX_MODEL_LEN, BLOCK_SIZE, BLOCK_SIZE)

    return Contender("impl", impl), Contender("vllm", theirs), str(vllm.__version__)


def measure(
    ours: Contender, theirs: Contender, requests: Sequence[TraceRequest], repeats: int
) -> None:
    """Let the two take turns, and see that they did the same work."""
    packed = [all_hashes(number, request) for number, request in enumerate(requests)]
    for number, contender in enumerate(cycle((ours, theirs))):
        if number == 2 * repeats:
            break
        contender.repeat(requests, packed)
        print(
            f"  {contender.name:5} repeat {number // 2 + 1}: "
            f"{contender.us_per_request[-1]:8.1f} us a request",
            flush=True,
        )
    assert ours.work == theirs.work, f"they scheduled differently: {ours.work}, {theirs.work}"


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("trace", nargs="?", type=Path, default=TRACE)
    parser.add_argument("--requests", type=int, help="serve the first N requests only")
    parser.add_argument("--blocks", type=int, default=NUM_BLOCKS, help="blocks in the pool")
    parser.add_argument("--repeats", type=int, default=3, help="repeats of each (default 3)")
    if COMPILED:
        add_destination(parser, "manager_against_vllm_compiled")
    else:
        add_destination(parser, "manager_against_vllm")
    return parser.parse_args()


def main() -> int:
    """Measure; 0 also where there is nothing to measure with, 1 where the goal is missed."""
    asked = arguments()
    if asked.trace == TRACE and not TRACE.is_file():
        print("skipped: no trace given, and ../shared/traces has none; see docs/workloads.md")
        return 0
    try:
        ours, theirs, version = contenders(asked.blocks)
    except ImportError as error:
        print(f"skipped: {error}; `make vllm`, then run this with .venv-vllm/bin/python")
        return 0
    try:
        requests = read_requests(asked.trace, asked.requests)
    except RequestTraceError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{len(requests):,} requests, {asked.repeats} repeats each, vllm {version}", flush=True)
    measure(ours, theirs, requests, asked.repeats)
    pairs = [b / a for a, b in zip(ours.us_per_request, theirs.us_per_request, strict=True)]
    ratio = statistics.median(theirs.us_per_request) / statistics.median(ours.us_per_request)
    goal = GOALS["compiled" if COMPILED else "Python"]
    print(
        f"impl is {ratio:.2f} times as fast per request (medians of process time; pairs "
        f"{min(pairs):.2f} .. {max(pairs):.2f}; goal {goal}); both did {ours.work}"
    )
    result = {
        **surroundings(),
        "block_size": BLOCK_SIZE,
        "num_blocks": asked.blocks,
        "concurrent": CONCURRENT,
        "vllm": version,
        "ratio_of_medians": round(ratio, 3),
        "ratio_of_pairs": [round(value, 3) for value in pairs],
        "impl_us_per_request": [round(value, 1) for value in ours.us_per_request],
        "vllm_us_per_request": [round(value, 1) for value in theirs.us_per_request],
        "work": asdict(ours.work),
    }
    if not write_record(asked.json, result):
        return 2
    return 0 if ratio >= goal else 1


if __name__ == "__main__":
    sys.exit(main())
