"""A worker: the process in which the target is called, together with the harness around it.

It answers one call after another until its caller closes the line. Whatever would end a plain
Python process (SystemExit, KeyboardInterrupt, os._exit, a signal) ends it in the same way, and that
is the outcome of the call.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from poolproof.harness.isolation.beacon import Beacon
from poolproof.harness.isolation.limits import bound_address_space, is_dying
from poolproof.harness.isolation.wire import answer

__all__ = ["work"]

_END_IS_NEAR_S = 10.0


def work(
    context: Any, line: Connection[bytes, bytes], beacon: Beacon, output: int, memory_mib: int
) -> NoReturn:
    """Answer the calls that come over `line`. Does not return."""
    bound_address_space(memory_mib)
    worker, watchman = os.getpid(), os.getppid()
    _know_copies(beacon)
    while True:
        try:
            received = line.recv_bytes()
        except (EOFError, OSError):
            os._exit(0)
        os.ftruncate(output, 0)
        beacon.begin()
        try:
            sent = answer(received, context, beacon, memory_mib)
        except BaseException as error:
            leave_as_python_does(error)
        if os.getpid() != worker:
            # Forked past Python's own fork(), where nothing could be noticed earlier.
            beacon.lead_astray(beacon.progress)
            beacon.end()
        if is_dying(watchman):
            # By the target's hand: it is no answer, and the end of this process is near.
            time.sleep(_END_IS_NEAR_S)
        # The caller may take its time to read the answer.
        beacon.end()
        try:
            line.send_bytes(sent)
        except OSError:  # pragma: no cover - who has lost its caller is killed at this moment
            os._exit(1)


def _know_copies(beacon: Beacon) -> None:
    """Make a process that the target forks, and that returns to our code, end at once."""
    worker, progress = os.getpid(), 0

    def before() -> None:
        nonlocal progress
        # A child of the target's may fork in its turn.
        if os.getpid() == worker:
            progress = beacon.progress

    os.register_at_fork(before=before, after_in_child=lambda: beacon.lead_astray(progress))


def leave_as_python_does(error: BaseException) -> NoReturn:
    """End the process as an uncaught exception does."""
    code = error.code if isinstance(error, SystemExit) else 1
    if code is None:
        code = 0
    elif not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    if not isinstance(error, SystemExit):
        traceback.print_exception(error)
    for stream in (sys.stdout, sys.stderr):
        # The target may have replaced or closed them.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code & 0xFF)
