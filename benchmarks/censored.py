"""Kaplan-Meier: the share that has not been caught after so many steps, where some never were.

A search that gave up after a budget says only that it would have taken longer; counting it as the
budget would flatter it, leaving it out as well. Medians and curves take it for what it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

__all__ = ["Observation", "median_steps", "survival_curve"]


class Observation(Protocol):
    """Caught after `steps`, or given up after them."""

    @property
    def steps(self) -> int: ...

    @property
    def is_caught(self) -> bool: ...


def survival_curve(observations: Iterable[Observation]) -> list[tuple[int, float]]:
    """Steps at which something was caught, each with the share not caught by then.

    Who gave up after as many steps as another was caught after was still at risk then.
    """
    ordered = sorted(observations, key=lambda found: found.steps)
    at_risk, share = len(ordered), 1.0
    curve: list[tuple[int, float]] = []
    position = 0
    while position < len(ordered):
        steps = ordered[position].steps
        together = [found for found in ordered[position:] if found.steps == steps]
        num_caught = sum(found.is_caught for found in together)
        if num_caught:
            share *= 1 - num_caught / at_risk
            curve.append((steps, share))
        at_risk -= len(together)
        position += len(together)
    return curve


def median_steps(observations: Sequence[Observation]) -> int | None:
    """The first number of steps by which half were caught; None if that never came."""
    half = 0.5 + 1e-9  # shares are products of fractions
    return next((steps for steps, share in survival_curve(observations) if share <= half), None)
