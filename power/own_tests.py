"""A target's own tests on its mutants: one run of a command for each.

The command gets an environment in which one file is mutated while Python loads it
(`start/sitecustomize.py`). First it runs on the unmutated target: it has to pass, and to load
every module that is mutated, or else its verdicts would mean nothing. A run that takes far longer
than that one counts as refused, since a test that never ends is noticed as well.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poolproof.contract.target import TargetError
from poolproof.power.mutation import Mutation, Source

__all__ = ["OwnTests", "OwnVerdict"]

_VARIABLE = "POOLPROOF_MUTANT"
_START = Path(__file__).with_name("start")
_LONGEST_UNMUTATED_S = 3600.0
_FACTOR, _PATIENCE_S = 5.0, 30.0
_LAST_LINES = 8


@dataclass(frozen=True, slots=True)
class OwnVerdict:
    """Whether the tests refuse a mutant, and the line by which they say so."""

    refused: bool
    sentence: str = ""


class OwnTests:
    """A command that tests the target, and the sources that are mutated.

    The constructor runs it unmutated. Raises TargetError where that fails, or where the command
    does not load the sources.
    """

    def __init__(self, command: str, sources: Sequence[Source], workers: int) -> None:
        self.command = command
        self._words = _words_of(command)
        self._workers = workers
        self._sources = {source.module: source for source in sources}
        self._files = [os.path.realpath(source.path) for source in sources]
        began = time.monotonic()
        status, output, seen = self._run(None, _LONGEST_UNMUTATED_S)
        self.seconds = time.monotonic() - began
        if status != 0:
            raise TargetError(
                f"--own-tests: the command fails on the unmutated target ({_status(status)}); it "
                f"has to pass first. Its last lines:\n{_last_lines(output)}"
            )
        self.never_loaded = tuple(
            source.module for source in sources if os.path.realpath(source.path) not in seen
        )
        if len(self.never_loaded) == len(sources):
            raise TargetError(
                f"--own-tests: the command never loads {sources[0].path}, so that it cannot judge "
                "a mutant; run it with a Python that imports this very file"
            )

    @property
    def limit_s(self) -> float:
        """How long a run may take."""
        return _FACTOR * self.seconds + _PATIENCE_S

    def judge(self, mutations: Sequence[Mutation]) -> Iterator[OwnVerdict]:
        """The verdicts on the mutants, in their order; several run at once."""
        with ThreadPoolExecutor(self._workers) as pool:
            try:
                yield from pool.map(self._judge, mutations)
            finally:
                pool.shutdown(cancel_futures=True)

    def _judge(self, mutation: Mutation) -> OwnVerdict:
        if mutation.module in self.never_loaded:
            return OwnVerdict(refused=False, sentence="the module is never loaded")
        status, output, _ = self._run(mutation, self.limit_s)
        if status == 0:
            return OwnVerdict(refused=False)
        return OwnVerdict(refused=True, sentence=_telling_line(output) or _status(status))

    def _run(self, mutation: Mutation | None, limit_s: float) -> tuple[int | None, str, set[str]]:
        """Exit status (None when it took too long), output, and the files that were loaded."""
        with tempfile.TemporaryDirectory(prefix="poolproof-") as scratch:
            seen = Path(scratch, "seen")
            order = {"files": self._files, "seen": str(seen), "edit": self._edit(mutation)}
            paths = [str(_START), *filter(None, [os.environ.get("PYTHONPATH")])]
            environment = os.environ | {
                _VARIABLE: json.dumps(order),
                "PYTHONPATH": os.pathsep.join(paths),
            }
            output_file = Path(scratch, "output")
            with (
                output_file.open("wb") as output,
                _process(self._words, environment, output) as process,
            ):
                try:
                    status: int | None = process.wait(limit_s)
                except subprocess.TimeoutExpired:
                    status = None
            text = output_file.read_text(encoding="utf-8", errors="replace")
            files = seen.read_text(encoding="utf-8").split("\n") if seen.exists() else []
            return status, text, set(files)

    def _edit(self, mutation: Mutation | None) -> dict[str, Any] | None:
        if mutation is None:
            return None
        source = self._sources[mutation.module]
        return {
            "file": os.path.realpath(source.path),
            "sha256": hashlib.sha256(source.text).hexdigest(),
            "start": mutation.start,
            "end": mutation.end,
            "text": mutation.text,
        }


@contextmanager
def _process(
    words: Sequence[str], environment: dict[str, str], output: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """The command in a session of its own, all of which ends with the block."""
    try:
        process = subprocess.Popen(  # noqa: S603 - the user's own command
            words, env=environment, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise TargetError(
            f"--own-tests: {words[0]} cannot be started: {error.strerror or error}"
        ) from error
    try:
        yield process
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _words_of(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise TargetError(f"--own-tests {command!r} cannot be read: {error}") from error
    if not words:
        raise TargetError("--own-tests: the command is empty; give one such as 'pytest -x -q'")
    return words


def _status(status: int | None) -> str:
    if status is None:
        return "took too long"
    return f"exit status {status}" if status >= 0 else f"killed by signal {-status}"


def _last_lines(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    return "\n".join(lines[-_LAST_LINES:]) or "(it printed nothing)"


def _telling_line(output: str) -> str:
    """The line that names the failed test, as pytest and unittest print it."""
    for line in output.splitlines():
        if line.startswith(("FAILED ", "ERROR ", "FAIL: ", "ERROR: ")):
            return line.strip()
    return ""
