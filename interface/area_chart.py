"""A curve drawn with characters: columns of blocks, in eighths of a line, or `#` in plain ASCII."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["area_chart", "held_at"]

_EIGHTHS = " ▁▂▃▄▅▆▇█"
_HALVES = " .#"


def held_at(points: Sequence[tuple[float, float]], places: int) -> list[float]:
    """The values at so many even places from 0 to the last point.

    A value holds until the next one, and is 0 before the first.
    """
    if not points or places < 1:
        return [0.0] * places
    most = points[-1][0]
    values, value, following = [], 0.0, 0
    for place in range(1, places + 1):
        reach = most if place == places else most * place / places
        while following < len(points) and points[following][0] <= reach:
            value = points[following][1]
            following += 1
        values.append(value)
    return values


def area_chart(
    values: Sequence[float], top: float, num_lines: int, *, is_ascii: bool = False
) -> list[str]:
    """The lines, the highest first; `top` is the value that fills a column.

    A value above 0 shows, however small, and only one that reaches `top` fills its column.
    """
    levels = _HALVES if is_ascii else _EIGHTHS
    parts = len(levels) - 1
    whole = num_lines * parts
    heights = [_height(value, top, whole) for value in values]
    return [
        "".join(levels[min(parts, max(0, height - line * parts))] for height in heights)
        for line in reversed(range(num_lines))
    ]


def _height(value: float, top: float, whole: int) -> int:
    if value <= 0 or top <= 0:
        return 0
    if value >= top:
        return whole
    return min(whole - 1, max(1, round(whole * value / top)))
