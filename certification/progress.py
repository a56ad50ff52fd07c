"""Shows the progress of long work: a bar on a terminal, an occasional plain line elsewhere.

Everything goes to standard error, so that a certificate on standard output stays clean.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

__all__ = ["PlainProgress", "SilentProgress", "StageProgress", "TerminalProgress", "progress_to"]


class StageProgress(Protocol):
    """Shows what is being done. Stages follow each other; they do not nest."""

    def begin(self, stage: str, total: int | None = None, unit: str = "steps") -> None:
        """A stage starts, of `total` things where that is known exactly; `unit` is their name."""
        ...

    def advance(self, number: int) -> None:
        """So many more of them are done."""
        ...

    def end(self) -> None:
        """The stage is over."""
        ...

    def say(self, text: str) -> None:
        """Something worth a line at once, such as the first sight of a finding."""
        ...


class SilentProgress:
    """Shows nothing."""

    def begin(self, stage: str, total: int | None = None, unit: str = "steps") -> None:
        pass

    def advance(self, number: int) -> None:
        pass

    def end(self) -> None:
        pass

    def say(self, text: str) -> None:
        pass


class PlainProgress:
    """Whole lines: where each stage starts, and then at most one every `interval_s` seconds."""

    def __init__(self, stream: TextIO, interval_s: float = 5.0) -> None:
        self._stream = stream
        self._interval_s = interval_s
        self._stage = self._unit = ""
        self._total: int | None = None
        self._done = 0
        self._last = 0.0

    def begin(self, stage: str, total: int | None = None, unit: str = "steps") -> None:
        self._stage, self._total, self._unit, self._done = stage, total, unit, 0
        self._last = time.monotonic()
        self.say(f"{stage} ...")

    def advance(self, number: int) -> None:
        self._done += number
        if time.monotonic() - self._last >= self._interval_s:
            self._last = time.monotonic()
            of = f" of {self._total:,}" if self._total else ""
            self.say(f"{self._stage}: {self._done:,}{of} {self._unit}")

    def end(self) -> None:
        self._stage = ""

    def say(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class TerminalProgress:
    """One bar, which disappears when the work is done."""

    def __init__(self, bars: RichProgress) -> None:
        self._bars = bars
        self._task = bars.add_task("starting", total=None, unit="steps")

    def begin(self, stage: str, total: int | None = None, unit: str = "steps") -> None:
        self._bars.reset(self._task, description=stage, total=total, unit=unit)

    def advance(self, number: int) -> None:
        self._bars.advance(self._task, number)

    def end(self) -> None:
        self._bars.update(self._task, description="")

    def say(self, text: str) -> None:
        self._bars.console.print(text, markup=False, highlight=False)


@contextmanager
def progress_to(stream: TextIO) -> Iterator[StageProgress]:
    """The kind of progress that suits the stream, for the time of the block."""
    if not stream.isatty():
        yield PlainProgress(stream)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeElapsedColumn(),
    )
    with RichProgress(*columns, console=Console(file=stream), transient=True) as bars:
        yield TerminalProgress(bars)
