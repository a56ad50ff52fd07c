"""The planted bugs of engines against the plain driver: how soon each is found, from two seeds.

Each specimen runs under the profile that it is stated under, each correct oddity under all of its
own. For each there are the steps (commands) to the first failure, the invariant that names it, and
the length of the minimised trace of the first seed.

With `--only` those that it names are measured, specimens by id and oddities by name, and the rest
of the record stays as it is.

Usage: python benchmarks/engine_specimens.py [--runs N] [--only NAME ...] [--record]
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from record import RECORDED, add_destination, surroundings, write_record

from poolproof.bugs.engine_catalogue import ENGINE_SPECIMENS
from poolproof.bugs.engine_oddities import ENGINE_ODDITIES
from poolproof.bugs.engine_specimen import BLOCK_SIZE, EngineOddity, EngineSpecimen
from poolproof.contract.trace import Trace
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.harness.minimise import minimise, run_candidate

SEEDS = (0, 1)
ODDITY_RUNS = 100


def first_failure(campaign: EngineCampaign, most_runs: int) -> tuple[int, Trace | None]:
    """The steps of all runs up to the first that fails, and its trace."""
    steps = 0
    for number in range(most_runs):
        run = campaign.run(number)
        steps += run.num_steps
        if run.trace is not None:
            return steps, run.trace
    return steps, None


def measured(found: EngineSpecimen, most_runs: int) -> dict[str, Any]:
    """One specimen from each seed; the trace of the first that fails is minimised."""
    steps: list[int | None] = []
    named: set[str] = set()
    length = None
    for seed in SEEDS:
        campaign = EngineCampaign(found.id, found.make, found.profile, BLOCK_SIZE, seed=seed)
        count, trace = first_failure(campaign, most_runs)
        steps.append(None if trace is None else count)
        if trace is None:
            continue
        assert trace.violation is not None
        named.add(trace.violation.invariant)
        if length is None:
            small = minimise(
                trace, lambda setup, commands: run_candidate(setup, commands, found.make)
            )
            length = len(small.commands)
    return {
        "id": found.id,
        "title": found.title,
        "thread": found.thread,
        "steps": steps,
        "named": sorted(named),
        "minimal": length,
    }


def is_accused(oddity: EngineOddity) -> bool:
    """Whether any run of an oddity, under any of its profiles, finds something."""
    return any(
        first_failure(EngineCampaign(oddity.name, make, profile, BLOCK_SIZE), ODDITY_RUNS)[1]
        is not None
        for profile, make in oddity.makes()
    )


def main() -> int:
    """Write the record; 1 where an oddity is accused."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=400, help="runs of each seed at most")
    add_destination(parser, "engine_specimens")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="measure these, keep the rest")
    given = parser.parse_args()
    kept = json.loads((RECORDED / "engine_specimens.json").read_text("utf-8")) if given.only else {}
    rows = {row["id"]: row for row in kept.get("bugs", ())}
    for found in ENGINE_SPECIMENS.values():
        if not given.only or found.id in given.only:
            row = rows[found.id] = measured(found, given.runs)
            print(f"{found.id}: steps {row['steps']}, {row['minimal']} commands", flush=True)
    bugs = [rows[name] for name in ENGINE_SPECIMENS if name in rows]
    tried = [odd for odd in ENGINE_ODDITIES if not given.only or odd.name in given.only]
    names = {oddity.name for oddity in tried}
    accused = [name for name in kept.get("accused", ()) if name not in names]
    accused += [oddity.name for oddity in tried if is_accused(oddity)]
    record = {
        **surroundings(),
        "num_runs": given.runs,
        "num_seeds": len(SEEDS),
        "oddity_runs": ODDITY_RUNS,
        "bugs": bugs,
        "oddities": len(ENGINE_ODDITIES),
        "accused": accused,
    }
    write_record(given.json, record)
    return 1 if accused else 0


if __name__ == "__main__":
    sys.exit(main())
