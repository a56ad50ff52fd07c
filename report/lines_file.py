"""A file of JSON lines that grows during a long run and lets an interrupted one resume.

The first line names the format and the run; each line after it is one result, on disk before the
next one is known. Such a file is not replaced whole: a run of many minutes adds thousands of lines.
An interruption can only cut the last line short, which is dropped when the file is read. Only the
caller knows what a result contains.

A digest says which code is behind a result: files of results start afresh when it has changed.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from poolproof.report.output_files import OutputError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["SEARCHING", "LinesFile", "digest_of"]


SEARCHING = (
    "contract", "invariants", "reference", "impl", "harness", "stateful_tests", "exploration",
    "fuzz", "certification",
)  # fmt: skip
"""The packages that a search for violations goes through."""


def digest_of(*packages: str) -> str:
    """Twelve hexadecimal digits of all source in these packages of ours, tests left out."""
    digest = hashlib.sha256()
    for package in packages:
        module = importlib.import_module(f"poolproof.{package}")
        assert module.__file__ is not None
        folder = Path(module.__file__).parent
        for path in sorted(folder.rglob("*.py")):
            if path.name != "conftest.py" and not path.name.startswith("test_"):
                digest.update(f"{package}/{path.relative_to(folder).as_posix()}\n".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


class LinesFile:
    """A context manager that takes the file over, gives out what it held, and appends to it.

    `run` names the run; a file of another run is started afresh. `not_ours` turns the reason into
    the error for a file that holds something else. Raises that error, which leaves the file as it
    was, and OutputError for a file that cannot be used. Without a path nothing is kept.
    """

    def __init__(
        self,
        path: Path | None,
        file_format: str,
        run: Mapping[str, str],
        not_ours: Callable[[str], Exception],
    ) -> None:
        self._path = path
        self._header = {"format": file_format, "version": 1, **run}
        self._not_ours = not_ours
        self._stream: Any = None
        self._whole_bytes: int | None = None
        self.records: list[tuple[int, Any]] = []
        """Number of the line and its value, of each result that the same run left."""
        self.older: Mapping[str, Any] | None = None
        """The first line of the file that was begun anew."""

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

    def append(self, record: Mapping[str, Any]) -> None:
        """Keep a result, on disk before the next one."""
        if self._stream is not None:
            if self._whole_bytes is not None:
                self._stream.truncate(self._whole_bytes)
                self._whole_bytes = None
            self._stream.write(json.dumps(record, separators=(",", ":")) + "\n")
            self._stream.flush()

    def _open(self, path: Path) -> None:
        try:
            self._stream = path.open("a+", encoding="utf-8")
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._stream.seek(0)
            self._take(self._stream.read())
        except BlockingIOError as error:
            used = f"{path} is in use by another run; wait for it, or name another file"
            raise OutputError(used) from error
        except OSError as error:
            raise OutputError(f"cannot use {path}: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise self._not_ours("it is not UTF-8 text") from error

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _take(self, text: str) -> None:
        """Read the results of this run; if something cannot be read, leave the file as it was."""
        lines = text.split("\n")[:-1]  # without its end the last line may be a part of one
        header = _object(lines[0]) if lines else {}
        if text and header.get("format") != self._header["format"]:
            raise self._not_ours(f'line 1 lacks "format": "{self._header["format"]}"')
        if header == self._header:
            for number, line in enumerate(lines[1:], start=2):
                self.records.append((number, self._value(number, line)))
            self._whole_bytes = len(text[: text.rindex("\n") + 1].encode())
            return
        self.older = header or None
        self._stream.truncate(0)
        self.append(self._header)

    def _value(self, number: int, line: str) -> Any:
        try:
            return json.loads(line)
        except ValueError as error:
            raise self._not_ours(f"line {number} is not JSON") from error


def _object(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
