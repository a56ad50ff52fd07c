"""Traces as text in a database, in the words of a trace file."""

from __future__ import annotations

import tempfile
from pathlib import Path

from poolproof.contract.trace import Trace, TraceError, read_trace

__all__ = ["text_of", "trace_of"]


def text_of(trace: Trace) -> str:
    """The lines of the trace's file."""
    return "\n".join(trace.lines()) + "\n"


def trace_of(text: str) -> Trace:
    """What `text_of` wrote, checked as a file is. Raises TraceError, ValueError for no text."""
    with tempfile.TemporaryDirectory(prefix="poolproof-") as folder:
        path = Path(folder, "trace")
        path.write_text(text, encoding="utf-8")
        try:
            return read_trace(path)
        except TraceError as error:
            raise TraceError(str(error).replace(str(path), "its trace")) from error
