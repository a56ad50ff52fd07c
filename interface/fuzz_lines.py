"""How a campaign reads on paper: a line now and then, a line for each finding, the end."""

from __future__ import annotations

import time
from collections.abc import Iterator

import click

from poolproof.fuzz.findings import Finding
from poolproof.fuzz.status import CampaignStatus
from poolproof.wording import printable

__all__ = ["PlainDisplay", "finding_text", "last_lines"]


class PlainDisplay:
    """Lines on standard error, at most one every `interval_s` seconds, and findings at once."""

    def __init__(self, interval_s: float = 5.0) -> None:
        self._interval_s = interval_s
        self._last = time.monotonic()

    def show(self, status: CampaignStatus) -> None:
        """A status has come."""
        now = time.monotonic()
        if now - self._last >= self._interval_s:
            self._last = now
            click.echo(_status_text(status), err=True)

    def say(self, finding: Finding) -> None:
        """A finding is on disk."""
        click.echo(finding_text(finding))


def finding_text(finding: Finding) -> str:
    """A finding in one line."""
    violation = finding.trace.violation
    assert violation is not None
    return printable(
        f"{finding.fingerprint}  {violation.invariant}  {violation.severity.value}, "
        f"{len(finding.trace.commands)} commands, at step {finding.steps:,}: {violation.sentence}"
    )


def _reached(status: CampaignStatus) -> str:
    if status.num_possible:
        share = 100 * status.num_states / status.num_possible
        return f"{status.num_states:,} of {status.num_possible:,} states ({share:.1f} %)"
    return f"{status.num_states:,} states"


def _status_text(status: CampaignStatus) -> str:
    return (
        f"{status.num_steps:,} steps, {status.steps_per_second:,.0f} a second, "
        f"{_reached(status)}, {len(status.findings)} findings"
    )


def last_lines(status: CampaignStatus, num_earlier: int) -> Iterator[str]:
    """What is said when a session is over."""
    rate = status.num_steps / status.seconds if status.seconds else 0.0
    yield f"target     {printable(status.target)}, {status.level} level, {status.scope}"
    yield (
        f"drove      {status.num_steps:,} steps in {status.num_runs:,} runs, "
        f"{status.seconds:,.1f} s, {rate:,.0f} a second"
    )
    yield f"reached    {_reached(status)}; corpus of {status.corpus_size:,} tapes"
    if status.stability is not None:
        yield f"stability  {100 * status.stability:.1f} % of repeated tapes visited the same states"
    if status.num_workers_lost:
        yield f"workers    {status.num_workers_lost} lost to the target"
    if status.facts_missing:
        yield f"missing    {'; '.join(status.facts_missing)}"
    yield f"seeds      {', '.join(status.seeds)}"
    new = len(status.findings) - num_earlier
    earlier = f", {num_earlier} of them from earlier sessions" if num_earlier else ""
    verdict = f"{new + num_earlier} findings{earlier}" if status.findings else "nothing was broken"
    yield f"verdict    {verdict}"
