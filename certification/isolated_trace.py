"""One trace against its target, in a child process or in this one: replayed, watched, shrunk.

The target is the one that the trace was made with, or another that the user names. A hang, the end
of the process and a memory limit become violations of the command in progress. Each attempt of a
minimisation runs in a worker, and may cost it (`lost_candidates.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from poolproof.certification.lost_candidates import LostCandidates
from poolproof.certification.manager_watch import Watched
from poolproof.certification.watching import watch_at_level
from poolproof.contract.commands import Command
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.target import TargetError
from poolproof.contract.trace import Trace
from poolproof.harness.block_sizes import other_block_sizes
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
from poolproof.harness.minimise import Attempt, minimise, run_candidate
from poolproof.harness.relative import RelativeCommand
from poolproof.harness.replay import Replay, replay
from poolproof.targets.load import load_target
from poolproof.targets.target import Make, Target

__all__ = [
    "load_target_of",
    "maker_for",
    "replay_each",
    "replay_isolated",
    "shrink_isolated",
    "watch_isolated",
]


def load_target_of(trace: Trace, instead: str | None = None) -> Target:
    """The target that the trace was made with, or the one named `instead`. Raises TargetError."""
    api = trace.options.get("api")
    return _part_for(trace, load_target(instead or trace.target, api=None if instead else api))


def _part_for(trace: Trace, target: Target) -> Target:
    """The target, or its part of the trace's level. Raises TargetError where it has none."""
    if target.level != trace.level:
        part = target.part_at(trace.level)
        if part is not None:
            return part
        raise TargetError(
            f"the trace is of level {trace.level}, but {target.name} is "
            f"{target.level.with_article} target; name another with --target"
        )
    return target


def maker_for(trace: Trace, target: Target) -> Make:
    """How to build the target for this trace: with token chains if it was made with them.

    Raises TargetError if the target takes none.
    """
    if trace.level.has_layouts:
        return _layout_of(trace, target)
    speaks_chains = any(hasattr(command, "chain") for command in trace.commands)
    if not speaks_chains and trace.options.get("block_size", 1) == 1:
        return target.make
    if target.make_chained is None:
        raise TargetError(
            f"the trace speaks token chains, which {target.name} does not take; "
            "name another target with --target"
        )
    return target.make_chained


def _layout_of(trace: Trace, target: Target) -> Make:
    """The layout of the trace's name, or the only one there is. Raises TargetError."""
    name = str(trace.options.get("layout", ""))
    only = target.layouts[0].name if len(target.layouts) == 1 else name
    known = any(layout.name == name for layout in target.layouts)
    layout = target.layout(name if known else only)
    block_size = trace.options["block_size"]
    others: Sequence[int] = ()
    if layout.make_of and isinstance(layout.profile, ManagerProfile | EngineProfile):
        others = other_block_sizes(layout.profile, layout.block_size)
    if block_size not in (layout.block_size, *others):
        raise TargetError(
            f"the trace has {block_size} tokens a block, layout {layout.name} of {target.name} "
            f"{layout.block_size}; name another target with --target"
        )
    return layout.make_with(block_size)


A = TypeVar("A")
R = TypeVar("R")
Job = Callable[[Target, A, Beacon], R]


class WorkerBugError(Exception):
    """Code of ours raised in a worker; the text ends with the worker's own traceback."""


@contextmanager
def serving(
    load: Callable[[], Target], job: Job[A, R], limits: Limits, *, in_process: bool
) -> Iterator[Callable[[A], Outcome[R]]]:
    """Serve calls of `job(target, argument, beacon)` on the target that `load` loads.

    Raises TargetError if it cannot be loaded.
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
    return _as_replay(trace, found)


def replay_each(
    traces: Sequence[Trace], load: Callable[[], Target], limits: Limits
) -> list[Replay]:
    """What each trace shows on the target that `load` loads, or on its part of that level.

    Raises TargetError.
    """
    shown = []
    with serving(load, _replay_on_part, limits, in_process=False) as call:
        for trace in traces:
            found = finished_or_lost(call(trace))
            shown.append(_as_replay(trace, found))
    return shown


def _as_replay(trace: Trace, found: Replay | Lost) -> Replay:
    if isinstance(found, Replay):
        return found
    begun = trace.with_commands(trace.commands[: found.mark])
    return Replay(begun.commands, 0, as_violation(begun, found))


def _replay_on_part(target: Target, trace: Trace, beacon: Beacon) -> Replay:
    return _replay(_part_for(trace, target), trace, beacon)


def watch_isolated(
    trace: Trace, instead: str | None, limits: Limits, *, in_process: bool
) -> Watched | None:
    """What a manager or an engine shows while the trace runs; None if that costs the worker."""
    with serving(
        lambda: load_target_of(trace, instead), _watch, limits, in_process=in_process
    ) as call:
        found = finished_or_lost(call(trace))
    return found if isinstance(found, Watched) else None


def _watch(target: Target, trace: Trace, beacon: Beacon) -> Watched:
    return watch_at_level(trace, maker_for(trace, target), beacon)


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
