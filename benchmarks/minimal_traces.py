"""How short minimised traces are, against the true minimum found by breadth-first search.

For each planted bug of `bugs/`: find it with the plain driver from several seeds, minimise each
failing trace by delta debugging alone, and compare the lengths with the shortest failure of the
same kind that breadth-first search finds (counts up to 3, lists up to 2). A bug may show in several
ways, and each trace is compared with the shortest that shows it in its own way. Prints a table.

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
from poolproof.harness.failure_kind import FailureKind, failure_kind
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


def shortest_of(specimen: Specimen, kind: FailureKind, most: int) -> int | None:
    """How many commands the shortest failure of a kind has; None where none was reached."""
    usable = 3 + (specimen.profile.null_block is not None)
    bound: dict[str, Any] = {
        "max_commands": most,
        "max_states": 60_000,
        "is_wanted": lambda violation, commands: failure_kind(violation, commands) == kind,
    }
    found = (
        shortest_queue_failure(specimen.make, 3, **bound)
        if specimen.level == "queue"
        else shortest_failure(specimen.make, specimen.profile, usable, **bound)
    )
    return None if found.commands is None else len(found.commands)


def measure(specimen: Specimen, seeds: int) -> dict[str, Any]:
    """One row: steps to catch, minimised lengths, and beside each the true minimum of its kind."""
    minimal, steps, took_s = [], [], []
    for seed in range(seeds):
        trace, until = first_failure(specimen, seed)
        began = time.process_time()
        minimal.append(minimise(trace, execute_in_process(specimen.make)))
        took_s.append(time.process_time() - began)
        steps.append(until)
    longest: dict[FailureKind, int] = {}
    for each in minimal:
        longest[kind_of(each)] = max(longest.get(kind_of(each), 0), len(each.commands))
    shortest = {kind: shortest_of(specimen, kind, most) for kind, most in longest.items()}
    return {
        "id": specimen.id,
        "thread": specimen.thread,
        "level": specimen.level,
        "steps_to_catch": statistics.median(steps),
        "minimised": [len(each.commands) for each in minimal],
        "minimise_ms": round(1000 * statistics.median(took_s), 1),
        "breadth_first": [shortest[kind_of(each)] for each in minimal],
    }


def kind_of(trace: Trace) -> FailureKind:
    """How a minimised trace fails."""
    assert trace.violation is not None
    return failure_kind(trace.violation, trace.commands)


def excesses(row: dict[str, Any]) -> list[int]:
    """How many commands the minimised traces have above the shortest of their kind."""
    return [
        length - shortest
        for length, shortest in zip(row["minimised"], row["breadth_first"])
        if shortest is not None
    ]


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
    print(f"{'id':5} {'steps':>6}  {'minimum':12} minimised, {seeds} seeds   ms")
    for specimen in SPECIMENS.values():
        row = measure(specimen, seeds)
        rows.append(row)
        shown = " ".join("-" if each is None else str(each) for each in row["breadth_first"])
        lengths = " ".join(map(str, row["minimised"]))
        head = f"{row['id']:5} {row['steps_to_catch']:>6.0f}  {shown:12}"
        print(f"{head} {lengths:20} {row['minimise_ms']:>6}", flush=True)
    known = [row for row in rows if excesses(row)]
    worst = max(max(excesses(row)) for row in known)
    exact = sum(max(excesses(row)) <= 0 for row in known)
    print(f"{len(known)} bugs with a known minimum, {exact} reached from every seed; "
          f"the longest trace is {worst} commands above its minimum")  # fmt: skip
    summary = {"seeds": seeds, "bugs": len(known), "exact": exact, "worst_excess": worst}
    if not write_record(asked.json, {"summary": summary, "rows": rows}, indent=1):
        return 2
    return int(worst > 2)


if __name__ == "__main__":
    sys.exit(main())
