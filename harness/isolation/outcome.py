"""How a call that runs in a child process can end.

`Finished` and `Failed` come from the worker itself, the others from the watchman. A lost worker
leaves behind how far it had come and the end of its output, including the stack at that moment.
"""

from __future__ import annotations

import os
import re
import signal
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Generic, TypeVar

from poolproof.contract.errors import PoolproofError
from poolproof.contract.target import TargetError

__all__ = [
    "Died",
    "Failed",
    "Finished",
    "Forked",
    "Hung",
    "ImporterError",
    "Lost",
    "OutOfMemory",
    "Outcome",
    "TooManyProcesses",
    "Unwatched",
    "Verdict",
    "raise_if_ours",
    "stack_of",
]

R = TypeVar("R")

_STACK = "Stack (most recent call first):"
_BEACON = Path(__file__).with_name("beacon.py")
_FRAME = re.compile(r'^  File "(?P<path>.*)", line (?P<line>\d+|\?\?\?) in (?P<name>.*)$')


@dataclass(frozen=True, slots=True)
class Finished(Generic[R]):
    """The job returned.

    `longest_still_s` is the longest time without progress, 0 where nobody watched.
    """

    value: R
    longest_still_s: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class Failed:
    """The job raised: because of a bug of ours, or of something wrong with the target.

    `known_as` is the class of an error that the caller can mend.
    """

    exception_type: str
    message: str
    traceback: str
    known_as: type[PoolproofError] | None = None

    def raise_if_known(self) -> None:
        """Raise the error again, with its message, if the caller can mend it."""
        if self.known_as is not None:
            raise self.known_as(self.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Base class for a worker that did not answer.

    `progress` counts the beacon's bumps in the call, `mark` is what the job noted last.
    `output_tail` is the end of standard output and standard error.
    """

    progress: int = 0
    mark: int = 0
    output_tail: str = ""

    def sentence(self, what: str) -> str:
        """What happened, when `what` was the culprit: "free([3]) did not return within 10 s"."""
        raise NotImplementedError  # each kind of loss has words of its own

    def stack(self) -> list[tuple[Path, int, str]]:
        """(file, line, function) of the job's Python frames at the end, innermost first.

        Empty if the process ended silently, as with os._exit.
        """
        found: list[tuple[Path, int, str]] = []
        lines = self.output_tail.splitlines()
        starts = [i for i, line in enumerate(lines) if line == _STACK]
        for line in lines[starts[-1] + 1 :] if starts else ():
            frame = _FRAME.match(line)
            if frame is None:
                break
            path = Path(frame["path"])
            # Between two lines the interpreter knows of none.
            number = int(frame["line"]) if frame["line"].isdigit() else 0
            if path == _BEACON:
                continue
            # Outside the job stand the worker's own frames, and what its parents were doing.
            if path.parent == _BEACON.parent:
                break
            found.append((path, number, frame["name"]))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Hung(Lost):
    """No progress for longer than the time limit."""

    seconds: float

    def sentence(self, what: str) -> str:
        return f"{what} did not return within {self.seconds:g} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory(Lost):
    """The worker used more memory than the limit, in MiB."""

    mib: int

    def sentence(self, what: str) -> str:
        return f"{what} used more than {self.mib} MiB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Died(Lost):
    """The process ended before its answer was complete.

    `status` is an exit status, or the negative number of the signal that killed the process.
    """

    status: int

    @property
    def how(self) -> str:
        """How it ended, such as "killed by SIGSEGV" or "exited with status 3"."""
        if self.status < 0:
            return f"killed by {_signal_name(-self.status)}"
        return f"exited with status {self.status}"

    def sentence(self, what: str) -> str:
        if self.status < 0:
            return f"{what} killed the process with {_signal_name(-self.status)}"
        return f"{what} ended the process with exit status {self.status}"

    @staticmethod
    def status_of(wait_status: int) -> int:
        """`status` out of what waitpid() says."""
        return os.waitstatus_to_exitcode(wait_status)


@dataclass(frozen=True, slots=True, kw_only=True)
class TooManyProcesses(Lost):
    """More processes ran below the worker than the limit allows."""

    number: int

    def sentence(self, what: str) -> str:
        return f"{what} started more than {self.number} processes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked(Lost):
    """A call returned in a second process: the target forked, and its child came back to us."""

    def sentence(self, what: str) -> str:
        return f"{what} returned in two processes: it forked, and did not end its child"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unwatched(Lost):
    """The process that imported the target and watches it ended while the call ran.

    `status` is as in `Died`. `alone` says that no other call ran that may have done it.
    """

    status: int
    alone: bool

    def sentence(self, what: str) -> str:
        how = Died(status=self.status).how
        return f"{what} ended the process that watches over the target ({how})"


Verdict = Hung | OutOfMemory | Died | TooManyProcesses | Forked | Unwatched | Failed
Outcome = Finished[R] | Verdict


def raise_if_ours(outcome: Outcome[R]) -> Finished[R] | Lost:
    """Raise what is not a finding: a target that cannot be run, or a bug of ours.

    Raises the job's own error if the caller can mend it, otherwise RuntimeError.
    """
    if isinstance(outcome, Failed):
        outcome.raise_if_known()
        raise RuntimeError(
            f"a job failed: {outcome.exception_type}: {outcome.message}\n{outcome.traceback}"
        )
    return outcome


class ImporterError(Exception):
    """The target could not be imported, or its importer was lost later; `outcome` says how."""

    def __init__(self, outcome: Verdict, *, was_imported: bool = False) -> None:
        if was_imported:
            how = f" ({outcome.how})" if isinstance(outcome, Died) else ""
            text = f"the process that imported the target and watches over it ended{how}"
        elif isinstance(outcome, Failed):
            text = f"importing the target raised {outcome.exception_type}: {outcome.message}"
        else:
            text = outcome.sentence("importing the target")
        super().__init__(text)
        self.outcome = outcome

    def as_known(self) -> PoolproofError:
        """What the import said is wrong with the target, or that it was lost."""
        outcome = self.outcome
        if isinstance(outcome, Failed) and outcome.known_as is not None:
            return outcome.known_as(outcome.message)
        return TargetError(str(self))


def stack_of(error: BaseException) -> str:
    """Where an exception was raised, in the form in which a lost worker prints its stack."""
    lines = [
        f'  File "{_file_of(frame)}", line {line} in {frame.f_code.co_name}'
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    return "\n".join([_STACK, *reversed(lines), ""])


def _file_of(frame: FrameType) -> str:
    """The source; compiled code names it as it was called where it was compiled."""
    name = frame.f_code.co_filename
    module = str(frame.f_globals.get("__file__"))
    return str(Path(module).with_name(Path(name).name)) if module.endswith(".so") else name


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
