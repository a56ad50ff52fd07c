"""The tables of docs/certify.md on inference: what it makes of the planted bugs."""

from __future__ import annotations

from collections import Counter
from typing import Any

from figures import FigureError, read

__all__ = ["inferred_bugs"]

_OUTCOMES = {
    "no_rows": "no row explains it: refused",
    "silenced": "passes where a row silences a check: undecided, and the bug is drawn",
    "found": "looks like another design: a profile is proposed",
    "holds_as_declared": "not seen in these runs",
    "budget": "the budget ended",
    "lost": "the target was lost",
}


def inferred_bugs() -> str:
    """How many planted bugs end how, and which rows explain them."""
    found = read("inferred_bugs")
    if found is None:
        raise FigureError(
            "benchmarks/results/inferred_bugs.json is missing: run "
            "benchmarks/inferred_bugs.py --record"
        )
    bugs = found["bugs"]
    counts = Counter(bug["outcome"] for bug in bugs)
    asked = (
        f"What the search made of {len(bugs)} planted bugs, each judged from the profile under "
        f"which it is stated, with {found['num_runs']} runs of each kind a profile and without "
        "the certification at the end (`python benchmarks/inferred_bugs.py`):"
    )
    lines = [
        asked,
        "",
        "| a planted bug | bugs |",
        "|---|---:|",
        *(f"| {words} | {counts[name]} |" for name, words in _OUTCOMES.items() if counts[name]),
        "",
        "| row | kind | explains |",
        "|---|---|---|",
        *_by_row(bugs),
    ]
    return "\n".join(lines) + "\n"


def _by_row(bugs: list[dict[str, Any]]) -> list[str]:
    """Each changed row with the bugs that need it, those that silence a check first."""
    explains: dict[tuple[bool, str], list[str]] = {}
    for bug in bugs:
        for row, value, silences in bug["changes"]:
            explains.setdefault((not silences, f"{row}={value}"), []).append(bug["id"])
    return [
        f"| `{row}` | {'another design' if is_design else 'silences a check'} | {', '.join(ids)} |"
        for (is_design, row), ids in sorted(explains.items())
    ]
