"""Certifies managers of random designs (bugs/composed_managers.py): none may be accused.

Each seed is one design, certified under its own profile; with --contradicted also under a profile
that contradicts it, where it has to be refused. At the depth "runs" it is 60 runs of the plain
driver, which takes about two seconds a design; at "quick" and "standard" it is the whole of
`certify`, which takes minutes. What was done is recorded after each design, with the commit that
did it, so that a run that is stopped goes on where it was. Exit status 1 if a design was accused,
or a contradiction was not.

Usage: python benchmarks/composed_managers.py [--seeds A-B] [--depth runs|quick|standard]
       [--contradicted] [--again] [--record]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from record import add_destination, surroundings, tell_destination, write_record

from poolproof.bugs.composed_managers import Design, composed, design_of
from poolproof.certification.certificate import Verdict
from poolproof.certification.certify import certify
from poolproof.certification.options import CertifyOptions
from poolproof.certification.progress import SilentProgress
from poolproof.certification.verdict import Rules, judge, reasons_inconclusive
from poolproof.contract.depth import Depth
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.targets.load import load_target

RUNS = "runs"
NUM_RUNS = 60
MOST_RUNS = 600
"""Under a contradictory profile the first run that fails ends the search."""
BLOCK_SIZE = 4

_ROOT = Path(__file__).resolve().parent.parent

Judge = Callable[[Design, dict[str, Any]], dict[str, Any]]


def driven(design: Design, other: dict[str, Any]) -> dict[str, Any]:
    """The verdict of some runs of the plain driver, with rows that replace those of the design."""
    cls = composed(design.seed)
    profile = ManagerProfile.from_mapping({**design.rows, **other})
    campaign = ManagerCampaign(
        design.name, lambda n, on: cls(n, BLOCK_SIZE, enable_caching=on), profile, BLOCK_SIZE
    )
    steps = 0
    for number in range(MOST_RUNS if other else NUM_RUNS):
        result = campaign.run(number)
        steps += result.num_steps
        if result.trace is not None and result.trace.violation is not None:
            return _refused(steps, [result.trace.violation])
    return {"verdict": Verdict.HOLDS.value, "steps": steps}


def certified(depth: Depth) -> Judge:
    """What judges a design by `certify` at a depth."""

    def certificate_of(design: Design, other: dict[str, Any]) -> dict[str, Any]:
        target = design.contradicted if other else design.target
        options = CertifyOptions(depth=depth, workers=1)
        found = judge(certify(lambda: load_target(target), options, SilentProgress()), Rules())
        steps = sum(stage.steps for stage in found.stages)
        if found.verdict is Verdict.REFUSED:
            told = _refused(steps, [finding.violation for finding in found.findings])
            return told | ({"behaves_as": found.behaves_as} if found.behaves_as else {})
        why = list(reasons_inconclusive(found)) if found.verdict is Verdict.INCONCLUSIVE else []
        return {"verdict": found.verdict.value, "steps": steps} | ({"why": why} if why else {})

    return certificate_of


def _refused(steps: int, violations: list[Any]) -> dict[str, Any]:
    return {
        "verdict": Verdict.REFUSED.value,
        "steps": steps,
        "invariants": sorted({violation.invariant for violation in violations}),
        "sentence": violations[0].sentence,
    }


def described(design: Design, depth: str) -> dict[str, Any]:
    """What a design is, by which a record tells whether it is still the same one."""
    row, value = design.contradiction
    return {
        "seed": design.seed,
        "depth": depth,
        "layout": design.layout,
        "rows": dict(design.rows),
        "habits": list(design.habits),
        "contradiction": [row, value],
    }


def commit() -> str:
    """The commit of the code that runs, with a plus where files differ from it; "" if unknown."""
    git = ["git", "-C", str(_ROOT)]
    told = [
        subprocess.run([*git, *asked], capture_output=True, text=True, check=False)
        for asked in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "-uno"])
    ]
    if any(done.returncode for done in told):
        return ""
    head, changed = (done.stdout.strip() for done in told)
    return f"{head}+" if changed else head


def timed(judged: Judge, design: Design, other: dict[str, Any], code: str) -> dict[str, Any]:
    """What a judge says of a design, with how long that took and which commit did it."""
    began = time.monotonic()
    found = judged(design, other)
    return {**found, "seconds": round(time.monotonic() - began, 1), "commit": code}


def kept_of(path: Path) -> list[dict[str, Any]]:
    """What was recorded before; nothing if the file is not there or is none of ours."""
    try:
        found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["designs"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return found


def same(entry: dict[str, Any], known: dict[str, Any]) -> bool:
    """Whether a recorded entry is of this design, at this depth."""
    return all(entry.get(name) == value for name, value in known.items())


def seeds(text: str) -> range:
    """The seeds A to B of "A-B". Raises ArgumentTypeError."""
    first, dash, last = text.partition("-")
    if not (first.isdecimal() and (last.isdecimal() if dash else True)):
        raise argparse.ArgumentTypeError(f"seeds are A-B, such as 0-99, not {text!r}")
    found = range(int(first), int(last if dash else first) + 1)
    if not found:
        raise argparse.ArgumentTypeError(f"there are no seeds from {first} to {last}")
    return found


def main() -> int:
    """Judge each design, and record what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=seeds, default=range(20), metavar="A-B")
    parser.add_argument("--depth", choices=(RUNS, "quick", "standard"), default=RUNS)
    parser.add_argument("--contradicted", action="store_true", help="contradictory profiles, too")
    parser.add_argument("--again", action="store_true", help="also what was recorded before")
    add_destination(parser, "composed_managers")
    arguments = parser.parse_args()
    judged = driven if arguments.depth == RUNS else certified(Depth.named(arguments.depth))
    entries, failed, code = kept_of(arguments.json), 0, commit()
    for seed in arguments.seeds:
        design = design_of(seed)
        known = described(design, arguments.depth)
        before = next((entry for entry in entries if same(entry, known)), None)
        entry = known if before is None or arguments.again else dict(before)
        if "own" not in entry:
            entry["own"] = timed(judged, design, {}, code)
        if arguments.contradicted and "against" not in entry:
            entry["against"] = timed(judged, design, dict([design.contradiction]), code)
        failed += told(entry)
        place = (seed, arguments.depth)
        entries = [one for one in entries if (one["seed"], one["depth"]) != place] + [entry]
        entries.sort(key=lambda one: (one["depth"], one["seed"]))
        if entry != before:
            record = {"on": surroundings(), "num_runs": NUM_RUNS, "designs": entries}
            if not write_record(arguments.json, record, indent=1, tells=False):
                return 2
    tell_destination(arguments.json)
    return 1 if failed else 0


def told(entry: dict[str, Any]) -> bool:
    """Print what came of a design; whether something came of it that must not."""
    own, against = entry["own"], entry.get("against")
    row, value = entry["contradiction"]
    print(f"{entry['seed']:>4} {entry['layout']:<13} {own['verdict']}", end="")
    if own["verdict"] == Verdict.REFUSED.value:
        print(f": {own['sentence']}", end="")
    if against is not None:
        named = ", ".join(against.get("invariants", ()))
        print(f"; under {row}={value} {against['verdict']} {named}", end="")
    print(flush=True)
    missed = against is not None and against["verdict"] != Verdict.REFUSED.value
    return own["verdict"] == Verdict.REFUSED.value or missed


if __name__ == "__main__":
    sys.exit(main())
