"""What docs/live.md says of the cost of a recording."""

from __future__ import annotations

from typing import Any

from figures import FigureError, read

__all__ = ["recording_cost"]


def recording_cost() -> str:
    """CPU time and bytes, by how many requests run."""
    found: dict[str, Any] | None = read("recording_cost")
    if found is None:
        raise FigureError("run benchmarks/recording_cost.py --record")
    lines = [
        "| running | a prompt | a decode step | bytes a prompt token | a decoded one | audit |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row['running']} | {row['admission_ms']:.1f} ms | {row['decode_ms']:.2f} ms | "
        f"{row['bytes_per_prompt_token']:.1f} | {row['bytes_per_decoded_token']:.1f} | "
        f"{row['audit_ms']:.1f} ms a step |"
        for row in found["rows"]
    ]
    return "\n".join(lines) + (
        f"\n\nPrompts of {found['context']:,} tokens that share nothing "
        "(`python benchmarks/recording_cost.py --record`, with a load of "
        f"{found['load_average']:.0f} on {found['processors']} processors).\n"
    )
