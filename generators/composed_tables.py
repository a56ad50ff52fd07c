"""The table of docs/managers.md on managers of random designs: what was judged, and how deeply."""

from __future__ import annotations

from collections import Counter
from typing import Any

from figures import FigureError, read

__all__ = ["composed_contradicted", "composed_managers"]

_DEPTHS = {"runs": "{num_runs} runs of the plain driver", "quick": "quick", "standard": "standard"}


def composed_managers() -> str:
    """How many designs were judged at each depth, and with what result."""
    found = read("composed_managers")
    if found is None:
        raise FigureError(
            "benchmarks/results/composed_managers.json is missing: run "
            "benchmarks/composed_managers.py --record"
        )
    lines = [
        "| depth | designs | steps | hold | inconclusive | accused | contradicted | refused | at |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for depth, name in _DEPTHS.items():
        entries = [entry for entry in found["designs"] if entry["depth"] == depth]
        if entries:
            label = name.format(num_runs=found["num_runs"])
            cells = [label, *_counts(entries), ", ".join(_commits(entries))]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n\n" + _named(found["designs"])


def composed_contradicted() -> str:
    """By row: how often it was contradicted, how often that was seen, and what named it."""
    found = read("composed_contradicted")
    if found is None:
        raise FigureError(
            "benchmarks/results/composed_contradicted.json is missing: run "
            "benchmarks/composed_contradicted.py --record"
        )
    tried = [one for design in found["designs"] for one in design["against"]]
    seen = [one for one in tried if one["named"]]
    accused = sum(any(one["named"] for one in d["against"]) for d in found["designs"])
    alike = sum(bool(one.get("behaves_as")) for one in tried)
    said = (
        f"{len(found['designs'])} designs, {accused} of them accused under some profile that "
        f"contradicts them, and {len(seen):,} of {len(tried):,} such profiles in all, within "
        f"{found['most_runs']} runs each. Of the wrong orders of eviction {alike} are told as the "
        "order that the design has."
    )
    lines = ["| contradicted row | profiles | accused | named by |", "|---|---:|---:|---|"]
    for row in sorted({one["row"] for one in tried}):
        of_row = [one["named"] for one in tried if one["row"] == row]
        counts = Counter(name for name in of_row if name)
        named = ", ".join(f"{invariant} {number}" for invariant, number in counts.most_common())
        lines.append(f"| {row} | {len(of_row)} | {counts.total()} | {named} |")
    return "\n".join([said, "", *lines]) + "\n"


def _counts(entries: list[dict[str, Any]]) -> list[str]:
    verdicts = Counter(entry["own"]["verdict"] for entry in entries)
    against = Counter(entry["against"]["verdict"] for entry in entries if "against" in entry)
    steps = sum(entry["own"]["steps"] for entry in entries)
    numbers = (
        len(entries),
        steps,
        *(verdicts[verdict] for verdict in ("holds", "inconclusive", "refused")),
        against.total(),
        against["refused"],
    )
    return [f"{number:,}" for number in numbers]


def _commits(entries: list[dict[str, Any]]) -> list[str]:
    """The commits that judged these designs; each is judged once and kept."""
    return sorted({f"`{entry['own'].get('commit') or 'unknown'}`" for entry in entries})


def _named(entries: list[dict[str, Any]]) -> str:
    """Which invariants named the contradiction, by the row that was contradicted."""
    by_row: dict[str, Counter[str]] = {}
    for entry in entries:
        for invariant in entry.get("against", {}).get("invariants", ()):
            by_row.setdefault(entry["contradiction"][0], Counter())[invariant] += 1
    lines = ["| contradicted row | named by |", "|---|---|"]
    for row, counts in sorted(by_row.items()):
        named = ", ".join(f"{invariant} {number}" for invariant, number in counts.most_common())
        lines.append(f"| {row} | {named} |")
    return "\n".join(lines) + "\n"
