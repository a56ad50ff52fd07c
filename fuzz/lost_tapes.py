"""The tape of a worker that was lost, run again with a journal: which command did it."""

from __future__ import annotations

import random
from dataclasses import dataclass

from poolproof.contract.trace import Trace
from poolproof.fuzz.level_runs import runs_of
from poolproof.fuzz.recorded_choices import RecordedChoices, answers_of, new_cells
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.subject import LoadedTarget, subject_of
from poolproof.harness.isolation import Beacon, Executor, Lost
from poolproof.harness.lost_run import Again, Journal, find_culprit

__all__ = ["LostTape", "culprit_of"]


@dataclass(frozen=True, slots=True)
class LostTape:
    """What has to be run again."""

    settings: CampaignSettings
    tape: bytes


def culprit_of(executor: Executor[LoadedTarget], lost_tape: LostTape, lost: Lost) -> Trace:
    """The trace of the lost run, ending in the violation that stands for the loss."""
    settings = lost_tape.settings
    setup = Trace(
        target=settings.target,
        level=settings.driven_level,
        profile=settings.driven_level.profile_class(),
        num_blocks=settings.num_blocks,
        enable_caching=True,
        commands=(),
        options={"layout": settings.layout} if settings.layout else {},
    )
    return find_culprit(executor, _repeat, lost_tape, lost, setup)


def _repeat(target: LoadedTarget, again: Again[LostTape], beacon: Beacon) -> None:
    """The job: the tape once more, each command in the journal before it is applied."""
    settings = again.run.settings
    with Journal(again.journal, beacon) as journal:
        beacon.bump()
        runs = runs_of(subject_of(target, settings), set(), random.Random(0))
        choices = RecordedChoices(new_cells(), None, answers_of(again.run.tape))
        runs.run(
            choices,
            runs.visits(set()),
            journal.announce,
            max_steps=runs.longest_run,
            begin=journal.begin,
        )
