"""The figures of the manual, read from what the benchmarks wrote.

Each benchmark writes one JSON file into benchmarks/results; here stands which of its values the
manual quotes and in what words. A file that is not there gives no row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["FigureError", "figures", "trace_lengths"]

RESULTS = Path(__file__).resolve().parent.parent / "benchmarks" / "results"

Row = tuple[str, str]


class FigureError(Exception):
    """A result that cannot be quoted; the message names file and value."""


def figures() -> str:
    """The table of figures: what, how much, and the command that measures it."""
    lines = ["| figure | measured | command |", "|---|---|---|"]
    for name, rows in ROWS.items():
        result = read(name)
        if result is None:
            continue
        try:
            found = list(rows(result))
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            raise FigureError(
                f"{RESULTS / name}.json does not hold what docs/figures.py quotes: {error!r}; run "
                f"benchmarks/{name}.py again, or change the row there"
            ) from error
        lines += [f"| {what} | {value} | `{COMMANDS[name]}` |" for what, value in found]
    return "\n".join(lines) + "\n"


def read(name: str) -> Any:
    """What the benchmark of this name wrote, or None."""
    path = RESULTS / f"{name}.json"
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FigureError(f"{path} is not JSON: {error}") from error


def driver_speed(result: Any) -> Iterator[Row]:
    """Steps a second, alone and against Hypothesis, and what the size of the pool costs."""
    found = result["figures"]
    alone = found["plain driver, checked steps/s"]
    guarded = found["the same, pool with argument checks"]
    under_hypothesis = found["Hypothesis, checked steps/s"]
    small = found["harness's own time, 8 blocks, us/step"]
    large = found["harness's own time, 100,000 blocks, us/step"]
    whole = found["full observation, 100,000 blocks, ms"]
    yield "steps on a pool of 8 blocks, all compared after each, one core", f"{alone:,.0f} /s"
    yield "the same with a pool that checks its arguments, and misuse", f"{guarded:,.0f} /s"
    yield "the same grammar and checks under Hypothesis", f"{under_hypothesis:,.0f} /s"
    yield "checking a step at 8 blocks: everything is read", f"{small:.1f} us"
    yield "checking a step at 100,000 blocks: what it touched is read", f"{large:.1f} us"
    yield "reading all of a pool of 100,000 blocks", f"{whole:.0f} ms"


def minimal_traces(result: Any) -> Iterator[Row]:
    """How long minimised traces are."""
    found = result["summary"]
    yield (
        f"planted bugs whose minimised trace is the shortest there is, from {found['seeds']} seeds",
        f"{found['exact']} of {found['bugs']}",
    )
    yield "the longest of the others, above the shortest", f"{found['worst_excess']} commands"


def mooncake_against_vllm(result: Any) -> Iterator[Row]:
    """The speed of impl on real requests."""
    yield (
        f"`impl` against vLLM {result['vllm']}, {result['requests']:,} requests, time a block",
        f"{result['ratio_of_medians']:.2f} times as fast, equal hits",
    )


def engine_steps(result: Any) -> Iterator[Row]:
    """What the real engine was put through."""
    findings = len(result["findings"])
    yield (
        f"vLLM's real pool at `--level {result['level']}`, {result['workers']} workers",
        f"{result['pool_steps']:,} checked steps, {result['seconds']:.0f} s, {findings} findings",
    )


ROWS: dict[str, Callable[[Any], Iterator[Row]]] = {
    "driver_speed": driver_speed,
    "minimal_traces": minimal_traces,
    "mooncake_against_vllm": mooncake_against_vllm,
    "engine_steps": engine_steps,
}
COMMANDS = {
    "driver_speed": ".venv/bin/python benchmarks/driver_speed.py",
    "minimal_traces": ".venv/bin/python benchmarks/minimal_traces.py",
    "mooncake_against_vllm": ".venv-vllm/bin/python benchmarks/mooncake_against_vllm.py",
    "engine_steps": ".venv-vllm/bin/python benchmarks/engine_steps.py",
}


def trace_lengths() -> str:
    """For each planted bug the minimised lengths and the true minimum."""
    result = read("minimal_traces") or {"rows": []}
    lines = [
        "| bug | steps until caught | shortest possible | minimised, by seed |",
        "|---|---:|---:|---|",
    ]
    for row in result["rows"]:
        shortest = "not reached" if row["breadth_first"] is None else row["breadth_first"]
        lengths = " ".join(map(str, row["minimised"]))
        lines.append(f"| {row['id']} | {row['steps_to_catch']:.0f} | {shortest} | {lengths} |")
    return "\n".join(lines) + "\n"
