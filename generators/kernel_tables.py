"""The tables of docs/kernels.md, read from what the benchmarks of the kernels wrote."""

from __future__ import annotations

from typing import Any

from figures import FigureError, read

__all__ = ["faulty_kernels", "kernel_figures", "kernel_findings", "kernel_targets"]

CELLS = {"holds": "holds", "VIOLATED": "**violated**", "not promised": "not promised"}


def _targets() -> dict[str, Any]:
    found = read("kernel_targets")
    if not found:
        raise FigureError(
            "benchmarks/results/kernel_targets.json is missing: "
            "run benchmarks/kernel_targets.py --record"
        )
    targets: dict[str, Any] = found
    return targets


def kernel_targets() -> str:
    """Kernels against checks."""
    targets = _targets()
    names = list(dict.fromkeys(name for row in targets.values() for name in row["lines"]))
    lines = [
        "| check | " + " | ".join(f"`{target}`" for target in targets) + " |",
        "|---|" + "---|" * len(targets),
    ]
    for name in names:
        cells = [
            CELLS.get(row["lines"].get(name, {}).get("result", ""), "-") for row in targets.values()
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    worst = [
        f"{max(r for r in row['worst_ratios'].values()):.2g}" if row["worst_ratios"] else "-"
        for row in targets.values()
    ]
    lines.append("| largest error over bound | " + " | ".join(worst) + " |")
    versions = ", ".join(
        f"`{name}`: {row['version']}, {row['device']}" for name, row in targets.items()
    )
    return "\n".join(lines) + f"\n\n{versions}.\n"


def kernel_findings() -> str:
    """What was found in other people's kernels, each with its smallest case."""
    lines = ["| kernel | check | what | smallest case |", "|---|---|---|---|"]
    for name, row in _targets().items():
        for finding in row["findings"]:
            sentence = finding["sentence"].replace("|", "\\|")
            lines.append(f"| `{name}` | {finding['check']} | {sentence} | {finding['words']} |")
    return "\n".join(lines) + "\n"


def faulty_kernels() -> str:
    """Faulty kernels and how many examples each check needed."""
    found = read("kernel_faults")
    if not found:
        raise FigureError(
            "benchmarks/results/kernel_faults.json is missing: "
            "run benchmarks/kernel_targets.py --record"
        )
    lines = ["| id | fault | seen by, after examples |", "|---|---|---|"]
    for row in found["faulty"]:
        title = f"[{row['title']}]({row['thread']})" if row["thread"] else row["title"]
        seen = ", ".join(f"{name} {count}" for name, count in row["examples"].items())
        lines.append(f"| {row['id']} | {title} | {seen or '**not seen**'} |")
    return "\n".join(lines) + "\n"


def kernel_figures() -> str:
    """Examples a minute, false alarms, errors over bounds; the GPU's where it was measured."""
    lines = ["| figure | measured | command |", "|---|---|---|"]
    found = read("kernel_examples")
    if found:
        command = "`.venv-kernels/bin/python benchmarks/kernel_examples.py`"
        ratios = ", ".join(f"{name} {ratio}" for name, ratio in found["worst_ratio"].items())
        rows = [
            ("differential examples a minute, one thread", f"{found['seeded_per_minute']:,}"),
            ("the same with Hypothesis behind the grammar", f"{found['hypothesis_per_minute']:,}"),
            ("false alarms on our kernels", f"{found['false_alarms']} in {found['examples']:,}"),
            ("largest error over its bound", ratios),
        ]
        lines += [f"| {what} | {value} | {command} |" for what, value in rows]
    speed = read("kernel_bandwidth")
    command = "`python benchmarks/kernel_bandwidth.py`"
    if speed is None:
        lines.append(
            f"| decode and prefill on a GPU | not measured: no GPU was at hand | {command} |"
        )
        return "\n".join(lines) + "\n"
    for row in speed["decode"]:
        what = f"decode, {row['sequences']} sequences of {row['tokens']:,}, {speed['device']}"
        lines.append(f"| {what} | {row['ours over copy']:.0%} of the copy bandwidth | {command} |")
    ratio = speed["prefill"]["ours over torch"]
    lines.append(f"| prefill | {ratio:.2f} times as fast as torch's best | {command} |")
    return "\n".join(lines) + "\n"
