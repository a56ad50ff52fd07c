"""What docs/drop-in.md says of speed, and of vLLM's own tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures import FigureError, read

__all__ = ["drop_in_speed", "drop_in_tests"]


def drop_in_speed() -> str:
    """A step of vLLM's scheduler with its own manager and with ours."""
    found: dict[str, Any] | None = read("vllm_drop_in")
    if found is None:
        raise FigureError("run benchmarks/vllm_drop_in.py --record in .venv-vllm")
    titles = (
        "requests that run", "", "`schedule()` over vLLM's manager", "over ours", "times as fast",
        "whole step", "compiled: `schedule()`", "whole step",
    )  # fmt: skip
    lines = [f"| {' | '.join(titles)} |", "|---:|---|---:|---:|---:|---:|---:|---:|"]
    compiled = found["compiled"] or [None] * len(found["interpreted"])
    for row, other in zip(found["interpreted"], compiled, strict=True):
        cells = [
            f"{row['running']:,}",
            row["workload"],
            f"{row['schedule']['vllm_us']:,.0f} us",
            f"{row['schedule']['poolproof_us']:,.0f} us",
            *_ratios(row),
            *(["", ""] if other is None else _ratios(other)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _ratios(row: Mapping[str, Any]) -> list[str]:
    """Medians of the ratios of `schedule()` and of the whole step, with quartiles."""
    return [
        f"{row[what]['ratio']:.2f} ({row[what]['ratio_quartiles'][0]:.2f} to "
        f"{row[what]['ratio_quartiles'][1]:.2f})"
        for what in ("schedule", "step")
    ]


def drop_in_tests() -> str:
    """How many tests of vLLM's scheduler pass over ours, and why the others do not."""
    found: dict[str, Any] | None = read("vllm_own_tests")
    if found is None:
        raise FigureError("run benchmarks/vllm_own_tests.py --record in .venv-vllm")
    schedulers = found["schedulers"]
    others = "; ".join(
        f"{count} where {reason}" for reason, count in schedulers.items() if reason != "used"
    )
    lost = [f"- `{name}` {why}." for name, why in found["lost"].items()]
    return (
        f"Of {found['passed_over_vllms']} tests of vLLM {found['vllm']} that pass over its own "
        f"manager here, {found['passed_over_both']} pass over ours, under "
        f"{schedulers['used']} schedulers (vLLM's manager stayed in {others}). The rest look "
        "inside, or misuse the manager:\n\n" + "\n".join(lost) + "\n"
    )
