"""What docs/live.md says the watch has seen: a model under pressure, and a server over HTTP."""

from __future__ import annotations

from typing import Any

from figures import FigureError, read

__all__ = [
    "live_hybrids",
    "live_scenarios",
    "live_server",
    "watch_cost",
    "watch_victims",
    "watched_schedulers",
]

_TRUE = ("random", "priority", "planted")
_OUT_OF_REACH = "worker out of reach"


def live_scenarios() -> str:
    """Steps and alarms of the scenarios of benchmarks/live_vllm.py."""
    rows: list[dict[str, Any]] | None = read("live_vllm")
    if rows is None:
        raise FigureError("run benchmarks/live_vllm.py --record in .venv-vllm")
    right = [row for row in rows if row["scenario"] not in _TRUE]
    wrong = [row for row in rows if row["scenario"] in _TRUE]
    seen = "; ".join(
        f"`{row['scenario']}` {', '.join(f'{n} {name}' for name, n in told.items()) or 'nothing'}"
        for row in wrong
        for told in [row["watch"]["violations"]]
    )
    return (
        f"{sum(row['steps'] for row in right):,} steps of {len(right)} scenarios, "
        f"{sum(row['resumes'] for row in right):,} preempted requests that came back, "
        f"{sum(row['admissions_with_hits'] for row in right):,} hits: "
        f"{sum(row['false_alarms'] for row in right)} false alarms. Found in those that are wrong: "
        f"{seen}.\n"
    )


def live_hybrids() -> str:
    """Steps and alarms of the scenarios of benchmarks/live_hybrid.py."""
    found: dict[str, Any] | None = read("live_hybrid")
    if found is None:
        raise FigureError("run benchmarks/live_hybrid.py --record in .venv-vllm")
    rows = found["rows"]
    right = [row for row in rows if row["scenario"] != "one-token"]
    wrong = [row for row in rows if row["scenario"] == "one-token"]
    names = ", ".join(f"`{row['scenario']}`" for row in right)
    return (
        f"{sum(row['steps'] for row in right):,} steps ({names}), "
        f"{sum(row['checked_reads'] for row in right):,} reads compared, "
        f"{sum(row['admissions_with_hits'] for row in right):,} hits: "
        f"{sum(row['false_alarms'] for row in right)} false alarms. In `one-token`: "
        f"{sum(row['violations'].get('DATA', 0) for row in wrong)} DATA in "
        f"{sum(row['steps'] for row in wrong):,} steps "
        "(`.venv-vllm/bin/python benchmarks/live_hybrid.py --steps 60 --record`).\n"
    )


def watched_schedulers() -> str:
    """Steps and alarms of the set-ups of benchmarks/watch_alarms.py."""
    found: dict[str, Any] | None = read("watch_alarms")
    if found is None:
        raise FigureError("run benchmarks/watch_alarms.py --record in .venv-vllm")
    rows = found["rows"]
    return (
        f"{sum(row['steps'] for row in rows):,} steps of vLLM's schedulers in {len(rows)} set-ups, "
        f"connectors, images and drafts among them: {sum(row['false_alarms'] for row in rows)} "
        "false alarms (`.venv-vllm/bin/python benchmarks/watch_alarms.py --record`)."
        f"{_with_recurrent_layers(rows)}\n"
    )


def _with_recurrent_layers(rows: list[dict[str, Any]]) -> str:
    """Of the set-ups with recurrent layers: how many wrong runs the watch has seen as well."""
    hybrid = [row for row in rows if row["setup"].startswith(("gdn", "mamba2"))]
    if not hybrid:
        return ""
    words = []
    for is_heard, what in ((True, "with a worker that it hears"), (False, "with one out of reach")):
        some = [row for row in hybrid if (_OUT_OF_REACH not in row["setup"]) is is_heard]
        if some:
            words.append(
                f"{sum(row['caught'] for row in some)} of the "
                f"{sum(row['session'].get('DATA', 0) for row in some)} runs {what}"
            )
    runs, steps = min(row["runs"] for row in hybrid), sum(row["steps"] for row in hybrid)
    return (
        f" {steps:,} of them, {runs} runs of each set-up, had recurrent layers, where vLLM is "
        "wrong with drafts ([engines.md](engines.md#vllm-with-recurrent-layers)): the watch saw "
        f"that in {' and '.join(words)} in which the engine level did."
    )


def watch_cost() -> str:
    """CPU time a step by how many requests run, and what memory does over a long run."""
    found: dict[str, Any] | None = read("watch_cost")
    if found is None:
        raise FigureError("run benchmarks/watch_cost.py --tokens 100 --record in .venv-vllm")
    lines = [
        "| running | tokens each | a step of the scheduler | the watch adds |",
        "|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row['running']} | {row['context']:,} | {row['scheduler_ms']:.2f} ms | "
        f"{row['watch_ms']:.2f} ms |"
        for row in found["rows"]
    ]
    _, first, *_, last = found["memory"]
    return "\n".join(lines) + (
        f"\n\nThe process had {first['resident_mib']:.0f} MiB after {first['tokens']:,} tokens and "
        f"{last['resident_mib']:.0f} MiB after {last['tokens']:,}.\n"
    )


def watch_victims() -> str:
    """How many of the wrong outputs of planted faults were named."""
    found: dict[str, Any] | None = read("watch_victims")
    if found is None:
        raise FigureError("run benchmarks/watch_victims.py --runs 6 --record in .venv-vllm")
    parts = []
    for name, engine in (("vllm", "vLLM's scheduler"), ("impl", "our own engine")):
        rows = found[name]
        outputs, wrong, named = (
            sum(row[count] for row in rows) for count in ("outputs", "wrong", "named")
        )
        parts.append(
            f"{engine}: {len(rows)} faults, {outputs:,} outputs, {wrong:,} of them wrong, "
            f"{named:,} of these named"
        )
    return "; ".join(parts) + ".\n"


def live_server() -> str:
    """A line for each server of benchmarks/live_server.py."""
    found: dict[str, Any] | None = read("live_server")
    if found is None:
        raise FigureError("run benchmarks/live_server.py --record in .venv-vllm")
    lines = [
        "| server | answered | as without the watch | after SIGTERM | besides |",
        "|---|---:|---:|---|---|",
    ]
    lines += [
        f"| {row['server']} | {row['answered']} of {found['requests']} | {row['as_without_it']} | "
        f"{_end(row)} | {_besides(row)} |"
        for row in found["rows"]
    ]
    return "\n".join(lines) + (
        "\n\nThe rest hung up on the way, as they were to. `quarantine` ran with vLLM's "
        "shutdown-timeout; without it the core is killed before it says goodbye.\n"
    )


def _end(row: dict[str, Any]) -> str:
    if "watch_after_the_end" not in row:
        return ""
    status, (line,) = row["watch_after_the_end"]
    return f"{status}: {line.split(': ')[1].split(';')[0]}"


def _besides(row: dict[str, Any]) -> str:
    if "audit" in row:
        return "audit: " + row["audit"][1][0]
    if "events" in row:
        return "events: " + row["events"][1][-1]
    return ""
