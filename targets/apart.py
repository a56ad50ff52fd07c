"""Asks one question of a target's instance in a process of its own, with limits.

Some of what must be known before a run is seen only on an instance, and a constructor may hang,
eat memory or exit. Here such a thing costs a few seconds and an answer, never the command; that
it is a finding about the target is said by the run, which meets it again with its own limits.
"""

from __future__ import annotations

import os
import pickle
import resource
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from poolproof.contract.target import TargetError

__all__ = ["NoAnswerError", "apart"]

_Answer = TypeVar("_Answer")

_SECONDS = 10.0
_BYTES = 2 << 30


class NoAnswerError(Exception):
    """The question was not answered; the message says how it ended, in a few words."""


def apart(question: Callable[[], _Answer]) -> _Answer:
    """The answer to `question`, computed in a forked process; it must be picklable.

    Raises NoAnswerError where the process raised, exited, hung or ran out of memory, and
    TargetError where the question raised that.
    """
    read_end, write_end = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(read_end)
        _answer(question, write_end)
    os.close(write_end)
    try:
        kind, value = _receive(read_end)
    finally:
        os.close(read_end)
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    if kind == "answer":
        answer: _Answer = value
        return answer
    raise TargetError(value) if kind == "target error" else NoAnswerError(value)


def _answer(question: Callable[[], Any], write_end: int) -> NoReturn:
    """The child's side; never returns into the parent's code."""
    try:
        _limit_memory()
        try:
            packed = pickle.dumps(("answer", question()))
        except TargetError as error:
            packed = pickle.dumps(("target error", str(error)))
        except BaseException as error:
            packed = pickle.dumps(("no answer", type(error).__name__))
        with os.fdopen(write_end, "wb") as stream:
            stream.write(packed)
    finally:
        # Not sys.exit: the parent's buffers and exit handlers are not the child's to run.
        os._exit(0)


def _receive(read_end: int) -> tuple[str, Any]:
    if not select.select([read_end], [], [], _SECONDS)[0]:
        return "no answer", f"no end within {_SECONDS:.0f} seconds"
    with os.fdopen(os.dup(read_end), "rb") as stream:
        packed = stream.read()
    if not packed:
        return "no answer", "the end of its process"
    kind, value = pickle.loads(packed)  # noqa: S301 -- written by our own fork, a moment ago
    return kind, value


def _limit_memory() -> None:
    """At most so much more than now; an engine's import alone may have mapped many gigabytes."""
    with suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * os.sysconf("SC_PAGE_SIZE") + _BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
