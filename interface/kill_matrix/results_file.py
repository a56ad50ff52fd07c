"""The file of finished searches, by which an interrupted run goes on where it stopped.

JSON lines: a header that names the code, then one line for each search, appended as it ends. The
one file of ours that is not replaced whole: a run of many minutes adds thousands of lines. What an
interruption cuts short is the last line, which is dropped when the file is read.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import json
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from poolproof.kill_matrix.cells import Search
from poolproof.kill_matrix.detector import Outcome
from poolproof.output_files import OutputError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ResultsFile", "ResultsFileError", "digest_of_code"]

_FORMAT = "poolproof-kill-matrix-searches"
_PACKAGES = (
    "contract", "invariants", "reference", "impl", "harness", "stateful_tests", "explore", "fuzz",
    "bugs", "kill_matrix",
)  # fmt: skip
_MODULES = (
    "certify_exploration", "certify_jobs", "exploration_jobs", "levels", "manager_exploration",
    "ruler",
)  # fmt: skip


class ResultsFileError(Exception):
    """A file that is not one of finished searches, or is damaged; the message says where."""


def digest_of_code() -> str:
    """Twelve hexadecimal digits of all source that a search can depend on."""
    digest = hashlib.sha256()
    for package in _PACKAGES:
        module = importlib.import_module(f"poolproof.{package}")
        assert module.__file__ is not None
        folder = Path(module.__file__).parent
        for path in sorted(folder.rglob("*.py")):
            if path.name != "conftest.py" and not path.name.startswith("test_"):
                digest.update(f"{package}/{path.relative_to(folder).as_posix()}\n".encode())
                digest.update(path.read_bytes())
    for name in _MODULES:
        module = importlib.import_module(f"poolproof.{name}")
        assert module.__file__ is not None
        digest.update(Path(module.__file__).read_bytes())
    return digest.hexdigest()[:12]


class ResultsFile:
    """What has been searched with the present code; a context manager that takes further results.

    `note` says in a line what became of an older file. Raises ResultsFileError and OutputError.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._code = digest_of_code()
        self.done: dict[Search, Outcome] = {}
        self.note = ""
        self._stream: Any = None

    def __enter__(self) -> Self:
        if self._path is not None:
            try:
                self._open(self._path)
            except BaseException:
                self._close()
                raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def add(self, search: Search, outcome: Outcome) -> None:
        """Keep a result, on disk before the next search ends."""
        self.done[search] = outcome
        if self._stream is not None:
            record = {**asdict(search), **asdict(outcome)}
            self._stream.write(json.dumps(record, separators=(",", ":")) + "\n")
            self._stream.flush()

    def _open(self, path: Path) -> None:
        try:
            self._stream = path.open("a+", encoding="utf-8")
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._read(path)
        except BlockingIOError as error:
            used = f"{path} is in use by another run; wait for it, or name another file"
            raise OutputError(used) from error
        except OSError as error:
            raise OutputError(f"cannot use {path}: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise ResultsFileError(_not_ours(path, "it is not UTF-8 text")) from error

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _read(self, path: Path) -> None:
        """Take what is finished, and leave a file to which lines can be appended."""
        self._stream.seek(0)
        text = self._stream.read()
        lines = text.split("\n")[:-1]  # without its end the last line may be a part of one
        if text and not lines:
            raise ResultsFileError(_not_ours(path, "its first line has no end"))
        header = _record(path, 1, lines[0]) if lines else {}
        if lines and header.get("format") != _FORMAT:
            raise ResultsFileError(_not_ours(path, f'line 1 lacks "format": "{_FORMAT}"'))
        if header.get("code") == self._code:
            for number, line in enumerate(lines[1:], start=2):
                search, outcome = _search_of(path, number, _record(path, number, line))
                self.done[search] = outcome
            self._stream.truncate(len(text[: text.rindex("\n") + 1].encode()))
            self.note = f"{len(self.done):,} finished searches are taken from {path}"
            return
        if lines:
            self.note = (
                f"{path} was made with other code ({header.get('code')}, now {self._code}): "
                "all is searched anew"
            )
        self._stream.truncate(0)
        first = {"format": _FORMAT, "version": 1, "code": self._code}
        self._stream.write(json.dumps(first) + "\n")
        self._stream.flush()


def _record(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ResultsFileError(_not_ours(path, f"line {number} is not JSON")) from error
    if not isinstance(record, dict):
        raise ResultsFileError(_not_ours(path, f"line {number} is no JSON object"))
    return record


def _search_of(path: Path, number: int, record: dict[str, Any]) -> tuple[Search, Outcome]:
    try:
        search = Search(str(record["subject"]), str(record["detector"]), int(record["seed"]))
        outcome = Outcome(
            caught=bool(record["caught"]),
            steps=int(record["steps"]),
            seconds=float(record["seconds"]),
            invariant=str(record["invariant"]),
            length=None if record["length"] is None else int(record["length"]),
            note=str(record["note"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ResultsFileError(_not_ours(path, f"line {number} is no result ({error})")) from error
    return search, outcome


def _not_ours(path: Path, why: str) -> str:
    return (
        f"{path} does not hold finished searches of `poolproof bugs`: {why}; delete it or name "
        "another file with --results"
    )
