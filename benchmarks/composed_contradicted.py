"""Contradicts managers of random designs in every way that their rows allow.

`benchmarks/composed_managers.py` judges each design under one profile that contradicts it. Here
each is judged under many, one contradiction at a time: rows of room as there, and beside them
publication, duplicates, retention, eviction, windows, and rewriting (a design that is right by its
contents, under `index=exact`). Runs of the plain driver search until one fails, 300 at most. Where
only the order of eviction is wrong, the order under which the design holds is told. What was done
is recorded after each design, so that a run that is stopped goes on where it was. Exit status 1 if
a design was accused under none.

Usage: python benchmarks/composed_contradicted.py [--seeds A-B] [--again] [--record]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from composed_managers import BLOCK_SIZE, seeds
from record import add_destination, surroundings, tell_destination, write_record

from poolproof.bugs.composed_managers import Design, Row, composed, contradictions, design_of
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.violation import Violation
from poolproof.harness.manager_driver import ManagerCampaign

MOST_RUNS = 300
RUNS_OF_LIKENESS = 10
ORDERS = ("lru", "unhashed-first", "unhashed-lifo", "lifo")


def first_violation(design: Design, row: Row, most_runs: int) -> Violation | None:
    """What runs of the plain driver find in a design, with that row in place of its own."""
    cls = composed(design.seed)
    profile = ManagerProfile.from_mapping({**design.rows, **dict([row])})
    campaign = ManagerCampaign(
        design.name, lambda n, on: cls(n, BLOCK_SIZE, enable_caching=on), profile, BLOCK_SIZE
    )
    traces = (campaign.run(number).trace for number in range(most_runs))
    return next((trace.violation for trace in traces if trace is not None), None)


def behaves_as(design: Design) -> str:
    """The order of eviction under which it holds after all, as a certificate tells it; else ""."""
    likely = (
        order
        for order in ORDERS
        if first_violation(design, ("eviction", order), RUNS_OF_LIKENESS) is None
    )
    return next((f"eviction={order}" for order in likely), "")


def judged(design: Design) -> Iterator[dict[str, Any]]:
    """What came of each contradiction of a design."""
    for row, value in contradictions(design):
        found = first_violation(design, (row, value), MOST_RUNS)
        entry = {"row": row, "value": value, "named": found.invariant if found else None}
        if found is not None and row == "eviction" and found.invariant == "ORD":
            entry["behaves_as"] = behaves_as(design)
        yield entry


def kept_of(path: Path) -> list[dict[str, Any]]:
    """What was recorded before; nothing if the file is not there or is none of ours."""
    try:
        found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["designs"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return found


def main() -> int:
    """Contradict each design, and record what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=seeds, default=range(20), metavar="A-B")
    parser.add_argument("--again", action="store_true", help="also what was recorded before")
    add_destination(parser, "composed_contradicted")
    arguments = parser.parse_args()
    entries = {entry["seed"]: entry for entry in kept_of(arguments.json)}
    for seed in arguments.seeds:
        if seed in entries and not arguments.again:
            continue
        entries[seed] = {"seed": seed, "against": list(judged(design_of(seed)))}
        told(entries[seed])
        kept = [entries[one] for one in sorted(entries)]
        record = {"on": surroundings(), "most_runs": MOST_RUNS, "designs": kept}
        if not write_record(arguments.json, record, indent=1, tells=False):
            return 2
    tell_destination(arguments.json)
    against = [entries[seed]["against"] for seed in arguments.seeds]
    return int(not all(any(one["named"] for one in tried) for tried in against))


def told(entry: dict[str, Any]) -> None:
    """Print what came of a design."""
    seen = [one for one in entry["against"] if one["named"]]
    missed = [f"{one['row']}={one['value']}" for one in entry["against"] if not one["named"]]
    line = f"{entry['seed']:>4} accused under {len(seen)} of {len(entry['against'])}"
    print(f"{line}; not under {', '.join(missed)}" if missed else line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
