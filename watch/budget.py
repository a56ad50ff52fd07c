"""What the watch costs, and when it compares less: a share of the time between steps."""

from __future__ import annotations

import time

__all__ = ["ReadBudget"]

_WINDOW = 64
"""Steps after which the share is looked at."""
_LEAST = 64
"""One admission in so many is compared at the least."""
_IDLE_NS = 1_000_000_000
"""Who waits longer for a step has nothing to do: such times are no part of a share."""


class ReadBudget:
    """The watch's own time in steps. `stride`: the reads of one admission in so many are compared.

    Only comparing is sampled. Following tables and writes is not: without it nothing could be said
    later, so a budget may be exceeded all the same, and `share` says so.
    """

    def __init__(self, share: float) -> None:
        self.budget = share
        self.share = 0.0
        self.step_ms = 0.0
        self.stride = 1
        self._spent_ns = self._window_ns = self._steps = 0
        self._last_ns = time.perf_counter_ns()
        self._is_measured = False

    def spend(self, spent_ns: int) -> None:
        """Time that the watch took; a clock that goes back counts as none."""
        self._spent_ns += max(0, spent_ns)

    def step(self) -> str | None:
        """A step is over; a sentence where more or less is compared from now on."""
        now_ns = time.perf_counter_ns()
        between_ns, self._last_ns = now_ns - self._last_ns, now_ns
        if 0 <= between_ns < _IDLE_NS:
            self._window_ns += between_ns
        self._steps += 1
        if self._steps < _WINDOW and self._is_measured:
            return None
        self.step_ms = self._spent_ns / self._steps / 1e6
        self.share = min(1.0, self._spent_ns / self._window_ns) if self._window_ns else 0.0
        if self._steps < _WINDOW:
            return None  # What the first steps say is said, and nothing follows from it.
        self._is_measured = True
        self._spent_ns = self._window_ns = self._steps = 0
        before = self.stride
        if self.share > self.budget:
            self.stride = min(_LEAST, self.stride * 2)
        elif self.share < self.budget / 2:
            self.stride = max(1, self.stride // 2)
        if (before == 1) == (self.stride == 1):
            return None
        words = f"{self.share:.1%} of the time between steps, budget {self.budget:.1%}"
        if self.stride > 1:
            return f"takes {words}: reads at admissions are sampled, writes and frees still checked"
        return f"takes {words}: every read is compared again"
