"""A campaign as plain lines: one every few seconds, one for each finding, one at the end.

A campaign's folder is summed up in the same few lines: its target, its progress, its findings.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import click

from poolproof.contract.outside import printable
from poolproof.fuzz.findings import CampaignFinding, Pending, waiting_line_of
from poolproof.fuzz.status import CampaignStatus, FindingLine, WaitingLine
from poolproof.report.campaign_record import CampaignRecord
from poolproof.report.campaign_words import (
    Allowance,
    commands_words,
    coverage_lines,
    duration_words,
    ending_words,
    findings_words,
    forms_words,
    mean_rate,
    reached_words,
    verdict_words,
    waiting_words,
)

__all__ = [
    "ENDED",
    "PlainDisplay",
    "QuietDisplay",
    "campaign_summary",
    "finding_text",
    "last_lines",
    "waiting_text",
]


_MOST_WAITING = 20
"""So many failing runs that wait are listed; the others are counted."""

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
        f"{finding.fingerprint}  {violation.invariant}  {violation.severity.value}, "
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


def last_lines(status: CampaignStatus, num_earlier: int) -> Iterator[str]:
    """The last lines of a session."""
    yield f"target     {printable(status.target)}, {status.level} level, {status.scope}"
    yield (
        f"drove      {status.num_steps:,} steps in {status.num_runs:,} runs, "
        f"{status.seconds:,.1f} s, {mean_rate(status):,.0f} a second"
    )
    yield f"reached    {reached_words(status)}; corpus of {status.corpus_size:,} tapes"
    if status.stability is not None:
        yield f"stability  {100 * status.stability:.1f} % of repeated tapes visited the same states"
    if status.num_workers_lost:
        yield f"workers    {status.num_workers_lost} lost to the target"
    if status.facts_missing:
        yield f"missing    {'; '.join(status.facts_missing)}"
    yield f"seeds      {', '.join(status.seeds)}"
    for line in status.findings:
        if line.forms:
            yield f"forms      {line.fingerprint} was also met as {forms_words(line)}"
    for waiting in status.waiting[:_MOST_WAITING]:
        yield f"waiting    {waiting_text(waiting)}"
    if len(status.waiting) > _MOST_WAITING:
        yield f"waiting    and {len(status.waiting) - _MOST_WAITING:,} more"
    yield f"verdict    {verdict_words(status, num_earlier)}"


def campaign_summary(record: CampaignRecord) -> str:
    """The text, with a line for each finding."""
    settings, status = record.settings, record.status
    if status is None:
        about = f"{printable(settings.target)}, {settings.level} level"
        lines = [
            f"target     {about}, {settings.num_blocks} blocks",
            "state      nothing has been driven yet: no worker has reported to this folder",
            *(f"waiting    {waiting_text(line)}" for line in record.waiting),
        ]
    else:
        lines = [*last_lines(status, 0), f"state      {ending_words(status)}"]
    if record.coverage is not None:
        lines += coverage_lines(record.coverage)
    lines += [_finding_line(line) for line in record.findings]
    lines += [f"damaged    {printable(sentence)}" for sentence in record.damage]
    return "\n".join(lines) + "\n"


def _finding_line(line: FindingLine) -> str:
    return printable(
        f"{line.fingerprint}  {line.invariant}  {line.severity}, "
        f"{commands_words(line.num_commands)}, after {duration_words(line.seconds)}: "
        f"{line.sentence}"
    )
