"""A target in a child process, or in this one, for the commands that run one trace against it.

A hang, the end of the process and a memory limit become violations of the command in progress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from poolproof.certification.manager_watch import Watched, watch
from poolproof.certification.trace_target import load_target_of, maker_for
from poolproof.contract.trace import Trace
from poolproof.harness.isolation import (
    Beacon,
    Failed,
    Finished,
    ImporterError,
    InProcess,
    Isolation,
    Limits,
    Lost,
    Outcome,
)
from poolproof.harness.lost_run import as_violation
from poolproof.harness.replay import Replay, replay
from poolproof.targets.target import Target

__all__ = [
    "Job",
    "WorkerBugError",
    "finished_or_lost",
    "replay_isolated",
    "serving",
    "watch_isolated",
]

A = TypeVar("A")
R = TypeVar("R")
Job = Callable[[Target, A, Beacon], R]


class WorkerBugError(Exception):
    """Code of ours raised in a worker; the text ends with the worker's own traceback."""


@contextmanager
def serving(
    load: Callable[[], Target], job: Job[A, R], limits: Limits, *, in_process: bool
) -> Iterator[Callable[[A], Outcome[R]]]:
    """Calls of `job(target, argument, beacon)` beside the target that `load` loads.

    Raises TargetError where it cannot be loaded.
    """
    alone = in_process or not Isolation.is_available
    executor: Isolation[Target] | InProcess[Target]
    executor = InProcess(load) if alone else Isolation(load, limits)
    try:
        with executor, executor.serve(job) as call:
            yield call
    except ImporterError as error:
        raise error.as_known() from error


def finished_or_lost(outcome: Outcome[R]) -> R | Lost:
    """What the job returned, or how its worker was lost; what the job raised is raised here."""
    match outcome:
        case Finished(value=value):
            return value
        case Lost():
            return outcome
        case Failed(exception_type=kind, message=message, traceback=where):
            outcome.raise_if_known()
            raise WorkerBugError(f"{kind}: {message}\n{where}")


def replay_isolated(
    trace: Trace, instead: str | None, limits: Limits, *, in_process: bool
) -> Replay:
    """Replay a trace on its target, or on the one named `instead`. Raises TargetError."""

    def load() -> Target:
        return load_target_of(trace, instead)

    with serving(load, _replay, limits, in_process=in_process) as call:
        found = finished_or_lost(call(trace))
    if isinstance(found, Replay):
        return found
    begun = trace.with_commands(trace.commands[: found.mark])
    return Replay(begun.commands, 0, as_violation(begun, found))


def watch_isolated(
    trace: Trace, instead: str | None, limits: Limits, *, in_process: bool
) -> Watched | None:
    """What a manager shows while the trace runs; None where that costs the worker."""
    with serving(
        lambda: load_target_of(trace, instead), _watch, limits, in_process=in_process
    ) as call:
        found = finished_or_lost(call(trace))
    return found if isinstance(found, Watched) else None


def _watch(target: Target, trace: Trace, beacon: Beacon) -> Watched:
    return watch(trace, maker_for(trace, target), beacon)


def _replay(target: Target, trace: Trace, beacon: Beacon) -> Replay:
    """The job: `beacon.mark` holds the place of the command in progress, from 1."""
    place = 0

    def announce(command: object) -> None:
        nonlocal place
        while trace.commands[place] is not command:
            place += 1
        place += 1
        beacon.mark(place)

    beacon.bump()
    return replay(trace, maker_for(trace, target), announce)
