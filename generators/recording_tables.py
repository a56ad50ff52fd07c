"""What docs/live.md says of recordings: what they cost, and what audits of them found."""

from __future__ import annotations

from typing import Any

from figures import FigureError, read

__all__ = ["audited_schedulers", "recording_cost"]


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


def audited_schedulers() -> str:
    """How audits of recorded schedulers compare with the session that drove them."""
    found: dict[str, Any] | None = read("audit_alarms")
    if found is None:
        raise FigureError("run benchmarks/audit_alarms.py --record in .venv-vllm")
    rows = found["rows"]

    def total(name: str) -> str:
        return f"{sum(row[name] for row in rows):,}"

    missed = [f"{row['setup']} {row['missed']}" for row in rows if row["missed"]]
    return (
        f"{total('steps')} steps of vLLM's schedulers in {len(rows)} set-ups, {total('runs')} "
        f"random runs: the engine level saw a wrong read in {total('wrong')} runs, audits in "
        f"{total('found')}; {total('false_alarms')} false alarms, {total('missed')} missed"
        + (f" ({', '.join(missed)}: what a connector brings is unknown)" if missed else "")
        + f"; {total('ended_early')} recordings ended early "
        "(`.venv-vllm/bin/python benchmarks/audit_alarms.py --record`).\n"
    )
