"""Every state of one scope, or every workload, on a target itself.

The same stages as in a certification, with bounds of the user's choice and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from poolproof.certification.certificate import StageResult
from poolproof.certification.depths import Bounds
from poolproof.certification.description import Description
from poolproof.certification.driving import Driving, described, kinds_of
from poolproof.certification.engine_exploration import EngineBounds
from poolproof.certification.exploration import Exploring
from poolproof.certification.finding import Finding
from poolproof.certification.levels.pool import reason_not_explored
from poolproof.certification.options import CertifyOptions
from poolproof.certification.progress import StageProgress
from poolproof.contract.level import Level
from poolproof.contract.target import TargetError
from poolproof.exploration.scope import Scope
from poolproof.harness.isolation import ImporterError, InProcess, Isolation
from poolproof.targets.target import Target

__all__ = ["TargetExploration", "Workloads", "explore_target"]

_COMMANDS = 4

_MOST_STATES = 200_000
"""States of one layout of a manager that are kept in memory, some 3 KiB each."""


@dataclass(frozen=True, slots=True)
class Workloads:
    """What is asked of a manager or an engine; None and () stand for the defaults.

    `max_live` requests at once, and limits of states and seconds for each set-up, are an engine's.
    """

    max_commands: int | None = None
    layouts: tuple[str, ...] = ()
    usable_blocks: int | None = None
    max_live: int | None = None
    max_states: int | None = None
    max_seconds: float | None = None

    @property
    def has_bounds_of_engines(self) -> bool:
        """Whether anything was asked for that only engines have."""
        return (self.max_live, self.max_states, self.max_seconds) != (None, None, None)

    def of_engines(self) -> EngineBounds:
        """The bounds of an engine's exploration."""
        usual = EngineBounds()
        return EngineBounds(
            self.max_commands or usual.max_commands,
            self.usable_blocks or usual.usable_blocks,
            self.max_live or usual.max_live,
            self.max_states or usual.max_states,
            self.max_seconds or usual.max_seconds,
        )


@dataclass(frozen=True, slots=True)
class TargetExploration:
    """What an exploration reached and what broke.

    `interrupted` says how far a run came that was ended too early; it is empty for all others.
    """

    target: str
    source: str
    stages: tuple[StageResult, ...]
    findings: tuple[Finding, ...]
    interrupted: str = ""

    @property
    def holds(self) -> bool:
        """Whether all of it was explored and nothing broke."""
        return not self.interrupted and not self.findings


def explore_target(
    load: Callable[[], Target],
    scope: Scope,
    options: CertifyOptions,
    progress: StageProgress,
    *,
    pairs: bool,
    symmetry: bool,
    workloads: Workloads,
) -> TargetExploration:
    """Explore a target up to the first failure.

    Raises TargetError for a target that cannot be run, or not in this way.
    """
    alone = options.in_process or not Isolation.is_available
    executor: Isolation[Target] | InProcess[Target] = (
        InProcess(load) if alone else Isolation(load, options.limits, workers=options.workers)
    )
    bounds = Bounds(
        scope.num_blocks, scope.num_hashes, scope.max_references, pairs, unreduced=not symmetry
    )
    interrupted = ""
    try:
        with executor:
            about = described(executor)
            driving = Driving(executor, about, options, progress)
            exploring = Exploring(executor, about, driving.collector, progress, options.seed)
            try:
                _run(about, exploring, options, bounds, workloads)
            except KeyboardInterrupt:
                interrupted = exploring.so_far or "nothing was concluded"
            progress.end()
    except ImporterError as error:
        raise error.as_known() from error
    return TargetExploration(
        about.name,
        about.source,
        tuple(exploring.stages),
        tuple(driving.collector.findings),
        interrupted,
    )


def _run(
    about: Description,
    exploring: Exploring,
    options: CertifyOptions,
    bounds: Bounds,
    workloads: Workloads,
) -> None:
    if about.unbuilt is not None:
        raise TargetError(f"{about.name}: {about.unbuilt.sentence}")
    if not about.level.has_small_scopes:
        _refuse_bounds_of_pools(about, bounds)
        exploring.explore_engines(kinds_of(about, options), workloads.of_engines())
        return
    if workloads.has_bounds_of_engines:
        raise TargetError(
            f"{about.name} is {about.level.with_article} target; --requests, --states and "
            "--seconds are for engines"
        )
    if about.level.has_sequences:
        _explore_manager(about, exploring, options, bounds, workloads)
        return
    if workloads.layouts or workloads.max_commands:
        raise TargetError(
            f"{about.name} is {about.level.with_article} target; leave out --layout and --commands"
        )
    _EXPLORED[about.level](about, exploring, bounds)


def _explore_pool(about: Description, exploring: Exploring, bounds: Bounds) -> None:
    reason = reason_not_explored(about, [bounds])
    if reason is not None:
        raise TargetError(f"{about.name} cannot be explored state by state: {reason}")
    exploring.explore_scope(bounds)


_EXPLORED: Mapping[Level, Callable[[Description, Exploring, Bounds], None]] = {
    Level.QUEUE: lambda _, exploring, bounds: exploring.explore_queue(bounds.num_blocks),
    Level.INDEX: lambda _, exploring, bounds: exploring.explore_index(
        bounds.num_blocks, bounds.num_hashes
    ),
    Level.POOL: _explore_pool,
}


def _refuse_bounds_of_pools(about: Description, bounds: Bounds) -> None:
    if bounds != Bounds(bounds.num_blocks):
        raise TargetError(
            f"{about.name} is {about.level.with_article}; its workloads have no --hashes, "
            "--references, --pairs or --no-symmetry"
        )


def _explore_manager(
    about: Description,
    exploring: Exploring,
    options: CertifyOptions,
    bounds: Bounds,
    workloads: Workloads,
) -> None:
    _refuse_bounds_of_pools(about, bounds)
    exploring.explore_layouts(
        kinds_of(about, options),
        max_commands=workloads.max_commands or _COMMANDS,
        max_states=_MOST_STATES,
        usable_blocks=workloads.usable_blocks,
    )
