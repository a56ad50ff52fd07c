"""Tries each planted bug of a manager under every profile under which it is a bug.

The profiles are those of `bugs/specimen_profiles.py`: designs of servers, and the specimen's own
profile with each other value of each row. A campaign of the plain driver, as in every
certification, has to catch it within so many runs, and to name it by one of the invariants that its
row states. What was done is recorded after each specimen, so that a run that is stopped goes on
where it was; one that was recorded before is left as it is. Exit status 1 if a specimen was missed
or named by another invariant.

Usage: python benchmarks/specimen_profiles.py [--only ID ...] [--again] [--record]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from record import add_destination, surroundings, tell_destination, write_record

from poolproof.bugs.catalogue import MANAGER_SPECIMENS
from poolproof.bugs.specimen import ManagerSpecimen
from poolproof.bugs.specimen_profiles import profiles_of
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.violation import Violation
from poolproof.harness.manager_driver import ManagerCampaign

MOST_RUNS = 300


def caught(found: ManagerSpecimen, profile: ManagerProfile) -> tuple[int, Violation] | None:
    """How many runs of the plain driver it takes under a profile, and what the last one finds.

    None if `MOST_RUNS` runs find nothing. Raises ValueError for a profile under which it is no bug.
    """
    options = {"weak_hashes": found.weak_hashes} if found.weak_hashes else {}
    make = found.make_under(profile)
    campaign = ManagerCampaign(found.id, make, profile, found.block_size, options=options)
    for number in range(MOST_RUNS):
        result = campaign.run(number)
        trace = result.trace or result.collision
        if trace is not None and trace.violation is not None:
            return number + 1, trace.violation
    return None


def entry_of(found: ManagerSpecimen) -> dict[str, Any]:
    """What is recorded of a specimen: how many runs it took under its profiles, and what failed."""
    runs: Counter[int] = Counter()
    named: Counter[str] = Counter()
    missed, misnamed = [], []
    for name, profile in profiles_of(found).items():
        seen = caught(found, profile)
        if seen is None:
            missed.append(name)
            continue
        number, violation = seen
        runs[number] += 1
        named[violation.invariant] += 1
        if violation.invariant not in found.invariants:
            misnamed.append([name, violation.invariant])
    return {
        "id": found.id,
        "runs": [[number, runs[number]] for number in sorted(runs)],
        "named": dict(named.most_common()),
        "missed": missed,
        "misnamed": misnamed,
    }


def kept_of(path: Path) -> list[dict[str, Any]]:
    """What was recorded before; nothing if the file is not there or is none of ours."""
    try:
        found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["specimens"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return found


def main() -> int:
    """Try each specimen, and record what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    every = list(MANAGER_SPECIMENS)
    parser.add_argument("--only", nargs="+", choices=every, metavar="ID", default=every)
    parser.add_argument("--again", action="store_true", help="also what was recorded before")
    add_destination(parser, "specimen_profiles")
    arguments = parser.parse_args()
    entries = {entry["id"]: entry for entry in kept_of(arguments.json)}
    for name in arguments.only:
        if name in entries and not arguments.again:
            continue
        entries[name] = entry_of(MANAGER_SPECIMENS[name])
        print(told(entries[name]), flush=True)
        kept = [entries[one] for one in every if one in entries]
        record = {"on": surroundings(), "most_runs": MOST_RUNS, "specimens": kept}
        if not write_record(arguments.json, record, indent=1, tells=False):
            return 2
    tell_destination(arguments.json)
    return int(any(entries[name]["missed"] or entries[name]["misnamed"] for name in arguments.only))


def told(entry: dict[str, Any]) -> str:
    """One line on a specimen."""
    tried = sum(count for _, count in entry["runs"])
    most = max((number for number, _ in entry["runs"]), default=0)
    line = f"{entry['id']:<12} caught under {tried} profiles, within {most} runs"
    if entry["missed"]:
        line += f"; missed under {', '.join(entry['missed'])}"
    others = [f"{name} ({invariant})" for name, invariant in entry["misnamed"]]
    return line + (f"; named otherwise under {', '.join(others)}" if others else "")


if __name__ == "__main__":
    sys.exit(main())
