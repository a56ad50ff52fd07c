"""What the protocol of `cmd:` targets costs: tapes, checked steps, and an exhaustive certification.

For each example allocator that is built (`make examples`):

- operations per second on tapes of 200 commands on a pool of 8 blocks: commands written, answers
  read, everything that the program shows after each command included. Each tape is timed alone
  and the fastest twentieth counts, because whatever else runs on the machine only slows it down;
  the median stands beside it, and what the processor time of both processes together gives;
- the same commands and the same looks on Poolproof's own pool in this process, and the ratio;
- steps per second of the plain driver on tapes: predicted, played, and judged with every check;
- milliseconds of one command in a conversation, where each waits for the answer before;
- seconds to certify all orbits of 8 blocks, 2 hashes and 2 references, every command in each,
  by `poolproof explore` with all processors; the seconds of processor time stand beside it.

Usage: python benchmarks/protocol_speed.py [--repeats N] [--record]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from record import add_destination, write_record

from poolproof.contract.commands import Command
from poolproof.contract.content import Key
from poolproof.harness.random_driver import PoolCampaign, RunPlan
from poolproof.harness.tape_driver import predicted_commands, taped
from poolproof.impl.block_pool import BlockPool
from poolproof.targets.command_messages import named_hashes
from poolproof.targets.load import load_target
from poolproof.targets.target import Target

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = {
    "c": "build/examples/lru_pool_c",
    "rust": "build/examples/rust/release/lru-pool",
    "javascript": "node examples/javascript/lru_pool.mjs",
    "python": f"{sys.executable} -m poolproof.targets.serve 'impl[events=none]'",
}
EXHAUSTIVE = ("c", "rust")
BLOCKS, TAPE, TAPES = 8, 200, 20
ORBITS = 36_803
GOAL_OPERATIONS, GOAL_SECONDS = 300_000, 60


def tapes_for(target: Target) -> list[list[Command]]:
    """Tapes of the plain driver's workload, as long as each other."""
    assert target.tapes is not None
    campaign = PoolCampaign(target.name, target.make, target.profile)
    plans = (RunPlan(f"protocol/{number}", BLOCKS, True, TAPE, 3) for number in range(TAPES))
    return [predicted_commands(campaign, plan, target.tapes.can)[:TAPE] for plan in plans]


def rates(works: Sequence[tuple[int, Callable[[], object]]], repeats: int) -> dict[str, float]:
    """Operations per second of pieces of work, each with its number of operations.

    The slowest of the fastest twentieth, and the median; one more round warms up.
    """
    found = []
    for turn in range(repeats + 1):
        for operations, work in works:
            began = time.perf_counter()
            work()
            if turn:
                found.append(operations / (time.perf_counter() - began))
    found.sort(reverse=True)
    return {"undisturbed": found[len(found) // 20], "median": statistics.median(found)}


def processor_seconds() -> float:
    """Processor time of this process and of those children that have ended."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)


def in_process(tape: Sequence[Command]) -> None:
    """The tape on our own pool, with a look at everything after each command."""
    pool = BlockPool(BLOCKS)
    blocks = range(BLOCKS)
    named: list[Key] = []
    for command in tape:
        arguments: list[Any] = [getattr(command, field.name) for field in fields(command)]
        named += [key for key in named_hashes(command) if key not in named]
        with contextlib.suppress(MemoryError, ValueError):
            getattr(pool, command.verb)(*arguments)
        pool.num_free()
        pool.free_order()
        list(map(pool.ref_count, blocks))
        list(map(pool.block_hash, blocks))
        list(map(pool.free_neighbours, blocks))
        list(map(pool.lookup, named))


def measure(program: str, repeats: int) -> dict[str, Any]:
    """The figures of one program."""
    target = load_target(f"cmd:{program}")
    assert target.tapes is not None
    tapes, player = tapes_for(target), target.tapes
    works = [(len(tape), partial(player.play, BLOCKS, True, tape)) for tape in tapes]
    player.renew()
    before = processor_seconds()
    on_tapes = rates(works, repeats)
    player.renew()
    spent = processor_seconds() - before
    on_tapes["by processor time"] = (repeats + 1) * sum(map(len, tapes)) / spent
    campaign = taped(PoolCampaign(target.name, target.make, target.profile), player)
    runs = [(campaign.run(number).num_steps, partial(campaign.run, number)) for number in range(10)]
    checked = rates(runs, max(1, repeats // 10))
    pool = target.make(BLOCKS, True)
    conversation = rates([(2, lambda: pool.free(pool.allocate(1)))], 10 * repeats)
    return {
        "tapes, operations/s": on_tapes,
        "checked steps/s": checked,
        "one command, ms": {key: 1000 / value for key, value in conversation.items()},
    }


def explore(program: str) -> dict[str, Any]:
    """All orbits on a program, by the command line."""
    command = [sys.executable, "-m", "poolproof", "explore", f"cmd:{program}", "--blocks"]
    before = processor_seconds()
    began = time.perf_counter()
    done = subprocess.run(
        [*command, str(BLOCKS)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - began
    return {
        "exit_status": done.returncode,
        "all_orbits": f"{ORBITS:,}/{ORBITS:,} orbits" in done.stdout,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(processor_seconds() - before, 1),
    }


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=50, help="how often each part runs")
    add_destination(parser, "protocol")
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error("--repeats must be 1 or more")
    os.chdir(ROOT)
    record: dict[str, Any] = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "repeats": options.repeats,
        "programs": {},
        "exhaustive": {},
    }
    tapes = tapes_for(load_target(f"cmd:{PROGRAMS['python']}"))
    here = rates([(len(tape), partial(in_process, tape)) for tape in tapes], options.repeats)
    record["in process, operations/s"] = here
    print(f"in process: {here['undisturbed']:,.0f} operations/s")
    for language, program in PROGRAMS.items():
        if shutil.which(program.split()[0]) is None:
            print(f"skipped {language}: {program.split()[0]} is not there; run make examples")
            continue
        found = record["programs"][language] = measure(program, options.repeats)
        best = found["tapes, operations/s"]["undisturbed"]
        found["ratio to in process"] = best / here["undisturbed"]
        goal = f"   goal >= {GOAL_OPERATIONS:,}: " if language == "c" else ""
        goal += "" if not goal else "reached" if best >= GOAL_OPERATIONS else "MISSED"
        print(f"{language}: {best:,.0f} operations/s on tapes of {TAPE}{goal}")
    for language in EXHAUSTIVE:
        if language in record["programs"]:
            found = record["exhaustive"][language] = explore(PROGRAMS[language])
            reached = found["all_orbits"] and found["seconds"] <= GOAL_SECONDS
            print(
                f"{language}: all orbits in {found['seconds']} s, {found['cpu_seconds']} s of "
                f"processors   goal <= {GOAL_SECONDS} s: {'reached' if reached else 'MISSED'}"
            )
    record["load_average_at_end"] = os.getloadavg()[0]
    return 0 if write_record(options.json, record, indent=1) else 2


if __name__ == "__main__":
    sys.exit(main())
