"""Tables of docs/architecture.md: how the product was cut and what it found in 0.1.0, and now."""

from __future__ import annotations

import statistics

from figures import read

__all__ = ["before_and_after", "lines_of_folders", "structure"]


def structure() -> str:
    """How the product is cut, in 0.1.0 and now, by benchmarks/structure.py."""
    found = read("structure")
    if found is None:
        return ""
    lines = ["| | 0.1.0 | now |", "|---|---:|---:|"]
    for name, before in found["before"].items():
        cells = (before, found["after"][name])
        if isinstance(before, dict):
            continue
        numbers = [len(cell) if isinstance(cell, list) else cell for cell in cells]
        lines.append(f"| {name} | {numbers[0]:,} | {numbers[1]:,} |")
    return "\n".join(lines) + "\n"


def lines_of_folders() -> str:
    """Lines of each folder in 0.1.0 and now, the longest first."""
    found = read("structure")
    if found is None:
        return ""
    before, after = (found[side]["lines of each folder"] for side in ("before", "after"))
    lines = ["| folder | 0.1.0 | now |", "|---|---:|---:|"]
    lines += [
        f"| `{folder}/` | {before.get(folder, 0):,} | {after[folder]:,} |"
        for folder in sorted(after, key=lambda name: -after[name])
    ]
    return "\n".join(lines) + "\n"


def before_and_after() -> str:
    """What 0.1.0 found and how fast it was, and now, by benchmarks/before_and_after.py."""
    found = read("before_and_after")
    if found is None:
        return ""
    lines = ["| | 0.1.0 | now |", "|---|---:|---:|"]
    for name, before in found["before"].items():
        lines.append(f"| {name} | {before:,} | {found['after'][name]:,} |")
    for name, ratios in found["speed"].items():
        middle = statistics.median(ratios)
        rest = f"{middle:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        lines.append(f"| {name.partition(', checked')[0]}, times as fast | 1 | {rest} |")
    gone = ", ".join(f"{bug} by `{how}`" for bug, how in (one.split(": ") for one in found["lost"]))
    changed = ", ".join(found["changed verdicts"])
    told = (
        f"Pairs that were caught and are not any more: {gone or 'none'}. Systems of 0.1.0 with "
        f"another verdict now: {changed or 'none'}."
    )
    lines += ["", told]
    return "\n".join(lines) + "\n"
