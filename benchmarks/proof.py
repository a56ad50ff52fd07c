"""What `poolproof prove` and `poolproof symbolic` prove, and how long a whole run takes.

Runs both commands as a user does, several times, and keeps the medians of wall and processor time.
Needs the solvers: `make proof` installs them. docs/proof.md takes its tables from what is recorded.
Exit status 1 if a run of `prove` took 5 seconds or more.

Usage: python benchmarks/proof.py [--runs N] [--record]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from record import add_destination, write_record

MOST_S = 5


def timed(name: str, folder: Path) -> tuple[float, float, Any]:
    """Wall and processor seconds of one run of a command, and the JSON that it wrote."""
    path = folder / f"{name}.json"
    command = [sys.executable, "-m", "poolproof", name, "--json", str(path)]
    began_s, used_s = time.perf_counter(), processor_s()
    done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True)
    took_s = time.perf_counter() - began_s
    if done.returncode:
        raise SystemExit(f"poolproof {name} exited with {done.returncode}:\n{done.stdout}")
    return took_s, processor_s() - used_s, json.loads(path.read_text(encoding="utf-8"))


def processor_s() -> float:
    """Processor time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(name: str, runs: int) -> tuple[float, float, Any]:
    """The median wall and processor times of several runs, and what the last one wrote."""
    with tempfile.TemporaryDirectory() as folder:
        found = [timed(name, Path(folder)) for _ in range(runs)]
    wall_s, used_s = ([row[column] for row in found] for column in (0, 1))
    return statistics.median(wall_s), statistics.median(used_s), found[-1][2]


def proof_summary(value: Any) -> dict[str, Any]:
    """What the manual quotes of a proof."""
    models: dict[str, dict[str, int]] = {}
    for row in value["conditions"]:
        model = models.setdefault(row["model"], {"conditions": 0, "proved": 0, "confirmed": 0})
        model["conditions"] += 1
        model["proved"] += row["verdict"] == "proved"
        model["confirmed"] += row["second_solver"] == "unsat"
    planted = [
        {key: bug[key] for key in ("name", "model", "action", "sentence", "thread", "broken")}
        for bug in value["planted"]
    ]
    return {
        "solvers": value["solvers"],
        "models": models,
        "planted": planted,
        "needs": [
            {"model": report["model"], **need}
            for report in value["vacuity"]
            for need in report["needs"]
        ],
        "bridge": value["bridge"],
    }


def main() -> int:
    """Measure both commands."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3)
    add_destination(parser, "proof")
    asked = parser.parse_args()
    runs = asked.runs
    missing = [name for name in ("z3", "cvc5", "crosshair") if find_spec(name) is None]
    if missing:
        print(f"not measured: {', '.join(missing)} missing here; `make proof` installs the solvers")
        return 0
    prove_s, prove_processor_s, proof = measured("prove", runs)
    symbolic_s, symbolic_processor_s, symbolic = measured("symbolic", runs)
    summary = proof_summary(proof)
    contracts = [
        {key: row[key] for key in ("name", "verdict", "num_conditions")}
        for row in symbolic["contracts"]
    ]
    refuted = [row["verdict"] for row in symbolic["wrong"]].count("refuted")
    value = {
        "runs": runs,
        "prove_s": round(prove_s, 2),
        "prove_processor_s": round(prove_processor_s, 2),
        "symbolic_s": round(symbolic_s, 2),
        "symbolic_processor_s": round(symbolic_processor_s, 2),
        **summary,
        "contracts": contracts,
        "wrong_refuted": refuted,
        "wrong": len(symbolic["wrong"]),
    }
    if not write_record(asked.json, value, indent=1):
        return 2
    conditions = len(proof["conditions"])
    print(f"prove: {conditions} conditions, {len(summary['planted'])} bugs, {prove_s:.2f} s")
    print(f"symbolic: {len(contracts)} contracts, {symbolic_s:.2f} s (medians of {runs})")
    return int(prove_s >= MOST_S)


if __name__ == "__main__":
    sys.exit(main())
