"""The tables of docs/bugs.md and the short one of the README, from the recorded kill matrix.

Nothing is searched here; benchmarks/kill_matrix.py records. What shares a specimen and what cannot
be stated comes from the code.
"""

from __future__ import annotations

from collections.abc import Sequence

from figures import FigureError, read

from poolproof.bugs.rows import SHARED, UNSTATED
from poolproof.certification.json_fields import FieldError
from poolproof.kill_matrix.matrix import Column, Matrix, MatrixRow
from poolproof.kill_matrix.matrix_document import link_of
from poolproof.kill_matrix.matrix_json import matrix_of
from poolproof.kill_matrix.wording import (
    cell_text,
    conclusions,
    count_text,
    invariants_text,
    seconds_of,
    steps_of,
    verdict_text,
)

__all__ = [
    "detectors_worth",
    "kill_matrix",
    "lone_detectors",
    "oddities_seen",
    "shared_threads",
    "specimens_caught",
    "unstated_threads",
]


def _matrix() -> Matrix:
    found = read("kill_matrix")
    if found is None:
        raise FigureError(
            "benchmarks/results/kill_matrix.json is missing: run make bugs ARGS=--record"
        )
    try:
        return matrix_of(found)
    except FieldError as error:
        raise FigureError(f"benchmarks/results/kill_matrix.json: {error}") from error


def kill_matrix() -> str:
    """The short table: what each way of searching is worth."""
    matrix = _matrix()
    columns = [column for column in matrix.columns if not column.is_invariant]
    best = max(
        (column for column in matrix.columns if column.is_invariant),
        key=lambda column: len(matrix.caught_in(column.name)),
        default=None,
    )
    lines = [_worth_heading(), *(_worth(matrix, column, column.what) for column in columns)]
    if best is not None:
        what = f"the best single invariant ({best.name}), the comparison with the model off"
        lines.append(_worth(matrix, best, what))
    return "\n".join([*lines, "", f"{verdict_text(matrix)}. {_recorded(matrix)}"]) + "\n"


def detectors_worth() -> str:
    """The same for every column, each invariant included."""
    matrix = _matrix()
    lines = [_worth_heading(name=True)]
    lines += [_worth(matrix, column, column.what, name=True) for column in matrix.columns]
    return "\n".join([*lines, "", _recorded(matrix)]) + "\n"


def specimens_caught() -> str:
    """A row for each specimen: where it was told, who caught it, after how many steps."""
    matrix = _matrix()
    columns = [column for column in matrix.columns if not column.is_invariant]
    names = " | ".join(column.name for column in columns)
    lines = [
        f"| bug | what is wrong | level | trace | {names} | invariants alone |",
        f"|---|---|---|---:|{'---:|' * len(columns)}---|",
    ]
    for row in matrix.specimens:
        cells = " | ".join(cell_text(row.cells[column.name]) for column in columns)
        length = "" if row.length is None else str(row.length)
        lines.append(
            f"| {row.id} | {_told(row)} | {row.level} | {length} | {cells} "
            f"| {invariants_text(matrix, row)} |"
        )
    return "\n".join(lines) + "\n"


def lone_detectors() -> str:
    """What only one detector catches, what only standard catches, what no detector catches."""
    lines = ["| | |", "|---|---|"]
    lines += [f"| {heading} | {text} |" for heading, text in conclusions(_matrix())]
    return "\n".join(lines) + "\n"


def oddities_seen() -> str:
    """The oddities, and which detectors accused them; none may."""
    lines = ["| oddity | level | what is odd | searches | accused by |", "|---|---|---|---:|---|"]
    for row in _matrix().oddities:
        said = ", ".join(row.caught_by) or "nobody"
        searched = sum(seen.of for seen in row.cells.values())
        lines.append(f"| `{row.id}` | {row.level} | {row.title} | {searched} | {said} |")
    return "\n".join(lines) + "\n"


def shared_threads() -> str:
    """Threads whose mechanism another specimen has."""
    lines = ["| thread | has the mechanism of |", "|---|---|"]
    lines += [f"| {_linked(thread)} | {specimen} |" for thread, specimen in SHARED.items()]
    return "\n".join(lines) + "\n"


def unstated_threads() -> str:
    """Threads whose bug breaks nothing that a contract promises."""
    lines = ["| thread | why it cannot be stated |", "|---|---|"]
    lines += [f"| {_linked(thread)} | {reason} |" for thread, reason in UNSTATED.items()]
    return "\n".join(lines) + "\n"


def _worth_heading(*, name: bool = False) -> str:
    first = "| detector | what it is | " if name else "| detector | "
    heading = f"{first}bugs caught | of | steps | seconds | oddities accused |"
    return f"{heading}\n|---|{'---|' * name}---:|---:|---:|---:|---:|"


def _worth(matrix: Matrix, column: Column, what: str, *, name: bool = False) -> str:
    spoken = matrix.spoken_of(column.name)
    accused = [row for row in matrix.oddities if column.name in row.caught_by]
    numbers = (
        count_text(len(matrix.caught_in(column.name))),
        count_text(len(spoken)),
        steps_of(spoken, column.name),
        seconds_of(spoken, column.name),
        str(len(accused)),
    )
    first = f"`{column.name}` | {what}" if name else what
    return f"| {first} | {' | '.join(numbers)} |"


def _recorded(matrix: Matrix) -> str:
    seeds = len(matrix.seeds)
    recorded = f"Recorded from {seeds} seed{'s' if seeds != 1 else ''} with {matrix.python}."
    return (
        "Steps, and seconds of one CPU, until a bug is caught: medians over those that are; "
        f"`of`: the bugs that a detector applies to. {recorded}"
    )


def _told(row: MatrixRow) -> str:
    """What is wrong, then the threads that tell of it."""
    title = row.title.replace("|", "\\|")
    return f"{title} ({_all_linked(row.threads)})" if row.threads else title


def _all_linked(threads: Sequence[str]) -> str:
    return ", ".join(map(_linked, threads))


def _linked(thread: str) -> str:
    link = link_of(thread)
    return f"[{thread}]({link})" if link else thread
