"""Whether the watch names every wrong output, victims of victims included.

Faults are planted into vLLM's scheduler (vllm_faults.py) and into our own engine (the specimens of
bugs/). A worker whose tokens depend on all that it reads (dependent_worker.py) serves random
requests. Each output is compared with that of the engine without a fault and with caching off; a
wrong one must be named by a finding of the watch. Set-ups with drafts, images, recurrent states
and memory outside the device are left out: the worker has none.

Usage: python benchmarks/watch_victims.py [--runs N] [--part vllm|impl] [--record]
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import sys
import tempfile
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dependent_worker import DependentWorker, Served
from record import add_destination, surroundings, write_record

from poolproof.bugs.engine_catalogue import ENGINE_SPECIMENS
from poolproof.bugs.engine_specimen import BLOCK_SIZE, build_engine
from poolproof.contract.content import TokenChain
from poolproof.contract.engine_plan import EnginePlan, plan_from
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.step_record import ComputedTokens, StepRecord
from poolproof.impl.engine import Engine
from poolproof.watch.digests import Digests
from poolproof.watch.live_memory import LiveMemory

VLLM_SETUPS = ("fcfs", "priority", "fcfs+async", "fcfs+chunks", "sliding")


@dataclass
class Recorder:
    """Gives the watch of our own engine what its plans say, tables as a worker knows them."""

    memory: LiveMemory
    tables: dict[int, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    named: set[int] = field(default_factory=set)
    ended: list[int] = field(default_factory=list)
    number: int = 0

    def record(self, plan: EnginePlan, requests: dict[int, Served]) -> None:
        """One step, before it samples."""
        for request_id in plan.preempted:
            self.tables.pop(request_id, None)
        computed = []
        for part in plan.parts:
            request = requests[part.request_id]
            before, known = self.tables.get(part.request_id), part.blocks
            grows = before is not None and all(
                table[: len(old)] == old for table, old in zip(known, before)
            )
            added = tuple(t[len(o) :] for t, o in zip(known, before or ())) if grows else known
            self.tables[part.request_id] = known
            end = part.first + part.count
            chain = TokenChain(tuple(request.tokens[:end]))
            name = str(part.request_id)
            computed.append(ComputedTokens(name, chain, part.first, part.count, added, not grows))
        self.number += 1
        ended, self.ended = tuple(map(str, self.ended)), []
        found = self.memory.record(StepRecord(self.number, tuple(computed), plan.copies, ended))
        self.named |= {int(one.request_id) for one in found if one.request_id is not None}

    def end(self, request_id: int) -> None:
        """Its table is dropped before the next step."""
        self.tables.pop(request_id, None)
        self.ended.append(request_id)


@dataclass
class Run:
    """What a run gave, and whether it came to its end."""

    outputs: dict[int, list[int]]
    named: set[int]
    crashed: bool


def prompts(choose: random.Random) -> list[tuple[int, list[int], int, int]]:
    """When each comes, its tokens, how many more it wants, its priority; beginnings are shared."""
    texts = [[choose.randrange(2, 50) for _ in range(24)] for _ in range(3)]
    found = []
    for _ in range(24):
        text = choose.choice(texts)[: choose.randint(4, 20)]
        tail = [choose.randrange(2, 50) for _ in range(choose.randint(0, 3))]
        found.append(
            (choose.randrange(60), [*text, *tail], choose.randint(1, 8), choose.randint(0, 3))
        )
    return sorted(found)


def served(
    engine: Any,
    profile: EngineProfile,
    seed: int,
    recorder: Recorder | None,
    *,
    cancels: bool = True,
) -> Run:
    """A busy minute; it stops where the engine raises."""
    coming = deque(enumerate(prompts(random.Random(f"prompts {seed}"))))
    worker = DependentWorker(profile.groups, BLOCK_SIZE)
    choose = random.Random(f"cancels {seed}")
    in_flight: deque[EnginePlan] = deque()
    live: set[int] = set()
    crashed = False
    try:
        for step in range(900):
            while coming and coming[0][1][0] <= step:
                number, (_, tokens, more, priority) = coming.popleft()
                engine.submit(number, list(tokens), max_new_tokens=more, priority=priority)
                worker.requests[number] = Served(list(tokens))
                live.add(number)
            if not coming and not live:
                break
            if cancels and live and choose.random() < 0.04:
                gone = choose.choice(sorted(live))
                engine.cancel(gone)
                live.discard(gone)
                if recorder is not None:
                    recorder.end(gone)
            in_flight.append(plan_from(engine.plan()))
            if len(in_flight) >= profile.steps_in_flight:
                answered(engine, worker, in_flight.popleft(), recorder, live)
    except Exception:  # noqa: BLE001 -- a planted fault may end the engine in any way
        crashed = True
    return Run({n: r.given for n, r in worker.requests.items()}, set(), crashed)


def answered(
    engine: Any,
    worker: DependentWorker,
    plan: EnginePlan,
    recorder: Recorder | None,
    live: set[int],
) -> None:
    """The oldest step in flight is computed."""
    if recorder is not None:
        recorder.record(plan, worker.requests)
    sampled = worker.step(plan)
    for number, tokens, ended in engine.answer(sampled, {}):
        worker.requests[number].given += tokens
        if ended:
            live.discard(number)
            if recorder is not None:
                recorder.end(number)


def compared(run: Run, right: Run) -> dict[str, int]:
    """How many outputs are wrong, and how many of these are named."""
    wrong = {
        number
        for number, given in run.outputs.items()
        if given != right.outputs[number][: len(given)]
    }
    return {
        "outputs": len(run.outputs),
        "wrong": len(wrong),
        "named": len(wrong & run.named),
        "crashed": int(run.crashed),
    }


def impl_rows(runs: int) -> list[dict[str, Any]]:
    """Every specimen of our own engine whose set-up the worker can serve."""
    rows = []
    for specimen in ENGINE_SPECIMENS.values():
        profile = specimen.profile
        if (
            profile.draft_tokens
            or profile.image_tokens
            or profile.max_adapters
            or specimen.host_places
            or any(group.is_state for group in profile.groups)
        ):
            continue

        def run(seed: int, specimen: Any = specimen, profile: EngineProfile = profile) -> Any:
            num_blocks = random.Random(f"blocks {seed}").randint(10, 14)
            right = served(
                build_engine(Engine, profile, 0, 64, False), profile, seed, None, cancels=False
            )
            sizes = [group.block_size or BLOCK_SIZE for group in profile.groups]
            memory = LiveMemory(num_blocks, profile.groups, sizes, Digests(), null_block=0)
            recorder = Recorder(memory)
            run = served(specimen.make(num_blocks), profile, seed, recorder)
            run.named = recorder.named
            return run, right

        rows.append(row(specimen.id, runs, run))
    return rows


def vllm_rows(runs: int, folder: Path) -> list[dict[str, Any]]:
    """Every fault of vllm_faults.py in several set-ups, seen by the tap as in a server."""
    from vllm_faults import VLLM_FAULTS

    from poolproof.targets.vllm_engine import vllm_engine_layouts
    from poolproof.targets.vllm_engine_setups import SETUPS
    from poolproof.targets.vllm_watch import attach
    from poolproof.watch.settings import WatchSettings

    rows = []
    for setup in SETUPS:
        if setup.name not in VLLM_SETUPS:
            continue
        (layout,) = vllm_engine_layouts([setup])
        for plant in VLLM_FAULTS:

            def run(seed: int, layout: Any = layout, plant: Any = plant) -> Any:
                num_blocks = random.Random(f"blocks {seed}").randint(9, 18)
                right = served(layout.make(64, False), layout.profile, seed, None, cancels=False)
                engine = layout.make(num_blocks, True)
                watch = attach(engine.scheduler, WatchSettings("log", folder, budget=9.0))
                assert watch is not None
                pool = engine.scheduler.kv_cache_manager.block_pool
                plant(pool, random.Random(f"fault {seed}"))
                run = served(engine, layout.profile, seed, None)
                assert watch.watcher.is_on
                run.named = {
                    int(one.request_id)
                    for one in watch.watcher.findings
                    if one.request_id is not None
                }
                watch.watcher.end()
                return run, right

            rows.append(row(f"{setup.name}: {plant.__name__}", runs, run))
    return rows


def row(name: str, runs: int, run: Callable[[int], tuple[Run, Run]]) -> dict[str, Any]:
    """One row of the record; `missed` are seeds of runs with a wrong output that is not named."""
    total = {"outputs": 0, "wrong": 0, "named": 0, "crashed": 0}
    missed = []
    for seed in range(runs):
        counts = compared(*run(seed))
        total = {key: total[key] + counts[key] for key in total}
        if counts["named"] < counts["wrong"]:
            missed.append(seed)
    found = {"fault": name, "runs": runs, **total, "missed": missed}
    print(found, flush=True)
    return found


def main() -> int:
    """The command; 1 where a wrong output was not named."""
    os.environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_CONFIGURE_LOGGING="0")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10, help="of each fault")
    parser.add_argument("--part", choices=["vllm", "impl"], help="one of the two alone")
    add_destination(parser, "watch_victims")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    record = json.loads(arguments.json.read_text("utf-8")) if arguments.json.exists() else {}
    record |= surroundings()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.part != "vllm":
            record["impl"] = impl_rows(arguments.runs)
        if arguments.part != "impl":
            record["vllm"] = vllm_rows(arguments.runs, Path(folder))
    rows = [*record.get("impl", ()), *record.get("vllm", ())]
    wrong, named = (sum(row[key] for row in rows) for key in ("wrong", "named"))
    print(f"{named} of {wrong} wrong outputs are named")
    if not write_record(arguments.json, record):
        return 2
    return 0 if named == wrong else 1


if __name__ == "__main__":
    sys.exit(main())
