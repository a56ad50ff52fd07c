"""What a check is, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from poolproof.contract.violation import Severity
from poolproof.kernels.case import Case
from poolproof.kernels.declaration import PROMISES, Declaration
from poolproof.kernels.large_cases import Draw
from poolproof.kernels.target import KernelTarget

__all__ = ["Check", "Outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """`compared` outputs were looked at; none if the case has no room for the check.

    `wrong` is a sentence about the first thing that was wrong; `ratio` the largest error over its
    bound, if that was measured.
    """

    compared: int
    wrong: str | None = None
    ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """`promise` is the row of the declaration that it rests on, None for what must always hold.

    `also_by` are weaker values of that row that promise it all the same. `draws`: the check has
    cases of its own, one for each. `takes_large_cases`: sizes of servers mean something to it.
    """

    name: str
    sentence: str
    severity: Severity
    run: Callable[[KernelTarget, Case], Outcome]
    applies: Callable[[KernelTarget], bool] = lambda _: True
    promise: str | None = None
    also_by: tuple[str, ...] = ()
    draws: Callable[[Declaration], tuple[Draw, ...]] | None = None
    takes_large_cases: bool = False

    def stands(self, declared: Declaration) -> str | None:
        """What the target declares instead of the promise; None if it makes the promise."""
        if self.promise is None or declared.promises(self.promise):
            return None
        value = getattr(declared, self.promise)
        if value in self.also_by:
            return None
        assert value in PROMISES[self.promise], value
        return f"{self.promise}: {value}"
