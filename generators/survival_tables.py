"""The tables of how long planted bugs survive (benchmarks/survival.py, levels_of_specimens.py).

The picture is drawn by survival_picture.py.
"""

from __future__ import annotations

from typing import Any

from figures import read

__all__ = ["oddities_at_depths", "specimens_at_depths", "survival", "survival_summary"]


def _survival() -> dict[str, Any]:
    empty: dict[str, Any] = {"rows": [], "summary": None, "most_steps": 0}
    return read("survival") or empty


def survival() -> str:
    """The specimens that are hard for a uniform workload: both medians and their ratio."""
    result = _survival()
    most = result["most_steps"]
    lines = [
        "| bug | level | what is wrong | ours | uniform | ratio |",
        "|---|---|---|---:|---:|---:|",
    ]
    hard = [row for row in result["rows"] if row["is_hard"]]
    for row in sorted(hard, key=lambda row: row["ratio"] or 9e9, reverse=True):
        uniform = f"> {most:,}" if row["uniform"] is None else f"{row['uniform']:,}"
        ours = f"> {most:,}" if row["ours"] is None else f"{row['ours']:,}"
        bound = "< " if row["uniform"] is None else ""
        ratio = "" if row["ratio"] is None else f"{bound}{row['ratio']:.3f}"
        lines.append(
            f"| {row['id']} | {row['level']} | {row['title']} | {ours} | {uniform} | {ratio} |"
        )
    return "\n".join(lines) + "\n"


def survival_summary() -> str:
    """In words: how many are hard, the worst ratios, what was missed."""
    result = _survival()
    summary = result["summary"]
    if summary is None:
        return "\n"
    rows = {row["id"]: row for row in result["rows"]}
    missed = [
        f"{name} ({rows[name]['ours']:,} commands, the goal is {rows[name]['goal']:,.0f})"
        for name in summary["missed"]
    ]
    parts = [
        (
            f"{summary['specimens']} planted bugs, {result['least_seeds']} to {result['seeds']} "
            "seeds each. The uniform workload needs more than 1,000 commands for "
            f"{summary['hard']} of them, as a median over the seeds."
        ),
    ]
    hard, other = (rows.get(summary[name]) for name in ("worst_hard", "worst_other"))
    if hard is not None:
        parts.append(f"The worst ratio among these is {hard['ratio']:.3f} ({hard['id']}).")
    if other is not None:
        parts.append(
            f"Among the others it is {other['ratio']:.2f} ({other['id']}: {other['ours']:,} "
            f"commands against {other['uniform']:,})."
        )
    goal = "a tenth for those over 1,000, elsewhere twice as many or 50 commands"
    parts.append(
        f"The goal ({goal}) is missed for {len(missed)}: {', '.join(missed)}."
        if missed
        else f"The goal ({goal}) is reached for all."
    )
    return "\n".join(parts) + "\n"


def specimens_at_depths() -> str:
    """How many specimens each depth of `certify` catches, and which are left."""
    result = read("levels_of_specimens")
    if result is None:
        return "\n"
    counts, total = result["summary"], result["summary"]["specimens"]
    quick = f"{counts['quick']} of {total} ({100 * counts['quick'] / total:.1f} %)"
    lines = [
        "| depth | planted bugs caught |",
        "|---|---:|",
        f"| `quick` | {quick} |",
        f"| `standard` | {counts['standard']} of {total} |",
        "",
    ]
    later = [row for row in result["rows"] if row["caught_at"] == "standard"]
    if later:
        lines += [f"`{row['id']}` ({row['title']}): `standard`, not `quick`.  " for row in later]
    never = [row for row in result["rows"] if row["caught_at"] is None]
    lines += [f"`{row['id']}` ({row['title']}): {row['why']}.  " for row in never]
    return "\n".join(lines) + "\n"


def oddities_at_depths() -> str:
    """How much the oddities were driven, and whether one was accused."""
    result = read("levels_of_specimens")
    if result is None or not result.get("oddities"):
        return "\n"
    rows, seeds = result["oddities"], result["oddity_seeds"]
    accused = [row["id"] for row in rows if row["accused"]]
    steps = sum(row["steps"] for row in rows)
    verdict = f"accused: {', '.join(accused)}" if accused else "none was accused"
    return f"{len(rows)} oddities, {seeds} seeds each, {steps:,} commands: {verdict}.\n"
