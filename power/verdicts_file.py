"""The file of verdicts on mutants, by which an interrupted power run goes on where it stopped.

A file of another run, or of other code, is begun anew. Verdicts of own tests count for the command
that gave them; that the tests themselves have changed is not seen. A mutant that cost its worker is
judged again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from poolproof.certification.code_digest import SEARCHING, digest_of
from poolproof.power.mutation import Mutation
from poolproof.power.own_tests import OwnVerdict
from poolproof.power.power_jobs import Judged
from poolproof.report.lines_file import LinesFile
from poolproof.report.output_files import OutputError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["VerdictsFile"]

_FORMAT = "poolproof-power-verdicts"
_Edit = tuple[str, int, int, str]


def digest_of_code() -> str:
    """Twelve hexadecimal digits of all source that a verdict can depend on."""
    return digest_of(*SEARCHING, "bugs", "power")


class VerdictsFile:
    """The verdicts of one run, known by `facts` about it; a context manager that takes more.

    `note` says in a line what was found in the file. Raises OutputError for a file that cannot be
    used. Without a path nothing is kept.
    """

    def __init__(self, path: Path | None, facts: Mapping[str, Any]) -> None:
        self._path = path
        text = json.dumps({**facts, "code": digest_of_code()}, sort_keys=True)
        run = hashlib.sha256(text.encode()).hexdigest()[:16]
        self._file = LinesFile(path, _FORMAT, {"run": run}, self._not_ours)
        self._judged: dict[_Edit, Judged] = {}
        self._own: dict[tuple[_Edit, str], OwnVerdict] = {}
        self.note = ""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            file = stack.enter_context(self._file)
            for number, record in file.records:
                self._take(number, record)
            stack.pop_all()
        if file.older is not None:
            self.note = f"{self._path} is of another run or of other code: all is judged anew"
        elif file.records:
            self.note = f"{len(file.records):,} verdicts are taken from {self._path}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.__exit__(kind, error, trace)

    def judged(self, mutation: Mutation) -> Judged | None:
        """What the stages said of a mutant, if that is known."""
        return self._judged.get(_edit(mutation))

    def own(self, mutation: Mutation, command: str) -> OwnVerdict | None:
        """What the own tests said of a mutant, if that is known."""
        return self._own.get((_edit(mutation), command))

    def keep_judged(self, mutation: Mutation, judged: Judged) -> None:
        """Keep a verdict, on disk before the next one falls."""
        self._file.append({"edit": _edit(mutation), "judged": asdict(judged)})

    def keep_own(self, mutation: Mutation, command: str, verdict: OwnVerdict) -> None:
        """The same for a verdict of the own tests."""
        self._file.append({"edit": _edit(mutation), "command": command, "own": asdict(verdict)})

    def _take(self, number: int, record: Any) -> None:
        try:
            module, start, end, text = record["edit"]
            edit = (module, start, end, text)
            if "judged" in record:
                stages_run = tuple(record["judged"].pop("stages_run"))
                self._judged[edit] = Judged(**record["judged"], stages_run=stages_run)
            else:
                self._own[edit, record["command"]] = OwnVerdict(**record["own"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise self._not_ours(f"line {number} is no verdict") from error

    def _not_ours(self, why: str) -> OutputError:
        return OutputError(
            f"{self._path} does not hold verdicts of `certify --power`: {why}; delete it or name "
            "another file with --power-results"
        )


def _edit(mutation: Mutation) -> _Edit:
    return mutation.module, mutation.start, mutation.end, mutation.text
