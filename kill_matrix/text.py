"""A kill matrix for the terminal: who caught what, what each detector is worth, what follows."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from poolproof.kill_matrix.matrix import Column, Matrix, MatrixRow
from poolproof.kill_matrix.wording import (
    KERNELS,
    LEGEND,
    cell_text,
    conclusions,
    invariants_text,
    seconds_of,
    steps_of,
    verdict_text,
)

__all__ = ["matrix_text"]


def matrix_text(matrix: Matrix) -> RenderableType:
    """The whole report."""
    parts: list[RenderableType] = []
    searches = [column for column in matrix.columns if not column.is_invariant]
    if searches:
        parts += [_rows(matrix, searches), Text(""), Text(LEGEND), Text("")]
    if len(searches) < len(matrix.columns):
        parts += [_invariants(matrix), Text("")]
    parts += [_detectors(matrix), Text("")]
    for heading, text in conclusions(matrix):
        parts.append(_conclusion(heading, text))
    seeds = f"{len(matrix.seeds)} seed{'s' if len(matrix.seeds) != 1 else ''}"
    parts += [
        Text(""),
        Text(KERNELS),
        Text(f"Poolproof {matrix.version}, code {matrix.code}, {matrix.python}, {seeds}"),
        Text(verdict_text(matrix), style="bold"),
    ]
    return Group(*parts)


def _table(*headings: str, padding: int = 2) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, padding, 0, 0), header_style="dim")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _rows(matrix: Matrix, columns: list[Column]) -> Table:
    headings = [column.name.removeprefix("certify-") for column in columns]
    table = _table("bug", "trace", *headings, padding=1)
    for shown in table.columns[1:]:
        shown.justify = "right"
    for row in matrix.rows:
        length = "" if row.length is None else str(row.length)
        cells = [cell_text(row.cells[column.name]) for column in columns]
        table.add_row(row.id, length, *cells, style=_style(row))
    return table


def _style(row: MatrixRow) -> str:
    if row.is_oddity:
        return "bold red" if row.caught_by else "dim"
    return "bold red" if row.was_searched and not row.caught_by else ""


def _invariants(matrix: Matrix) -> Table:
    table = _table("bug", "caught by one invariant alone, after so many steps")
    for row in matrix.specimens:
        table.add_row(row.id, invariants_text(matrix, row))
    return table


def _detectors(matrix: Matrix) -> Table:
    table = _table("detector", "caught", "of", "steps", "seconds", "accused", "what it is")
    for shown in table.columns[1:6]:
        shown.justify = "right"
    for column in matrix.columns:
        spoken = matrix.spoken_of(column.name)
        accused = [row for row in matrix.oddities if column.name in row.caught_by]
        missing = any(row.cells[column.name].is_missing for row in matrix.rows)
        table.add_row(
            column.name,
            str(len(matrix.caught_in(column.name))),
            "?" if missing else str(len(spoken)),
            steps_of(spoken, column.name),
            seconds_of(spoken, column.name),
            str(len(accused)),
            column.what + (" (not installed)" if missing else ""),
        )
    return table


def _conclusion(heading: str, text: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(width=26)
    table.add_column(overflow="fold")
    table.add_row(heading, text)
    return table
