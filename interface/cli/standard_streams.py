"""Keeps a run's exit status right when standard output or standard error cannot be written.

A full disk behind `> certificate.txt`, a reader that has gone, a stream that was closed before the
start: none of them may cost the other outputs, or replace the verdict.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

__all__ = ["lasting_streams"]


class _Lasting:
    """A text stream that takes everything; what cannot be written is told once, by `tell`."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self._stream = stream
        self._name = name
        self.error: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._kept():
            self._stream.write(text)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        with self._kept():
            self._stream.flush()

    @contextlib.contextmanager
    def _kept(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:  # ValueError: it was closed
            if self.error is None:
                self.error = error
                self._turn_away()

    def _turn_away(self) -> None:
        """Whatever is still buffered goes nowhere, so that Python does not complain at exit."""
        with contextlib.suppress(OSError, ValueError):
            descriptor = self._stream.fileno()
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, descriptor)
            os.close(null)

    def what_was_lost(self) -> str | None:
        """What a user has to know; a reader that went away, as `head` does, knows it already."""
        if self.error is None or isinstance(self.error, BrokenPipeError):
            return None
        cause = getattr(self.error, "strerror", None) or str(self.error)
        return f"cannot write to {self._name}: {cause}; the exit status is the run's all the same"


@contextlib.contextmanager
def lasting_streams() -> Iterator[None]:
    """Both streams never fail within the block, and show characters that their encoding lacks.

    After it, standard error says whether standard output took everything.
    """
    before = sys.stdout, sys.stderr
    stdout = _Lasting(_there(sys.stdout), "standard output")
    stderr = _Lasting(_there(sys.stderr), "standard error")
    sys.stdout, sys.stderr = stdout, stderr
    if before[0] is None:
        stdout.error = OSError("it was closed before the start")
    try:
        yield
    finally:
        stdout.flush()
        lost = stdout.what_was_lost()
        if lost is not None:
            stderr.write(f"poolproof: {lost}\n")
        stderr.flush()
        sys.stdout, sys.stderr = before


def _there(stream: TextIO | None) -> TextIO:
    """The stream, or one that leads nowhere; its descriptor is then no other file's by chance."""
    if stream is None:
        return Path(os.devnull).open("w", encoding="utf-8")
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
    return stream
