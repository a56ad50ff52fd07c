"""Records the kill matrix: planted bugs against every detector, from two seeds.

Runs `poolproof bugs` as a user does and writes benchmarks/results/kill_matrix.json, from which
README.md and docs/bugs.md take their tables. Finished searches are kept in
build/kill_matrix.jsonl, so that an interrupted run goes on where it stopped. The proof and the
symbolic checks need their solvers, which `make bugs` installs.

Usage: python benchmarks/kill_matrix.py [option of `poolproof bugs` ...]
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "kill_matrix.json"
SEARCHES = ROOT / "build" / "kill_matrix.jsonl"


def main() -> int:
    """Record; the exit status of `poolproof bugs`."""
    missing = [name for name in ("z3", "crosshair") if importlib.util.find_spec(name) is None]
    if missing:
        print(f"kill_matrix: {', '.join(missing)} not installed; `make bugs` installs them")
        return 0
    SEARCHES.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "poolproof", "bugs", "--seeds", "2"]
    command += ["--results", str(SEARCHES), "--json", str(RESULTS)]
    return subprocess.run([*command, *sys.argv[1:]], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
