"""The figures of the manual, read from what the benchmarks wrote.

Each benchmark that is run with --record writes one JSON file into benchmarks/results; here stands
which of its values the manual quotes and in what words. A file that is not there gives no row.
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
                f"{RESULTS / name}.json does not hold what generators/figures.py quotes: "
                f"{error!r}; run benchmarks/{name}.py --record again, or change the row there"
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
    for name, found in result["ratios"].items():
        yield (
            f"`{name}` against vLLM {result['vllm']}, {result['requests']:,} requests, a block",
            f"{found['ratio_of_medians']:.2f} times as fast, equal hits",
        )


def engine_steps(result: Any) -> Iterator[Row]:
    """What the real engine was put through."""
    findings = len(result["findings"])
    yield (
        f"vLLM's real pool at `--depth {result['level']}`, {result['workers']} workers",
        f"{result['pool_steps']:,} checked steps, {result['seconds']:.0f} s, {findings} findings",
    )


def proof(result: Any) -> Iterator[Row]:
    """What is proved for every size."""
    conditions = sum(model["conditions"] for model in result["models"].values())
    yield (
        "conditions proved by Z3 and confirmed by cvc5, for any number of blocks and references",
        f"{conditions}, and {len(result['planted'])} planted bugs caught",
    )


def manager_speed(result: Any) -> Iterator[Row]:
    """How many manager commands a second are checked."""
    found = result["commands_per_second"]
    build = f"{result['python']}, {_compiler(result)}"
    for target, what in (
        ("examples/simple_manager.py:Manager", "a small manager that shows everything"),
        ("impl-nano", "`impl-nano`, its own time included"),
    ):
        value = found[f"{target}, plain driver"]
        yield (
            f"manager commands on 8 blocks, shadow memory on: {what}",
            f"{value:,.0f} /s (CPython {build})",
        )


def _compiler(result: Any) -> str:
    """What the interpreter was built with: builds of one Python differ by a tenth and more."""
    return str(result["python_build"].split("[")[-1].rstrip("]"))


def compiled_speed(result: Any) -> Iterator[Row]:
    """What compiled drivers bring."""
    build = f"CPython {result['python']}, {_compiler(result)}"
    for name, what in (
        ("pool steps/s", "compiled drivers: steps on a pool of 8 blocks"),
        ("manager commands/s", "compiled drivers: commands of the small manager"),
        (
            "campaign, checked steps/s",
            "compiled drivers: a campaign of a million steps, all states",
        ),
    ):
        row = result["figures"][name]
        yield (
            what,
            f"{row['compiled']:,.0f} /s, {row['ratio']:.2f} times the drivers as Python ({build})",
        )


def manager_against_vllm(result: Any) -> Iterator[Row]:
    """The speed of impl's manager on real requests."""
    num = result["work"]["requests"]
    yield (
        f"`impl`'s manager against vLLM {result['vllm']}'s, {num:,} requests, time a request",
        f"{result['ratio_of_medians']:.2f} times as fast, equal hits",
    )


def manager_layouts(result: Any) -> Iterator[Row]:
    """What vLLM's real manager was put through."""
    layouts = [layout for layout in result["layouts"] if "commands" in layout]
    commands = sum(layout["commands"] for layout in layouts)
    findings = sum(len(layout["findings"]) for layout in layouts)
    yield (
        f"vLLM's real manager in {len(layouts)} layouts, every read compared",
        f"{commands:,} commands, {findings} findings",
    )


def kernel_examples(result: Any) -> Iterator[Row]:
    """How often the kernels were compared with dense attention."""
    found = f"{result['examples']:,} examples, {result['false_alarms']} false alarms"
    yield "our paged attention against dense attention, in Triton's interpreter", found


ROWS: dict[str, Callable[[Any], Iterator[Row]]] = {
    "driver_speed": driver_speed,
    "minimal_traces": minimal_traces,
    "proof": proof,
    "mooncake_against_vllm": mooncake_against_vllm,
    "engine_steps": engine_steps,
    "manager_speed": manager_speed,
    "compiled_speed": compiled_speed,
    "manager_against_vllm": manager_against_vllm,
    "manager_layouts": manager_layouts,
    "kernel_examples": kernel_examples,
}
COMMANDS = {
    "driver_speed": ".venv/bin/python benchmarks/driver_speed.py",
    "minimal_traces": ".venv/bin/python benchmarks/minimal_traces.py",
    "proof": ".venv/bin/python benchmarks/proof.py",
    "mooncake_against_vllm": ".venv-vllm/bin/python benchmarks/mooncake_against_vllm.py",
    "engine_steps": ".venv-vllm/bin/python benchmarks/engine_steps.py",
    "manager_speed": ".venv/bin/python benchmarks/manager_speed.py",
    "compiled_speed": "make compiled; .venv/bin/python benchmarks/compiled_speed.py",
    "manager_against_vllm": ".venv-vllm/bin/python benchmarks/manager_against_vllm.py",
    "manager_layouts": ".venv-vllm/bin/python benchmarks/manager_layouts.py",
    "kernel_examples": ".venv-kernels/bin/python benchmarks/kernel_examples.py",
}


def trace_lengths() -> str:
    """For each planted bug the minimised lengths, and the true minimum of each."""
    result = read("minimal_traces") or {"rows": []}
    lines = [
        "| bug | steps until caught | shortest possible, by seed | minimised, by seed |",
        "|---|---:|---|---|",
    ]
    for row in result["rows"]:
        shortest = " ".join("-" if each is None else str(each) for each in row["breadth_first"])
        lengths = " ".join(map(str, row["minimised"]))
        lines.append(f"| {row['id']} | {row['steps_to_catch']:.0f} | {shortest} | {lengths} |")
    return "\n".join(lines) + "\n"
