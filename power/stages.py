"""The stages by which a mutant is certified, cheapest first, and how a worker runs one.

They are those of `certify`, cut up so that the first violation ends the work: the plain driver of
every kind of run at quick, then what else quick does, then the same at the depth that was asked
for. Targets that judge as well give the first runs of their plain driver, after all that.
Nothing is minimised and nothing is drawn: only whether a mutant is refused, and by what.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import NoReturn

from poolproof.certification.depths import BUDGETS, RUNS_PER_CHUNK
from poolproof.certification.description import Description
from poolproof.certification.exploration import Exploring
from poolproof.certification.finding_collector import FindingCollector
from poolproof.certification.jobs import Machine, campaign_of, run_hypothesis
from poolproof.certification.progress import SilentProgress
from poolproof.certification.run_kinds import INDEX, POOL, QUEUE, Chunk, RunKind
from poolproof.contract.depth import Depth
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.harness.isolation import Beacon, InWorker
from poolproof.harness.manager_production import ManagerSizes
from poolproof.targets.target import Target

__all__ = ["Stage", "StageFailure", "failures_of", "stages_beside", "stages_of"]

_SHARE_BESIDE = 4
"""Targets that judge as well give so many times fewer runs: what they see first is what counts."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: `count` "plain" runs from `first` on, a "machine", or what is "explored".

    `target` is the place of the one that it drives, and `beside` its name unless it is the first.
    """

    driver: str
    kind: RunKind
    depth: Depth
    seed: int
    kinds: tuple[RunKind, ...]
    first: int = 0
    count: int = 0
    target: int = 0
    beside: str = ""

    @property
    def name(self) -> str:
        """What the stage is called, as in a certificate."""
        words = {"plain": "plain driver", "machine": "state machine", "explored": "small scopes"}
        name = f"{self.kind.stage}, {words[self.driver]}, {self.depth}"
        return f"{self.beside}: {name}" if self.beside else name


@dataclass(frozen=True, slots=True)
class StageFailure:
    """The first violation of a stage; `run` is the number of the plain run that showed it."""

    violation: Violation
    num_commands: int
    run: int = -1


class _FirstFailureError(Exception):
    """Carries the first failing trace out of an exploration."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace = trace


class _First(FindingCollector):
    """Takes the first failing trace and ends the work."""

    def add(self, stage: str, trace: Trace, runs_seen: int = 1) -> NoReturn:  # noqa: ARG002 - the base's signature
        raise _FirstFailureError(trace)

    def add_lost(self, stage: str, trace: Trace) -> NoReturn:  # noqa: ARG002 - the same
        raise _FirstFailureError(trace)


def stages_of(kinds: Collection[RunKind], depth: Depth, seed: int) -> list[Stage]:
    """All stages up to a depth, for these kinds of runs."""
    stages = []
    done: dict[RunKind, int] = {}
    for step in depth.up_to_here:
        budget = BUDGETS[step]
        plain, thorough = [], []
        for kind in kinds:
            chunks = (
                budget.chunks[kind]
                if kind.layout is None
                else budget.chunks_of_layout(kind, len(kinds))
            )
            first, last = done.get(kind, 0), chunks * RUNS_PER_CHUNK
            plain.append(Stage("plain", kind, step, seed, tuple(kinds), first, last - first))
            done[kind] = last
            thorough.append(Stage("machine", kind, step, seed, tuple(kinds)))
            if kind.is_explored:
                thorough.append(Stage("explored", kind, step, seed, tuple(kinds)))
        stages += plain + _at_production_sizes(kinds, step, seed) + thorough
    return stages


def _at_production_sizes(kinds: Collection[RunKind], depth: Depth, seed: int) -> list[Stage]:
    stages = []
    for kind in kinds:
        sizes = BUDGETS[depth].production_of(kind, tuple(kinds))
        if sizes is not None:
            large = kind.at_production_sizes(sizes)
            stages.append(Stage("plain", large, depth, seed, tuple(kinds), 0, sizes.most_runs))
    return stages


def stages_beside(
    kinds: Collection[RunKind], depth: Depth, seed: int, target: int, name: str
) -> list[Stage]:
    """The stages of a target that judges mutants which the first one lets pass."""
    if POOL in kinds:
        kinds = [kind for kind in kinds if kind not in (QUEUE, INDEX)]  # the first has driven them
    plain = [
        stage
        for stage in stages_of(kinds, depth, seed)
        if stage.driver == "plain" and stage.kind.production is None
    ]
    return [
        replace(
            stage,
            first=stage.first // _SHARE_BESIDE,
            count=stage.count // _SHARE_BESIDE,
            target=target,
            beside=name,
        )
        for stage in plain
    ]


def failures_of(
    target: Target, about: Description, stage: Stage, beacon: Beacon
) -> Iterator[StageFailure]:
    """What breaks in a stage: of plain runs each, of the others the first."""
    if stage.driver == "plain":
        yield from _plain(target, stage, beacon)
    elif stage.driver == "machine":
        share = BUDGETS[stage.depth].machine_share(len(stage.kinds))
        machine = Machine(stage.kind, stage.depth, stage.seed, share)
        trace = run_hypothesis(target, machine, beacon).result.trace
        if trace is not None:
            yield _failure(trace)
    else:
        yield from _explored(target, about, stage, beacon)


def _plain(target: Target, stage: Stage, beacon: Beacon) -> Iterator[StageFailure]:
    campaign = campaign_of(target, Chunk(stage.kind, stage.seed, stage.first, stage.count))
    for number in _numbers(target, stage):
        beacon.bump()
        run = campaign.run(number, beacon.bump)
        if run.trace is not None:
            yield _failure(run.trace, number)


def _numbers(target: Target, stage: Stage) -> range:
    """The numbers of the stage's plain runs."""
    sizes, layout = stage.kind.production, stage.kind.layout
    if isinstance(sizes, ManagerSizes) and layout is not None:
        profile = target.layout(layout).profile
        assert isinstance(profile, ManagerProfile)
        return sizes.runs(profile)[stage.first : stage.first + stage.count]
    return range(stage.first, stage.first + stage.count)


def _explored(
    target: Target, about: Description, stage: Stage, beacon: Beacon
) -> Iterator[StageFailure]:
    def never(*_: object) -> NoReturn:
        raise AssertionError("nothing is minimised here")

    collector = _First(never, never, 0, {})
    executor = InWorker(target, beacon)
    exploring = Exploring(executor, about, collector, SilentProgress(), stage.seed)
    others = tuple(kind for kind in stage.kinds if kind != stage.kind)
    # A pool's queue and index are explored with their own stages.
    lone = (QUEUE, INDEX, POOL)
    others += () if stage.kind in lone else lone
    budget = BUDGETS[stage.depth]
    # Layouts of a manager share the states, as they do when they are explored together.
    states = budget.states_of_layout(len(stage.kinds))
    try:
        exploring.explore(replace(budget, workload_states=states), others, {stage.kind})
    except _FirstFailureError as failed:
        yield _failure(failed.trace)


def _failure(trace: Trace, run: int = -1) -> StageFailure:
    assert trace.violation is not None
    return StageFailure(trace.violation, len(trace.commands), run)
