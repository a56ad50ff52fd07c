"""Counters in shared memory: a job shows its progress at the cost of one addition.

One worker writes a beacon; the watchman and the caller read it, and the watchman notes how long the
worker stood still. Nothing is locked: a torn read only delays a verdict by one look.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

__all__ = ["Beacon", "BeaconArena"]

_CELLS = 8
_BUMP_INTERVAL_S = 0.1
_BUMPS, _MARK, _STARTED, _ENDED, _CAME_BACK, _STILL_MS = range(6)


class Beacon:
    """What a job shows of its progress.

    `bump()` says that a command is about to be applied. It takes and ignores one argument, so
    that it serves as the `announce` hook of a driver.
    """

    __slots__ = ("_cells", "bump", "lead_astray")

    def __init__(self, cells: memoryview) -> None:
        def bump(_: object = None) -> None:
            cells[_BUMPS] += 1

        def lead_astray(progress: int) -> None:
            # Here too at no cost for the right process.
            nonlocal cells
            nowhere: Any = _Astray(cells, progress)
            cells = self._cells = nowhere

        self._cells = cells
        self.lead_astray = lead_astray
        """In a process that the target forked, at this progress: its first use ends it."""
        # A closure and not a method: it is called at every command, and this is half the price.
        self.bump: Callable[..., None] = bump

    def mark(self, number: int) -> None:
        """Note a number (which run of a chunk this is), to be read if the worker is found dead."""
        self._cells[_MARK] = number
        self._cells[_BUMPS] += 1

    @contextmanager
    def bumping(self) -> Iterator[None]:
        """Bump from a thread for work of ours that may take longer than a target has for a call."""
        done = threading.Event()

        def bump() -> None:
            while not done.wait(_BUMP_INTERVAL_S):
                self.bump()

        thread = threading.Thread(target=bump, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def begin(self) -> None:
        """Begin a call: the time limit runs."""
        self._cells[_BUMPS] = self._cells[_MARK] = self._cells[_STILL_MS] = 0
        self._cells[_STARTED] += 1

    def end(self) -> None:
        """End the call: until the next one begins, no time limit runs."""
        self._cells[_ENDED] = self._cells[_STARTED]

    def note_still(self, seconds: float) -> None:
        """Note, as the watchman, that there has been no bump for so long."""
        self._cells[_STILL_MS] = max(self._cells[_STILL_MS], round(1000 * seconds))

    def reset(self) -> None:
        """Back to zero, for another worker."""
        for index in range(_CELLS):
            self._cells[index] = 0

    @property
    def came_back_twice(self) -> bool:
        """Whether the call has returned to us in a second process."""
        return bool(self._cells[_CAME_BACK])

    @property
    def busy(self) -> bool:
        """Whether a call is running."""
        return bool(self._cells[_STARTED] != self._cells[_ENDED])

    @property
    def calls(self) -> int:
        """How many calls have begun."""
        return int(self._cells[_STARTED])

    @property
    def progress(self) -> int:
        """Bumps in the current or last call; if it came back twice, the bumps until then."""
        return int(self._cells[_CAME_BACK] or self._cells[_BUMPS])

    @property
    def longest_still_s(self) -> float:
        """The longest time between two bumps of the current or last call, to a look exactly."""
        return float(self._cells[_STILL_MS] / 1000)

    @property
    def last_mark(self) -> int:
        """The number that was noted last in the call, 0 if none."""
        return int(self._cells[_MARK])


class _Astray:
    """The cells of a process that should not exist: it ends as soon as it uses them."""

    def __init__(self, cells: memoryview, progress: int) -> None:
        self._cells = cells
        self._progress = progress

    def __getitem__(self, index: int) -> NoReturn:
        self._cells[_CAME_BACK] = max(1, self._progress)
        os._exit(0)

    def __setitem__(self, index: int, value: int) -> None:
        self[index]


class BeaconArena:
    """The beacons of all workers, in memory that is shared with whatever forks from here."""

    NUM_SLOTS = 256

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, self.NUM_SLOTS * _CELLS * 8)
        self._cells = memoryview(self._memory).cast("Q")

    def __getitem__(self, slot: int) -> Beacon:
        return Beacon(self._cells[slot * _CELLS : (slot + 1) * _CELLS])
