"""Compares two targets on one tape: where they first differ, and whether a profile explains it.

Both are driven together (targets/paired.py), under the profile of the first; then each alone under
its own. If they differ while both hold, the rows in which their profiles differ explain it, or the
profile leaves the choice open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TypeVar

from poolproof.certification.description import Description, describe
from poolproof.certification.driving import Driving, kinds_of, value_of
from poolproof.certification.finding import Finding
from poolproof.certification.options import CertifyOptions
from poolproof.certification.progress import StageProgress
from poolproof.certification.run_kinds import RunKind
from poolproof.contract.profile import Profile
from poolproof.contract.profile_costs import alternatives, with_changes
from poolproof.harness.isolation import Executor, ImporterError, Isolation
from poolproof.stateful_tests.warm_up import warmed_up
from poolproof.targets.paired import paired_target
from poolproof.targets.target import Target

__all__ = ["Comparison", "compare"]

R = TypeVar("R")

_CHUNKS_ALONE = 4

_ROWS = ("eviction", "duplicates", "retention", "misuse")
"""The rows in which a target may behave as another profile says."""


@dataclass(frozen=True, slots=True)
class Alone:
    """What one target did alone under its own profile."""

    name: str
    profile: Profile
    broken: str | None
    """The first thing that it broke, or None."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differed (`findings`, empty for two that agree), after how many commands of both."""

    names: tuple[str, str]
    num_steps: int
    findings: tuple[Finding, ...]
    alone: tuple[Alone, ...] = ()
    behaves_as: str | None = None
    """The row under which the second holds in the place of the first, if there is one."""

    @property
    def explanation(self) -> str:
        """Whether a profile explains the difference, in one sentence."""
        if not self.findings:
            return ""
        first, second = self.alone
        if self.behaves_as is not None:
            return (
                f"explained by a profile: {second.name} does not hold under the one that it "
                f"declares, but under {self.behaves_as}"
            )
        broken = [one for one in self.alone if one.broken is not None]
        if broken:
            return "; ".join(f"{one.name} alone breaks its profile: {one.broken}" for one in broken)
        rows = [
            f"{field.name} {getattr(first.profile, field.name)} against "
            f"{getattr(second.profile, field.name)}"
            for field in fields(first.profile)
            # Both were given hashes of the same length, so that explains nothing.
            if field.name not in ("assumed", "hash_bytes")
            and getattr(first.profile, field.name) != getattr(second.profile, field.name, None)
        ]
        if rows:
            return f"each holds under its own profile, and these differ in {', '.join(rows)}"
        return "both hold under the same profile, which leaves this choice open"


def compare(
    load: tuple[Callable[[], Target], Callable[[], Target]],
    options: CertifyOptions,
    progress: StageProgress,
) -> Comparison:
    """Drive two targets together, then each alone. Raises TargetError."""
    about, driving = _drive(lambda: paired_target(load[0](), load[1]()), options, progress)
    assert about.pair is not None
    found = Comparison(
        about.pair,
        sum(stage.steps for stage in driving.stages),
        driving.collector.findings,
    )
    if not found.findings:
        return found
    alone = tuple(_alone(one, options, progress) for one in load)
    behaves_as = None
    if alone[0].broken is None and alone[1].broken is not None:
        behaves_as = _behaves_as(load[1], alone[1].profile, options, progress)
    return replace(found, alone=alone, behaves_as=behaves_as)


def _isolated(
    load: Callable[[], Target], options: CertifyOptions, job: Callable[[Executor[Target]], R]
) -> R:
    try:
        with Isolation(warmed_up(load), options.limits, workers=options.workers) as executor:
            return job(executor)
    except ImporterError as error:
        raise error.as_known() from error


def _drive(
    load: Callable[[], Target], options: CertifyOptions, progress: StageProgress
) -> tuple[Description, Driving]:
    def job(executor: Executor[Target]) -> tuple[Description, Driving]:
        progress.begin("comparing")
        about = value_of(executor, describe, None)
        driving = Driving(executor, about, options, progress)
        driving.drive(kinds_of(about, options))
        return about, driving

    return _isolated(load, options, job)


def _alone(load: Callable[[], Target], options: CertifyOptions, progress: StageProgress) -> Alone:
    def job(executor: Executor[Target]) -> Alone:
        about = value_of(executor, describe, None)
        progress.begin(f"{about.name} alone")
        driving = Driving(executor, about, options, progress)
        kinds = kinds_of(about, options)
        return Alone(about.name, about.profile, _first_broken(driving, kinds, None))

    return _isolated(load, options, job)


def _first_broken(driving: Driving, kinds: list[RunKind], profile: Profile | None) -> str | None:
    for kind in kinds:
        for result in driving.chunks(kind, _CHUNKS_ALONE, profile):
            for trace in result.failures.values():
                assert trace.violation is not None
                return f"{trace.violation.invariant}, {trace.violation.sentence}"
    return None


def _behaves_as(
    load: Callable[[], Target], profile: Profile, options: CertifyOptions, progress: StageProgress
) -> str | None:
    """The one changed row under which the target holds."""

    def job(executor: Executor[Target]) -> str | None:
        about = value_of(executor, describe, None)
        driving = Driving(executor, about, options, progress)
        kinds = kinds_of(about, options)
        rows = [row for row in _ROWS if row in profile.rows()]
        for change in alternatives(profile, rows):
            progress.begin(f"trying {change}")
            if _first_broken(driving, kinds, with_changes(profile, (change,))) is None:
                return str(change)
        return None

    return _isolated(load, options, job)
