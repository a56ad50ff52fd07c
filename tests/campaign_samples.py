"""Statuses and folders of campaigns for tests: a young one, one with findings, one never begun."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from poolproof.fuzz.folder import CampaignFolder
from poolproof.fuzz.merge import CampaignState
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.status import CampaignStatus, CurvePoint, FindingLine

SETTINGS = CampaignSettings("<pool & co>", "pool", 4)


def finding_line(**changes: Any) -> FindingLine:
    """A finding of these samples, but for the changes."""
    values: dict[str, Any] = {
        "fingerprint": "f-0123abcd",
        "invariant": "OWN",
        "severity": "leak",
        "sentence": "block 1 has <no> owner",
        "num_commands": 3,
        "steps": 2_000,
        "seconds": 2.0,
        "runs_seen": 7,
    }
    return FindingLine(**{**values, **changes})


def status(**changes: Any) -> CampaignStatus:
    """A campaign after ten seconds, but for the changes."""
    values: dict[str, Any] = {
        "target": SETTINGS.target,
        "level": "pool",
        "scope": "4 blocks, 2 hashes, references up to 2",
        "activity": "running",
        "seconds": 10.0,
        "num_steps": 10_000,
        "num_runs": 100,
        "steps_per_second": 1_000.0,
        "num_states": 900,
        "num_possible": 1_000,
        "curve": tuple(CurvePoint(1_000 * n, float(n), 90 * n) for n in range(1, 11)),
        "num_workers": 2,
        "num_workers_lost": 1,
        "corpus_size": 12,
        "stability": 0.5,
        "steps_since_new": 40,
        "num_states_by_depth": {0: 1, 2: 99, 5: 800},
        "runs_of_strategy": {"fresh": 60, "guided": 40},
        "seeds": ("0/0",),
    }
    return CampaignStatus(**{**values, **changes})


def write_folder(path: Path, last: CampaignStatus | None) -> None:
    """A folder that was left with this status and no end of its session."""
    with CampaignFolder(path, SETTINGS) as folder:
        if last is not None:
            folder.record((), CampaignState(), last)
