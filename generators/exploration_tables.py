"""The tables of docs/exploration.md, from what benchmarks/ measured of pools and managers."""

from __future__ import annotations

from typing import Any

from figures import read

__all__ = [
    "exploration_costs",
    "exploration_in_bulk",
    "exploration_side_by_side",
    "manager_workloads",
    "shortest_bugs",
]


def exploration_costs() -> str:
    """What was explored, and what it took on one core."""
    found = read("exploration")
    if found is None:
        return ""
    reference, target = found["reference"], found["implementation"]
    lines = ["| what, on one core | reached | processor time |", "|---|---|---:|"]
    lines.append(
        f"| reference, {reference['blocks']} blocks | {reference['orbits']:,} orbits = "
        f"{reference['states']:,} states | {reference['cpu_seconds']:.1f} s |"
    )
    lines.append(
        f"| `impl`, every action in each of them | {target['commands']:,} commands compared, "
        f"{target['failing']} states fail | {target['cpu_seconds']:.1f} s |"
    )
    return "\n".join(lines) + "\n"


def exploration_in_bulk() -> str:
    """Orbit by orbit beside whole levels at once: processor time and memory of each process."""
    found = read("exploration") or {}
    lines = [
        "| blocks | orbits | transitions | counts agree | orbit by orbit | in bulk | ratio |",
        "|---:|---:|---:|---|---:|---:|---:|",
    ]
    for row in found.get("bulk", []):
        agree = "yes" if row["agrees"] else "NO"
        lines.append(
            f"| {row['blocks']} | {row['orbits']:,} | {row['transitions']:,} | {agree} | "
            f"{_taken(row.get('one_by_one'))} | {_taken(row['bulk'])} | {row.get('ratio', '')} |"
        )
    return "\n".join(lines) + "\n"


def _taken(figures: Any) -> str:
    """Processor time and memory of one way; nothing where it was not measured."""
    if figures is None:
        return "not measured"
    seconds = figures["cpu_seconds"]
    return f"{seconds:.{3 if seconds < 1 else 1}f} s, {figures['mib']:,} MiB"


def exploration_side_by_side() -> str:
    """The same model in several programs, in one run."""
    found = read("exploration") or {"side_by_side": []}
    lines = [
        "| program, 6 blocks | states | counts agree | time, over Poolproof's | what it checks |",
        "|---|---:|---|---:|---|",
    ]
    lines += [_beside(row) for row in found["side_by_side"]]
    return "\n".join(lines) + "\n"


def _beside(row: Any) -> str:
    agrees = "yes" if row["agrees"] else "NO"
    return (
        f"| {row['program']} | {row['states']:,} | {agrees} | {row['ratio']:.0f} | "
        f"{row['checks']} |"
    )


def shortest_bugs() -> str:
    """For each planted bug the fewest commands, and what shows it."""
    found = read("exploration") or {"bugs": []}
    lines = [
        "| bug | fewest commands | on blocks | shows in some state | minimised, by seed |",
        "|---|---:|---:|---|---|",
    ]
    for row in found["bugs"]:
        states = "yes" if row["in_states"] else "no, in a sequence"
        lengths = " ".join(map(str, row["minimised"]))
        lines.append(f"| {row['id']} | {row['minimum']} | {row['blocks']} | {states} | {lengths} |")
    return "\n".join(lines) + "\n"


def manager_workloads() -> str:
    """For each manager specimen the fewest commands, and how fast the search is."""
    found = read("manager_workloads")
    if found is None:
        return ""
    speed, summary = found["speed"], found["summary"]
    sentence = (
        f"`impl-manager`, layout {speed['layout']}, one core: all workloads of up to "
        f"{speed['commands']} commands are {speed['states']:,} states, {speed['tries']:,} "
        f"commands tried and compared, {speed['states_per_s']:,} states or "
        f"{speed['tries_per_s']:,} commands a second. With at most {summary['states']:,} states "
        f"{summary['found']} of the {summary['bugs']} manager specimens are found; of "
        f"{summary['exact']} of these every minimised random trace is as short. Made by "
        "`benchmarks/manager_workloads.py`."
    )
    lines = [
        sentence,
        "",
        "| bug | fewest commands | over | minimised, by seed |",
        "|---|---:|---|---|",
    ]
    for row in found["rows"]:
        minimum = row["minimum"] or f"more than {row['none_up_to']}"
        lengths = " ".join(map(str, row["minimised"])) or "only where hashes collide"
        lines.append(f"| {row['id']} | {minimum} | {row['over']} | {lengths} |")
    return "\n".join(lines) + "\n"
