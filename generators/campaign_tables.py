"""The tables of docs/campaigns.md, from what benchmarks/ measured of campaigns."""

from __future__ import annotations

from figures import read

__all__ = [
    "campaign_curve",
    "campaign_duplicates",
    "campaign_figures",
    "campaign_kills",
    "compiled_drivers",
]

_WANTED = (10_000, 50_000, 100_000, 200_000, 300_000, 500_000, 1_000_000)


def campaign_figures() -> str:
    """Reach, rate and what a second worker brings."""
    found = read("campaign")
    if found is None:
        return ""
    lines = ["| what | measured |", "|---|---:|"]
    for name, value in found["figures"].items():
        number = f"{value:,.0f}" if value > 100 else f"{value:,.2f}"
        lines.append(f"| {name} | {number} |")
    build = "compiled" if found.get("compiled_drivers") else "Python"
    lines.append(f"| drivers | {build} |")
    lines.append(f"| CPython | {found['python']} |")
    lines.append(f"| load average while this was measured | {found['load_average']:.1f} |")
    lines.append(f"| processors | {found['processors']} |")
    return "\n".join(lines) + "\n"


def compiled_drivers() -> str:
    """What compiled drivers bring, side by side."""
    found = read("compiled_speed")
    if found is None:
        return ""
    lines = ["| process time, one core | Python | compiled | ratio |", "|---|---:|---:|---:|"]
    lines += [
        f"| {name} | {row['Python']:,.0f} | {row['compiled']:,.0f} | {row['ratio']:.2f} |"
        for name, row in found["figures"].items()
    ]
    compiler = found["python_build"].split("[")[-1].rstrip("]")
    lines += ["", f"CPython {found['python']}, {compiler}; medians of {found['repeats']} repeats."]
    return "\n".join(lines) + "\n"


def campaign_curve() -> str:
    """States reached after so many steps, for each seed."""
    found = read("campaign")
    if found is None:
        return ""
    possible = found["figures"]["states that there are"]
    curves = found["curves"]
    lines = [
        "| steps | " + " | ".join(f"seed {seed}" for seed in range(len(curves))) + " |",
        "|---:|" + "---:|" * len(curves),
    ]
    for steps in _WANTED:
        row = [_reached(curve, steps, possible) for curve in curves]
        lines.append(f"| {steps:,} | " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def _reached(curve: list[list[int]], steps: int, possible: float) -> str:
    """What was known at the last report up to so many steps."""
    before = [states for at, states in curve if at <= steps]
    return f"{before[-1]:,} ({100 * before[-1] / possible:.1f} %)" if before else "not reported"


def campaign_kills() -> str:
    """What many kills left behind."""
    found = read("campaign_kills")
    if found is None:
        return ""
    lines = ["| what | number |", "|---|---:|"]
    lines += [
        f"| {name.replace('_', ' ')} | {number:,} |" for name, number in found["figures"].items()
    ]
    return "\n".join(lines) + "\n"


def campaign_duplicates() -> str:
    """Traces and findings for each planted bug, and bugs that hide behind others."""
    found = read("campaign_duplicates")
    if found is None:
        return ""
    headings = (
        *("level", "bugs caught", "minimal traces a bug", "findings a bug"),
        *("kinds of failure a bug", "one bug hides the other"),
    )
    lines = [f"| {' | '.join(headings)} |", "|---|---:|---:|---:|---:|---:|"]
    for level, row in found["summary"].items():
        share = 100 * row["hidden_pairs"] / max(1, row["pairs"])
        lines.append(
            f"| {level} | {row['caught']} of {row['bugs']} | {row['traces_per_bug']:.2f} "
            f"| {row['findings_per_bug']:.2f} | {row['kinds_per_bug']:.2f} "
            f"| {row['hidden_pairs']:,} of {row['pairs']:,} pairs ({share:.1f} %) |"
        )
    return "\n".join(lines) + "\n"
