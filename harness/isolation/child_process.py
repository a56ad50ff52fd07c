"""What a forked child does before anything else, and how its last output is read.

A child has a session of its own, so that Ctrl-C reaches only its parent; it reads nothing,
prints into a file, leaves no core dump, and dies with its parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import io
import os
import signal
import sys
import tempfile
import time
import warnings
from typing import BinaryIO

from poolproof.harness.isolation.process_tree import end_tree

__all__ = [
    "MOST_OUTPUT_BYTES",
    "become_child",
    "fork_process",
    "kill_family",
    "kill_session",
    "leave_terminal",
    "open_output",
    "print_stack",
    "read_tail",
]

MOST_OUTPUT_BYTES = 1 << 20
# A stack of 100 frames, as many as are printed, and some lines before it.
_TAIL_BYTES = 1 << 15
_STACK_SIGNAL = getattr(signal, "SIGUSR1", None)
_STACK_PATIENCE_S = 0.5
_STACK_HEADER = b"Stack (most recent call first):"
_MOST_BEFORE_STACK_BYTES = 1 << 24
_PR_SET_PDEATHSIG = 1
# Loaded here and not after the fork, where a lock of the loader could be held for ever.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def fork_process() -> int:
    """fork(), without the warning about other threads."""
    with warnings.catch_warnings():
        # An engine's import may start threads; that a lock of theirs stays held in the child is
        # what the time limit is for.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def leave_terminal(output: int) -> None:
    """Move to a new session, without input, and with output to a file."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(output, 1)
    os.dup2(output, 2)


def become_child(output: int, parent: int) -> None:
    """Turn a freshly forked process into a child as described above."""
    leave_terminal(output)
    if _LIBC is not None:  # pragma: no branch - the tests of processes run on Linux
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # pragma: no cover - the parent has ended between fork() and here
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - stays open
    sys.stdout = sys.__stdout__ = _stream(1)  # type: ignore[misc] # final in typeshed alone
    sys.stderr = sys.__stderr__ = _stream(2)  # type: ignore[misc] # the same
    _print_stack_of_crash()
    _no_core_dump()


def _stream(descriptor: int) -> io.TextIOWrapper:
    raw = io.FileIO(descriptor, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )


def _print_stack_of_crash() -> None:
    """Print the stack of a crash to the output, and on request that of a hang."""
    faulthandler.disable()
    for number in (signal.SIGSEGV, signal.SIGFPE, signal.SIGABRT, signal.SIGBUS, signal.SIGILL):
        # An engine's own handler may take a second to name the frames of its C++ code.
        signal.signal(number, signal.SIG_DFL)
    faulthandler.enable(2, all_threads=False)
    if _STACK_SIGNAL is not None:  # pragma: no branch - the tests of processes run on Linux
        faulthandler.register(_STACK_SIGNAL, file=2, all_threads=False)


def _no_core_dump() -> None:
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def open_output() -> BinaryIO:
    """A nameless file that takes what a child prints; it may be emptied while the child writes."""
    import fcntl

    stream = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - the caller closes it
    flags = fcntl.fcntl(stream, fcntl.F_GETFL)
    # With O_APPEND a writer goes on at the new end after the file was cut.
    fcntl.fcntl(stream, fcntl.F_SETFL, flags | os.O_APPEND)
    return stream


def read_tail(output: BinaryIO) -> str:
    """The end of what a child has printed."""
    size = os.fstat(output.fileno()).st_size
    tail = os.pread(output.fileno(), _TAIL_BYTES, max(0, size - _TAIL_BYTES))
    return tail.decode("utf-8", errors="backslashreplace")


def print_stack(pid: int, output: int) -> None:
    """Make a child print its stack into `output`, even from within a call that never returns.

    A child that prints without end is stopped, because the caller is about to kill it.
    """
    if _STACK_SIGNAL is None:
        return  # pragma: no cover - the tests of processes run on Linux
    size = before = os.fstat(output).st_size
    os.kill(pid, _STACK_SIGNAL)
    until = time.monotonic() + _STACK_PATIENCE_S
    while size == before and time.monotonic() < until:
        time.sleep(0.002)
        size = os.fstat(output).st_size
    # The lines are written one by one, and on a busy machine with pauses.
    start, until = before, time.monotonic() + _STACK_PATIENCE_S
    while size != before:
        if time.monotonic() >= until:
            os.kill(pid, signal.SIGSTOP)
            _keep_stack(output, start)
            return
        time.sleep(0.05)
        before, size = size, os.fstat(output).st_size


def _keep_stack(output: int, start: int) -> None:
    """Keep only the stack, which is near `start`, before much later output."""
    said = os.pread(output, _MOST_BEFORE_STACK_BYTES, start)
    stack = said[max(0, said.rfind(_STACK_HEADER)) :][:_TAIL_BYTES]
    os.ftruncate(output, 0)
    os.write(output, stack)


def kill_session(pid: int) -> None:
    """Kill what a child has in its session; the child itself may have ended a moment ago."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def kill_family(pid: int) -> None:
    """Kill a child that has not been waited for yet, and everything that it started."""
    end_tree(pid)
    kill_session(pid)
