"""The tables of docs/power.md, from what benchmarks/power.py wrote."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from figures import read

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["power_by_operator", "power_survivors", "power_systems"]

_SURVIVORS = Path(__file__).resolve().parent.parent / "benchmarks" / "power_survivors.toml"
_KEYS = ("file", "function", "operator", "before", "after")


def _rows() -> dict[str, Any]:
    return read("power") or {}


def power_systems() -> str:
    """Each system: how many mutants, and how many of them each judge refuses."""
    lines = [
        (
            "| system | mutants, of places | refused by `certify --power` | never executed "
            "| own tests refuse | refused by neither |"
        ),
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in _rows().values():
        total = row["num_mutants"]
        own = row.get("own_tests")
        version = f" ({row['target_version']})" if row["target_version"] else ""
        cells = [
            f"{row['title']}{version}, {row['level']}",
            f"{total} of {row['num_candidates']}",
            _share(row["num_refused"], total) + _by_level(row),
            str(row["num_never_executed"]),
            f"{_of_judged(own, total)}: `{own['command']}`" if own else "not run",
            str(row["num_refused_by_neither"]) if own else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def power_by_operator() -> str:
    """What was done to the sources, all systems together."""
    counts: dict[str, list[int]] = {}
    for row in _rows().values():
        for name, (refused, total) in row["operators"].items():
            sums = counts.setdefault(name, [0, 0])
            sums[0] += refused
            sums[1] += total
    lines = ["| what was done to the source | mutants | refused |", "|---|---:|---:|"]
    lines += [f"| {name} | {total} | {refused} |" for name, (refused, total) in counts.items()]
    return "\n".join([*lines[:2], *sorted(lines[2:])]) + "\n"


def power_survivors() -> str:
    """Every mutant that passes the checks or the tests, with which it passes, and why if known."""
    entries = tomllib.loads(_SURVIVORS.read_text(encoding="utf-8"))["survivor"]
    reasons = {tuple(entry[key] for key in _KEYS): entry for entry in entries}
    parts = []
    for row in _rows().values():
        parts.append(f"**{row['title']}**\n")
        parts += [
            _survivor(mutant, reasons.get(tuple(mutant[key] for key in _KEYS)))
            for mutant in row["passed"]
        ]
        parts.append("")
    return "\n".join(parts) + "\n"


def _survivor(mutant: dict[str, Any], entry: dict[str, Any] | None) -> str:
    judges = []
    if not mutant["refused"]:
        judges.append("`certify`" if mutant["executed"] else "`certify` (never executed)")
    if mutant.get("own_tests_refuse") is False:
        judges.append("its own tests")
    place = f"`{mutant['file']}`:{mutant['line']}, {mutant['operator']}"
    text = f"- {place}, passes {' and '.join(judges)}: `{mutant['before']}` became "
    text += f"`{mutant['after']}`."
    if mutant.get("invariant") and mutant["refused"]:
        text += f" Refused by {mutant['invariant']}."
    if entry is None:
        return text
    since = " The line has changed since." if entry.get("since_changed") else ""
    return f"{text} *{entry['kind'].capitalize()}*: {entry['reason']}{since}"


def _of_judged(own: dict[str, Any], total: int) -> str:
    """What the own tests refuse, of the mutants that they were run on: all unless it says so."""
    judged = own.get("num_mutants", total)
    return f"{own['num_refused']} of {judged} ({100 * own['num_refused'] / judged:.0f} %)"


def _by_level(row: dict[str, Any]) -> str:
    """Which level refused how many, if a level more expensive than `quick` was needed."""
    levels = row.get("refused_at", {})
    if set(levels) <= {"quick"}:
        return ""
    return ": " + ", ".join(f"{number} by `{level}`" for level, number in levels.items())


def _share(part: int, total: int) -> str:
    return f"{part} ({100 * part / total:.0f} %)"
