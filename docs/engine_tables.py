"""What docs/engines.md and docs/bugs.md say of engines' planted bugs, as one record has it."""

from __future__ import annotations

from statistics import median
from typing import Any

from figures import FigureError, read

from poolproof.bugs.engine_oddities import ENGINE_ODDITIES
from poolproof.kill_matrix.matrix_document import link_of

__all__ = ["odd_engines", "planted_engines", "planted_engines_told"]


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
