"""How a campaign is put into words: durations, depths, what was reached and run, how it ended.

Shared by the plain lines, the live display and the page.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from poolproof.contract.outside import printable
from poolproof.fuzz.coordinator import CampaignBudget
from poolproof.fuzz.coverage_record import CodeCoverage, FileCoverage
from poolproof.fuzz.status import CampaignStatus, FindingLine

__all__ = [
    "Allowance",
    "commands_words",
    "coverage_words",
    "depth_words",
    "duration_words",
    "ending_words",
    "findings_words",
    "forms_words",
    "mean_rate",
    "missing_words",
    "reached_words",
    "share_words",
    "tapes_words",
    "verdict_words",
    "waiting_words",
]

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400

_MOST_FORMS = 5

_ENDINGS = {
    "done": "its last session ended by its budget",
    "interrupted": "its last session was interrupted",
}


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a session may still use of its budget; what earlier sessions used does not count."""

    budget: CampaignBudget
    earlier_seconds: float = 0.0
    earlier_steps: int = 0

    def seconds_left(self, status: CampaignStatus) -> float | None:
        """At the present rate and if nothing new comes; None if nothing bounds the session.

        Also None once the budget is spent, since how long minimising takes is not known.
        """
        if status.activity != "running":
            return None
        bounds = []
        budget, rate = self.budget, status.steps_per_second
        if budget.seconds is not None and math.isfinite(budget.seconds):
            bounds.append(budget.seconds - (status.seconds - self.earlier_seconds))
        if budget.steps is not None and rate > 0:
            bounds.append((budget.steps - (status.num_steps - self.earlier_steps)) / rate)
        if budget.quiet_steps is not None and rate > 0:
            bounds.append((budget.quiet_steps - status.steps_since_new) / rate)
        return max(0.0, min(bounds)) if bounds else None


def duration_words(seconds: float) -> str:
    """A time in its two largest units: `0.4 s`, `41 s`, `3 min 20 s`, `2 h 05 min`, `3 d 4 h`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE:02} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE:02} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def depth_words(depth: int) -> str:
    """The numbers of commands that have this depth, which is their number of binary digits."""
    least, most = (1 << depth) >> 1, (1 << depth) - 1
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def share_words(status: CampaignStatus) -> str:
    """The share of all states in percent, never rounded up to all of them."""
    share = status.share
    if share is None:
        return ""
    percent = 100 * share
    return f"{percent if share >= 1 else min(percent, 99.94):.1f} %"


def reached_words(status: CampaignStatus) -> str:
    """How many states were reached, and of how many if that is known."""
    if status.num_possible:
        return f"{status.num_states:,} of {status.num_possible:,} states ({share_words(status)})"
    return f"{status.num_states:,} states"


def mean_rate(status: CampaignStatus) -> float:
    """Commands a second over the whole campaign."""
    return status.num_steps / status.seconds if status.seconds else 0.0


def commands_words(number: int) -> str:
    """A number of commands, with the noun."""
    return f"{number:,} command" if number == 1 else f"{number:,} commands"


def findings_words(number: int) -> str:
    """A number of findings, with the noun."""
    return f"{number:,} finding" if number == 1 else f"{number:,} findings"


def waiting_words(number: int) -> str:
    """How many failing runs wait to be minimised."""
    return f"{number:,} failing run waits" if number == 1 else f"{number:,} failing runs wait"


def verdict_words(status: CampaignStatus, num_earlier: int = 0) -> str:
    """What the campaign has found, and how much of it is not minimised yet."""
    parts = []
    if status.findings:
        earlier = f", {num_earlier} of them from earlier sessions" if num_earlier else ""
        parts.append(f"{findings_words(len(status.findings))}{earlier}")
    if status.num_pending:
        parts.append(f"{waiting_words(status.num_pending)} to be minimised")
    if parts:
        return "; ".join(parts)
    if status.num_failing_runs:
        runs = "run" if status.num_failing_runs == 1 else "runs"
        return f"{status.num_failing_runs:,} failing {runs}, of which no trace was kept"
    if not status.num_steps:
        return "nothing has been driven yet"
    if status.facts_missing:
        return "not concluded: what a run must reach to mean anything was not reached"
    return "nothing was broken" if status.is_concluded else "nothing was broken so far"


def forms_words(line: FindingLine) -> str:
    """The other forms of a finding, the shortest first; of many the beginning."""
    shown = ", ".join(line.forms[:_MOST_FORMS])
    more = len(line.forms) - _MOST_FORMS
    return f"{shown} and {more:,} more" if more > 0 else shown


def ending_words(status: CampaignStatus) -> str:
    """How the last session ended, as far as its folder can tell."""
    return _ENDINGS.get(
        status.activity, "its last session goes on, or was killed: the folder holds no end of it"
    )


def coverage_words(coverage: CodeCoverage) -> str:
    """Lines and branches of the target in one sentence, or why there are none."""
    if not coverage.files:
        return printable(coverage.why_not or "no tape was replayed")
    left_out = ""
    if coverage.num_left_out:
        left_out = f", {coverage.num_left_out:,} later ones left out"
    return (
        f"lines of the target: {coverage.num_reached:,} of {coverage.num_lines:,} (branches "
        f"{coverage.num_taken:,} of {coverage.num_branches:,}), by "
        f"{tapes_words(coverage.num_tapes)}{left_out}"
    )


def missing_words(file: FileCoverage) -> str:
    """The lines that were never reached, as `12, 14-19`."""
    return ", ".join(
        str(first) if first == last else f"{first}-{last}"
        for first, last in _ranges(file.missing_lines)
    )


def _ranges(lines: Iterable[int]) -> Iterator[tuple[int, int]]:
    first = last = None
    for line in lines:
        if last is not None and line == last + 1:
            last = line
            continue
        if first is not None and last is not None:
            yield first, last
        first = last = line
    if first is not None and last is not None:
        yield first, last


def tapes_words(number: int) -> str:
    """A number of tapes, with the noun."""
    return f"{number:,} tape" if number == 1 else f"{number:,} tapes"
