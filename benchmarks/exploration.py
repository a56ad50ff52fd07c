"""What exhaustive exploration costs, beside TLC and SPIN, and which planted bugs it finds.

One run measures: the reference at 8 blocks and every state of it executed on `impl`, on one core;
the same model at 6 blocks in whole processes of Poolproof, TLC (with symmetry over blocks and
hashes) and SPIN; the reference orbit by orbit beside whole levels in bulk, in processes of their
own that take turns; and for each planted bug the fewest commands that show it. `--large` adds 12
blocks, and 14 in bulk. What is left out stays in the file as it was.

Usage: python benchmarks/exploration.py [--large] [--no-bugs] [--record]
       python benchmarks/exploration.py --only-bulk [--large] [--record]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from record import RECORDED, add_destination, write_record

from poolproof.bugs.catalogue import SPECIMENS
from poolproof.bugs.specimen import Specimen
from poolproof.contract.target import capabilities_of
from poolproof.exploration.breadth_first import explore, reachable
from poolproof.exploration.cross_check import run_spin, run_tlc
from poolproof.exploration.exhaustive_run import check_part, parts_of, scope_under
from poolproof.exploration.orbit_space import OrbitSpace
from poolproof.exploration.queue_check import queue_states
from poolproof.exploration.scope import Scope
from poolproof.exploration.shortest import shortest_failure, shortest_queue_failure
from poolproof.exploration.watch import Watch
from poolproof.targets.load import load_target

BLOCKS = 8
BLOCKS_SIDE_BY_SIDE = 6
MOST_BLOCKS_OF_BUGS = 4
LEAST_RATIO = 20
BULK_TURNS = {6: 5, 8: 5, 10: 3}
"""How often each way is measured, by the number of blocks."""

BULK_TURNS_LARGE = {12: 1}
BLOCKS_IN_BULK_ALONE = 14
BULK_RATIO = 5
"""At 10 blocks bulk takes a fifth of the processor time at most."""

DEAF = Watch(lambda _: None, lambda _: None)
ALIKE = (b"\x01" * 16, b"\x09" * 16)
"""Two hashes that agree in their low bits, which is where a short digest looks."""


def reference() -> dict[str, Any]:
    """The reference at 8 blocks, in this process."""
    scope = Scope(BLOCKS)
    began_cpu = time.process_time()
    found = explore(OrbitSpace(scope))
    cpu = time.process_time() - began_cpu
    total = found.total
    return {
        "blocks": BLOCKS,
        "orbits": total.num_found,
        "states": total.num_states,
        "transitions": total.num_transitions,
        "depth": found.depth,
        "as_counted": (total.num_found, total.num_states) == (scope.num_orbits, scope.num_states),
        "seconds": round(found.seconds, 2),
        "cpu_seconds": round(cpu, 2),
    }


def implementation() -> dict[str, Any]:
    """Every state of 8 blocks, every action, on `impl`, in this process."""
    target = load_target("impl")
    can = capabilities_of(target.make(BLOCKS, True))
    scope = scope_under(Scope(BLOCKS), target.profile, can)
    began, began_cpu = time.perf_counter(), time.process_time()
    commands = states = failing = 0
    for part in parts_of(reachable(OrbitSpace(scope)), scope, BLOCKS, 0):
        result = check_part(
            "impl", make=target.make, profile=target.profile, can=can, part=part, watch=DEAF,
            mark=lambda _: None,
        )  # fmt: skip
        commands += result.num_commands
        states += result.num_states
        failing += result.num_failing
    return {
        "orbits": states,
        "commands": commands,
        "failing": failing,
        "seconds": round(time.perf_counter() - began, 2),
        "cpu_seconds": round(time.process_time() - began_cpu, 2),
    }


def process(*arguments: str) -> float:
    """Seconds of a whole process of Poolproof."""
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "poolproof", "explore", "specification", *arguments],
        check=True, capture_output=True,
    )  # fmt: skip
    return time.perf_counter() - began


def side_by_side() -> list[dict[str, Any]]:
    """The same model in three programs; each ratio is one over what Poolproof's process took."""
    scope = Scope(BLOCKS_SIDE_BY_SIDE)
    total = explore(OrbitSpace(scope)).total
    ours = process("--blocks", str(BLOCKS_SIDE_BY_SIDE), "--workers", "1")
    rows = [
        {
            "program": "Poolproof, orbits",
            "states": total.num_found,
            "checks": "the reference's own steps; states, orbits and transitions counted",
            "seconds": round(ours, 2),
            "ratio": 1.0,
            "agrees": True,
        }
    ]
    tlc = run_tlc(scope, (total.num_found, None), symmetry=True)
    spin = run_spin(scope, (total.num_states, total.num_transitions))
    checks = "I1 and that nothing is queued twice, of a model in its own language"
    for name, found in (("TLC, symmetry over blocks and hashes", tlc), ("SPIN, all states", spin)):
        if found.counted is None:
            print(f"{name}: {found.missing}")
            continue
        rows.append(
            {
                "program": name,
                "states": found.counted[0],
                "checks": checks,
                "seconds": round(found.seconds, 2),
                "ratio": round(found.seconds / ours, 1),
                "agrees": not found.differs,
            }
        )
    return rows


ONE_EXPLORATION = """
import json, sys, time
began, began_cpu = time.perf_counter(), time.process_time()
from poolproof.exploration.breadth_first import OnePartition, explore
from poolproof.exploration.orbit_space import OrbitSpace
from poolproof.exploration.scope import Scope, expected_mib
scope, in_bulk = Scope(int(sys.argv[1])), sys.argv[2] == "bulk"
if in_bulk:
    from poolproof.exploration.bulk_partition import BulkPartition
    parts = BulkPartition(scope)
else:
    parts = OnePartition(OrbitSpace(scope))
imported_cpu = time.process_time()
found = explore(OrbitSpace(scope), parts)
total, now = found.total, time.process_time()
counts = (total.num_found, total.num_states, total.num_transitions, found.depth)
# Of this program alone; the usage of a process counts what it was before it became this program.
lines = open("/proc/self/status").read().splitlines()
(peak_kib,) = [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
print(json.dumps({
    "counts": counts, "fired": total.fired, "new": total.new,
    "as_counted": counts[:2] == (scope.num_orbits, scope.num_states),
    "seconds": found.seconds, "cpu_seconds": now - imported_cpu,
    "with_imports_cpu_seconds": now - began_cpu,
    "mib": peak_kib // 1024, "estimated_mib": expected_mib(scope, symmetry=True, in_bulk=in_bulk),
}))
"""
"""The exploration alone, in a process of its own: what it counts, takes and uses."""


def one_exploration(blocks: int, way: str) -> dict[str, Any]:
    """What `ONE_EXPLORATION` prints; the way is "bulk" or "one by one"."""
    done = subprocess.run(
        [sys.executable, "-c", ONE_EXPLORATION, str(blocks), way],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout))


def both_ways(blocks: int, turns: int, ways: tuple[str, ...]) -> dict[str, Any]:
    """The ways in turn: medians, and the least and the most processor time."""
    runs = [[one_exploration(blocks, way) for way in ways] for _ in range(turns)]
    every = [run for turn in runs for run in turn]
    counted = {json.dumps([r["counts"], r["fired"], r["new"]], sort_keys=True) for r in every}
    orbits, states, transitions, depth = every[0]["counts"]
    row: dict[str, Any] = {
        "blocks": blocks,
        "orbits": orbits,
        "states": states,
        "transitions": transitions,
        "depth": depth,
        "agrees": len(counted) == 1 and all(run["as_counted"] for run in every),
        "turns": turns,
    }
    for place, way in enumerate(ways):
        of_way = [turn[place] for turn in runs]
        cpu = [run["cpu_seconds"] for run in of_way]
        row[way.replace(" ", "_")] = {
            **{
                name: round(statistics.median(run[name] for run in of_way), 3)
                for name in ("seconds", "cpu_seconds", "with_imports_cpu_seconds")
            },
            "cpu_spread": [round(min(cpu), 3), round(max(cpu), 3)],
            "mib": max(run["mib"] for run in of_way),
            "estimated_mib": of_way[0]["estimated_mib"],
        }
    if len(ways) == 2:
        ratios = [one["cpu_seconds"] / bulk["cpu_seconds"] for one, bulk in runs]
        row["ratio"] = round(statistics.median(ratios), 1)
    print(row, flush=True)
    return row


def bulk_rows(kept: list[dict[str, Any]], *, large: bool) -> Iterator[list[dict[str, Any]]]:
    """All rows, after each that is measured; those that are not yet are those of before."""
    turns = BULK_TURNS | (BULK_TURNS_LARGE if large else {})
    rows = {row["blocks"]: row for row in kept}
    for blocks, number in turns.items():
        rows[blocks] = both_ways(blocks, number, ("one by one", "bulk"))
        yield [rows[key] for key in sorted(rows)]
    if large:
        rows[BLOCKS_IN_BULK_ALONE] = both_ways(BLOCKS_IN_BULK_ALONE, 1, ("bulk",))
        yield [rows[key] for key in sorted(rows)]


def bulk_holds(rows: list[dict[str, Any]]) -> bool:
    """Whether both ways count the same, within the estimates, and bulk is as fast as is said."""
    ways = [row[way] for row in rows for way in ("one_by_one", "bulk") if way in row]
    return (
        all(row["agrees"] for row in rows)
        and all(figures["mib"] <= figures["estimated_mib"] for figures in ways)
        and all(row["ratio"] >= BULK_RATIO for row in rows if row["blocks"] == 10)
    )


def fewest_commands(specimen: Specimen) -> tuple[int, int] | None:
    """On how few blocks the bug shows, and after how few commands at those or one block more."""
    best: tuple[int, int] | None = None
    null = specimen.profile.null_block is not None
    for blocks in range(1, MOST_BLOCKS_OF_BUGS + 1):
        bound = 6 if best is None else best[0] - 1
        limits = {"max_commands": bound, "max_states": 60_000}
        found = (
            shortest_queue_failure(specimen.make, blocks, **limits)
            if specimen.level == "queue"
            else shortest_failure(
                specimen.make, specimen.profile, blocks + null, hashes=ALIKE, **limits
            )
        )
        if found.commands is not None:
            best = (len(found.commands), blocks)
    return best


def found_in_states(specimen: Specimen) -> bool:
    """Whether visiting every orbit of 3 blocks, pairs and misuse included, shows the bug."""
    blocks, profile = 3, specimen.profile
    can = capabilities_of(specimen.make(blocks + 1))
    if specimen.level == "queue":
        parts = parts_of([bytes(order) for order in queue_states(blocks)], None, blocks, 0)
    else:
        scope = scope_under(Scope(blocks), profile, can)
        parts = parts_of(reachable(OrbitSpace(scope)), scope, blocks, 0, wide=True)
    return any(
        check_part(
            specimen.id, make=specimen.make, profile=profile, can=can, part=part, watch=DEAF,
            mark=lambda _: None,
        ).failures
        for part in parts
    )  # fmt: skip


def bugs() -> list[dict[str, Any]]:
    """For each planted bug how it is found, beside what minimising random traces gave."""
    traces = json.loads((RECORDED / "minimal_traces.json").read_text(encoding="utf-8"))
    minimised = {row["id"]: row["minimised"] for row in traces["rows"]}
    rows = []
    for specimen in SPECIMENS.values():
        if specimen.level not in {"pool", "queue"}:
            continue
        best = fewest_commands(specimen)
        rows.append(
            {
                "id": specimen.id,
                "thread": specimen.thread,
                "level": specimen.level,
                "minimum": best and best[0],
                "blocks": best and best[1],
                "in_states": found_in_states(specimen),
                "minimised": minimised.get(specimen.id, []),
            }
        )
        print(" ", rows[-1], flush=True)
    return rows


def main() -> int:
    """Measure; exit status 1 if a bug is not found, a count differs or a ratio is too low."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--large", action="store_true", help="also 12 and 14 blocks (minutes)")
    parser.add_argument("--no-bugs", action="store_true", help="keep the table of bugs in the file")
    parser.add_argument("--only-bulk", action="store_true", help="keep all but the rows of bulk")
    add_destination(parser, "exploration")
    arguments = parser.parse_args()
    path = arguments.json
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if arguments.only_bulk:
        for rows in bulk_rows(kept.get("bulk", []), large=arguments.large):
            kept["bulk"] = rows
            if not write_record(path, kept):
                return 2
        return int(not bulk_holds(kept["bulk"]))
    measured = {
        "python": sys.version.split()[0],
        "load_average": os.getloadavg()[0],
        "reference": reference(),
        "implementation": implementation(),
        "side_by_side": side_by_side(),
        "bulk": list(bulk_rows(kept.get("bulk", []), large=arguments.large))[-1],
        "bugs": kept["bugs"] if arguments.no_bugs and "bugs" in kept else bugs(),
    }
    for name in ("reference", "implementation", "side_by_side"):
        print(f"{name}: {measured[name]}")
    missed = [row["id"] for row in measured["bugs"] if row["minimum"] is None]
    print(f"{len(measured['bugs'])} planted bugs, not found at up to 4 blocks: {missed or 'none'}")
    if not write_record(path, measured):
        return 2
    others = measured["side_by_side"][1:]
    slow = [row["program"] for row in others if row["ratio"] < LEAST_RATIO or not row["agrees"]]
    counted = measured["reference"]["as_counted"] and not measured["implementation"]["failing"]
    return int(bool(missed or slow) or not counted or not bulk_holds(measured["bulk"]))


if __name__ == "__main__":
    sys.exit(main())
