"""How a running campaign shows: a panel on a terminal, plain lines elsewhere, or findings alone.

Everything but the findings goes to standard error, so that standard output stays clean. The panel
is redrawn a few times a second and removed at the end. It is drawn when a status arrives and has no
thread of its own, so nothing else runs during a campaign.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TextIO

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from poolproof.contract.outside import printable
from poolproof.fuzz.findings import CampaignFinding, Pending, waiting_line_of
from poolproof.fuzz.status import CampaignStatus, FindingLine
from poolproof.report.campaign_lines import (
    ENDED,
    PlainDisplay,
    QuietDisplay,
    finding_text,
    waiting_text,
)
from poolproof.report.campaign_words import (
    Allowance,
    commands_words,
    duration_words,
    mean_rate,
    reached_words,
)

__all__ = ["Display", "LiveDisplay", "area_chart", "campaign_panel", "display_to", "held_at"]


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


_INTERVAL_S = 0.2
_MOST_FINDINGS = 5
_CHART_LINES = 5
_LINES_WITHOUT = 8
"""What the panel takes without curve and findings; the rest of the terminal is theirs."""

_LOWEST_WITH_CHART = 20
"""A terminal of fewer lines has no room for the curve."""


class LiveDisplay:
    """Shows each status in the panel, and findings above it or where standard output goes."""

    def __init__(self, live: Live, allowance: Allowance) -> None:
        self._live = live
        self._allowance = allowance
        self._last = 0.0

    def show(self, status: CampaignStatus) -> None:
        now = time.monotonic()
        if now - self._last < _INTERVAL_S and status.activity not in ENDED:
            return
        self._last = now
        left = self._allowance.seconds_left(status)
        self._live.update(campaign_panel(status, left, self._live.console), refresh=True)

    def say(self, finding: CampaignFinding) -> None:
        self._print(finding_text(finding))

    def say_waiting(self, pending: Pending) -> None:
        self._print(waiting_text(waiting_line_of(pending)))

    def _print(self, text: str) -> None:
        if sys.stdout.isatty():
            self._live.console.print(text, markup=False, highlight=False)
        else:
            click.echo(text)


def campaign_panel(
    status: CampaignStatus, seconds_left: float | None, console: Console
) -> RenderableType:
    """The campaign at this moment, as wide as the console."""
    parts: list[RenderableType] = [_reached(status)]
    is_ascii = not console.encoding.lower().startswith("utf")
    room = console.height - _LINES_WITHOUT
    if console.height >= _LOWEST_WITH_CHART and status.curve:
        parts.append(_chart(status, console.width - 4, is_ascii=is_ascii))
        room -= _CHART_LINES + 1
    parts += [_figures(status), *_findings(status, min(_MOST_FINDINGS, max(1, room)))]
    left = "" if seconds_left is None else f", {duration_words(seconds_left)} left"
    return Panel(
        Group(*parts),
        title=Text(f"{printable(status.target)}, {status.level} level, {status.scope}"),
        title_align="left",
        subtitle=Text(f"{status.activity}, {duration_words(status.seconds)}{left}"),
        subtitle_align="right",
    )


def _reached(status: CampaignStatus) -> RenderableType:
    line = Table.grid(expand=True, padding=(0, 1))
    line.add_column(no_wrap=True)
    line.add_column(ratio=1)
    bar: RenderableType = Text("")
    if status.num_possible:
        bar = ProgressBar(total=status.num_possible, completed=status.num_states)
    line.add_row(Text(reached_words(status), style="bold"), bar)
    return line


def _chart(status: CampaignStatus, width: int, *, is_ascii: bool) -> RenderableType:
    """States over time; a full column is every state that there is, or the most so far."""
    top = status.num_possible or max(status.num_states, 1)
    label = len(f"{top:,}")
    points = [(point.seconds, float(point.states)) for point in status.curve]
    points.append((status.seconds, float(status.num_states)))
    values = held_at(points, max(1, width - label - 2))
    lines = area_chart(values, top, _CHART_LINES, is_ascii=is_ascii)
    labels = [f"{top:,}", *[""] * (_CHART_LINES - 2), "0"]
    rule = "|" if is_ascii else "│"
    drawn = Text(no_wrap=True, overflow="crop")
    for number, line in zip(labels, lines, strict=True):
        drawn.append(f"{number:>{label}}{rule}", style="dim")
        drawn.append(f"{line}\n", style="cyan")
    until = duration_words(status.seconds)
    drawn.append(f"{'':>{label}} 0{until:>{max(1, width - label - 3)}}", style="dim")
    return drawn


def _figures(status: CampaignStatus) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for style in ("dim", "", "dim", ""):
        table.add_column(style=style)
    pending = f", {status.num_pending} to be minimised" if status.num_pending else ""
    stability = "" if status.stability is None else f", {100 * status.stability:.1f} % stable"
    lost = Text(f"{status.num_workers_lost:,} lost", style="red" if status.num_workers_lost else "")
    table.add_row(
        "rate",
        f"{status.steps_per_second:,.0f} steps/s, {mean_rate(status):,.0f} over all",
        "drove",
        f"{status.num_steps:,} steps, {status.num_runs:,} runs",
    )
    table.add_row(
        "workers",
        Text(f"{status.num_workers:,} at work, ").append_text(lost),
        "corpus",
        f"{status.corpus_size:,} tapes{stability}",
    )
    table.add_row(
        "findings",
        Text(f"{len(status.findings):,}{pending}", style="bold red" if status.is_broken else ""),
        "last new",
        f"{status.steps_since_new:,} steps ago",
    )
    return table


def _findings(status: CampaignStatus, most: int) -> Iterator[RenderableType]:
    shown = status.findings[-most:]
    if len(shown) < len(status.findings):
        yield Text(f"the last {len(shown)}:", style="dim")
    for line in shown:
        yield _finding(line)


def _finding(line: FindingLine) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{line.fingerprint}  ", style="bold")
    text.append(f"{line.invariant}  ", style="red")
    text.append(f"after {duration_words(line.seconds)}, {commands_words(line.num_commands)}  ")
    return text.append(printable(line.sentence).replace("\n", " "), style="dim")


class Display(Protocol):
    """Gets the status of a campaign a few times a second, and each new finding once."""

    def show(self, status: CampaignStatus) -> None:
        """Show this status of the campaign."""
        ...

    def say(self, finding: CampaignFinding) -> None:
        """Report a finding that is on disk."""
        ...

    def say_waiting(self, pending: Pending) -> None:
        """Report a failing run that is on disk and not minimised yet."""
        ...


@contextmanager
def display_to(stream: TextIO, allowance: Allowance, *, quiet: bool = False) -> Iterator[Display]:
    """The display that suits the stream, for the time of the block."""
    console = Console(file=stream)
    if quiet:
        yield QuietDisplay()
    elif not stream.isatty() or console.is_dumb_terminal:
        yield PlainDisplay(allowance)
    else:
        # No thread that refreshes, and no taking over of standard output: it may be a file.
        with Live(
            console=console,
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        ) as live:
            yield LiveDisplay(live, allowance)
