"""The process between Poolproof and the importer, which makes sure that no process is left behind.

Poolproof may be killed, and a target may kill the process that watches it. The keeper runs no code
of the target and adopts orphaned processes below it. When the line to Poolproof is closed, for
whatever reason, it ends with everything below it. Before, it says how the importer ended.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import time
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import NoReturn

from poolproof.harness.isolation.child_process import (
    fork_process,
    kill_family,
    leave_terminal,
)
from poolproof.harness.isolation.process_tree import adopt_orphans, end_children

__all__ = ["Keeper"]

_PATIENCE_S = 10.0


class Keeper:
    """Starts the keeper, and below it a process that runs `work`, which does not return.

    `work` gets the keeper's process id; `output` is the descriptor of the file that both print
    to. The keeper closes the descriptors in `not_its_own`, which are for the lower process or for
    this one. Raises OSError if no process can be started.
    """

    def __init__(
        self, work: Callable[[int], NoReturn], output: int, not_its_own: tuple[int, ...]
    ) -> None:
        self._line, other = Pipe(duplex=True)
        self._pid = fork_process()
        if not self._pid:
            # Coverage follows a child only into what it calls.
            self._line.close()  # pragma: no cover - see above
            _keep(work, other, output, not_its_own)  # pragma: no cover - see above
        other.close()
        self._status: int | None = None
        try:
            self.pid_below: int = self._line.recv()
        except (EOFError, OSError):
            self.close()
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None

    def status(self, patience_s: float) -> int | None:
        """The wait status of the process below once it has ended; None if it does not in time."""
        if self._status is None:
            with contextlib.suppress(EOFError, OSError):
                if self._line.poll(patience_s):
                    self._status = self._line.recv()
        return self._status

    def close(self) -> None:
        """End everything below, and wait for it; may be called again."""
        if not self._pid:
            return
        self._line.close()
        pid, self._pid = self._pid, 0
        until = time.monotonic() + _PATIENCE_S
        with contextlib.suppress(ChildProcessError):
            # Not there where the caller's process ignores SIGCHLD.
            while not os.waitpid(pid, os.WNOHANG)[0]:
                if time.monotonic() > until:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                    return
                time.sleep(0.001)


def _keep(
    work: Callable[[int], NoReturn],
    line: Connection[int, int],
    output: int,
    not_its_own: tuple[int, ...],
) -> NoReturn:
    """The keeper itself; does not return."""
    try:
        # Nothing of the process that was forked is to be run or finalised here.
        gc.disable()
        leave_terminal(output)
        adopt_orphans()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        bell, rope = os.pipe()
        for end in (bell, rope):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, _ring)
        signal.set_wakeup_fd(rope, warn_on_full_buffer=False)
        keeper = os.getpid()
        below = fork_process()
        if not below:
            _begin_below(line, (bell, rope))
            work(keeper)
        for descriptor in not_its_own:
            os.close(descriptor)
        line.send(below)
        status = _until_the_end(below, line, bell)
        if status is None:
            kill_family(below)
            os.waitpid(below, 0)
        end_children()
        if status is not None:
            line.send(status)
    except BaseException:
        with contextlib.suppress(BaseException):
            end_children()
    finally:
        os._exit(0)


def _begin_below(line: Connection[int, int], bell: tuple[int, int]) -> None:
    """Undo what only the keeper needs."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for descriptor in bell:
        os.close(descriptor)
    line.close()
    gc.enable()


def _until_the_end(below: int, line: Connection[int, int], bell: int) -> int | None:
    """The wait status of the process below; None if Poolproof closed the line first."""
    while True:
        rung = wait([line, bell])
        if bell in rung:
            os.read(bell, 4096)
        ended, status = os.waitpid(below, os.WNOHANG | os.WUNTRACED)
        if ended and os.WIFSTOPPED(status):
            # By the target's hand; stopped, it would watch over nothing for ever.
            os.kill(below, signal.SIGCONT)
        elif ended:
            return status
        if line in rung:
            return None


def _ring(*_: object) -> None:
    """A handler, for with SIG_DFL or SIG_IGN the bell would not ring."""
