"""A Python process that runs a module of ours, and the line to it.

Started afresh rather than forked: a process with Ray in it has threads, whose locks a fork would
copy as they are, and sockets, through which Ray sees a process end only when no other process holds
them. Each side sees the line end when the other is gone, for whatever reason.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from multiprocessing.connection import Connection
from typing import Any

__all__ = ["Companion", "line_to_parent"]

_PATIENCE_S = 10.0


class Companion:
    """A process that runs `main` of a module, with a line to it."""

    def __init__(self, module: str, *, is_silent: bool = False) -> None:
        output = subprocess.DEVNULL if is_silent else None
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START.format(module=module, line=theirs.fileno())],
                pass_fds=[theirs.fileno()],
                # Nothing of the user's is imported by accident because it lies in the way.
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # Ctrl-C is for the coordinator, which ends the others.
                start_new_session=True,
            )
            self.line: Connection[Any, Any] = Connection(ours.detach())

    @property
    def process_id(self) -> int:
        """The process."""
        return self._process.pid

    def close(self) -> None:
        """Let the process end by itself, or kill it if it does not."""
        self.line.close()
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


_START = "from {module} import main; main({line})"


@contextlib.contextmanager
def line_to_parent(descriptor: int) -> Any:
    """The other end, in the companion; it is not an error when the parent ends."""
    with Connection(descriptor) as line, contextlib.suppress(EOFError, ConnectionError):
        yield line
