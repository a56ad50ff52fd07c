"""The tables of docs/kernels.md, read from what the benchmarks of the kernels wrote."""

from __future__ import annotations

from itertools import groupby
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
    times = [str(row.get("cpu_s", "-")) for row in targets.values()]
    if any(time != "-" for time in times):
        lines.append("| seconds of one core | " + " | ".join(times) + " |")
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
    lines += [
        _row_of_faults(list(alike))
        for _, alike in groupby(found["faulty"], key=lambda row: _family(row["id"]))
    ]
    return "\n".join(lines) + "\n"


def _family(number: str) -> str:
    """What a fault's number begins with; one letter alone makes no family."""
    letters = number.rstrip("0123456789")
    return number if len(letters) == 1 else letters


def _row_of_faults(alike: list[dict[str, Any]]) -> str:
    """One fault, or the first and the last of a family, with the checks that see them."""
    first, last = alike[0], alike[-1]
    title = f"[{first['title']}]({first['thread']})" if first["thread"] else first["title"]
    number = first["id"]
    if len(alike) > 1:
        number = f"{number} to {last['id']}"
        title = f"{title}; to: {last['title']}"
    missed = [row["id"] for row in alike if not row["examples"]]
    counts: dict[str, list[int]] = {}
    for row in alike:
        for name, count in row["examples"].items():
            counts.setdefault(name, []).append(count)
    seen = [
        f"{name} {min(several)}" + (f" to {max(several)}" if len(set(several)) > 1 else "")
        for name, several in counts.items()
    ]
    seen += [f"**{one} not seen**" for one in missed]
    return f"| {number} | {title} | {', '.join(seen)} |"


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
    lines += [f"| {what} | {value} | {command} |" for what, value, command in _on_a_gpu()]
    return "\n".join(lines) + "\n"


def _on_a_gpu() -> list[tuple[str, str, str]]:
    """What was measured with CUDA; of decode the rows in the type of the model."""
    speed, tiles = read("kernel_bandwidth"), read("kernel_tiles")
    command = "`python benchmarks/kernel_bandwidth.py`"
    rows = []
    if speed is None:
        rows.append(("decode and prefill on a GPU, beside peers", "not recorded", command))
    else:
        for row in speed["decode"]:
            share = row["kernels"]["paged"]["over_copy"]
            rows.append((f"decode, {row['words']}", f"{share:.0%} of the copy bandwidth", command))
        for row in speed["prefill"]:
            rate = row["kernels"]["paged"]["tflop_per_s"]
            rows.append((f"prefill, {row['words']}", f"{rate:,} TFLOP/s", command))
    if tiles is not None:
        command = "`python benchmarks/kernel_tiles.py`"
        for case, taken in _taken(tiles).items():
            rows.append((f"{case}, {tiles['device']}", taken, command))
    return rows


def _taken(tiles: dict[str, Any]) -> dict[str, str]:
    """The rates of the way of cutting that `tile_sizes` takes on the GPU of the record."""
    best = max(row["tflop_per_s"] for row in tiles["prompt"].values())
    ways = (
        {"keys": 64, "split": 512, "decode_warps": 2, "decode_stages": 2},
        {"rows": 256, "prefill_keys": 128, "prefill_warps": 8, "prefill_stages": 2},
    )
    found = {}
    for row in tiles["ways"]:
        if row["way"] not in ways:
            continue
        if "over_copy" in row:
            found[f"decode, {row['case']}"] = f"{row['over_copy']:.2f} of the copy bandwidth"
        else:
            rate = row["tflop_per_s"]
            found[f"prefill, {row['case']}"] = (
                f"{rate:,} TFLOP/s, {rate / best:.2f} of torch's best over dense tensors"
            )
    return found
