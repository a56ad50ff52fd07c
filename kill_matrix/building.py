"""Builds a kill matrix: searches what is not known yet, and sums up.

An interrupted run goes on where it stopped, from the file of finished searches. A file that was
made with other code is begun anew.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from poolproof import __version__
from poolproof.certification.progress import StageProgress
from poolproof.contract.errors import PoolproofError
from poolproof.kill_matrix.cells import Cell, CellSearch, cells_of, run_searches
from poolproof.kill_matrix.detector import Detector, SearchOutcome
from poolproof.kill_matrix.detectors import INVARIANT_NAMES
from poolproof.kill_matrix.matrix import Column, Matrix, MatrixRow, summed_up
from poolproof.kill_matrix.subject import MatrixSubject
from poolproof.report.lines_file import SEARCHING, LinesFile, digest_of

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ResultsFile", "build_matrix", "digest_of_code"]


_FORMAT = "poolproof-kill-matrix-searches"


class ResultsFileError(PoolproofError):
    """A file that is not one of finished searches, or is damaged; the message says where."""


def digest_of_code() -> str:
    """Twelve hexadecimal digits of all source that a search can depend on."""
    return digest_of(*SEARCHING, "bugs", "kill_matrix")


class ResultsFile:
    """What has been searched with the present code; a context manager that takes further results.

    `note` says in a line what became of an older file. Raises ResultsFileError and OutputError.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._code = digest_of_code()
        self._file = LinesFile(path, _FORMAT, {"code": self._code}, self._not_ours)
        self.done: dict[CellSearch, SearchOutcome] = {}
        self.note = ""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            file = stack.enter_context(self._file)
            for number, record in file.records:
                self._take(number, record)
            stack.pop_all()
        if file.older is not None:
            self.note = (
                f"{self._path} was made with other code ({file.older.get('code')}, now "
                f"{self._code}): all is searched anew"
            )
        elif file.records:
            self.note = f"{len(self.done):,} finished searches are taken from {self._path}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.__exit__(kind, error, trace)

    def add(self, search: CellSearch, outcome: SearchOutcome) -> None:
        """Keep a result, on disk before the next search ends."""
        self.done[search] = outcome
        self._file.append({**asdict(search), **asdict(outcome)})

    def _take(self, number: int, record: Any) -> None:
        try:
            search = CellSearch(
                str(record["subject"]), str(record["detector"]), int(record["seed"])
            )
            self.done[search] = SearchOutcome(
                caught=bool(record["caught"]),
                steps=int(record["steps"]),
                seconds=float(record["seconds"]),
                invariant=str(record["invariant"]),
                length=None if record["length"] is None else int(record["length"]),
                note=str(record["note"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise self._not_ours(f"line {number} is no result ({error})") from error

    def _not_ours(self, why: str) -> ResultsFileError:
        return ResultsFileError(
            f"{self._path} does not hold finished searches of `poolproof bugs`: {why}; delete it "
            "or name another file with --results"
        )


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
    progress.begin("kill matrix", len(left), "searches")
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
