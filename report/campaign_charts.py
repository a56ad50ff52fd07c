"""The charts of a campaign: discovery, states by depth, time to find, work over time, strategies.

Each is made from a record alone and includes the table of its numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from poolproof.contract.outside import printable
from poolproof.fuzz.status import CampaignStatus, CurvePoint, FindingLine
from poolproof.report.campaign_record import CampaignRecord
from poolproof.report.campaign_words import (
    depth_words,
    duration_words,
    findings_words,
    mean_rate,
    reached_words,
)
from poolproof.report.svg_chart import (
    Axis,
    Chart,
    Frame,
    even_axis,
    tenfold_axis,
    text,
)

__all__ = ["charts_of", "discovery_over_time"]


_LANE = 24
_ROOM_UNTIL = 700
"""To the right of this a number stands before the end of its bar."""

_MOST_LANES = 40
_MOST_ROWS = 25
_SLICES = 60
_SHORTEST_S = 0.01
_UNITS = ((2 * 86_400, 86_400, "days"), (7_200, 3_600, "hours"), (300, 60, "minutes"))


def charts_of(record: CampaignRecord) -> list[Chart]:
    """All that there are numbers for."""
    status = record.status
    if status is None or not status.num_steps:
        return []
    charts = [discovery_over_time(record), _discovery_over_steps(record)]
    if status.num_states_by_depth:
        charts.append(_states_by_depth(status))
    if record.findings:
        charts.append(_time_to_find(record.findings))
    charts.append(_work_over_time(record, status))
    if status.runs_of_strategy:
        charts.append(_runs_of_strategies(status))
    return charts


def discovery_over_time(record: CampaignRecord) -> Chart:
    """Known states against the time of the campaign; findings are marked on the curve."""
    points = [(point.seconds, point.states) for point in record.curve]
    finds = [line.seconds for line in record.findings]
    return _discovery(record, "time", _time_axis(points[-1][0]), points, finds)


def _discovery_over_steps(record: CampaignRecord) -> Chart:
    points = [(float(point.steps), point.states) for point in record.curve]
    finds = [float(line.steps) for line in record.findings]
    return _discovery(record, "steps", even_axis(points[-1][0], "steps"), points, finds)


def _discovery(
    record: CampaignRecord,
    over: str,
    axis: Axis,
    points: Sequence[tuple[float, int]],
    finds: Sequence[float],
) -> Chart:
    status = record.status
    assert status is not None
    possible = status.num_possible
    frame = Frame(axis, even_axis(max(possible or 0, points[-1][1]), "states reached"))
    parts = [*frame.axes(), frame.curve(points)]
    if possible:
        parts += frame.limit(possible, f"all {possible:,} states")
    for place in finds:
        x, y = frame.place(place, _height_at(points, place))
        parts.append(f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="4"/>')
    marks = f"; {findings_words(len(finds))} marked by dots" if finds else ""
    return Chart(
        f"discovery-{over}",
        f"Discovery over {over}",
        f"{reached_words(status)} after {status.num_steps:,} steps in "
        f"{duration_words(status.seconds)}{marks}.",
        frame.bottom + 50,
        tuple(parts),
        ("time", "steps", "states"),
        [_row(point) for point in _some(record.curve)],
    )


def _height_at(points: Sequence[tuple[float, int]], place: float) -> float:
    """Where the curve is there."""
    for (left, low), (right, high) in pairwise(points):
        if left <= place <= right and right > left:
            return low + (high - low) * (place - left) / (right - left)
    return points[-1][1]


def _row(point: CurvePoint) -> tuple[str, ...]:
    return (duration_words(point.seconds), f"{point.steps:,}", f"{point.states:,}")


def _some(curve: Sequence[CurvePoint]) -> list[CurvePoint]:
    """Few enough to be read, the last among them."""
    apart = -(-len(curve) // _MOST_ROWS)
    return [*reversed(curve[::-1][::apart])] if apart > 1 else [*curve]


def _states_by_depth(status: CampaignStatus) -> Chart:
    depths = sorted(status.num_states_by_depth)
    numbers = {depth: status.num_states_by_depth.get(depth, 0) for depth in range(depths[-1] + 1)}
    axis = even_axis(max(numbers.values()), "states")
    frame = _lanes_frame(axis, len(numbers), "commands of the run")
    names = [depth_words(depth) for depth in numbers]
    words = [f"{number:,}" for number in numbers.values()]
    return Chart(
        "states-by-depth",
        "States by depth",
        "After how many commands of its run each state was met for the first time.",
        frame.bottom + 50,
        tuple(_lanes(frame, names, list(numbers.values()), words)),
        ("commands of the run", "states"),
        [(depth_words(depth), f"{number:,}") for depth, number in numbers.items()],
    )


def _time_to_find(findings: Sequence[FindingLine]) -> Chart:
    shown = sorted(findings, key=lambda line: line.seconds)[:_MOST_LANES]
    times = [max(_SHORTEST_S, line.seconds) for line in shown]
    frame = _lanes_frame(tenfold_axis(min(times), max(times), "seconds"), len(shown))
    names = [printable(f"{line.fingerprint}  {line.invariant}") for line in shown]
    words = [duration_words(line.seconds) for line in shown]
    lanes = _lanes(frame, names, times, words, is_dots=True)
    left_out = len(findings) - len(shown)
    more = f" The {left_out:,} that took longest are not drawn." if left_out else ""
    return Chart(
        "time-to-find",
        "Time to find",
        f"Seconds of campaign until each finding failed for the first time, log axis.{more}",
        frame.bottom + 50,
        tuple(lanes),
        ("finding", "invariant", "found after", "at step", "commands", "failing runs"),
        [
            (
                line.fingerprint,
                line.invariant,
                duration_words(line.seconds),
                f"{line.steps:,}",
                f"{line.num_commands:,}",
                f"{line.runs_seen:,}",
            )
            for line in sorted(findings, key=lambda line: line.seconds)
        ],
    )


def _work_over_time(record: CampaignRecord, status: CampaignStatus) -> Chart:
    """Steps per second of all workers together, in even slices of time."""
    most = record.curve[-1].seconds
    slices = min(_SLICES, max(1, len(record.curve) - 1))
    borders = [most * number / slices for number in range(slices + 1)]
    done = [(point.seconds, point.steps) for point in record.curve]
    steps = [_height_at(done, border) for border in borders]
    width = most / slices if most > 0 else 1.0
    rates = [(after - before) / width for before, after in pairwise(steps)]
    frame = Frame(_time_axis(most), even_axis(max(rates), "steps a second, all workers"))
    corners = [
        (border, rate)
        for pair, rate in zip(pairwise(borders), rates, strict=True)
        for border in pair
    ]
    apart = -(-slices // _MOST_ROWS)
    rows = [
        (duration_words(borders[number]), f"{rates[number]:,.0f}")
        for number in range(0, slices, apart)
    ]
    return Chart(
        "work-over-time",
        "Workers",
        f"{status.num_workers:,} at work in the last session, {status.num_workers_lost:,} lost "
        f"over all; {mean_rate(status):,.0f} steps a second over all.",
        frame.bottom + 50,
        (*frame.axes(), frame.curve(corners)),
        ("from", "steps a second"),
        rows,
    )


def _runs_of_strategies(status: CampaignStatus) -> Chart:
    runs = dict(sorted(status.runs_of_strategy.items()))
    total = sum(runs.values()) or 1
    frame = _lanes_frame(even_axis(max(runs.values()), "runs"), len(runs))
    words = [f"{number:,} ({100 * number / total:.0f} %)" for number in runs.values()]
    return Chart(
        "strategies",
        "What made the tapes",
        "How many runs each strategy was given.",
        frame.bottom + 50,
        tuple(_lanes(frame, list(runs), list(runs.values()), words)),
        ("strategy", "runs"),
        [(name, f"{number:,}") for name, number in runs.items()],
    )


def _lanes_frame(axis: Axis, number: int, name: str = "") -> Frame:
    """Without numbers on the left, and as high as so many lanes are."""
    return Frame(axis, Axis(0.0, 1.0, name=name), height=_LANE * max(1, number), left=170)


def _lanes(
    frame: Frame,
    names: Sequence[str],
    values: Sequence[float],
    words: Sequence[str],
    *,
    is_dots: bool = False,
) -> Iterator[str]:
    """A bar for each value, its name to the left and its number at its end.

    Or a dot, for an axis that has no 0 from which a bar could start.
    """
    yield from frame.axes()
    for number, (name, value, word) in enumerate(zip(names, values, words, strict=True)):
        middle = frame.top + _LANE * (number + 0.5)
        end, _ = frame.place(value, 0)
        yield text(frame.left - 8, middle + 4, name, anchor="end", kind="name")
        if is_dots:
            yield f'<circle class="mark" cx="{end:.1f}" cy="{middle:.1f}" r="5"/>'
        else:
            yield (
                f'<rect class="bar" x="{frame.left}" y="{middle - 8:.1f}" '
                f'width="{max(1.0, end - frame.left):.1f}" height="16"/>'
            )
        if end < _ROOM_UNTIL:
            yield text(end + 9, middle + 4, word, kind="name")
        else:
            kind = "name" if is_dots else "inside"
            yield text(end - 9, middle + 4, word, anchor="end", kind=kind)


def _time_axis(most_s: float) -> Axis:
    """Up to so many seconds, in the unit that suits them."""
    for least, unit, name in _UNITS:
        if most_s >= least:
            return even_axis(most_s, name, unit=unit)
    return even_axis(most_s, "seconds")
