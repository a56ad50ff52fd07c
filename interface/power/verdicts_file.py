"""The file of verdicts on mutants, by which an interrupted power run goes on where it stopped.

JSON lines: a header that says which run it is of, then one line for each verdict, appended as it
falls. A file of another run, or of other code, is begun anew. What an interruption cuts short is
the last line, which is dropped. Verdicts of own tests count for the command that gave them; that
the tests themselves have changed is not seen. A mutant that cost its worker is judged again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from poolproof.kill_matrix.results_file import digest_of_code
from poolproof.output_files import OutputError
from poolproof.power.mutation import Mutation
from poolproof.power.own_tests import OwnVerdict
from poolproof.power.power_jobs import Judged

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["VerdictsFile"]

_FORMAT = "poolproof-power-verdicts"
_Edit = tuple[str, int, int, str]


class VerdictsFile:
    """The verdicts of one run, known by `facts` about it; a context manager that takes more.

    `note` says in a line what was found in the file. Raises OutputError for a file that cannot be
    used. Without a path nothing is kept.
    """

    def __init__(self, path: Path | None, facts: Mapping[str, Any]) -> None:
        self._path = path
        text = json.dumps({**facts, "code": digest_of_code()}, sort_keys=True)
        self._run = hashlib.sha256(text.encode()).hexdigest()[:16]
        self._stream: Any = None
        self._judged: dict[_Edit, Judged] = {}
        self._own: dict[tuple[_Edit, str], OwnVerdict] = {}
        self.note = ""

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

    def judged(self, mutation: Mutation) -> Judged | None:
        """What the stages said of a mutant, if that is known."""
        return self._judged.get(_edit(mutation))

    def own(self, mutation: Mutation, command: str) -> OwnVerdict | None:
        """What the own tests said of a mutant, if that is known."""
        return self._own.get((_edit(mutation), command))

    def keep_judged(self, mutation: Mutation, judged: Judged) -> None:
        """Keep a verdict, on disk before the next one falls."""
        self._append({"edit": _edit(mutation), "judged": asdict(judged)})

    def keep_own(self, mutation: Mutation, command: str, verdict: OwnVerdict) -> None:
        """The same for a verdict of the own tests."""
        self._append({"edit": _edit(mutation), "command": command, "own": asdict(verdict)})

    def _append(self, record: dict[str, Any]) -> None:
        if self._stream is not None:
            self._stream.write(json.dumps(record, separators=(",", ":")) + "\n")
            self._stream.flush()

    def _open(self, path: Path) -> None:
        try:
            self._stream = path.open("a+", encoding="utf-8")
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._stream.seek(0)
            self._take(path, self._stream.read())
        except BlockingIOError as error:
            used = f"{path} is in use by another run; wait for it, or name another file"
            raise OutputError(used) from error
        except OSError as error:
            raise OutputError(f"cannot use {path}: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise _not_ours(path, "it is not UTF-8 text") from error

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _take(self, path: Path, text: str) -> None:
        """Take what is known of this run, and leave a file to which lines can be appended."""
        lines = text.split("\n")[:-1]  # without its end the last line may be a part of one
        header = _header(lines[0]) if lines else {}
        if text and header.get("format") != _FORMAT:
            raise _not_ours(path, f'line 1 lacks "format": "{_FORMAT}"')
        if header.get("run") == self._run:
            for number, line in enumerate(lines[1:], start=2):
                self._take_line(path, number, line)
            self._stream.truncate(len(text[: text.rindex("\n") + 1].encode()))
            self.note = f"{len(lines) - 1:,} verdicts are taken from {path}"
            return
        if lines:
            self.note = f"{path} is of another run or of other code: all is judged anew"
        self._stream.truncate(0)
        self._append({"format": _FORMAT, "version": 1, "run": self._run})

    def _take_line(self, path: Path, number: int, line: str) -> None:
        try:
            record = json.loads(line)
            module, start, end, text = record["edit"]
            edit = (module, start, end, text)
            if "judged" in record:
                stages_run = tuple(record["judged"].pop("stages_run"))
                self._judged[edit] = Judged(**record["judged"], stages_run=stages_run)
            else:
                self._own[edit, record["command"]] = OwnVerdict(**record["own"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise _not_ours(path, f"line {number} is no verdict") from error


def _header(line: str) -> dict[str, Any]:
    try:
        header = json.loads(line)
    except ValueError:
        return {}
    return header if isinstance(header, dict) else {}


def _edit(mutation: Mutation) -> _Edit:
    return mutation.module, mutation.start, mutation.end, mutation.text


def _not_ours(path: Path, why: str) -> OutputError:
    return OutputError(
        f"{path} does not hold verdicts of `certify --power`: {why}; delete it or name another "
        "file with --power-results"
    )
