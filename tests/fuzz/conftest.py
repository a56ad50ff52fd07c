"""What tests of campaigns share: right pools, a planted one, workers in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from poolproof.contract.trace import Trace
from poolproof.fuzz.coordinator import Campaign, CampaignBudget
from poolproof.fuzz.findings import CampaignFinding, Examination
from poolproof.fuzz.folder import CampaignFolder
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.status import CampaignStatus
from poolproof.fuzz.workers import InProcessWorkers
from poolproof.harness.isolation import InProcess, Lost
from poolproof.harness.minimise import Effort, execute_in_process, improved
from poolproof.harness.replay import replay
from poolproof.targets.load import load_target
from poolproof.targets.target import Target


@dataclass
class InProcessExaminer:
    """Minimises in this process; nothing is lost here."""

    target: Target
    attempts: int = 200
    seen: list[Trace] = field(default_factory=list)

    def culprit(self, tape: bytes, lost: Lost) -> Trace:  # noqa: ARG002 -- the protocol's
        raise AssertionError("no worker is lost in process")

    def examined(self, so_far: Examination, seconds: float) -> Examination:  # noqa: ARG002 -- the same
        self.seen.append(so_far.trace)
        execute = execute_in_process(self.target.make)
        progress = improved(so_far.progress, execute, Effort(attempts=self.attempts))
        return replace(so_far, progress=progress, is_done=True)

    def still_fails(self, trace: Trace) -> bool:
        return replay(trace, self.target.make).violation is not None


@pytest.fixture(name="run_campaign")
def run_campaign_() -> Callable[..., Any]:
    """Run one session in this process: the last status, what was shown, what was said."""

    def run(
        settings: CampaignSettings, folder: CampaignFolder, budget: CampaignBudget
    ) -> tuple[CampaignStatus, list[CampaignStatus], list[CampaignFinding]]:
        target = load_target(settings.target)
        shown: list[CampaignStatus] = []
        said: list[CampaignFinding] = []
        with InProcess(lambda: target) as isolation:
            campaign = Campaign(
                settings,
                InProcessWorkers(isolation),
                folder,
                InProcessExaminer(target),
                budget=budget,
                scope="test",
                num_possible=None,
                show=shown.append,
                say=said.append,
            )
            return campaign.run(), shown, said

    return run
