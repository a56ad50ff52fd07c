"""How short minimised traces are, against the true minimum found by breadth-first search.

For each planted bug of `bugs/`: find it with the plain driver from several seeds, minimise each
failing trace by delta debugging alone, and compare the lengths with the shortest failure of the
same kind that breadth-first search finds (counts up to 3, lists up to 2). Prints a table.

Usage: python benchmarks/minimal_traces.py [--seeds N] [--record]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

from record import add_destination, write_record

from poolproof.bugs.catalogue import SPECIMENS
from poolproof.bugs.specimen import Specimen
from poolproof.contract.trace import Trace
from poolproof.exploration.shortest import shortest_failure, shortest_queue_failure
from poolproof.harness.minimise import execute_in_process, minimise
from poolproof.harness.queue_driver import QueueCampaign
from poolproof.harness.random_driver import PoolCampaign

MOST_RUNS = 400


def first_failure(specimen: Specimen, seed: int) -> tuple[Trace, int]:
    """The first failing run of a campaign, and the steps until then."""
    campaign: Any = (
        QueueCampaign(specimen.id, specimen.make, seed)
        if specimen.level == "queue"
        else PoolCampaign(specimen.id, specimen.make, specimen.profile, seed)
    )
    steps = 0
    for number in range(MOST_RUNS):
        run = campaign.run(number)
        steps += run.num_steps
        if run.trace is not None:
            return run.trace, steps
    raise SystemExit(f"{specimen.id} was not caught within {MOST_RUNS} runs from seed {seed}")


def measure(specimen: Specimen, seeds: int) -> dict[str, Any]:
    """One row: steps to catch, minimised lengths, the true minimum."""
    lengths, steps, took_s = [], [], []
    for seed in range(seeds):
        trace, until = first_failure(specimen, seed)
        began = time.process_time()
        minimal = minimise(trace, execute_in_process(specimen.make))
        took_s.append(time.process_time() - began)
        lengths.append(len(minimal.commands))
        steps.append(until)
    usable = 3 + (specimen.profile.null_block is not None)
    bound = {"max_commands": max(lengths), "max_states": 60_000}
    found = (
        shortest_queue_failure(specimen.make, 3, **bound)
        if specimen.level == "queue"
        else shortest_failure(specimen.make, specimen.profile, usable, **bound)
    )
    return {
        "id": specimen.id,
        "thread": specimen.thread,
        "level": specimen.level,
        "steps_to_catch": statistics.median(steps),
        "minimised": lengths,
        "minimise_ms": round(1000 * statistics.median(took_s), 1),
        "breadth_first": None if found.commands is None else len(found.commands),
        "breadth_first_depth": found.depth,
    }


def main() -> int:
    """Measure every specimen; exit status 1 if a trace is more than 2 commands too long."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    add_destination(parser, "minimal_traces")
    asked = parser.parse_args()
    seeds = asked.seeds
    rows = []
    print(f"{'id':5} {'steps':>6} {'minimum':>8}  minimised, {seeds} seeds   ms")
    for specimen in SPECIMENS.values():
        row = measure(specimen, seeds)
        rows.append(row)
        shown = "-" if row["breadth_first"] is None else row["breadth_first"]
        lengths = " ".join(map(str, row["minimised"]))
        head = f"{row['id']:5} {row['steps_to_catch']:>6.0f} {shown:>8}"
        print(f"{head}  {lengths:20} {row['minimise_ms']:>6}", flush=True)
    known = [row for row in rows if row["breadth_first"] is not None]
    worst = max(max(row["minimised"]) - row["breadth_first"] for row in known)
    exact = sum(max(row["minimised"]) == row["breadth_first"] for row in known)
    print(f"{len(known)} bugs with a known minimum, {exact} reached from every seed; "
          f"the longest trace is {worst} commands above its minimum")  # fmt: skip
    summary = {"seeds": seeds, "bugs": len(known), "exact": exact, "worst_excess": worst}
    if not write_record(asked.json, {"summary": summary, "rows": rows}, indent=1):
        return 2
    return int(worst > 2)


if __name__ == "__main__":
    sys.exit(main())
