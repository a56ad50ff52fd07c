"""What the pages say of engines: planted bugs, short traces, guidance, and the soak."""

from __future__ import annotations

from statistics import median
from textwrap import shorten
from typing import Any

from figures import FigureError, read

from poolproof.bugs.engine_oddities import ENGINE_ODDITIES
from poolproof.kill_matrix.matrix_document import link_of

__all__ = [
    "engine_guidance",
    "engine_traces",
    "odd_engines",
    "planted_engines",
    "planted_engines_told",
    "soaked_engines",
    "soaked_hicache",
    "soaked_hybrids",
    "soaked_lmcache",
    "soaked_sglang",
]


def planted_engines_told() -> str:
    """How many planted bugs of engines are found, and how many correct ones accused."""
    found = _record()
    bugs = found["bugs"]
    caught = [bug for bug in bugs if None not in bug["steps"]]
    return (
        f"{len(caught)} of {len(bugs)} planted bugs are found from each of {found['num_seeds']} "
        f"seeds within {found['num_runs']} runs; {len(found['accused'])} of {found['oddities']} "
        f"correct oddities are accused in {found['oddity_runs']} runs of each of their profiles "
        "(`python benchmarks/engine_specimens.py`).\n"
    )


def planted_engines() -> str:
    """Each planted bug of an engine with its thread, what names it, and what it takes to find."""
    lines = [
        "| | planted bug | thread | named | steps | commands |",
        "|---|---|---|---|---:|---:|",
        *map(_row, _record()["bugs"]),
    ]
    return "\n".join(lines) + "\n"


def odd_engines() -> str:
    """Correct engines that look wrong, and whether anything accused them."""
    accused = _record()["accused"]
    lines = ["| oddity | why it is right | profiles | accused by |", "|---|---|---:|---|"]
    for oddity in ENGINE_ODDITIES:
        said = "the plain driver" if oddity.name in accused else "nobody"
        cells = (f"`{oddity.cls.__name__}`", oddity.why, str(len(oddity.profiles)), said)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _record() -> dict[str, Any]:
    found: dict[str, Any] | None = read("engine_specimens")
    if found is None:
        raise FigureError(
            "benchmarks/results/engine_specimens.json is missing: run "
            "benchmarks/engine_specimens.py --record"
        )
    return found


def _row(bug: dict[str, Any]) -> str:
    steps = [count for count in bug["steps"] if count is not None]
    thread = bug["thread"]
    link = link_of(thread)
    cells = (
        bug["id"],
        bug["title"],
        f"[{thread}]({link})" if link else thread,
        ", ".join(bug["named"]) or "-",
        f"{median(steps):,.0f}" if len(steps) == len(bug["steps"]) else "not from each seed",
        "-" if bug["minimal"] is None else str(bug["minimal"]),
    )
    return f"| {' | '.join(cells)} |"


def soaked_engines() -> str:
    """Each set-up of vLLM's scheduler: the steps that it planned, and what was found."""
    return _soaked("vllm-engine", "vLLM's scheduler")


def soaked_hicache() -> str:
    """Each set-up of SGLang's tier in host memory: the same."""
    return _soaked("sglang-hicache-engine", "SGLang's tier in host memory")


def soaked_hybrids() -> str:
    """Each set-up of vLLM with recurrent layers, with its known causes repaired: the same."""
    return _soaked(
        "vllm-hybrid[patch=docs/repairs/all.diff]", "vLLM's scheduler and worker, repaired,"
    )


def soaked_sglang() -> str:
    """Each set-up of SGLang's scheduler over its unified tree: the same."""
    return _soaked("sglang-engine", "SGLang's scheduler")


def soaked_lmcache() -> str:
    """Each set-up of vLLM's scheduler with LMCache's connector: the same."""
    return _soaked("vllm-lmcache", "vLLM's scheduler with LMCache's connector")


def _soaked(target: str, whose: str) -> str:
    found = read("engine_soak")
    if found is None or target not in found:
        raise FigureError(
            f"benchmarks/results/engine_soak.json has no {target}: run "
            f"benchmarks/engine_soak.py --target {target} --record"
        )
    rows = found[target]["rows"]
    held = [row for row in rows if row["found"] is None]
    steps, commands = (sum(row[name] for row in held) for name in ("steps", "commands"))
    option = "" if target == "vllm-engine" else f"--target '{target}' "
    told = (
        f"{steps:,} steps of {whose} in the set-ups in which nothing is found, in {commands:,} "
        f"commands (`.venv-vllm/bin/python benchmarks/engine_soak.py {option}--record`). "
        "A set-up ends with its first finding. Everything that must happen for a pass to mean "
        "anything has happened, unless the last column says otherwise."
    )
    lines = [
        told,
        "",
        "| set-up | steps planned | commands a second of a core | found | never happened |",
        "|---|---:|---:|---|---|",
    ]
    for row in rows:
        speed = row["commands"] / max(row["cpu_seconds"], 0.1)
        seldom = ", ".join(row["not_reached"]) or "-"
        found_first = _in_a_cell(row["found"])
        cells = (row["layout"], f"{row['steps']:,}", f"{speed:,.0f}", found_first, seldom)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _in_a_cell(found: str | None) -> str:
    """Tokens stand in angle brackets, which a page takes for its own."""
    if found is None:
        return "-"
    return shorten(found, 200).replace("<", "\\<").replace(">", "\\>").replace("|", "\\|")


def engine_traces() -> str:
    """Each way in which a planted bug fails: the fewest commands, and those of minimised traces."""
    found = read("engine_exploration")
    if found is None:
        raise FigureError(
            "benchmarks/results/engine_exploration.json is missing: run "
            "benchmarks/engine_exploration.py --record"
        )
    rows, goal = found["rows"], found["goal"]
    told = (
        f"Of {len(rows)} ways in which {found['num_measured']} of {found['num_bugs']} planted bugs "
        f"fail, {found['reached']} are reached with at most {found['most_states']:,} states or "
        f"{found['most_seconds']:g} seconds each; in {found['within']} of these every minimised "
        f"trace has at most {goal} commands more than the fewest, in {found['equal']} none more "
        "(`python benchmarks/engine_exploration.py`)."
    )
    lines = [
        told,
        "",
        "| | named | fewest commands | minimised, by seed |",
        "|---|---|---|---|",
    ]
    for row in rows:
        lengths = " ".join(map(str, row["minimised"]))
        lines.append(f"| {row['id']} | {row['invariant']} | {_fewest(row)} | {lengths} |")
    return "\n".join(lines) + "\n"


def _fewest(row: dict[str, Any]) -> str:
    """As far as it is known."""
    if row["fewest"] is not None:
        return str(row["fewest"])
    if row["none_up_to"] is None:
        return "not searched"
    return f"more than {row['none_up_to']}"


_WAYS = ("plain driver", "fresh runs", "novelty")


def engine_guidance() -> str:
    """Steps to the first failure of the hardest planted bugs, by the way in which runs are made."""
    found = read("engine_guidance")
    if found is None:
        raise FigureError(
            "benchmarks/results/engine_guidance.json is missing: run "
            "benchmarks/engine_guidance.py --record"
        )
    told = (
        f"Commands to the first failure, the median of {found['num_seeds']} seeds, of at most "
        f"{found['most_steps']:,} (`python benchmarks/engine_guidance.py`). Novelty mutates, and "
        "draws fresh runs beside."
    )
    lines = [
        told,
        "",
        "| | plain driver | campaign, fresh runs | novelty |",
        "|---|---:|---:|---:|",
    ]
    for row in found["rows"]:
        cells = [
            f"more than {found['most_steps']:,}" if count is None else f"{count:,}"
            for count in (row["median"][way] for way in _WAYS)
        ]
        lines.append(f"| {row['id']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
