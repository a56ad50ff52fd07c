"""The searches behind a matrix: which there are, and how they are run side by side.

Each search runs in a child process that may hang, die or eat memory: that is one of the things
which planted bugs do, and counts as caught where the detector looks for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from poolproof.harness.isolation import Beacon, Failed, Finished, Isolation, Limits, Outcome
from poolproof.kill_matrix.detector import Detector, SearchOutcome
from poolproof.kill_matrix.detectors import DETECTORS
from poolproof.kill_matrix.subject import MatrixSubject, subjects
from poolproof.stateful_tests.warm_up import warm_up

__all__ = ["LIMITS", "Cell", "CellSearch", "cells_of", "run_searches"]

LIMITS = Limits(call_timeout_s=30, memory_mib=1024)
"""For each search; generous in time, since the machine may be busy."""


@dataclass(frozen=True, slots=True)
class CellSearch:
    """One search: a row, a column and a seed."""

    subject: str
    detector: str
    seed: int


@dataclass(frozen=True, slots=True)
class Cell:
    """A row and a column, with the seeds to search from; none where `why_not` says why."""

    subject: str
    detector: str
    seeds: tuple[int, ...]
    why_not: str = ""

    @property
    def searches(self) -> list[CellSearch]:
        """One for each seed."""
        return [CellSearch(self.subject, self.detector, seed) for seed in self.seeds]


def cells_of(
    rows: Iterable[MatrixSubject], columns: Sequence[Detector], seeds: Sequence[int]
) -> list[Cell]:
    """All cells, row by row."""
    missing = {column.name: ", ".join(column.missing) for column in columns}
    cells = []
    for row in rows:
        for column in columns:
            why_not = column.why_not(row) or ""
            if not why_not and missing[column.name]:
                why_not = f"not installed: {missing[column.name]}"
            own = tuple(seeds) if column.is_seeded else (0,)
            cells.append(Cell(row.id, column.name, () if why_not else own, why_not))
    return cells


def run_searches(
    searches: Sequence[CellSearch], workers: int
) -> Iterator[tuple[CellSearch, SearchOutcome]]:
    """The outcomes as they come. Raises RuntimeError for a bug of ours."""
    if not searches:
        return
    drives_machines = any(DETECTORS[search.detector].drives_machines for search in searches)
    with Isolation(partial(_prepare, drives_machines), LIMITS, workers=workers) as isolation:
        for place, outcome in isolation.as_completed(_search, searches):
            yield searches[place], _judged(searches[place], outcome)


def _prepare(drives_machines: bool) -> Mapping[str, MatrixSubject]:
    if drives_machines:
        warm_up()
    return subjects()


def _search(rows: Mapping[str, MatrixSubject], search: CellSearch, beacon: Beacon) -> SearchOutcome:
    beacon.bump()
    return DETECTORS[search.detector].search(rows[search.subject], search.seed, beacon)


def _judged(search: CellSearch, ended: Outcome[SearchOutcome]) -> SearchOutcome:
    if isinstance(ended, Finished):
        return ended.value
    if isinstance(ended, Failed):
        raise RuntimeError(
            f"{search.detector} on {search.subject} from seed {search.seed} failed: "
            f"{ended.exception_type}: {ended.message}\n{ended.traceback}"
        )
    caught = DETECTORS[search.detector].sees_losses
    note = ended.sentence("a command")
    return SearchOutcome(caught, ended.progress, 0.0, "CRASH" if caught else "", note=note)
