"""Which class drives the runs of a level; also runs one tape, for callers supplying their own."""

from __future__ import annotations

import random
from collections.abc import Mapping

from poolproof.contract.level import Level
from poolproof.fuzz.engine_runs import EngineRuns
from poolproof.fuzz.index_runs import IndexRuns
from poolproof.fuzz.manager_runs import ManagerRuns
from poolproof.fuzz.pool_runs import PoolRuns
from poolproof.fuzz.queue_runs import QueueRuns
from poolproof.fuzz.recorded_choices import RecordedChoices, answers_of, new_cells
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.subject import CampaignSubject, LoadedTarget, subject_of
from poolproof.fuzz.tape_run import Announce, LevelRuns, TapeRun

__all__ = ["RUNS_AT", "run_tape", "runs_of"]

RUNS_AT: Mapping[Level, type[QueueRuns | IndexRuns | PoolRuns | ManagerRuns | EngineRuns]] = {
    Level.QUEUE: QueueRuns,
    Level.INDEX: IndexRuns,
    Level.POOL: PoolRuns,
    Level.MANAGER: ManagerRuns,
    Level.ENGINE: EngineRuns,
}


def runs_of(subject: CampaignSubject, known: set[int], source: random.Random) -> LevelRuns:
    """The runs of the subject's level."""
    return RUNS_AT[subject.level](subject, known, source)


def run_tape(
    target: LoadedTarget, settings: CampaignSettings, tape: bytes, announce: Announce
) -> tuple[TapeRun, frozenset[int]]:
    """Drive one tape against a fresh instance; the run, and the numbers of the states it visited.

    Any bytes are a tape. Raises TargetError.
    """
    runs = runs_of(subject_of(target, settings), set(), random.Random(0))
    choices = RecordedChoices(new_cells(), None, answers_of(tape))
    visits = runs.visits(set())
    run = runs.run(choices, visits, announce, max_steps=runs.longest_run)
    return run, frozenset(visits.numbers())
