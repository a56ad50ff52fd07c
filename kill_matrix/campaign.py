"""A detector: a campaign of `poolproof fuzz`, one worker, guided by states that are new."""

from __future__ import annotations

import math
import time

from poolproof.fuzz.messages import WorkerOrder
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.worker import work
from poolproof.harness.isolation import Beacon
from poolproof.kill_matrix.detector import Detector, SearchOutcome
from poolproof.kill_matrix.drivers import minimised_length
from poolproof.kill_matrix.subject import LAYOUT, MatrixSubject

__all__ = ["CAMPAIGN"]

MOST_STEPS = 40_000
"""About what the plain driver's runs come to."""

_STEPS_A_ROUND = 1_000
_USABLE_BLOCKS = {"queue": 5, "pool": 6, "manager": 8}


def _fuzz(subject: MatrixSubject, seed: int, beacon: Beacon) -> SearchOutcome:
    began = time.process_time()
    target = subject.target()
    order = WorkerOrder(
        CampaignSettings(
            subject.id,
            subject.level,
            max(_USABLE_BLOCKS[subject.level], subject.profile.null_block or 0),
            seed=seed,
            layout=LAYOUT if subject.level.has_sequences else "",
        ),
        stream=f"kill matrix {subject.id} {seed}",
        max_steps=_STEPS_A_ROUND,
        max_seconds=math.inf,
    )
    steps = 0
    while steps < MOST_STEPS:
        report = work(target, order, beacon)
        if report.failures:
            first = report.failures[0]
            assert first.trace.violation is not None
            seconds = time.process_time() - began
            length = minimised_length(subject, first.trace, beacon)
            invariant = first.trace.violation.invariant
            return SearchOutcome(True, steps + first.step, seconds, invariant, length)
        steps += report.num_steps
    return SearchOutcome(False, steps, time.process_time() - began)


CAMPAIGN = Detector(
    "campaign",
    f"a campaign of one worker, guided by new states, up to {MOST_STEPS:,} steps",
    _fuzz,
)
