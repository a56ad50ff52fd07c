"""Checks the ruler before measuring: the checks must first catch planted bugs.

Each certification plants a few real bugs under the profile of the target, behind a veil that
shows no more than the target itself shows, and drives them as it drives the target. A bug that
gets through makes the whole run inconclusive.
"""

from __future__ import annotations

from collections.abc import Sequence

from poolproof.certification.description import Description
from poolproof.certification.levels import LEVELS
from poolproof.certification.run_kinds import RunKind

__all__ = ["MOST_RUNS", "check_ruler"]

MOST_RUNS = 400
"""Runs after which a planted bug counts as not caught; the catchable ones need a few dozen."""


def check_ruler(
    about: Description, kinds: Sequence[RunKind]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The planted bugs that were caught and those that were missed, mostly by id and title.

    Planted is at each level at which the target is driven with runs of these `kinds`, and for a
    manager each bug in the first layout under whose profile it is one. Where no specimen can be
    planted, that is the specification itself, broken.
    """
    caught: list[str] = []
    missed: list[str] = []
    for level in LEVELS.values():
        for planted in level.planted(about, kinds):
            runs = (planted.runs.run(number) for number in range(MOST_RUNS))
            was_caught = any(run.trace is not None for run in runs)
            (caught if was_caught else missed).append(planted.bug)
    return tuple(caught), tuple(missed)
