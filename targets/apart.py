"""Asks a target's instance one question in a separate process, with limits.

Some of what must be known before a run shows only on an instance, and a constructor may hang, eat
memory, exit, kill its parent or leave a daemon behind. Here that costs a few seconds and an answer,
never the command; the run meets it again under its own limits and reports it as a finding.
"""

from __future__ import annotations

import os
import pickle
import resource
import select
import signal
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from poolproof.contract.target import TargetError

__all__ = ["NoAnswerError", "apart"]

_Answer = TypeVar("_Answer")

_SECONDS = 10.0
_BYTES = 2 << 30
_LENGTH = struct.Struct("!Q")


class NoAnswerError(Exception):
    """The question was not answered; the message says how it ended, in a few words."""


def apart(question: Callable[[], _Answer]) -> _Answer:
    """The answer to `question`, computed in a forked process; it must be picklable.

    Another process runs between that one and this one, as the question's parent, in a session of
    the two. Raises NoAnswerError if the process raised, exited, hung or ran out of memory, and
    TargetError if the question raised that.
    """
    read_end, write_end = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(read_end)
        _stand_between(question, write_end)
    os.close(write_end)
    try:
        kind, value = _receive(read_end)
    finally:
        os.close(read_end)
        for kill in (os.killpg, os.kill):
            # It may have ended, or not come as far as its session.
            with suppress(ProcessLookupError, PermissionError):
                kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    if kind == "answer":
        answer: _Answer = value
        return answer
    raise TargetError(value) if kind == "target error" else NoAnswerError(value)


def _stand_between(question: Callable[[], Any], write_end: int) -> NoReturn:
    """The parent of the question, and nothing else; never returns into its own parent's code."""
    try:
        os.setsid()
        process = os.fork()
        if process == 0:
            _answer(question, write_end)
        os.close(write_end)
        os.waitpid(process, 0)
    finally:
        os._exit(0)


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
            stream.write(_LENGTH.pack(len(packed)) + packed)
    finally:
        # Not sys.exit: the parent's buffers and exit handlers are not the child's to run.
        os._exit(0)


def _receive(read_end: int) -> tuple[str, Any]:
    """Read by length, because a daemon that was left behind keeps the pipe open."""
    until = time.monotonic() + _SECONDS
    received = b""
    while not _is_whole(received):
        left_s = max(0.0, until - time.monotonic())
        if not select.select([read_end], [], [], left_s)[0]:
            return "no answer", f"no end within {_SECONDS:.0f} seconds"
        part = os.read(read_end, 1 << 16)
        if not part:
            return "no answer", "the end of its process"
        received += part
    packed = received[_LENGTH.size :]
    kind, value = pickle.loads(packed)  # noqa: S301 -- written by our own fork, a moment ago
    return kind, value


def _is_whole(received: bytes) -> bool:
    if len(received) < _LENGTH.size:
        return False
    (length,) = _LENGTH.unpack_from(received)
    return len(received) >= _LENGTH.size + int(length)


def _limit_memory() -> None:
    """At most so much more than now; an engine's import alone may have mapped many gigabytes."""
    with suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * os.sysconf("SC_PAGE_SIZE") + _BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
