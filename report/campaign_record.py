"""Reads a campaign's folder for pages and summaries, even while the campaign is running.

This includes a killed campaign: findings and waiting failing runs are read one by one, since the
last status may not count those that came after it. States and tapes are not loaded; there may be
millions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from poolproof.fuzz.coverage_record import CodeCoverage
from poolproof.fuzz.findings import CampaignFinding, Pending, line_of, waiting_line_of
from poolproof.fuzz.folder import (
    CampaignFolder,
    read_coverage,
    read_findings,
    read_forms,
    read_pending,
    read_status,
)
from poolproof.fuzz.folder_tables import DATABASE, Damage
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.status import CampaignStatus, CurvePoint, FindingLine, WaitingLine, with_point

__all__ = ["CampaignRecord", "is_campaign", "read_record", "record_in"]


@dataclass(frozen=True, slots=True)
class CampaignRecord:
    """A campaign as last recorded; there is no status before its first report.

    `damage` says what can no longer be read, `is_failure_lost` whether that includes something
    broken.
    """

    settings: CampaignSettings
    status: CampaignStatus | None
    findings: tuple[FindingLine, ...]
    waiting: tuple[WaitingLine, ...] = ()
    coverage: CodeCoverage | None = None
    damage: tuple[str, ...] = ()
    is_failure_lost: bool = False

    @property
    def exit_status(self) -> int:
        """The campaign's exit status: 1 if something was broken, 2 if nothing was concluded."""
        if self.is_failure_lost:
            return 1
        if self.status is not None:
            return self.status.exit_status
        return 1 if self.findings or self.waiting else 2

    @property
    def curve(self) -> tuple[CurvePoint, ...]:
        """From nothing at the start to what was recorded last."""
        if self.status is None:
            return ()
        status, start = self.status, CurvePoint(0, 0.0, 0)
        last = CurvePoint(status.num_steps, status.seconds, status.num_states)
        return with_point((start, *status.curve), last)


def is_campaign(path: Path) -> bool:
    """Whether the path is a folder that holds a campaign, of whatever version."""
    return (path / DATABASE).is_file()


def read_record(path: Path) -> CampaignRecord:
    """The record in a folder that no process needs to hold. Raises FolderError."""
    damage = Damage(of_file=True)
    settings, status = read_status(path, damage)
    findings, forms = read_findings(path, damage), read_forms(path, damage)
    record = _record(settings, status, findings, forms, read_pending(path, damage))
    return _with_damage(replace(record, coverage=read_coverage(path, damage)), damage)


def record_in(folder: CampaignFolder, settings: CampaignSettings) -> CampaignRecord:
    """The record in a folder that this process holds, even one in memory. Raises FolderError."""
    record = _record(settings, folder.status(), folder.findings(), folder.forms(), folder.pending())
    return _with_damage(replace(record, coverage=folder.coverage()), folder.damage)


def _with_damage(record: CampaignRecord, damage: Damage) -> CampaignRecord:
    return replace(record, damage=damage.sentences, is_failure_lost=bool(damage.failures))


def _record(
    settings: CampaignSettings,
    status: CampaignStatus | None,
    findings: list[CampaignFinding],
    forms: dict[str, list[CampaignFinding]],
    pending: list[Pending],
) -> CampaignRecord:
    counted = {line.fingerprint: line.runs_seen for line in status.findings} if status else {}
    lines = tuple(
        line_of(
            finding,
            counted.get(finding.fingerprint, 1),
            forms.get(finding.fingerprint, ()),
        )
        for finding in findings
    )
    waiting = tuple(map(waiting_line_of, pending))
    if status is not None:
        status = replace(status, findings=lines, waiting=waiting, num_pending=len(waiting))
    return CampaignRecord(settings, status, lines, waiting)
