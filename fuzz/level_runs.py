"""Which class drives the runs of a level, and one tape alone, for whoever brings his own tapes."""

from __future__ import annotations

import random

from poolproof.fuzz.index_runs import IndexRuns
from poolproof.fuzz.manager_runs import ManagerRuns
from poolproof.fuzz.pool_runs import PoolRuns
from poolproof.fuzz.queue_runs import QueueRuns
from poolproof.fuzz.recorded_choices import RecordedChoices, answers_of, new_cells
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.subject import CampaignSubject, LoadedTarget, subject_of
from poolproof.fuzz.tape_run import Announce, LevelRuns, TapeRun

__all__ = ["LONGEST_RUN", "run_tape", "runs_of"]

LONGEST_RUN = {"queue": 400, "index": 400, "pool": 1_000, "manager": 400}
"""Commands before a run is ended and everything given back."""


def runs_of(subject: CampaignSubject, known: set[int], source: random.Random) -> LevelRuns:
    """The runs of the subject's level."""
    kinds: dict[str, type[QueueRuns | IndexRuns | PoolRuns | ManagerRuns]] = {
        "queue": QueueRuns,
        "index": IndexRuns,
        "pool": PoolRuns,
        "manager": ManagerRuns,
    }
    return kinds[subject.level](subject, known, source)


def run_tape(
    target: LoadedTarget, settings: CampaignSettings, tape: bytes, announce: Announce
) -> tuple[TapeRun, frozenset[int]]:
    """Drive one tape against a fresh instance; the run, and the numbers of the states it visited.

    Any bytes are a tape. Raises TargetError.
    """
    runs = runs_of(subject_of(target, settings), set(), random.Random(0))
    choices = RecordedChoices(new_cells(), None, answers_of(tape))
    visits = runs.visits(set())
    run = runs.run(choices, visits, announce, max_steps=LONGEST_RUN[settings.level])
    return run, frozenset(visits.numbers())
