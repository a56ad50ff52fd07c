"""The kill matrix: planted bugs of allocators against every detector, from two seeds.

Runs `poolproof bugs` as a user does. README.md and docs/bugs.md take their tables from what is
recorded. Finished searches are kept in build/kill_matrix.jsonl, so that an interrupted run goes
on where it stopped. Planted bugs of engines have a record of their own, which
`engine_specimens.py` makes; `--only engine` runs them here. The proof and the symbolic checks need
their solvers, which `make bugs` installs.

Usage: python benchmarks/kill_matrix.py [--record] [option of `poolproof bugs` ...]
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path

from record import add_destination, tell_destination

ROOT = Path(__file__).resolve().parent.parent
SEARCHES = ROOT / "build" / "kill_matrix.jsonl"


def main() -> int:
    """Record; the exit status of `poolproof bugs`."""
    doc = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(description=doc, allow_abbrev=False)
    add_destination(parser, "kill_matrix")
    asked, others = parser.parse_known_args()
    missing = [name for name in ("z3", "crosshair") if importlib.util.find_spec(name) is None]
    if missing:
        print(f"kill_matrix: {', '.join(missing)} not installed; `make bugs` installs them")
        return 0
    SEARCHES.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "poolproof", "bugs", "--seeds", "2"]
    command += ["--results", str(SEARCHES), "--json", str(asked.json)]
    if "--only" not in others:
        command += ["--only", "queue,pool,manager"]
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run([*command, *others], check=False)
    if done.returncode != 2:
        tell_destination(asked.json)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
