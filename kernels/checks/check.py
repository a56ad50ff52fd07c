"""What a check is, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from poolproof.contract.violation import Severity

__all__ = ["Check", "Outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """`compared` outputs were looked at; none if the case has no room for the check.

    `wrong` is a sentence about the first thing that was wrong; `ratio` the largest error over its
    bound, if that was measured. `severity` is there where what happened does less harm than what
    the check looks for.
    """

    compared: int
    wrong: str | None = None
    ratio: float | None = None
    severity: Severity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What is asked of a target with one case; both are of one kind, such as attention.

    `promise` is the row of the declaration that it rests on, None for what must always hold.

    `also_by` are weaker values of that row that promise it all the same. `draws`: the check has
    cases of its own, one for each. `takes_large_cases`: sizes of servers mean something to it.
    """

    name: str
    sentence: str
    severity: Severity
    run: Callable[[Any, Any], Outcome]
    applies: Callable[[Any], bool] = lambda _: True
    promise: str | None = None
    also_by: tuple[str, ...] = ()
    draws: Callable[[Any], tuple[Callable[[Callable[[int], int], Any], Any], ...]] | None = None
    takes_large_cases: bool = False

    def severity_of(self, outcome: Outcome) -> Severity:
        """How bad a finding is."""
        return outcome.severity or self.severity

    def stands(self, declared: Any) -> str | None:
        """What the target declares instead of the promise; None if it makes the promise."""
        if self.promise is None or declared.promises(self.promise):
            return None
        value = getattr(declared, self.promise)
        if value in self.also_by:
            return None
        return f"{self.promise}: {value}"
