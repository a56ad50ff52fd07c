"""Which check is the first to name each specimen, with everything on, recorded over a few seeds.

    python tests/bugs/make_first_checks.py

writes `first_checks.json`: for each specimen and seed the invariant that names the run kept in
`found/`, and after how many commands. The tests replay these runs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from make_golden import EVERYWHERE, SEEDS, found_path  # the script beside this one

from poolproof.contract.trace import read_trace, write_atomically
from poolproof.harness.replay import replay

RECORD = Path(__file__).resolve().with_name("first_checks.json")


def first_checks(found: Any) -> list[dict[str, Any]]:
    """What each of the runs that `make_golden.py` keeps shows first, and when."""
    rows = []
    for seed in SEEDS:
        again = replay(read_trace(found_path(found.id, seed)), found.make)
        if again.violation is None:
            raise SystemExit(f"{found.id} passes: run make_golden.py first")
        named = {"invariant": again.violation.invariant, "commands": len(again.applied)}
        rows.append({"seed": seed, **named})
    return rows


def main() -> int:
    """Write the record anew and say whose first check has changed."""
    before = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
    record = {name: first_checks(found) for name, found in EVERYWHERE.items()}
    for name, rows in record.items():
        was = [row["invariant"] for row in before.get(name, [])]
        now = [row["invariant"] for row in rows]
        if was != now:
            print(f"{name}: {', '.join(was) or 'new'} -> {', '.join(now)}")
    lines = [f" {json.dumps(name)}: {json.dumps(rows)}" for name, rows in record.items()]
    write_atomically(RECORD, "{\n" + ",\n".join(lines) + "\n}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
