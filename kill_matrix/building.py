"""Builds a kill matrix: searches what is not known yet, and sums up."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence

from poolproof import __version__
from poolproof.certification.progress import StageProgress
from poolproof.kill_matrix.cells import Cell, CellSearch, cells_of, run_searches
from poolproof.kill_matrix.detector import Detector, SearchOutcome
from poolproof.kill_matrix.detectors import INVARIANT_NAMES
from poolproof.kill_matrix.matrix import Column, Matrix, MatrixRow, summed_up
from poolproof.kill_matrix.results_file import ResultsFile, digest_of_code
from poolproof.kill_matrix.subject import MatrixSubject

__all__ = ["build_matrix"]


def build_matrix(
    rows: Sequence[MatrixSubject],
    columns: Sequence[Detector],
    seeds: Sequence[int],
    results: ResultsFile,
    *,
    progress: StageProgress,
    workers: int,
) -> Matrix:
    """The matrix of these rows and columns; `results` are taken from there and put there."""
    cells = cells_of(rows, columns, seeds)
    searches = [search for cell in cells for search in cell.searches]
    left = [search for search in searches if search not in results.done]
    # The first seed of all before the second of any: what is interrupted is whole for fewer seeds.
    left.sort(key=lambda search: search.seed)
    if results.note:
        progress.say(f"{results.note}; {len(left):,} of {len(searches):,} searches are left")
    progress.begin("kill matrix", len(left))
    for search, outcome in run_searches(left, workers):
        results.add(search, outcome)
        progress.advance(1)
    progress.end()
    return Matrix(
        version=__version__,
        code=digest_of_code(),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        seeds=tuple(seeds),
        columns=tuple(_column(column) for column in columns),
        rows=tuple(_row(row, cells, results.done) for row in rows),
    )


def _column(detector: Detector) -> Column:
    return Column(
        detector.name,
        detector.what,
        is_invariant=detector.name in INVARIANT_NAMES,
        is_made_of_others=detector.is_made_of_others,
    )


def _row(
    subject: MatrixSubject, cells: Sequence[Cell], outcomes: Mapping[CellSearch, SearchOutcome]
) -> MatrixRow:
    return MatrixRow(
        id=subject.id,
        title=subject.title,
        level=subject.level,
        is_oddity=subject.is_oddity,
        threads=subject.threads,
        severity=subject.severity,
        is_silent=subject.is_silent,
        cells={
            cell.detector: summed_up(cell, outcomes) for cell in cells if cell.subject == subject.id
        },
    )
