"""What workers do for a power run: look at the target, trace a stage, certify one mutant.

Each worker is forked for one job, so that a mutant ends with it. A stage is traced at a price that
falls while it runs: a code object is left alone once all of its lines were seen, so that a long
campaign is traced for its first runs and then hardly slowed.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from poolproof.certification.description import Description, describe
from poolproof.contract.target import TargetError
from poolproof.harness.isolation import Beacon
from poolproof.power.modules import Prepared, plant
from poolproof.power.mutation import Mutation
from poolproof.power.stages import Stage, StageFailure, failures_of

__all__ = ["Judged", "StageSurvey", "Task", "judge_mutant", "look", "survey"]


class Lines:
    """What was executed: lines as (file, number), functions as (file, name, first line)."""

    def __init__(self) -> None:
        self.lines: set[tuple[str, int]] = set()
        self.functions: set[tuple[str, str, int]] = set()


@contextmanager
def traced(files: Collection[str]) -> Iterator[Lines]:
    """Trace whatever runs in these files for the time of the block, in this thread."""
    seen = Lines()
    unseen: dict[CodeType, set[int]] = {}

    def on_call(frame: FrameType, _event: str, _argument: object) -> Any:
        code = frame.f_code
        left = unseen.get(code)
        if left is None:
            if code.co_filename not in files:
                return None
            left = unseen[code] = {line for _, _, line in code.co_lines() if line is not None}
            seen.functions.add((code.co_filename, code.co_name, code.co_firstlineno))
        if not left:
            return None
        on_line(frame, "line", None)
        return on_line

    def on_line(frame: FrameType, _event: str, _argument: object) -> Any:
        left = unseen[frame.f_code]
        if frame.f_lineno in left:
            left.discard(frame.f_lineno)
            seen.lines.add((frame.f_code.co_filename, frame.f_lineno))
        return on_line

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        yield seen
    finally:
        sys.settrace(before)


@dataclass(frozen=True, slots=True)
class Look:
    """The description of each target, and of each mutated module its name, file and text."""

    about: tuple[Description, ...]
    sources: tuple[tuple[str, Path, bytes], ...]


def look(prepared: Prepared, _: None, beacon: Beacon) -> Look:
    """What the parent has to know."""
    about = tuple(describe(target, None, beacon) for target in prepared.targets)
    sources = tuple((source.module, source.path, source.text) for source in prepared.sources)
    return Look(about, sources)


@dataclass(frozen=True, slots=True)
class StageSurvey:
    """What the unmutated target does in a stage.

    `lines` are (module, line), `functions` (module, name, first line); `failing` are the plain
    runs that fail unmutated, -1 for another stage that does.
    """

    stage: Stage
    lines: frozenset[tuple[str, int]] = frozenset()
    functions: frozenset[tuple[str, str, int]] = frozenset()
    failing: frozenset[int] = frozenset()


def survey(prepared: Prepared, job: tuple[Description, Stage], beacon: Beacon) -> StageSurvey:
    """Run a stage on the unmutated target and trace it."""
    about, stage = job
    modules = {
        function.__code__.co_filename: module
        for module, functions in prepared.functions.items()
        for function in functions
    }
    with traced(modules) as seen:
        failing = frozenset(
            failure.run
            for failure in failures_of(prepared.targets[stage.target], about, stage, beacon)
        )
    return StageSurvey(
        stage,
        frozenset((modules[file], line) for file, line in seen.lines),
        frozenset((modules[file], name, line) for file, name, line in seen.functions),
        failing,
    )


@dataclass(frozen=True, slots=True)
class Task:
    """A mutant, the stages that reach it, and what of each fails unmutated."""

    mutation: Mutation
    about: tuple[Description, ...]
    stages: tuple[StageSurvey, ...]


@dataclass(frozen=True, slots=True)
class Judged:
    """What the stages say of one mutant: the invariant and the sentence that refuse it, if any."""

    stage: str = ""
    invariant: str = ""
    sentence: str = ""
    num_commands: int = 0
    stages_run: tuple[str, ...] = field(default=())

    @property
    def refused(self) -> bool:
        """Whether something broke."""
        return bool(self.invariant)


def judge_mutant(prepared: Prepared, task: Task, beacon: Beacon) -> Judged:
    """Put the mutant in place and run its stages up to the first violation."""
    plant(prepared, task.mutation)
    names = []
    for known in task.stages:
        stage = known.stage
        names.append(stage.name)
        try:
            failure = _first_new(prepared, task, known, beacon)
        except TargetError as error:
            # `certify` would stop with status 2: no pass, and no verdict either.
            return Judged(stage.name, "CANNOT RUN", str(error), 0, tuple(names))
        if failure is not None:
            violation = failure.violation
            return Judged(
                stage.name,
                violation.invariant,
                violation.sentence,
                failure.num_commands,
                tuple(names),
            )
    return Judged(stages_run=tuple(names))


def _first_new(
    prepared: Prepared, task: Task, known: StageSurvey, beacon: Beacon
) -> StageFailure | None:
    """The first failure of a stage that the unmutated target does not show."""
    if -1 in known.failing:
        return None
    place = known.stage.target
    target, about = prepared.targets[place], task.about[place]
    for failure in failures_of(target, about, known.stage, beacon):
        if failure.run not in known.failing:
            return failure
    return None
