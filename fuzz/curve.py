"""How the curve of a campaign stays short: of many points, those that give it its shape.

A week of campaign discovers most in its first minutes, so points are not thinned out evenly: the
one that the straight line between its neighbours replaces best is what goes, as Visvalingam and
Whyatt simplify lines.
"""

from __future__ import annotations

from itertools import pairwise

from poolproof.fuzz.status import CurvePoint

__all__ = ["MOST_POINTS", "with_point"]

MOST_POINTS = 400


def with_point(
    curve: tuple[CurvePoint, ...], point: CurvePoint, most_points: int = MOST_POINTS
) -> tuple[CurvePoint, ...]:
    """The curve with one more point at its end, and one less inside where there are too many."""
    longer = (*curve, point)
    if len(longer) <= max(2, most_points):
        return longer
    pairs = list(pairwise(longer))
    areas = [_doubled_area(left, middle, right) for (left, middle), (_, right) in pairwise(pairs)]
    least = 1 + areas.index(min(areas))
    return (*longer[:least], *longer[least + 1 :])


def _doubled_area(left: CurvePoint, middle: CurvePoint, right: CurvePoint) -> float:
    """Twice the area between the curve and the line that would take the place of the middle."""
    return abs(
        (middle.seconds - left.seconds) * (right.states - left.states)
        - (right.seconds - left.seconds) * (middle.states - left.states)
    )
