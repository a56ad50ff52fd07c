"""The tables of docs/soak.md, from what benchmarks/soak.py recorded over all its runs."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from figures import read

__all__ = ["soak", "soak_memory", "soak_steps"]

LONG_LIFE_S = 1_800
"""Workers that lived less than this say nothing about memory."""


def soak() -> str:
    """All runs together."""
    found = read("soak")
    if found is None:
        return ""
    runs = found["runs"]
    at_level: dict[str, int] = defaultdict(int)
    for row in _rows(found):
        at_level[row["level"]] += row["steps"]
    rows = [
        ("checked steps", f"{found['steps']:,}"),
        *((f"of them at {level} level", f"{steps:,}") for level, steps in at_level.items()),
        ("runs driven, each from an empty allocator", f"{found['runs_driven']:,}"),
        ("false alarms", str(found["alarms"])),
        ("lost workers", str(found["lost_workers"])),
        ("runs of the command", str(len(runs))),
        ("hours of workers", f"{sum(_seconds(run) for run in runs) / 3600:.1f}"),
    ]
    lines = ["| what | number |", "|---|---:|"]
    return "\n".join(lines + [f"| {what} | {number} |" for what, number in rows]) + "\n"


def soak_memory() -> str:
    """Each worker that lived long enough."""
    found = read("soak")
    if found is None:
        return ""
    lines = [
        "| run | minutes | steps | samples | longest gap | most | half-way | end | slope |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for run in found["runs"]:
        for worker in run["workers"]:
            if worker["seconds"] < LONG_LIFE_S or worker["slope_kib_per_million_steps"] is None:
                continue
            lines.append(
                f"| {run['seed']} | {worker['seconds'] / 60:.0f} | {worker['steps']:,} "
                f"| {worker['samples_taken']:,} | {worker['longest_gap_s']:.1f} s "
                f"| {worker['most_kib'] / 1024:.0f} MiB "
                f"| {worker['kib_at_half'] / 1024:.1f} MiB | {worker['kib_at_end'] / 1024:.1f} MiB "
                f"| {worker['slope_kib_per_million_steps']:.1f} |"
            )
    return "\n".join(lines) + "\n"


def soak_steps() -> str:
    """Steps by level, implementation and driver."""
    found = read("soak")
    if found is None:
        return ""
    steps: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in _rows(found):
        steps[row["level"], row["implementation"]][row["driver"]] += row["steps"]
    drivers = sorted({driver for by_driver in steps.values() for driver in by_driver}, reverse=True)
    lines = [
        "| level | implementation | " + " | ".join(drivers) + " |",
        "|---|---|" + "---:|" * len(drivers),
    ]
    for (level, name), by_driver in steps.items():
        cells = [f"{by_driver[driver]:,}" if by_driver[driver] else "" for driver in drivers]
        lines.append(f"| {level} | {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _rows(found: Any) -> list[Any]:
    """What every run of the command did, pools first."""
    rows = [row for run in found["runs"] for row in run["done"]]
    order = ("pool", "queue", "manager")
    return sorted(rows, key=lambda row: (order.index(row["level"]), row["implementation"]))


def _seconds(run: Any) -> float:
    return sum(float(worker["seconds"]) for worker in run["workers"])
