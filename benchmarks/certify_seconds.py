"""How long `certify` takes at `quick` on one core and at `standard` on all, for whole pools.

Runs the command as a user does, each time in a process of its own. Seconds of a core are those of
the command and of all that it started. What the target's own modules cost to import is measured
apart: an engine's first import can take longer than its checks at `quick`.

A target whose engine is not installed keeps the row that it has.

Usage: python benchmarks/certify_seconds.py [TARGET ...] [--depth DEPTH] [--record]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from record import add_destination, surroundings, write_record

IMPORTS = {"impl": "poolproof.impl.block_pool", "vllm": "vllm.v1.core.block_pool"}
"""The targets, and what Python has to import before the first of their calls."""

WORKERS = {"quick": 1, "standard": None}
"""The depths, and with how many workers each is timed; None: one for each core."""


@dataclass(frozen=True)
class Seconds:
    """Wall time, and seconds of a core in the command with all its children."""

    wall_s: float
    core_s: float


def timed(command: list[str]) -> tuple[Seconds, int]:
    """Run a command in silence: its seconds, and its exit status."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    status = subprocess.run(command, capture_output=True, check=False).returncode
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    core = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Seconds(round(wall, 1), round(core, 1)), status


def measured(target: str, depth: str) -> dict[str, Any]:
    """One row: the import alone, and the certification."""
    imported, status = timed([sys.executable, "-c", f"import {IMPORTS[target]}"])
    if status != 0:
        raise LookupError(f"{IMPORTS[target]} cannot be imported here")
    workers = WORKERS[depth] or len(os.sched_getaffinity(0))
    command = [sys.executable, "-m", "poolproof", "certify", target, "--depth", depth]
    seconds, status = timed([*command, "--workers", str(workers)])
    print(
        f"{target} {depth}, {workers} workers: {seconds.wall_s} s, {seconds.core_s} s of a core, "
        f"of these {imported.core_s} s for the import; exit status {status}"
    )
    return {
        "workers": workers,
        "import": asdict(imported),
        "certify": asdict(seconds),
        "exit_status": status,
    }


def rows_before(path: Path) -> dict[str, Any]:
    """The rows that a file of figures holds already."""
    try:
        rows: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    except (OSError, ValueError, KeyError):
        return {}
    return rows


def main() -> int:
    """Time what was asked for; the exit status is 1 where a target does not hold."""
    parser = argparse.ArgumentParser(description="Time certify at quick and at standard.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(IMPORTS)}")
    parser.add_argument("--depth", choices=sorted(WORKERS), help="this one alone")
    add_destination(parser, "certify_seconds")
    asked = parser.parse_args()
    unknown = sorted(set(asked.targets) - set(IMPORTS))
    if unknown:
        parser.error(f"{unknown[0]} is not timed; there are {', '.join(IMPORTS)}")
    rows = rows_before(asked.json)
    refused = False
    for target in asked.targets or IMPORTS:
        for depth in [asked.depth] if asked.depth else WORKERS:
            try:
                row = measured(target, depth)
            except LookupError as error:
                print(f"{target}: {error}; its rows stay as they are")
                break
            rows[f"{target} {depth}"] = row
            refused |= row["exit_status"] != 0
    if not write_record(asked.json, {"on": surroundings(), "rows": rows}, indent=1):
        return 2
    return int(refused)


if __name__ == "__main__":
    sys.exit(main())
