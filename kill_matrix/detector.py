"""The columns of the kill matrix: what a detector is, and what it says of one subject.

A detector that cannot speak of a subject says why; that is never the same as having missed it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

from poolproof.harness.isolation import Beacon
from poolproof.kill_matrix.subject import MatrixSubject

__all__ = ["Detector", "SearchOutcome", "always"]


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """What one search from one seed came to.

    `steps` were executed until something broke, or in all; `seconds` are processor time.
    `invariant` is the one that named it. `length` counts the commands of the minimised trace, None
    where the detector gives no trace that can be minimised.
    """

    caught: bool
    steps: int
    seconds: float
    invariant: str = ""
    length: int | None = None
    note: str = ""


def always(_subject: MatrixSubject) -> str | None:
    """The detector can speak of every subject."""
    return None


@dataclass(frozen=True, slots=True)
class Detector:
    """One way of searching.

    `search(subject, seed, beacon)` runs where the subject may hang or die; `beacon.bump` is called
    before each command. `why_not` is the reason why nothing can be said of a subject, or None.
    `needs` are the optional modules without which it cannot run. Without `is_seeded` the search
    is the same under every seed, and is done once. `is_made_of_others`: its searches stand in
    other columns, too, so that it does not count where one detector alone finds a bug.
    `sees_losses`: a worker that hangs or dies is what it looks for. `drives_machines`: Hypothesis
    is part of it.
    """

    name: str
    what: str
    search: Callable[[MatrixSubject, int, Beacon], SearchOutcome]
    why_not: Callable[[MatrixSubject], str | None] = always
    needs: tuple[str, ...] = ()
    is_seeded: bool = True
    is_made_of_others: bool = False
    sees_losses: bool = True
    drives_machines: bool = False

    @property
    def missing(self) -> tuple[str, ...]:
        """The modules that are not installed here."""
        return tuple(name for name in self.needs if importlib.util.find_spec(name) is None)
