"""A running campaign as plain lines: one every few seconds, one for each finding."""

from __future__ import annotations

import time

import click

from poolproof.contract.outside import printable
from poolproof.fuzz.findings import CampaignFinding, Pending, waiting_line_of
from poolproof.fuzz.status import CampaignStatus, WaitingLine
from poolproof.report.campaign_words import (
    Allowance,
    commands_words,
    duration_words,
    findings_words,
    reached_words,
    waiting_words,
)

__all__ = [
    "ENDED",
    "PlainDisplay",
    "QuietDisplay",
    "finding_text",
    "waiting_text",
]


ENDED = ("done", "interrupted")
"""The activities of a last status."""


class QuietDisplay:
    """Prints findings on standard output at once, and no progress."""

    def show(self, status: CampaignStatus) -> None:
        """Take a status."""

    def say(self, finding: CampaignFinding) -> None:
        """Report a finding that is on disk."""
        click.echo(finding_text(finding))

    def say_waiting(self, pending: Pending) -> None:
        """Report a failing run that is on disk and not minimised yet."""
        click.echo(waiting_text(waiting_line_of(pending)))


class PlainDisplay(QuietDisplay):
    """Also prints to standard error: at most a line every `interval_s` seconds, one at the end."""

    def __init__(self, allowance: Allowance, interval_s: float = 5.0) -> None:
        self._allowance = allowance
        self._interval_s = interval_s
        self._last = time.monotonic()

    def show(self, status: CampaignStatus) -> None:
        now = time.monotonic()
        if now - self._last >= self._interval_s or status.activity in ENDED:
            self._last = now
            click.echo(_status_text(status, self._allowance.seconds_left(status)), err=True)


def finding_text(finding: CampaignFinding) -> str:
    """A finding in one line."""
    violation = finding.trace.violation
    assert violation is not None
    return printable(
        f"{finding.fingerprint}  {violation.invariant}  {finding.severity}, "
        f"{commands_words(len(finding.trace.commands))}, at step {finding.steps:,}: "
        f"{violation.sentence}"
    )


def waiting_text(line: WaitingLine) -> str:
    """A failing run that waits, in one line."""
    return printable(
        f"{line.name}  {line.invariant}  {line.severity}, {commands_words(line.num_commands)}, "
        f"not minimal yet, at step {line.steps:,}: {line.sentence}"
    )


def _status_text(status: CampaignStatus, seconds_left: float | None) -> str:
    parts = [
        f"{status.num_steps:,} steps",
        f"{status.steps_per_second:,.0f} a second",
        reached_words(status),
        findings_words(len(status.findings)),
    ]
    if status.num_pending:
        parts.append(f"{waiting_words(status.num_pending)} to be minimised")
    if status.num_workers_lost:
        noun = "worker" if status.num_workers_lost == 1 else "workers"
        parts.append(f"{status.num_workers_lost:,} {noun} lost")
    if status.activity != "running":
        parts.append(status.activity)
    if seconds_left is not None:
        parts.append(f"{duration_words(seconds_left)} left")
    return ", ".join(parts)
