"""Sums up a campaign's folder in a few lines: its target, its progress, its findings."""

from __future__ import annotations

from poolproof.certification.campaign_coverage import coverage_lines
from poolproof.contract.outside import printable
from poolproof.fuzz.status import FindingLine
from poolproof.report.campaign_record import CampaignRecord
from poolproof.report.campaign_words import commands_words, duration_words, ending_words
from poolproof.report.fuzz_lines import last_lines, waiting_text

__all__ = ["campaign_summary"]


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
