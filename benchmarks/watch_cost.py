"""What the watch costs: CPU time a step beside vLLM's real scheduler, and memory over a long run.

Two equal schedulers, without a model (as in targets/vllm_engine_parts.py), are stepped in turn, one
watched and one not. Of each step of a scheduler the thread's CPU time is taken; the cost is the
difference of the medians, `own_ms` what the watch measures of itself: the median, the mean (steps
in which requests enter new blocks cost more) and what one step in twenty exceeds. Memory is that
of the process (resident), after every tenth of the tokens of requests that come, compute distinct
prompts and go.

Usage: python benchmarks/watch_cost.py [--steps N] [--tokens MILLIONS] [--part PART] [--record]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from record import add_destination, surroundings, write_record

ROWS = ((8, 1_000), (64, 1_000), (256, 1_000), (8, 100_000))
"""Requests that decode, and the tokens that each has."""
_BLOCK = 16
_POOL = 20_000


def make_scheduler(running: int, longest: int, num_blocks: int, batch: int) -> tuple[Any, Any]:
    """A scheduler as a server has it, and the parts that it was made of."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from poolproof.targets import vllm_engine_parts
    from poolproof.targets.vllm_engine_setups import EngineSetup

    # Certification runs short requests; the cost of a server's step is wanted here.
    vllm_engine_parts.LONGEST_REQUEST = longest
    vllm_engine_parts._MODEL["max_position_embeddings"] = longest  # noqa: SLF001 -- as above
    setup = EngineSetup(
        "cost",
        arguments={"block_size": _BLOCK},
        max_running=running,
        max_batch_tokens=batch,
    )
    parts = vllm_engine_parts.SchedulerParts(setup).with_blocks_of(_BLOCK)
    config = parts.configuration(num_blocks, enable_caching=True)
    return parts, parts.scheduler_of(config, parts.cache_of(config))


def step(parts: Any, scheduler: Any, token: int) -> Any:
    """One step: everybody who has computed all tokens samples one."""
    output = scheduler.schedule()
    ids = list(output.num_scheduled_tokens)
    requests = scheduler.requests
    sampled = [
        [token] if requests[i].num_computed_tokens >= requests[i].num_tokens else [] for i in ids
    ]
    scheduler.update_from_output(
        output,
        parts.runner_output(
            req_ids=ids,
            req_id_to_index={request_id: place for place, request_id in enumerate(ids)},
            sampled_token_ids=sampled,
        ),
    )
    return output


def tokens_of(number: int) -> list[int]:
    """So many random tokens."""
    return list(array("H", os.urandom(2 * number)))


def decoding(running: int, context: int, steps: int) -> tuple[Any, Any]:
    """A scheduler whose requests have all computed their prompts."""
    from poolproof.contract.content import TokenChain

    longest = context + steps + 200
    blocks = running * (longest // _BLOCK + 2) + 2
    parts, scheduler = make_scheduler(running, longest, blocks, max(8192, running))
    for number in range(running):
        chain = TokenChain(tuple(tokens_of(context)))
        scheduler.add_request(
            parts.make_request(number, chain, max_new_tokens=steps + 150, priority=0)
        )
    return parts, scheduler


def settle(parts: Any, scheduler: Any, running: int) -> None:
    """Until a step computes one token of everybody."""
    while True:
        output = step(parts, scheduler, 7)
        if output.total_num_scheduled_tokens == len(output.num_scheduled_tokens) == running:
            return


def cost(running: int, context: int, steps: int, folder: Path) -> dict[str, Any]:
    """One row of the table."""
    from poolproof.targets.vllm_watch import attach
    from poolproof.watch import watcher
    from poolproof.watch.settings import WatchSettings

    watched, alone = (decoding(running, context, steps) for _ in range(2))
    watch = attach(watched[1], WatchSettings("log", folder))
    assert watch is not None
    # In a server it measures itself by the clock on the wall; other processes are not its cost.
    watcher.time = SimpleNamespace(perf_counter_ns=time.thread_time_ns)  # type: ignore[assignment]  # all that it reads of the module
    for parts, scheduler in (watched, alone):
        settle(parts, scheduler, running)
    choose = random.Random(0)
    times: tuple[list[int], list[int]] = ([], [])
    own = []
    budget = watch.watcher.budget
    spend, spent = budget.spend, [0]

    def spend_and_note(spent_ns: int) -> None:
        spent[0] += spent_ns
        spend(spent_ns)

    budget.spend = spend_and_note  # type: ignore[method-assign]  # seen from outside
    for _ in range(steps):
        token = choose.randrange(3, 60)
        spent[0] = 0
        for (parts, scheduler), taken in zip((watched, alone), times):
            began_ns = time.thread_time_ns()
            step(parts, scheduler, token)
            taken.append(time.thread_time_ns() - began_ns)
        own.append(spent[0])
    assert watch.watcher.is_on
    with_watch, without = (statistics.median(taken) / 1e6 for taken in times)
    watch.watcher.end()
    return {
        "running": running,
        "context": context,
        "steps": steps,
        "scheduler_ms": round(without, 4),
        "watch_ms": round(with_watch - without, 4),
        "own_ms": round(statistics.median(own) / 1e6, 4),
        "own_mean_ms": round(statistics.fmean(own) / 1e6, 4),
        "own_one_in_20_ms": round(statistics.quantiles(own, n=20)[-1] / 1e6, 4),
        "findings": sum(watch.watcher.violations.values()),
    }


def resident_mib() -> float:
    """Memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def long_run(tokens: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Requests of distinct prompts come and go; memory after each tenth of the tokens."""
    from poolproof.contract.content import TokenChain
    from poolproof.targets.vllm_watch import attach
    from poolproof.watch.settings import WatchSettings

    parts, scheduler = make_scheduler(16, 4200, _POOL, 16_384)
    watch = attach(scheduler, WatchSettings("log", folder))
    assert watch is not None
    number, counts = 0, watch.watcher.counts
    for tenth in range(11):
        while counts.computed_tokens < tokens * tenth // 10:
            while len(scheduler.requests) < 16:
                chain = TokenChain(tuple(tokens_of(4000)))
                number += 1
                scheduler.add_request(
                    parts.make_request(number, chain, max_new_tokens=2, priority=0)
                )
            step(parts, scheduler, 7)
        yield {
            "tokens": counts.computed_tokens,
            "requests": number,
            "resident_mib": round(resident_mib(), 1),
            "findings": sum(watch.watcher.violations.values()),
        }
    assert watch.watcher.is_on
    watch.watcher.end()


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--tokens", type=float, default=10.0, help="millions in the long run")
    parser.add_argument("--part", choices=["rows", "memory"], help="one of the two alone")
    add_destination(parser, "watch_cost")
    arguments = parser.parse_args()
    record = json.loads(arguments.json.read_text("utf-8")) if arguments.json.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        if arguments.part != "memory":
            rows = []
            for running, context in ROWS:
                rows.append(cost(running, context, arguments.steps, Path(folder)))
                print(rows[-1], flush=True)
            record |= {**surroundings(), "rows": rows}
        if arguments.part != "rows":
            memory = []
            for row in long_run(int(arguments.tokens * 1e6), Path(folder)):
                memory.append(row)
                print(row, flush=True)
                # Whole at every time: a long run may be ended.
                record["memory"] = memory
                write_record(arguments.json, record, tells=False)
    return 0 if write_record(arguments.json, record) else 2


if __name__ == "__main__":
    sys.exit(main())
