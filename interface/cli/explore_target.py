"""`poolproof explore TARGET`: every state of one scope, or every workload, on the target itself.

The same stages as in a certification, with bounds of the user's choice and nothing around them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from poolproof.certification.certificate import StageResult
from poolproof.certification.description import Description
from poolproof.certification.driving import Driving, described
from poolproof.certification.exploration import Exploring, reason_not_explored
from poolproof.certification.levels import Bounds
from poolproof.certification.options import CertifyOptions
from poolproof.certification.progress import progress_to
from poolproof.certification.run_plan import kinds_of
from poolproof.contract.target import TargetError
from poolproof.exploration.scope import Scope
from poolproof.harness.isolation import ImporterError, InProcess, Isolation
from poolproof.report.finding_report import finding_report
from poolproof.report.terminal import show
from poolproof.targets.load import load_target
from poolproof.targets.profile_text import split_overrides

__all__ = ["Workloads", "explore_target"]

_COMMANDS = 4

_MOST_STATES = 200_000
"""States of one layout of a manager that are kept in memory, some 3 KiB each."""


@dataclass(frozen=True, slots=True)
class Workloads:
    """What is asked of a manager; None and () stand for the defaults."""

    max_commands: int | None = None
    layouts: tuple[str, ...] = ()
    usable_blocks: int | None = None


def explore_target(
    name: str,
    scope: Scope,
    *,
    pairs: bool,
    symmetry: bool,
    seed: int,
    workers: int,
    in_process: bool,
    workloads: Workloads,
) -> int:
    """Explore, print what was reached and what broke, and give the exit status.

    Raises TargetError for a target that cannot be run, or not in this way.
    """
    options = CertifyOptions(
        level="standard",
        seed=seed,
        workers=workers,
        in_process=in_process,
        profile_overrides=split_overrides(name)[1],
        layouts=workloads.layouts,
    )

    def load() -> Any:
        return load_target(name)

    alone = in_process or not Isolation.is_available
    isolation: Any = InProcess(load) if alone else Isolation(load, options.limits, workers=workers)
    bounds = Bounds(
        scope.num_blocks, scope.num_hashes, scope.max_references, pairs, unreduced=not symmetry
    )
    try:
        with progress_to(sys.stderr) as progress, isolation:
            about = described(isolation)
            driving = Driving(isolation, about, options, progress)
            exploring = Exploring(isolation, about, driving.collector, progress, seed)
            was_interrupted = False
            try:
                _run(about, exploring, options, bounds, workloads)
            except KeyboardInterrupt:
                was_interrupted = True
            progress.end()
    except ImporterError as error:
        raise error.as_known() from error
    for line in _lines(about, exploring.stages):
        click.echo(line)
    if was_interrupted:
        click.echo(f"truncated   interrupted: {exploring.so_far or 'nothing was concluded'}")
    for finding in driving.collector.findings:
        show(finding_report(finding))
    return 2 if was_interrupted else int(bool(driving.collector.findings))


def _run(
    about: Description,
    exploring: Exploring,
    options: CertifyOptions,
    bounds: Bounds,
    workloads: Workloads,
) -> None:
    if about.unbuilt is not None:
        raise TargetError(f"{about.name}: {about.unbuilt.sentence}")
    if about.level == "manager":
        _explore_manager(about, exploring, options, bounds, workloads)
        return
    if workloads.layouts or workloads.max_commands:
        raise TargetError(
            f"{about.name} is a {about.level} target; leave out --layout and --commands"
        )
    if about.level == "queue":
        exploring.explore_queue(bounds.num_blocks)
        return
    if about.level == "index":
        exploring.explore_index(bounds.num_blocks, bounds.num_hashes)
        return
    reason = reason_not_explored(about, [bounds])
    if reason is not None:
        raise TargetError(f"{about.name} cannot be explored state by state: {reason}")
    exploring.explore_scope(bounds)


def _explore_manager(
    about: Description,
    exploring: Exploring,
    options: CertifyOptions,
    bounds: Bounds,
    workloads: Workloads,
) -> None:
    usual = Bounds(bounds.num_blocks)
    if bounds != usual:
        raise TargetError(
            f"{about.name} is a manager; its workloads have no --hashes, --references, --pairs or "
            "--no-symmetry"
        )
    exploring.explore_layouts(
        kinds_of(about, options),
        max_commands=workloads.max_commands or _COMMANDS,
        max_states=_MOST_STATES,
        usable_blocks=workloads.usable_blocks,
    )


def _lines(about: Description, stages: list[StageResult]) -> Iterator[str]:
    yield f"target      {about.name}, {about.source}"
    for stage in stages:
        yield f"{stage.level:<11} {stage.stage}: {stage.outcome.value}"
        yield f"reached     {stage.note}"
        yield f"took        {stage.seconds:.2f} s, {stage.steps:,} commands compared"
