"""What the pages say of recurrent states: a picture of each cause, and repairs that were judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from figures import FigureError, read

from poolproof.bugs.engine_state_bugs import ENGINE_STATE_BUGS
from poolproof.contract.trace import Trace, read_trace
from poolproof.report.finding_report import trace_report
from poolproof.report.forms import Form, document_text

__all__ = [
    "STATE_CAUSES",
    "hybrid_releases",
    "judged_repairs",
    "state_cause",
    "state_cause_in_vllm",
]

_DOCS = Path(__file__).resolve().parent.parent / "docs"
_TRACES = _DOCS / "pictures" / "states"
_PICTURE = ("#", "what happens", "computes", "tables")
STATE_CAUSES = tuple(ENGINE_STATE_BUGS)
"""The planted bugs of states, each with a picture."""


def state_cause(name: str) -> str:
    """How soon a planted bug is found, what its trace shows, and the trace step by step."""
    path = _TRACES / f"{name}.jsonl"
    if not path.is_file():
        raise FigureError(f"docs/pictures/states has no {path.name}: benchmarks/state_traces.py")
    trace = read_trace(path)
    found = f"Found from nothing in {_steps(name):,.0f} commands, cut to {len(trace.commands)}"
    said, picture = _drawn(trace)
    return "\n".join([f"{found}: {said}.", "", *picture, ""])


def state_cause_in_vllm() -> str:
    """The trace that was found in vLLM's own scheduler and worker."""
    said, picture = _drawn(read_trace(_DOCS / "findings" / "vllm-hybrid-1.jsonl"))
    return "\n".join([f"In vLLM 0.32.0: {said}.", "", *picture, ""])


def _drawn(trace: Trace) -> tuple[str, list[str]]:
    """What a trace violates, and its steps."""
    lines = document_text(trace_report(trace), Form.MARKDOWN).splitlines()
    table = [line for line in lines if line.startswith("|")]
    ends = next(place for place, line in enumerate(lines) if line.startswith("|"))
    said = next(line for line in reversed(lines[:ends]) if line)
    return said, list(_picture(table))


def _steps(name: str) -> float:
    """The median over the seeds."""
    record = read("engine_specimens")
    bug = next((each for each in (record or {"bugs": []})["bugs"] if each["id"] == name), None)
    if bug is None or None in bug["steps"]:
        raise FigureError(f"engine_specimens.json lacks {name}: benchmarks/engine_specimens.py")
    return median(bug["steps"])


def _picture(table: Sequence[str]) -> Iterator[str]:
    """The columns that a picture has, of the first table of a report."""
    heads = _cells(table[0])
    for number, line in enumerate(table):
        cells = _cells(line)
        if len(cells) != len(heads):
            return
        if number and set(line) <= set("|-: "):
            yield "|---:|---|---|---|"
            continue
        chosen = [_joined(cells[heads.index(head)]) if head in heads else "" for head in _PICTURE]
        if number == 0:
            chosen = list(_PICTURE)
        if any(chosen[1:]):
            yield f"| {' | '.join(chosen)} |"


def _cells(line: str) -> list[str]:
    marked = line.replace("\\|", "\0")
    return [cell.strip().replace("\0", "\\|") for cell in marked.strip().strip("|").split("|")]


def _joined(cell: str) -> str:
    """The same, with what both parts of a state do said once."""
    parts = cell.split("; ")
    windows = {part.replace(" (window)", "") for part in parts if " (window)" in part}
    temporal = {part.replace(" (temporal)", "") for part in parts if " (temporal)" in part}
    both = windows & temporal
    kept: list[str] = []
    for part in parts:
        plain = part.replace(" (temporal)", "").replace(" (window)", "")
        if plain not in both:
            kept.append(part)
        elif plain not in kept:
            kept.append(plain)
    return "; ".join(kept)


def judged_repairs() -> str:
    """Each repair that was judged, with what it does, and what it costs in hits."""
    found = read("repairs")
    if found is None:
        raise FigureError(
            "benchmarks/results/repairs.json is missing: run benchmarks/repairs.py --record"
        )
    heads = "repair|whose|release, set-ups|repairs|leaves|breaks|uncovers"
    both = "cached tokens, without and with it|commands, without and with it"
    lines = [
        f"| {' | '.join(f'{heads}|{both}'.split('|'))} |",
        "|---|---|---|---|---|---|---|---:|---:|",
    ]
    return "\n".join([*lines, *map(_repair_row, found["rows"].values())]) + "\n"


def _repair_row(row: dict[str, Any]) -> str:
    effects = (_effect(row["effects"][name]) for name in ("repairs", "leaves", "breaks"))
    uncovers = _effect(row["effects"]["uncovers"])
    hits = "; ".join(
        f"{each['found'][0]:,}, {each['found'][1]:,}" for each in row["hits"] if each["runs"]
    )
    cells = (
        f"[{row['name']}]({row['patch'].removeprefix('docs/')}): {row['what']}",
        row["whose"],
        f"{row['release']}: {', '.join(row['layouts'])}"
        + ("; beside one-token" if "[patch=" in row["target"] else ""),
        *effects,
        uncovers,
        hits or "-",
        ", ".join(f"{steps:,}" for steps in row["steps"]),
    )
    return f"| {' | '.join(cells)} |"


def hybrid_releases() -> str:
    """What the plain driver finds first in each release, set-up and diff."""
    found = read("hybrid_releases")
    if found is None:
        raise FigureError(
            "benchmarks/results/hybrid_releases.json is missing: run "
            "benchmarks/hybrid_releases.py VERSION --record"
        )
    lines = [
        "| release | with | set-up | commands | what was found first |",
        "|---|---|---|---:|---|",
    ]
    rows = sorted(found["rows"], key=_newest_first)
    return "\n".join([*lines, *map(_release_row, rows)]) + "\n"


def _newest_first(row: dict[str, Any]) -> tuple[Any, ...]:
    """The installed release, then older ones; of each first what has no diff."""
    numbers = () if row["release"] == "installed" else tuple(map(int, row["release"].split(".")))
    return (bool(numbers), *(-number for number in numbers), row["patch"] or "", row["layout"])


def _release_row(row: dict[str, Any]) -> str:
    patch = row["patch"]
    with_ = f"[{Path(patch).stem}]({patch.removeprefix('docs/')})" if patch else "-"
    if "why" in row:
        steps, said = "-", f"not driven: {row['why']}"
    elif row["found"] is None:
        steps, said = f"{row['steps']:,}", "nothing"
    else:
        what = row["found"]
        steps = f"{row['steps']:,}"
        said = f"{what['invariant']}, cut to {what['commands']}: {what['sentence']}"
    release = row.get("version") or row["release"]
    # Tokens stand in angle brackets, which a page takes for its own.
    said = said.replace("<", "\\<").replace(">", "\\>").replace("|", "\\|")
    return f"| {release} | {with_} | {row['layout']} | {steps} | {said} |"


def _effect(findings: Sequence[dict[str, Any]]) -> str:
    """How many findings, and the length of their traces."""
    if not findings:
        return "-"
    lengths = ", ".join(str(found["commands"]) for found in findings)
    return f"{len(findings)} (of {lengths} commands)"
