"""A worker: the process in which the target is called, together with the harness around it.

It answers one call after the other until its caller closes the line. Whatever would end a plain
Python process (SystemExit, KeyboardInterrupt, os._exit, a signal) ends it in the same way, which
is then the outcome of the call.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from poolproof.harness.isolation.beacon import Beacon
from poolproof.harness.isolation.limits import bound_address_space
from poolproof.harness.isolation.wire import answer

__all__ = ["work"]


def work(
    context: Any, line: Connection[bytes, bytes], beacon: Beacon, output: int, memory_mib: int
) -> NoReturn:
    """Answer the calls that come over `line`. Does not return."""
    bound_address_space(memory_mib)
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
        # The caller may take its time to read the answer.
        beacon.end()
        try:
            line.send_bytes(sent)
        except OSError:  # pragma: no cover - who has lost its caller is killed at this moment
            os._exit(1)


def leave_as_python_does(error: BaseException) -> NoReturn:
    """End the process as an exception that nobody catches ends it."""
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
