"""A whole kill matrix as plain values: what was seen in each cell, and what follows from it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # A matrix is read and shown without the detectors that it is about.
    from poolproof.kill_matrix.cells import Cell, CellSearch
    from poolproof.kill_matrix.detector import SearchOutcome

__all__ = ["Column", "Matrix", "MatrixCell", "MatrixRow", "summed_up"]


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """One cell: how many of its searches caught the bug, and at what cost.

    `steps` and `seconds` are medians over the seeds, where a search that missed counts as one
    without end: None where half of them missed. `length` is that of the shortest minimised trace.
    Nothing was searched where `why_not` has a reason.
    """

    caught: int = 0
    of: int = 0
    steps: float | None = None
    seconds: float | None = None
    length: int | None = None
    invariants: tuple[str, ...] = ()
    note: str = ""
    why_not: str = ""

    @property
    def is_missing(self) -> bool:
        """Whether the detector is not installed."""
        return self.why_not.startswith("not installed")


@dataclass(frozen=True, slots=True)
class Column:
    """A detector, as a reader of the matrix needs it."""

    name: str
    what: str
    is_invariant: bool
    is_made_of_others: bool


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """A specimen or an oddity, with its cells by the name of the column."""

    id: str
    title: str
    level: str
    is_oddity: bool
    threads: tuple[str, ...]
    severity: str
    is_silent: bool
    cells: Mapping[str, MatrixCell]

    @property
    def caught_by(self) -> tuple[str, ...]:
        """The columns that caught it from at least one seed."""
        return tuple(name for name, seen in self.cells.items() if seen.caught)

    @property
    def was_searched(self) -> bool:
        """Whether any detector could speak of it."""
        return any(seen.of for seen in self.cells.values())

    @property
    def length(self) -> int | None:
        """Commands of the shortest trace that any detector gave."""
        lengths = [seen.length for seen in self.cells.values() if seen.length is not None]
        return min(lengths, default=None)


@dataclass(frozen=True, slots=True)
class Matrix:
    """All rows and columns. `code` is the digest of the code that was run."""

    version: str
    code: str
    python: str
    seeds: tuple[int, ...]
    columns: tuple[Column, ...]
    rows: tuple[MatrixRow, ...]

    @property
    def specimens(self) -> list[MatrixRow]:
        """The rows that are wrong."""
        return [row for row in self.rows if not row.is_oddity]

    @property
    def oddities(self) -> list[MatrixRow]:
        """The rows that are right."""
        return [row for row in self.rows if row.is_oddity]

    @property
    def missed(self) -> list[MatrixRow]:
        """Specimens that no detector caught, of those that can speak of them."""
        return [row for row in self.specimens if row.was_searched and not row.caught_by]

    @property
    def accused(self) -> list[MatrixRow]:
        """Oddities that some detector caught, which is a false alarm."""
        return [row for row in self.oddities if row.caught_by]

    @property
    def exit_status(self) -> int:
        """1 when a specimen is missed by every detector or an oddity accused, otherwise 0."""
        return int(bool(self.missed or self.accused))

    def caught_in(self, column: str) -> list[MatrixRow]:
        """The specimens that a detector caught."""
        return [row for row in self.specimens if column in row.caught_by]

    def spoken_of(self, column: str) -> list[MatrixRow]:
        """The specimens that it could speak of."""
        return [row for row in self.specimens if row.cells[column].of]

    def only_in(self, *, invariants: bool) -> dict[str, list[MatrixRow]]:
        """By column the specimens that it alone catches, among invariants or among searches."""
        names = [
            column.name
            for column in self.columns
            if column.is_invariant == invariants and not column.is_made_of_others
        ]
        found: dict[str, list[MatrixRow]] = {}
        for row in self.specimens:
            caught = [name for name in names if name in row.caught_by]
            if len(caught) == 1:
                found.setdefault(caught[0], []).append(row)
        return found


def summed_up(cell: Cell, outcomes: Mapping[CellSearch, SearchOutcome]) -> MatrixCell:
    """What the searches of a cell showed together."""
    if cell.why_not:
        return MatrixCell(why_not=cell.why_not)
    found = [outcomes[search] for search in cell.searches]
    caught = [outcome for outcome in found if outcome.caught]
    lengths = [outcome.length for outcome in caught if outcome.length is not None]
    return MatrixCell(
        caught=len(caught),
        of=len(found),
        steps=_median([o.steps if o.caught else math.inf for o in found]),
        seconds=_median([o.seconds if o.caught else math.inf for o in found]),
        length=min(lengths, default=None),
        invariants=tuple(dict.fromkeys(o.invariant for o in caught if o.invariant)),
        note=next((outcome.note for outcome in (caught or found) if outcome.note), ""),
    )


def _median(values: Sequence[float]) -> float | None:
    # Of an even number the upper one of the middle two: with infinity there is no mean.
    median = statistics.median_high(values)
    return None if math.isinf(median) else round(median, 4)
