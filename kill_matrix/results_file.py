"""The file of finished searches, by which an interrupted run goes on where it stopped.

A file that was made with other code is begun anew.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from poolproof.certification.code_digest import SEARCHING, digest_of
from poolproof.kill_matrix.cells import CellSearch
from poolproof.kill_matrix.detector import SearchOutcome
from poolproof.report.lines_file import LinesFile

if TYPE_CHECKING:
    from typing_extensions import Self

from poolproof.contract.errors import PoolproofError

__all__ = ["ResultsFile", "ResultsFileError", "digest_of_code"]

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
