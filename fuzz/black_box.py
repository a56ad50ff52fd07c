"""A file in memory that holds the tape of the run in progress, to be read if the worker dies.

Writing answers to the mapped file costs the worker no more than writing them elsewhere, and the
kernel keeps them when the process is killed. The file does not survive the machine.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from poolproof.fuzz.recorded_choices import MOST_ANSWERS, AnswerCells, tape_of

__all__ = ["open_black_box", "read_black_box"]

_BYTES = 2 * (MOST_ANSWERS + 1)


def open_black_box(path: Path) -> AnswerCells:
    """The cells in the file, which is made if needed; they live as long as they are referenced."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.ftruncate(descriptor, _BYTES)
        return memoryview(mmap.mmap(descriptor, _BYTES)).cast("H")
    finally:
        os.close(descriptor)


def read_black_box(path: Path) -> bytes:
    """The tape of the run that was in progress; empty if none had begun."""
    try:
        written = path.read_bytes()
    except OSError:
        return b""
    if len(written) < _BYTES:
        return b""
    cells = memoryview(written).cast("H")
    return tape_of(cells[1 : 1 + min(cells[0], MOST_ANSWERS)])
