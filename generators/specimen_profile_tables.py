"""The table of docs/bugs.md on bugs of managers under other profiles than their own."""

from __future__ import annotations

from collections import Counter
from typing import Any

from figures import FigureError, read

__all__ = ["specimen_profiles"]

_BOUNDS = ((1, 1), (2, 10), (11, 60), (61, 300))


def specimen_profiles() -> str:
    """How many runs it took to catch each bug under each profile under which it is one."""
    found = read("specimen_profiles")
    if found is None:
        raise FigureError(
            "benchmarks/results/specimen_profiles.json is missing: run "
            "benchmarks/specimen_profiles.py --record"
        )
    bugs: list[dict[str, Any]] = found["specimens"]
    runs: Counter[int] = Counter()
    for bug in bugs:
        runs.update(dict(bug["runs"]))
    missed = sum(len(bug["missed"]) for bug in bugs)
    misnamed = sum(len(bug["misnamed"]) for bug in bugs)
    longest = sorted(bugs, key=lambda bug: -max(number for number, _ in bug["runs"]))[:3]
    named = ", ".join(
        f"{bug['id']} ({max(number for number, _ in bug['runs'])})" for bug in longest
    )
    said = (
        f"{len(bugs)} bugs under {runs.total() + missed:,} profiles in all, up to "
        f"{found['most_runs']} runs each. {misnamed or 'None'} was named by an invariant that its "
        f"row does not state. The longest searches, in runs: {named}."
    )
    header = ["| runs until it is caught | bugs under profiles |", "|---|---:|"]
    lines = [said, "", *header]
    for first, last in _BOUNDS:
        number = sum(count for run, count in runs.items() if first <= run <= last)
        lines.append(f"| {first if first == last else f'{first} to {last}'} | {number:,} |")
    lines.append(f"| not caught | {missed} |")
    return "\n".join(lines) + "\n"
