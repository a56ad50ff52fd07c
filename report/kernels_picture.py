"""The picture of a kernel's run: the error of each output over its bound, one lane per precision.

An SVG of its own, without fonts or scripts from elsewhere. The axis is logarithmic; right of the
line at 1 an output is wrong.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator

from poolproof.contract.outside import printable
from poolproof.kernels.findings import KernelRun

__all__ = ["errors_picture"]

WIDTH = 860
LEFT, RIGHT, TOP, LANE = 170, 30, 64, 46
LOWEST, HIGHEST = -4.0, 1.0
COLUMNS = 110


def errors_picture(run: KernelRun) -> str:
    """The picture as SVG text."""
    lanes = {name: ratios for name, ratios in sorted(run.ratios.items()) if ratios}
    bottom = TOP + LANE * max(1, len(lanes))
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 44}" '
            f'width="{WIDTH}" font-family="sans-serif" font-size="13" role="img">'
        ),
        f'<rect width="{WIDTH}" height="{bottom + 44}" fill="#ffffff"/>',
        f'<text x="16" y="24" font-size="15" fill="#222">{_escaped(_title(run))}</text>',
        (
            '<text x="16" y="44" fill="#666">error of each output over the bound that a correct '
            "kernel keeps; right of the line an output is wrong</text>"
        ),
        *_axis(bottom),
    ]
    for number, (name, ratios) in enumerate(lanes.items()):
        parts += _lane(name, ratios, TOP + LANE * number)
    if not lanes:
        parts.append(f'<text x="{LEFT}" y="{TOP + 26}" fill="#666">no output was measured</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _title(run: KernelRun) -> str:
    count = sum(len(ratios) for ratios in run.ratios.values())
    return f"{run.target} ({run.version}), {count:,} batches on {run.device}"


def _place(ratio: float) -> float:
    """The horizontal place of a ratio; ratios outside are put at the edge."""
    power = math.log10(ratio) if ratio > 0 else LOWEST
    share = (min(max(power, LOWEST), HIGHEST) - LOWEST) / (HIGHEST - LOWEST)
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _axis(bottom: int) -> Iterator[str]:
    for power in range(int(LOWEST), int(HIGHEST) + 1):
        x = _place(10.0**power)
        is_bound = power == 0
        colour, width = ("#c0392b", 2) if is_bound else ("#dddddd", 1)
        yield (
            f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="{colour}" '
            f'stroke-width="{width}"/>'
        )
        text = "the bound" if is_bound else f"{10.0**power:g}"
        yield (
            f'<text x="{x:.1f}" y="{bottom + 20}" text-anchor="middle" '
            f'fill="{"#c0392b" if is_bound else "#666"}">{text}</text>'
        )


def _lane(name: str, ratios: list[float], top: int) -> Iterator[str]:
    """A histogram: how many outputs fall into each column of the axis."""
    counts = [0] * COLUMNS
    for ratio in ratios:
        share = (_place(ratio) - LEFT) / (WIDTH - LEFT - RIGHT)
        counts[min(COLUMNS - 1, int(share * COLUMNS))] += 1
    highest = max(counts)
    step = (WIDTH - LEFT - RIGHT) / COLUMNS
    yield f'<text x="16" y="{top + 24}" fill="#222">{_escaped(name)}</text>'
    yield (
        f'<text x="16" y="{top + 39}" font-size="11" fill="#666">{len(ratios)} batches, worst '
        f"{max(ratios):.2g}</text>"
    )
    for column, count in enumerate(counts):
        if count:
            height = max(2.0, (LANE - 12) * count / highest)
            x = LEFT + column * step
            wrong = LOWEST + (column + 0.5) / COLUMNS * (HIGHEST - LOWEST) > 0
            yield (
                f'<rect x="{x:.1f}" y="{top + LANE - 4 - height:.1f}" width="{step - 1:.1f}" '
                f'height="{height:.1f}" fill="{"#c0392b" if wrong else "#2e6da4"}"/>'
            )


def _escaped(text: str) -> str:
    return html.escape(printable(text), quote=True)
