"""Which depth of `certify` catches each planted bug, and whether one accuses a correct oddity.

A gate run is derandomised, so a specimen has one verdict a depth. Driven are the runs of a
certification in its order (kill_matrix/certify_stages.py: state machine, plain driver,
small scopes), which end at the first thing that breaks; one that is caught at quick is not driven
at standard. The oddities are driven by the plain driver, a few runs from each of many seeds;
whole certifications of them are in tests/bugs. Exit status 1 when a specimen survives standard,
fewer than 80 % are caught at quick, or an oddity is accused.

Usage: python benchmarks/levels_of_specimens.py [--seeds N] [--runs N] [--record] [ID ...]
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from record import add_destination, surroundings, write_record

from poolproof.certification.jobs import campaign_of
from poolproof.certification.run_kinds import Chunk
from poolproof.harness.isolation import Beacon
from poolproof.kill_matrix.certify_stages import CERTIFY
from poolproof.kill_matrix.drivers import kind_of
from poolproof.kill_matrix.subject import MatrixSubject, subjects

LEAST_AT_QUICK = 0.8
SILENT = Beacon(memoryview(bytearray(64)).cast("Q"))


def caught_at(specimen_id: str) -> dict[str, Any]:
    """The first depth that catches the specimen, and by what."""
    subject = subjects()[specimen_id]
    row: dict[str, Any] = {
        "id": specimen_id, "title": subject.title, "level": subject.level, "caught_at": None,
    }  # fmt: skip
    for depth, detector in zip(("quick", "standard"), CERTIFY, strict=True):
        found = detector.search(subject, 0, SILENT)
        if found.caught:
            return {
                **row, "caught_at": depth, "steps": found.steps, "invariant": found.invariant,
                "stage": found.note,
            }  # fmt: skip
    return {**row, "why": "not caught at `standard`"}


def driven(job: tuple[str, int, int]) -> dict[str, Any]:
    """What the plain driver says of an oddity, from so many seeds."""
    oddity_id, seeds, num_runs = job
    subject = subjects()[oddity_id]
    steps, accused = 0, ""
    for seed in range(seeds):
        campaign = campaign_of(subject.target(), Chunk(kind_of(subject), seed, 0, 0))
        for number in range(num_runs):
            run = campaign.run(number)
            steps += run.num_steps
            if run.trace is not None and not accused:
                accused = f"seed {seed}, run {number}: {run.trace.violation}"
    return {"id": oddity_id, "level": subject.level, "steps": steps, "accused": accused}


def summary_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How many were caught at which depth."""
    quick = sum(row["caught_at"] == "quick" for row in rows)
    later = [row["id"] for row in rows if row["caught_at"] == "standard"]
    return {
        "specimens": len(rows),
        "quick": quick,
        "standard": quick + len(later),
        "only_at_standard": later,
        "never": [row["id"] for row in rows if row["caught_at"] is None],
    }


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("ids", nargs="*", metavar="ID", help="only these")
    parser.add_argument("--seeds", type=int, default=20, help="for each oddity")
    parser.add_argument("--runs", type=int, default=20, help="of each oddity, for each seed")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes")
    add_destination(parser, "levels_of_specimens")
    options = parser.parse_args()
    found: dict[str, MatrixSubject] = subjects()
    unknown = [name for name in options.ids if name not in found]
    if unknown:
        parser.error(f"nothing is called {', '.join(unknown)}; see `poolproof bugs --help`")
    ids = options.ids or list(found)
    odd = [i for i in ids if found[i].is_oddity]
    with ProcessPoolExecutor(options.workers) as workers:
        oddities = workers.map(driven, [(i, options.seeds, options.runs) for i in odd])
        rows = list(workers.map(caught_at, [i for i in ids if not found[i].is_oddity]))
        accusations = list(oddities)
    summary = summary_of(rows)
    print(summary)
    accused = [row for row in accusations if row["accused"]]
    print(f"{len(accusations)} oddities, {options.seeds} seeds, accused: {accused or 'none'}")
    record = {
        **surroundings(), "summary": summary, "rows": rows,
        "oddity_seeds": options.seeds, "oddity_runs": options.runs,
        "oddities": accusations,
    }  # fmt: skip
    if not write_record(options.json, record, indent=1):
        return 2
    too_few = summary["quick"] < LEAST_AT_QUICK * summary["specimens"]
    return 1 if too_few or summary["never"] or accused else 0


if __name__ == "__main__":
    sys.exit(main())
