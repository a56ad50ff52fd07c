"""Many steps of an engine's own scheduler in each of its set-ups: what is found, and what happened.

Each set-up is run by the plain driver until its scheduler has planned so many steps, or something
is found. Needs the target's environment (`make vllm` for vllm-engine); set-ups run side by side.

Usage: .venv-vllm/bin/python benchmarks/engine_soak.py [--target NAME] [--steps N]
           [--layout NAME ...] [--seed S] [--workers N] [--again] [--record]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Callable
from typing import Any

from record import RECORDED, add_destination, surroundings, write_record

from poolproof.contract.engine_target import engine_capabilities_of
from poolproof.contract.target import TargetError
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.harness.engine_facts import required_engine_facts
from poolproof.targets.load import load_target
from poolproof.targets.target import EngineLayout, Target

DEFAULT_STEPS = 125_000
"""Eight set-ups of it are a million."""


_ROOMY = 64
"""Blocks of which every engine can be built, to see what it can do."""


class _Counting:
    """Builds engines whose planned steps are counted."""

    def __init__(self, make: Callable[[int, bool], Any]) -> None:
        self._make = make
        self.num_steps = 0

    def __call__(self, num_blocks: int, enable_caching: bool) -> Any:
        engine = self._make(num_blocks, enable_caching)
        plan = engine.plan

        def counted() -> Any:
            self.num_steps += 1
            return plan()

        engine.plan = counted
        return engine


def layouts_of(name: str) -> list[EngineLayout]:
    """The set-ups of an engine. Raises TargetError where it cannot be loaded, or is no engine."""
    target: Target = load_target(name)
    layouts = [layout for layout in target.layouts if isinstance(layout, EngineLayout)]
    if not layouts:
        raise TargetError(f"{name} is no engine; this measures targets of the level engine")
    return layouts


def soaked(target: str, layout_name: str, most_steps: int, seed: int) -> dict[str, Any]:
    """What one set-up shows in so many steps."""
    layout = next(layout for layout in layouts_of(target) if layout.name == layout_name)
    make, facts, found = _Counting(layout.make), set[str](), None
    campaign = EngineCampaign(target, make, layout.profile, layout.block_size, seed=seed)
    began, num_commands, number = time.process_time(), 0, 0
    while make.num_steps < most_steps and found is None:
        run = campaign.run(number)
        number += 1
        num_commands += run.num_steps
        facts |= run.facts
        if run.trace is not None and run.trace.violation is not None:
            found = run.trace.violation.sentence
    can = engine_capabilities_of(layout.make(_ROOMY, True))
    required = required_engine_facts(layout.profile, can, layout.block_size)
    return {
        "layout": layout_name,
        "runs": number,
        "commands": num_commands,
        "steps": make.num_steps,
        "cpu_seconds": round(time.process_time() - began, 3),
        "found": found,
        "not_reached": sorted(set(required) - facts),
    }


def main() -> int:
    """Write the record; 2 where the target cannot be loaded."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="vllm-engine")
    parser.add_argument("--steps", type=int, default=DEFAULT_STEPS, help="of each set-up, planned")
    parser.add_argument("--layout", action="append", metavar="NAME", help="only these set-ups")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="also what was recorded before")
    add_destination(parser, "engine_soak")
    options = parser.parse_args()
    try:
        names = [layout.name for layout in layouts_of(options.target)]
    except TargetError as error:
        print(error, file=sys.stderr)
        return 2
    unknown = sorted(set(options.layout or ()) - set(names))
    if unknown:
        print(f"no set-up {', '.join(unknown)}; there are {', '.join(names)}", file=sys.stderr)
        return 2
    record = recorded(options.again)
    kept = {row["layout"]: row for row in record.get(options.target, {}).get("rows", [])}
    chosen = [name for name in names if name in (options.layout or names)]
    # A process for each: a patch is applied while a target is imported, which is once a process.
    spawning = multiprocessing.get_context("spawn")
    with spawning.Pool(options.workers, maxtasksperchild=1) as pool:
        waiting = {
            name: pool.apply_async(soaked, (options.target, name, options.steps, options.seed))
            for name in chosen
        }
        for name, result in waiting.items():
            kept[name] = row = result.get()
            said = row["found"] or "nothing found"
            print(f"{name}: {row['steps']:,} steps, {said}", flush=True)
            # After each one, so that an interrupted run keeps what it has.
            rows = [kept[name] for name in names if name in kept]
            record[options.target] = surroundings() | {"rows": rows}
            if not write_record(options.json, record):
                return 1
    return 0


def recorded(again: bool) -> dict[str, Any]:
    """What was recorded before, unless all of it is to be measured again."""
    path = RECORDED / "engine_soak.json"
    if again or not path.exists():
        return {}
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record


if __name__ == "__main__":
    sys.exit(main())
