"""Every workload of managers: how fast, and which planted bugs it shows after how few commands.

For each manager specimen: the fewest commands after which breadth-first search fails, on 3 blocks
a cache group, first over every verb and then over prompts with other keys; beside it what
minimising a random failure gives from several seeds. Before that, the states a second of
`impl-manager`.

Usage: python benchmarks/manager_workloads.py [--states N] [--seeds N]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

from record import add_destination, write_record

from poolproof.bugs.catalogue import MANAGER_SPECIMENS
from poolproof.bugs.specimen import ManagerSpecimen
from poolproof.certification.exploration import blocks_to_explore
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.trace import Trace
from poolproof.exploration.shortest import ShortestResult, shortest_manager_failure
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.minimise import execute_in_process, minimise
from poolproof.targets.load import load_target

MOST_COMMANDS = 8
MOST_RUNS = 60


def speed(max_commands: int) -> dict[str, Any]:
    """All workloads of the first layout of `impl-manager`."""
    layout = load_target("impl-manager").layouts[0]
    assert layout.make is not None
    assert isinstance(layout.profile, ManagerProfile)
    blocks = blocks_to_explore(layout.profile)
    began = time.process_time()
    found = shortest_manager_failure(
        layout.make, layout.profile, blocks, layout.block_size, max_commands=max_commands
    )
    seconds = time.process_time() - began
    assert found.violation is None, found.violation
    return {
        "layout": layout.name, "blocks": blocks, "commands": found.depth,
        "states": found.num_states, "tries": found.num_tries, "cpu_seconds": round(seconds, 2),
        "states_per_s": round(found.num_states / seconds),
        "tries_per_s": round(found.num_tries / seconds),
    }  # fmt: skip


def searched(specimen: ManagerSpecimen, max_states: int) -> tuple[str, ShortestResult]:
    """Over which prompts the bug shows first, and the search that came furthest."""
    found = {}
    for name, identities in (("every verb", False), ("other keys", True)):
        found[name] = shortest_manager_failure(
            specimen.make,
            specimen.profile,
            blocks_to_explore(specimen.profile),
            specimen.block_size,
            max_commands=4 if identities else MOST_COMMANDS,
            max_states=max_states,
            identities=identities,
        )
        if found[name].commands is not None:
            return name, found[name]
    return "", found["every verb"]


def first_failure(specimen: ManagerSpecimen, seed: int) -> Trace | None:
    """The first failing run of a campaign; None where only colliding hashes mislead."""
    options = {"weak_hashes": specimen.weak_hashes} if specimen.weak_hashes else {}
    campaign = ManagerCampaign(
        specimen.id, specimen.make, specimen.profile, specimen.block_size, seed, options
    )
    for number in range(MOST_RUNS):
        trace = campaign.run(number).trace
        if trace is not None:
            return trace
    return None


def row_of(specimen: ManagerSpecimen, max_states: int, seeds: int) -> dict[str, Any]:
    """One row of the table."""
    prompts, found = searched(specimen, max_states)
    traces = [first_failure(specimen, seed) for seed in range(seeds)]
    lengths = [
        len(minimise(trace, execute_in_process(specimen.make)).commands)
        for trace in traces
        if trace is not None
    ]
    return {
        "id": specimen.id,
        "thread": specimen.thread,
        "minimum": None if found.commands is None else len(found.commands),
        "over": prompts,
        "none_up_to": found.depth,
        "invariant": found.violation and found.violation.invariant,
        "states": found.num_states,
        "minimised": lengths,
    }


def main() -> int:
    """Measure every specimen and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--states", type=int, default=6_000, help="bound of each search")
    parser.add_argument("--seeds", type=int, default=3)
    add_destination(parser, "manager_workloads")
    arguments = parser.parse_args()
    fast = speed(5)
    print(fast, flush=True)
    rows = []
    for specimen in MANAGER_SPECIMENS.values():
        rows.append(row_of(specimen, arguments.states, arguments.seeds))
        print(rows[-1], flush=True)
    found = [row for row in rows if row["minimum"] is not None]
    shorter = [row["id"] for row in found if min(row["minimised"], default=99) < row["minimum"]]
    exact = sum(max(row["minimised"], default=0) == row["minimum"] for row in found)
    summary = {
        "bugs": len(rows), "found": len(found), "exact": exact, "shorter_at_random": shorter,
        "states": arguments.states, "seeds": arguments.seeds,
    }  # fmt: skip
    print(summary)
    measured = {"load_average": os.getloadavg()[0], "speed": fast, "summary": summary, "rows": rows}
    return 0 if write_record(arguments.json, measured, indent=1) else 2


if __name__ == "__main__":
    sys.exit(main())
