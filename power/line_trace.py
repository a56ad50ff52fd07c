"""Which lines of the mutated modules a stage executes, at a price that falls while it runs.

A code object is left alone once all of its lines were seen, so that a long campaign is traced for
its first runs and then hardly slowed.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

__all__ = ["Lines", "traced"]


class Lines:
    """What was executed: lines as (file, number), functions as (file, name, first line)."""

    def __init__(self) -> None:
        self.lines: set[tuple[str, int]] = set()
        self.functions: set[tuple[str, str, int]] = set()


@contextmanager
def traced(files: Collection[str]) -> Iterator[Lines]:
    """Trace whatever runs in these files for the time of the block, in this thread."""
    seen = Lines()
    unseen: dict[CodeType, set[int]] = {}

    def on_call(frame: FrameType, _event: str, _argument: object) -> Any:
        code = frame.f_code
        left = unseen.get(code)
        if left is None:
            if code.co_filename not in files:
                return None
            left = unseen[code] = {line for _, _, line in code.co_lines() if line is not None}
            seen.functions.add((code.co_filename, code.co_name, code.co_firstlineno))
        if not left:
            return None
        on_line(frame, "line", None)
        return on_line

    def on_line(frame: FrameType, _event: str, _argument: object) -> Any:
        left = unseen[frame.f_code]
        if frame.f_lineno in left:
            left.discard(frame.f_lineno)
            seen.lines.add((frame.f_code.co_filename, frame.f_lineno))
        return on_line

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        yield seen
    finally:
        sys.settrace(before)
