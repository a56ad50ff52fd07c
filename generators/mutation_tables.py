"""The tables of docs/mutation.md: from what `make mutation` wrote, and the list of equivalents."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

from figures import read

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "benchmarks" / "mutation"))

# Scripts beside the one that runs the mutants.
from equivalents import read_list  # noqa: E402 -- see above
from recorded import mutated_paths, state_of  # noqa: E402 -- the same

__all__ = ["equivalent_mutants", "mutation_scores"]

COLUMNS = ("mutants", "killed", "timeout", "equivalent", "survivors", "untried")


def mutation_scores() -> str:
    """Each file with its counts, and each folder with its score."""
    files: dict[str, dict[str, Any]] = (read("mutation") or {"files": {}})["files"]
    lines = [
        "| file | changes | caught | by a limit | equivalent | got through | not tried | score |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for folder in dict.fromkeys(path.split("/")[0] for path in files):
        inside = {path: row for path, row in files.items() if path.startswith(f"{folder}/")}
        total = Counter[str]()
        for row in inside.values():
            total.update({column: row[column] for column in COLUMNS})
        rows = [(_name(path, row), row) for path, row in inside.items() if row["mutants"]]
        lines += [_row(name, row) for name, row in [(f"**{folder}**", total), *rows]]
        unmeasured = [path for path in mutated_paths(ROOT, folder) if path not in inside]
        lines += [f"| `{path}`, not measured yet |{' |' * 7}" for path in unmeasured]
    return "\n".join(lines) + "\n"


def _name(path: str, row: dict[str, Any]) -> str:
    """A file as it was called when it was measured, and whether it is the same now."""
    state = state_of(ROOT / path, row)
    name = Path(path).name if state == "moved" else path
    return f"`{name}`, since {state}" if state else f"`{name}`"


def _row(name: str, row: dict[str, Any]) -> str:
    caught = row["killed"] + row["timeout"]
    judged = caught + row["survivors"]
    score = f"{100 * caught / judged:.1f} %" if judged else ""
    return f"| {name} | {' | '.join(str(row[column]) for column in COLUMNS)} | {score} |"


def equivalent_mutants() -> str:
    """Each reason, and how many changes it explains where."""
    reasons: dict[str, Counter[str]] = {}
    for entry in read_list():
        reasons.setdefault(entry.reason, Counter())[entry.file] += 1
    lines = ["| why it changes nothing | changes |", "|---|---|"]
    for reason, counts in reasons.items():
        where = ", ".join(f"`{file}` {count}" for file, count in counts.items())
        lines.append(f"| {reason} | {where} |")
    return "\n".join(lines) + "\n"
