"""Minimises a trace whose target may hang, die or eat memory at any of the attempts.

Each attempt runs in a worker. When a worker is lost, only the number of the command is known that
it was lost at; which commands those were is found by carrying out the attempt on the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from poolproof.contract.commands import Command
from poolproof.contract.trace import Trace
from poolproof.harness.isolation import Beacon, Limits, Lost
from poolproof.harness.lost_run import as_violation
from poolproof.harness.minimise import Attempt, minimise, run_candidate
from poolproof.harness.relative import RelativeCommand
from poolproof.isolated_target import finished_or_lost, serving
from poolproof.right_target import right_target
from poolproof.targets.target import Target
from poolproof.trace_files import load_target_of, maker_for

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
    lost_workers = 0

    def load() -> Target:
        return load_target_of(trace, instead)

    with serving(load, _execute, limits, in_process=in_process) as call:

        def execute(setup: Trace, candidate: Candidate) -> Attempt:
            nonlocal lost_workers
            if lost_workers >= _MOST_LOST:
                return Attempt((), (), None)
            found = finished_or_lost(call((setup, tuple(candidate))))
            if isinstance(found, Attempt):
                return found
            lost_workers += 1
            return _as_far_as(setup, candidate, found)

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


def _as_far_as(trace: Trace, candidate: Candidate, lost: Lost) -> Attempt:
    whole = run_candidate(trace, candidate, right_target(trace))
    commands = whole.commands[: lost.mark]
    violation = as_violation(trace.with_commands(commands), lost)
    return Attempt(whole.relative[: lost.mark], commands, violation)
