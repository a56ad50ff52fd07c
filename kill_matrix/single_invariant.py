"""Detectors: each invariant alone, with the comparison with the model off.

They show what one predicate sees, and so which of them a bug needs; `harness/single_invariant.py`
says what such a run does when something else breaks first.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

from poolproof.contract.level import Level
from poolproof.harness.isolation import Beacon
from poolproof.harness.single_invariant import STATED_AT
from poolproof.invariants.catalogue import STATEMENTS
from poolproof.kill_matrix.detector import Detector, SearchOutcome
from poolproof.kill_matrix.drivers import campaign_for
from poolproof.kill_matrix.subject import MatrixSubject

__all__ = ["INVARIANTS", "MOST_RUNS"]

MOST_RUNS = 30
"""Runs of the plain driver; those who see a bug at all need a few, the others cost all of them."""


def _drive(name: str, subject: MatrixSubject, seed: int, beacon: Beacon) -> SearchOutcome:
    began = time.process_time()
    campaign = replace(campaign_for(subject, seed), only=name)
    steps = 0
    for number in range(MOST_RUNS):
        run = campaign.run(number, beacon.bump)
        steps += run.num_steps
        if run.trace is not None or run.collision is not None:
            return SearchOutcome(True, steps, time.process_time() - began, name)
    return SearchOutcome(False, steps, time.process_time() - began)


def _why_not(name: str, subject: MatrixSubject) -> str | None:
    rules = subject.profile
    if name not in STATED_AT[subject.level]:
        return f"the {subject.level} level does not state {name}"
    if name == "EVT" and rules.events == "none":
        return "its profile has no events"
    if name == "MISUSE" and rules.misuse == "undefined":
        return "its profile promises nothing about misuse"
    if name == "ORD" and rules.eviction == "unspecified":
        return "its profile promises no order"
    if name == "I3" and subject.level is Level.POOL and rules.null_block is None:
        return "without a null block that is the caller's duty at pool level"
    if name == "LINK" and not _shows_links(subject):
        return "it shows no links"
    return None


def _shows_links(subject: MatrixSubject) -> bool:
    """Whether an instance can be asked for the neighbours of a block."""
    instance = subject.make(8 + (subject.profile.null_block or 0), True)
    return callable(getattr(instance, "free_neighbours", None))


INVARIANTS = tuple(
    Detector(
        name,
        sentence,
        partial(_drive, name),
        partial(_why_not, name),
        sees_losses=name == "CRASH",
    )
    for name, sentence in STATEMENTS.items()
)
