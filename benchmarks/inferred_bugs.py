"""What `certify --infer-profile` makes of planted bugs: which of them some other profile explains.

Each specimen of the pool and manager levels is judged from the profile under which it is stated.
A bug may look like another design (then a profile is proposed under which it holds, and whoever
wrote it has to know better), it may pass where a row silences a check (then nothing is proposed),
or no row explains it. The whole search is done, over 100 runs of each kind a profile; the
certification that confirms what is found is left out, so that less is explained than is said here.
What was done is recorded after each specimen; one that was recorded before is left as it is.

Usage: python benchmarks/inferred_bugs.py [--only ID ...] [--again] [--record]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from record import add_destination, surroundings, tell_destination, write_record

from poolproof.bugs.catalogue import MANAGER_SPECIMENS, SPECIMENS
from poolproof.certification import inference, profile_trials
from poolproof.certification.certificate import Verdict
from poolproof.certification.inference import InferredProfile, infer
from poolproof.certification.options import CertifyOptions
from poolproof.certification.progress import SilentProgress
from poolproof.contract.depth import Depth
from poolproof.contract.level import Level
from poolproof.targets.load import load_target
from poolproof.targets.target import Target
from poolproof.targets.target_spec import TargetSpec

NUM_RUNS = 100
EVERY = {**SPECIMENS, **MANAGER_SPECIMENS}
JUDGED = {name: one for name, one in EVERY.items() if one.level in (Level.POOL, Level.MANAGER)}


def planted(name: str) -> Callable[[Mapping[str, Any]], Callable[[], Target]]:
    """What loads a specimen under the profile that it is stated under."""
    specimen: Any = JUDGED[name]
    clean = load_target(TargetSpec.of(specimen.cls))
    layouts = tuple(
        replace(
            layout,
            profile=specimen.profile,
            make=specimen.make,
            make_of=None,
            block_size=specimen.block_size,
        )
        for layout in clean.layouts
    )
    target = replace(clean, profile=specimen.profile, make=specimen.make, layouts=layouts)
    return lambda _: lambda: target


def searched(name: str) -> InferredProfile:
    """The end of the search for a profile under which a specimen holds."""
    options = CertifyOptions(depth=Depth.QUICK, in_process=True)
    return infer(planted(name), options, SilentProgress())


def without_confirmation() -> None:
    """Have the search believe what its own runs show."""
    profile_trials.PORTIONS = ((range(20),), (range(20, NUM_RUNS),))
    believed = SimpleNamespace(findings=(), verdict=Verdict.HOLDS, depth=Depth.QUICK)
    inference._Inference._certified = lambda *_: believed  # type: ignore[method-assign,assignment,return-value]  # noqa: SLF001 -- for this process alone


def entry_of(name: str, found: InferredProfile) -> dict[str, Any]:
    """What is recorded of a specimen."""
    changes = [[change.row, change.value, change.checks_less] for change in found.changes]
    return {
        "id": name,
        "level": str(JUDGED[name].level),
        "title": JUDGED[name].title,
        "outcome": found.outcome.name.lower(),
        "changes": changes,
    }


def kept_of(path: Path) -> list[dict[str, Any]]:
    """What was recorded before; nothing if the file is not there or is none of ours."""
    try:
        found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["bugs"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return found


def main() -> int:
    """Search for each specimen, and record what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=JUDGED, metavar="ID", default=list(JUDGED))
    parser.add_argument("--again", action="store_true", help="also what was recorded before")
    add_destination(parser, "inferred_bugs")
    arguments = parser.parse_args()
    without_confirmation()
    entries = {entry["id"]: entry for entry in kept_of(arguments.json)}
    for name in arguments.only:
        if name in entries and not arguments.again:
            continue
        entries[name] = entry_of(name, searched(name))
        rows = ", ".join(f"{row}={value}" for row, value, _ in entries[name]["changes"])
        print(f"{name:<6} {entries[name]['outcome']:<18} {rows}", flush=True)
        bugs = [entries[one] for one in JUDGED if one in entries]
        record = {"on": surroundings(), "num_runs": NUM_RUNS, "bugs": bugs}
        if not write_record(arguments.json, record, indent=1, tells=False):
            return 2
    tell_destination(arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
