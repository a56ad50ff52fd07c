"""A run whose worker hung, died or ate all memory: finds the command that did it, and its trace.

A lost worker leaves only a number. Runs are deterministic, so the run is repeated with a journal, a
growing trace file that gets each command before it is applied; its last command is the culprit.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar, final

from poolproof.contract.command_json import command_to_json
from poolproof.contract.commands import Command
from poolproof.contract.manager_target import MANAGER_OBSERVERS
from poolproof.contract.misuse import MisuseFailure, MisuseOutcome
from poolproof.contract.target import POOL_OBSERVERS
from poolproof.contract.trace import Trace, read_trace
from poolproof.contract.violation import Severity, Violation
from poolproof.harness.isolation import Beacon, Executor, Failed, Hung, Job, Lost
from poolproof.harness.pool_session import PoolSession
from poolproof.harness.replay import start_session
from poolproof.harness.target_call import constructing
from poolproof.reference.legality import misuse_of
from poolproof.reference.native_pool import NativeDictPool

__all__ = ["Again", "Journal", "as_violation", "find_culprit", "read_journal"]

A = TypeVar("A")
C = TypeVar("C")

_OUR_FOLDERS = frozenset(
    Path(__file__).parent.parent / name
    for name in ("exploration", "fuzz", "harness", "stateful_tests")
)
_MOST_FRAMES = 5
_WAITS_FOR_PROGRAMS = "command_process.py"
_READING = frozenset({"diagnose", "end", "first_look", "passes", "_check", "_observe", "observe"})
"""Functions of the sessions that read the target, rather than give it a command."""

_OBSERVERS = frozenset((*POOL_OBSERVERS, *MANAGER_OBSERVERS, "num_free", "lookup"))
"""Methods that are called to read a target. Compiled sessions are not seen on a stack."""


@dataclass(frozen=True, slots=True)
class Again(Generic[A]):
    """The argument of a job that repeats a run: what to run, and where to keep the journal."""

    run: A
    journal: Path


@final
class Journal:
    """Writes a trace file line by line; each line outlives the process. A context manager."""

    def __init__(self, path: Path, beacon: Beacon) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._beacon = beacon

    def begin(self, setup: Trace) -> None:
        """Begin a run with this set-up; drop what was written of an earlier one."""
        os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_SET)
        self._write(setup.header())

    def announce(self, command: Command) -> None:
        """Note a command that is about to be applied."""
        self._write(command_to_json(command))

    def _write(self, record: dict[str, Any]) -> None:
        # First: a copy of this process that the target forked ends here, and writes nothing.
        self._beacon.bump()
        os.write(self._file, (json.dumps(record) + "\n").encode())

    def close(self) -> None:
        """The file stays."""
        os.close(self._file)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def read_journal(path: Path) -> Trace | None:
    """The trace as far as it was written; None if no run had begun."""
    try:
        written = path.read_bytes()
    except FileNotFoundError:
        return None
    whole, _, _ = written.rpartition(b"\n")
    if not whole:
        return None
    path.write_bytes(whole + b"\n")
    return read_trace(path)


def find_culprit(
    executor: Executor[C],
    job: Job[C, Again[A], object],
    run: A,
    lost: Lost,
    setup: Trace,
) -> Trace:
    """Repeat a lost run and return its trace, with the violation that stands for the loss.

    `job(context, again, beacon)` repeats `again.run` as it was when it was lost, with a
    `Journal(again.journal, beacon)` that records each command. `setup` is the trace's header if
    the job is lost before it has begun its journal. Raises RuntimeError if the job itself
    raises, which is a bug of ours.
    """
    with tempfile.TemporaryDirectory(prefix="poolproof-") as folder:
        journal = Path(folder, "journal.jsonl")
        (outcome,) = executor.map(job, [Again(run, journal)])
        trace = read_journal(journal) or setup
    if isinstance(outcome, Failed):
        raise RuntimeError(f"repeating a lost run failed:\n{outcome.traceback}")
    if not isinstance(outcome, Lost):
        violation = _not_seen_again(trace, lost)
    else:
        violation = as_violation(trace, outcome)
        if type(outcome) is not type(lost):
            sentence = f"{violation.sentence} (the first time, {lost.sentence('the run')})"
            violation = replace(violation, sentence=sentence)
    return replace(trace, violation=violation)


def as_violation(trace: Trace, lost: Lost) -> Violation:
    """The violation of a trace whose last command never came back."""
    if trace.commands:
        what = str(trace.commands[-1])
        if _was_reading(lost, trace.commands[-1]):
            what = f"reading the {trace.level} after {what}"
    else:
        what = constructing("target", trace.num_blocks)
    return Violation(
        "CRASH",
        _severity(lost),
        lost.sentence(what),
        command_index=len(trace.commands) - 1,
        frames=_target_frames(lost),
        misuse=_misuse_at_the_end(trace),
    )


def _misuse_at_the_end(trace: Trace) -> MisuseFailure | None:
    """What is wrong with the last command of a pool's trace, if it is misuse.

    The specification must tell, because the target is gone.
    """
    if not trace.level.has_misuse or not trace.commands:
        return None
    block_size = int(trace.options.get("block_size", 1))

    def make(num_blocks: int, enable_caching: bool) -> NativeDictPool:
        return NativeDictPool(
            num_blocks, enable_caching=enable_caching, profile=trace.profile, block_size=block_size
        )

    session = start_session(trace, make)
    assert isinstance(session, PoolSession)
    for command in trace.commands[:-1]:
        if session.is_defined(command):
            session.step_any(command)
    misuse = misuse_of(session.reference, trace.commands[-1])
    return None if misuse is None else MisuseFailure(misuse.kind, MisuseOutcome.LOST)


def _was_reading(lost: Lost, last: Command) -> bool:
    """Whether the harness was reading the target, its last command having come back."""
    stack = lost.stack()
    if any(_is_ours(path) and name in _READING for path, _, name in stack):
        return True
    of_target = [name for _, _, name in takewhile(lambda frame: not _is_ours(frame[0]), stack)]
    return bool(of_target) and of_target[-1] in _OBSERVERS - {last.verb}


def _not_seen_again(trace: Trace, lost: Lost) -> Violation:
    return Violation(
        "CRASH",
        _severity(lost),
        f"{lost.sentence('a command of this run')}, but the same run ended when it was repeated: "
        "the target does not behave the same way twice",
        command_index=len(trace.commands) - 1,
        frames=_target_frames(lost),
    )


def _severity(lost: Lost) -> Severity:
    return Severity.STALL if isinstance(lost, Hung) else Severity.CRASH


def _target_frames(lost: Lost) -> tuple[str, ...]:
    """The frames that the harness was waiting for, as "file:line function", innermost first.

    None if it was waiting for a program, whose frames cannot be seen from here.
    """
    frames: list[str] = []
    for path, line, name in lost.stack():
        if path.name == _WAITS_FOR_PROGRAMS:
            return ()
        if _is_ours(path):
            break
        frames.append(f"{path.name}:{line} {name}")
    return tuple(frames[:_MOST_FRAMES])


def _is_ours(path: Path) -> bool:
    return path.parent in _OUR_FOLDERS
