"""Signals that ask a run to end: Ctrl-C, SIGTERM and SIGHUP end it in the same way.

A scheduler that reclaims a machine sends SIGTERM, a closed terminal SIGHUP. By default both end a
process at once, without the summary of what was found. Here they raise what Ctrl-C raises, so that
any code that can conclude a run does so. Forked processes keep the default.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["Ended", "ending_signals_raise", "signals_wait"]

_ENDING = ("SIGTERM", "SIGHUP")
"""By name: Windows has no SIGHUP."""


class Ended(KeyboardInterrupt):
    """A signal asked the process to end; the message is its name."""


class _Held:
    """Signals that have come while they had to wait."""

    def __init__(self) -> None:
        self.depth = 0
        self.name = ""


_held = _Held()


@contextmanager
def ending_signals_raise() -> Iterator[None]:
    """Make Ctrl-C, SIGTERM and SIGHUP raise KeyboardInterrupt, the latter two as `Ended`.

    Changes nothing outside the main thread, and nothing for a signal that is ignored, as nohup
    ignores SIGHUP, or that another handler catches.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()

    def end(number: int, _: FrameType | None) -> None:
        if os.getpid() != owner:  # a fork of ours, which has nothing to conclude
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif _held.depth:
            _held.name = signal.Signals(number).name
        else:
            raise _raised_by(signal.Signals(number).name)

    before: dict[int, Any] = {}
    for name in (*_ENDING, "SIGINT"):
        number = getattr(signal, name, None)
        if number is None:
            continue
        usual = signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL
        if signal.getsignal(number) == usual:
            before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def signals_wait() -> Iterator[None]:
    """Protect what must not be left half done: signals that arrive are raised at the end."""
    _held.depth += 1
    try:
        yield
    finally:
        _held.depth -= 1
    if not _held.depth and _held.name:
        name, _held.name = _held.name, ""
        raise _raised_by(name)


def _raised_by(name: str) -> KeyboardInterrupt:
    return KeyboardInterrupt() if name == "SIGINT" else Ended(name)
