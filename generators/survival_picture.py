"""The picture of survival: the share of planted bugs not yet caught against commands, log axis.

One panel for all and one for each level, ours against the uniform workload, from
benchmarks/results/survival.json. An SVG of its own, without fonts or scripts from elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

__all__ = ["survival_picture"]

WIDTH, PANEL_WIDTH, PANEL_HEIGHT = 880, 360, 190
LEFT, TOP, GAP_X, GAP_Y = 56, 78, 60, 70
COLOURS = {"ours": "#2e6da4", "uniform": "#c0392b"}
TITLES = {"all": "all planted bugs", "queue": "queue", "pool": "pool", "manager": "manager"}


def survival_picture(result: dict[str, Any]) -> str:
    """The picture as SVG text."""
    height = TOP + 2 * PANEL_HEIGHT + GAP_Y + 50
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" font-family="sans-serif" font-size="13" role="img">'
        ),
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        (
            '<text x="16" y="24" font-size="15" fill="#222">Planted bugs that are not caught yet, '
            "by the number of commands</text>"
        ),
        *_legend(),
    ]
    for number, (level, curves) in enumerate(result["curves"].items()):
        x = LEFT + (number % 2) * (PANEL_WIDTH + GAP_X)
        y = TOP + (number // 2) * (PANEL_HEIGHT + GAP_Y)
        parts += _panel(TITLES[level], curves, x, y, result["most_steps"])
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend() -> Iterator[str]:
    for number, (name, colour) in enumerate(COLOURS.items()):
        x = 16 + 150 * number
        text = {"ours": "this workload", "uniform": "uniform workload"}[name]
        yield f'<line x1="{x}" y1="44" x2="{x + 24}" y2="44" stroke="{colour}" stroke-width="2"/>'
        yield f'<text x="{x + 30}" y="48" fill="#444">{text}</text>'


def _panel(
    title: str, curves: dict[str, list[list[float]]], x: int, y: int, most_steps: int
) -> Iterator[str]:
    powers = math.ceil(math.log10(most_steps))
    bottom = y + PANEL_HEIGHT
    yield f'<text x="{x}" y="{y - 6}" fill="#222">{title}</text>'
    for power in range(powers + 1):
        place = x + PANEL_WIDTH * power / powers
        yield (
            f'<line x1="{place:.1f}" y1="{y}" x2="{place:.1f}" y2="{bottom}" stroke="#dddddd"/>'
            f'<text x="{place:.1f}" y="{bottom + 17}" text-anchor="middle" fill="#666">'
            f"{10**power:,}</text>"
        )
    for share in (0, 25, 50, 75, 100):
        place = bottom - PANEL_HEIGHT * share / 100
        yield (
            f'<line x1="{x}" y1="{place:.1f}" x2="{x + PANEL_WIDTH}" y2="{place:.1f}" '
            f'stroke="#dddddd"/><text x="{x - 6}" y="{place + 4:.1f}" text-anchor="end" '
            f'fill="#666">{share} %</text>'
        )
    for name, curve in curves.items():
        path = _steps(curve, x, bottom, powers, most_steps)
        yield f'<path d="{path}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"/>'


def _steps(curve: list[list[float]], x: int, bottom: int, powers: int, most_steps: int) -> str:
    """A staircase: the share falls where something was caught; it ends where all gave up."""
    path, share = f"M{x} {bottom - PANEL_HEIGHT}", 1.0
    last = x
    for steps, following in curve:
        place = x + PANEL_WIDTH * math.log10(max(1, steps)) / powers
        share = following
        if place - last >= 1 or share in (0, curve[-1][1]):  # no finer than the eye
            path += f"H{place:.1f}V{bottom - PANEL_HEIGHT * share:.1f}"
            last = place
    if share > 0:
        path += f"H{x + PANEL_WIDTH * math.log10(most_steps) / powers:.1f}"
    return path
