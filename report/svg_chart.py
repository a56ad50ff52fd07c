"""Charts as SVG that needs nothing else: a frame with two axes, and what is drawn in it.

Colours are CSS variables, so that a page in dark and in light shows the same chart; each chart
has a title and a description for readers who do not see it.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

__all__ = ["STYLE", "Axis", "Chart", "Frame", "even_axis", "svg_of", "tenfold_axis", "text"]

WIDTH = 860
STYLE = """\
.chart {
  --ink: #1a1a1a; --faint: #5c5c5c; --rule: #dddddd; --line: #1f6fb2; --mark: #b3261e;
  --paper: #ffffff; font: 13px system-ui, sans-serif;
}
@media (prefers-color-scheme: dark) {
  .chart {
    --ink: #e6e6e6; --faint: #a8a8a8; --rule: #3a3f45; --line: #6db3f2; --mark: #ff8a80;
    --paper: #16181b;
  }
}
.chart text { fill: var(--faint); } .chart .name { fill: var(--ink); }
.chart .rule { stroke: var(--rule); }
.chart .curve { stroke: var(--line); stroke-width: 2; fill: none; }
.chart .bar { fill: var(--line); } .chart .mark { fill: var(--mark); }
.chart .limit { stroke: var(--mark); stroke-width: 1.5; stroke-dasharray: 6 4; }
.chart .limit-name { fill: var(--mark); } .chart .inside { fill: var(--paper); }"""


@dataclass(frozen=True, slots=True)
class Axis:
    """Values from `low` to `high` along one side, with a word at each tick and a name."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...] = ()
    name: str = ""
    is_tenfold: bool = False

    def share(self, value: float) -> float:
        """Where a value lies, from 0 to 1; values outside are put at the edge."""
        low, high = self.low, self.high
        if self.is_tenfold:
            low, high, value = math.log10(low), math.log10(high), math.log10(max(value, self.low))
        return min(1.0, max(0.0, (value - low) / (high - low)))


def even_axis(most: float, name: str, *, unit: float = 1.0) -> Axis:
    """From 0 to at least `most`, ticks at round numbers of `unit`."""
    most = most / unit if most > 0 else 1.0
    step = _round_step(most / 5)
    number = math.ceil(most / step - 1e-9)
    ticks = tuple((tick * step * unit, _number(tick * step)) for tick in range(number + 1))
    return Axis(0.0, number * step * unit, ticks, name)


def tenfold_axis(least: float, most: float, name: str) -> Axis:
    """Powers of ten around all values; they have to be positive."""
    low = math.floor(math.log10(least))
    high = max(low + 1, math.ceil(math.log10(most)))
    ticks = tuple((10.0**power, _number(10.0**power)) for power in range(low, high + 1))
    return Axis(10.0**low, 10.0**high, ticks, name, is_tenfold=True)


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a chart's values go on the paper."""

    x: Axis
    y: Axis
    height: int = 240
    left: int = 80

    right = 44
    top = 30

    def place(self, x: float, y: float) -> tuple[float, float]:
        """A point on the paper."""
        wide = WIDTH - self.left - self.right
        return (
            self.left + wide * self.x.share(x),
            self.top + self.height * (1 - self.y.share(y)),
        )

    @property
    def bottom(self) -> int:
        return self.top + self.height

    def axes(self) -> Iterator[str]:
        """Rules, numbers and names."""
        edge = WIDTH - self.right
        for value, word in self.x.ticks:
            x, _ = self.place(value, 0)
            yield _rule(x, self.top, x, self.bottom)
            yield text(x, self.bottom + 18, word, anchor="middle")
        for value, word in self.y.ticks:
            _, y = self.place(self.x.low, value)
            yield _rule(self.left, y, edge, y)
            yield text(self.left - 8, y + 4, word, anchor="end")
        yield text(edge, self.bottom + 38, self.x.name, anchor="end", kind="name")
        yield text(self.left, self.top - 12, self.y.name, kind="name")

    def curve(self, points: Iterable[tuple[float, float]]) -> str:
        """Straight lines from point to point."""
        placed = [self.place(x, y) for x, y in points]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in placed)
        return f'<path class="curve" d="M{path}"/>'

    def limit(self, value: float, name: str) -> Iterator[str]:
        """A dashed line across, with its name above it."""
        _, y = self.place(self.x.low, value)
        edge = WIDTH - self.right
        yield f'<line class="limit" x1="{self.left}" y1="{y:.1f}" x2="{edge}" y2="{y:.1f}"/>'
        yield text(edge - 4, y - 6, name, anchor="end", kind="limit-name")


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing with its title, what it shows in a sentence, and its numbers as a table."""

    name: str
    title: str
    description: str
    height: int
    parts: tuple[str, ...]
    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def svg_of(chart: Chart, *, alone: bool = False) -> str:
    """The drawing, for a page that has STYLE; `alone` includes the style."""
    title, description = html.escape(chart.title), html.escape(chart.description)
    style = f"<style>{STYLE} .chart {{ background: var(--paper); }}</style>"
    named = f'role="img" aria-labelledby="{chart.name}-title {chart.name}-what"'
    size = f'viewBox="0 0 {WIDTH} {chart.height}"'
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" {size} {named}>',
        f'<title id="{chart.name}-title">{title}</title>',
        f'<desc id="{chart.name}-what">{description}</desc>',
        *([style] if alone else []),
        *chart.parts,
        "</svg>",
    ])  # fmt: skip


def text(x: float, y: float, words: str, *, anchor: str = "start", kind: str = "") -> str:
    """Words at a place, escaped."""
    named = f' class="{kind}"' if kind else ""
    return (
        f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(words)}</text>'
    )


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="rule" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _round_step(least: float) -> float:
    """The next of 1, 2 and 5 times a power of ten."""
    power: float = 10.0 ** math.floor(math.log10(least))
    return next(times * power for times in (1, 2, 5, 10) if times * power >= least * (1 - 1e-9))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:g}"
