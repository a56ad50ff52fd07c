"""The table of docs/performance.md: what was measured side by side in one run, with its command."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

from figures import read

__all__ = ["side_by_side"]

Row = tuple[str, str, str, str, str]


def side_by_side() -> str:
    """What, this project's, the others', the ratio, and the command that measures all of them."""
    lines = [
        "| work | here | beside it | ratio | command |",
        "|---|---|---|---:|---|",
    ]
    parts = _pools, _managers, _drivers, _compiled_drivers, _embedded, _orbits, _model_checkers
    for rows in parts:
        lines += [f"| {' | '.join(row)} |" for row in rows()]
    return "\n".join(lines) + "\n"


def _spread(values: list[float], unit: str) -> str:
    return f"{median(values):,.0f} {unit} ({min(values):,.0f} to {max(values):,.0f})"


def _pools() -> Iterator[Row]:
    """The pools on real requests."""
    found = read("mooncake_against_vllm")
    if found is None:
        return
    theirs = found["pools"]["vllm"]["ns_per_block"]
    for name, ratio in found["ratios"].items():
        yield (
            f"serving {found['requests']:,} requests, a block",
            f"{name}: {_spread(found['pools'][name]['ns_per_block'], 'ns')}",
            f"vLLM {found['vllm']}'s pool: {_spread(theirs, 'ns')}",
            f"{ratio['ratio_of_medians']:.2f}",
            "`make compiled; .venv-vllm/bin/python benchmarks/mooncake_against_vllm.py`",
        )


def _managers() -> Iterator[Row]:
    """The managers on the same requests."""
    command = ".venv-vllm/bin/python benchmarks/manager_against_vllm.py"
    for name, what, before in (
        ("manager_against_vllm_compiled", " compiled", "make compiled; PYTHONPATH=build/compiled "),
        ("manager_against_vllm", "", ""),
    ):
        found = read(name)
        if found is not None:
            yield (
                f"serving {found['work']['requests']:,} requests, a request",
                f"impl's manager{what}: {_spread(found['impl_us_per_request'], 'us')}",
                f"vLLM {found['vllm']}'s: {_spread(found['vllm_us_per_request'], 'us')}",
                f"{found['ratio_of_medians']:.2f}",
                f"`{before}{command}`",
            )


def _drivers() -> Iterator[Row]:
    """The plain driver and Hypothesis."""
    found = read("driver_speed")
    if found is not None:
        figures = found["figures"]
        yield (
            "checked steps on a pool of 8 blocks",
            f"plain driver: {figures['plain driver, checked steps/s']:,.0f} /s",
            f"Hypothesis: {figures['Hypothesis, checked steps/s']:,.0f} /s",
            f"{figures['plain driver / Hypothesis']:.1f}",
            "`.venv/bin/python benchmarks/driver_speed.py`",
        )


def _compiled_drivers() -> Iterator[Row]:
    """Compiled drivers and the same as Python."""
    found = read("compiled_speed")
    if found is not None:
        for name, row in found["figures"].items():
            yield (
                name.removesuffix("/s").replace(" steps", "").replace(" commands", ""),
                f"compiled: {row['compiled']:,.0f} /s",
                f"Python: {row['Python']:,.0f} /s",
                f"{row['ratio']:.2f}",
                "`make compiled; .venv/bin/python benchmarks/compiled_speed.py`",
            )


def _embedded() -> Iterator[Row]:
    """The embedded pool called from C, and the same from Python."""
    for row in (read("embedded_speed") or {"rows": ()})["rows"]:
        blocks = "1 block" if row["blocks"] == 1 else f"{row['blocks']} blocks"
        yield (
            f"the pool from another language, prompts of {blocks}, a block",
            f"embedded in C: {row['from C']:,} ns",
            f"called from Python: {row['from Python']:,} ns",
            f"{row['from Python'] / row['from C']:.2f}",
            "`make embedded; .venv/bin/python benchmarks/embedded_speed.py`",
        )


def _orbits() -> Iterator[Row]:
    """Exploration in bulk and one by one."""
    for row in (read("exploration") or {"bulk": ()})["bulk"]:
        one: dict[str, Any] | None = row.get("one_by_one")
        bulk = row["bulk"]
        yield (
            f"all {row['orbits']:,} orbits of {row['blocks']} blocks, processor time",
            f"in bulk: {bulk['cpu_seconds']:,.2f} s, {bulk['mib']} MiB",
            "not run one by one" if one is None
            else f"one by one: {one['cpu_seconds']:,.2f} s, {one['mib']} MiB",
            "" if one is None else f"{row['ratio']:.1f}",
            "`.venv/bin/python benchmarks/exploration.py --only-bulk --large`",
        )  # fmt: skip


def _model_checkers() -> Iterator[Row]:
    """Exploration and model checkers on the same states, each with what it checks."""
    ours, *others = (read("exploration") or {"side_by_side": [{}]})["side_by_side"]
    for other in others:
        yield (
            "every state of 6 blocks",
            f"orbits, one by one: {ours['seconds']:.2f} s",
            f"{other['program']}: {other['seconds']:.1f} s",
            f"{other['ratio']:.0f}",
            "`.venv/bin/python benchmarks/exploration.py`",
        )
