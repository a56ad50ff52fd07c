"""Minimises a trace whose target may hang, die or eat memory at any of the attempts.

Each attempt runs in a worker, and may cost it (`lost_candidates.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from poolproof.certification.isolated_target import finished_or_lost, serving
from poolproof.certification.lost_candidates import LostCandidates
from poolproof.certification.trace_target import load_target_of, maker_for
from poolproof.contract.commands import Command
from poolproof.contract.trace import Trace
from poolproof.harness.isolation import Beacon, Limits
from poolproof.harness.minimise import Attempt, minimise, run_candidate
from poolproof.harness.relative import RelativeCommand
from poolproof.targets.target import Target

__all__ = ["shrink_isolated"]

Candidate = Sequence[RelativeCommand | Command]

_MOST_LOST = 60
"""A lost worker costs its whole time limit, so that not many can be afforded."""


def shrink_isolated(
    trace: Trace, instead: str | None, limits: Limits, *, in_process: bool
) -> Trace:
    """The smallest trace found that breaks what `trace` breaks; without violation if it holds.

    Raises TargetError.
    """
    lost_workers, losses = 0, LostCandidates()

    def load() -> Target:
        return load_target_of(trace, instead)

    with serving(load, _execute, limits, in_process=in_process) as call:

        def execute(setup: Trace, candidate: Candidate) -> Attempt:
            nonlocal lost_workers
            foretold = losses.foretold(setup, candidate)
            if foretold is not None:
                return foretold
            if lost_workers >= _MOST_LOST:
                return Attempt((), (), None)
            found = finished_or_lost(call((setup, tuple(candidate))))
            if isinstance(found, Attempt):
                return found
            lost_workers += 1
            return losses.lost(setup, candidate, found.mark, found)

        return replace(minimise(trace, execute), target=instead or trace.target)


def _execute(target: Target, task: tuple[Trace, Candidate], beacon: Beacon) -> Attempt:
    """The job: `beacon.mark` holds the number of the command in progress, from 1."""
    trace, candidate = task
    number = 0

    def announce(_: Command) -> None:
        nonlocal number
        number += 1
        beacon.mark(number)

    beacon.bump()
    return run_candidate(trace, candidate, maker_for(trace, target), announce)
