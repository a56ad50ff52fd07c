"""What 0.1.0 found and how fast it was, beside now.

What was found is read from the records in benchmarks/results, as each revision has them: the kill
matrix, the mutants and the verdicts. A verdict is compared for every system that 0.1.0 judged.

Speed needs an interpreter for each revision, with Poolproof of that revision installed. The
driver_speed.py and manager_speed.py of each revision run in turns, in process time. A figure is the
median of the ratios of all pairs, beside the smallest and the largest. Without interpreters the
recorded speed stays.

Usage: python benchmarks/before_and_after.py [--pythons BEFORE AFTER] [--rounds N] [--record]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from record import RECORDED, add_destination, write_record
from structure import RELEASED

_SPEEDS = {
    "driver_speed": ("figures", ("plain driver, checked steps/s", "Hypothesis, checked steps/s")),
    "manager_speed": (
        "commands_per_second",
        (
            "impl-manager, plain driver",
            "impl-vllm-v0, plain driver",
            "impl-nano, plain driver",
        ),
    ),
}
"""The benchmarks of speed, and which of their figures are compared: of each, more is better."""


def found_at(revision: str) -> dict[str, int]:
    """What the records of a revision count. Raises CalledProcessError where it has none."""
    matrix = record_at(revision, "kill_matrix")
    bugs = [row for row in matrix["rows"] if not row["is_oddity"]]
    odd = [row for row in matrix["rows"] if row["is_oddity"]]
    mutants = record_at(revision, "mutation")["files"].values()
    return {
        "detectors of the kill matrix": len(matrix["columns"]),
        "planted bugs in it": len(bugs),
        "of these caught by `certify`, quick": _num_caught(bugs, "certify-quick"),
        "of these caught by `certify`, standard": _num_caught(bugs, "certify-standard"),
        "pairs of bug and detector that catches it": sum(_catches(row) for row in bugs),
        "correct oddities in it": len(odd),
        "of these accused by any detector": sum(_catches(row) > 0 for row in odd),
        "mutants of `impl/`, `invariants/` and `reference/`": sum(
            row["mutants"] - row["equivalent"] for row in mutants
        ),
        "of these not killed": sum(row["survivors"] + row["untried"] for row in mutants),
        "systems with a recorded verdict": len(record_at(revision, "verdicts")["systems"]),
    }


def record_at(revision: str, name: str) -> Any:
    """What a benchmark had recorded at a revision."""
    place = f"{revision}:benchmarks/results/{name}.json"
    done = subprocess.run(["git", "show", place], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def _num_caught(rows: list[dict[str, Any]], detector: str) -> int:
    return sum(row["cells"][detector].get("caught", 0) > 0 for row in rows)


def _catches(row: Mapping[str, Any]) -> int:
    return sum(cell.get("caught", 0) > 0 for cell in row["cells"].values())


def lost(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What the earlier kill matrix caught and the later one does not, as "bug: detector"."""
    now = {row["id"]: row["cells"] for row in after["rows"]}
    return [
        f"{row['id']}: {detector}"
        for row in before["rows"]
        if not row["is_oddity"]
        for detector, cell in row["cells"].items()
        if cell.get("caught") and not now.get(row["id"], {}).get(detector, {}).get("caught")
    ]


def changed_verdicts(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The systems that were judged before and have another verdict now, or none."""
    return [
        name
        for name, system in before["systems"].items()
        if after["systems"].get(name, {}).get("verdict") != system["verdict"]
    ]


def speed_ratios(
    revisions: tuple[str, str], pythons: tuple[str, str], rounds: int
) -> dict[str, list[float]]:
    """How many times as fast the later revision was, for each figure and pair of runs.

    Raises CalledProcessError for an interpreter in which a benchmark does not run.
    """
    ratios: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        trees = [_unpacked(revision, Path(folder) / revision) for revision in revisions]
        for number in range(rounds):
            for name, (key, figures) in _SPEEDS.items():
                sides = list(zip(trees, pythons, strict=True))
                # Which of the two is first changes from pair to pair.
                in_turn = sides if number % 2 == 0 else sides[::-1]
                found = [_figures_of(name, key, *side) for side in in_turn]
                before, after = found if number % 2 == 0 else found[::-1]
                for figure in figures:
                    ratios.setdefault(figure, []).append(after[figure] / before[figure])
            print(f"{number + 1} of {rounds} pairs")
    return ratios


def _unpacked(revision: str, folder: Path) -> Path:
    folder.mkdir()
    packed = subprocess.run(["git", "archive", revision], check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], check=True, input=packed.stdout)
    return folder


def _figures_of(name: str, key: str, tree: Path, python: str) -> Mapping[str, float]:
    file = tree / f"{name}.json"
    # It exits with 1 where a goal is missed, as on a busy machine.
    done = subprocess.run(
        [python, f"benchmarks/{name}.py", "--repeats", "1", "--json", str(file)],
        check=False, cwd=tree, capture_output=True, text=True,
    )  # fmt: skip
    if not file.is_file():
        raise subprocess.CalledProcessError(
            done.returncode, done.args, done.stdout, done.stderr or "no figures"
        )
    figures: Mapping[str, float] = json.loads(file.read_text(encoding="utf-8"))[key]
    file.unlink()
    return figures


def main() -> int:
    """Compare the records, and the speed where interpreters are given; leave both in a file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--before", default=RELEASED, metavar="REVISION")
    parser.add_argument("--after", default="HEAD", metavar="REVISION")
    parser.add_argument("--pythons", nargs=2, metavar=("BEFORE", "AFTER"))
    parser.add_argument("--rounds", type=int, default=5, help="how many pairs of runs")
    add_destination(parser, "before_and_after")
    asked = parser.parse_args()
    revisions = (asked.before, asked.after)
    try:
        record = compared(*revisions)
        if asked.pythons is None:
            record["speed"] = _recorded_speed()
        else:
            record["speed"] = speed_ratios(revisions, tuple(asked.pythons), asked.rounds)
    except subprocess.CalledProcessError as error:
        said = error.stderr if isinstance(error.stderr, str) else ""
        print(f"{parser.prog}: {said.strip() or error}", file=sys.stderr)
        return 2
    for name, before in record["before"].items():
        print(f"{name:<52} {before:>8,} {record['after'][name]:>8,}")
    for name in ("lost", "changed verdicts"):
        print(f"{name}: {', '.join(record[name]) or 'none'}")
    for name, found in record["speed"].items():
        print(f"{name:<52} {statistics.median(found):>8.2f} ({min(found):.2f} to {max(found):.2f})")
    return 0 if write_record(asked.json, record) else 1


def compared(before: str, after: str) -> dict[str, Any]:
    """Everything but the speed."""
    matrices = [record_at(revision, "kill_matrix") for revision in (before, after)]
    verdicts = [record_at(revision, "verdicts") for revision in (before, after)]
    return {
        "before": found_at(before),
        "after": found_at(after),
        "lost": lost(*matrices),
        "changed verdicts": changed_verdicts(*verdicts),
    }


def _recorded_speed() -> dict[str, list[float]]:
    """What was recorded by a run with interpreters."""
    file = RECORDED / "before_and_after.json"
    if not file.is_file():
        return {}
    found: dict[str, list[float]] = json.loads(file.read_text(encoding="utf-8"))["speed"]
    return found


if __name__ == "__main__":
    sys.exit(main())
