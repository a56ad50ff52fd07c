"""Tries profiles on one target: replays failures under them, and drives it under them.

A replay of a short trace costs a millisecond and a drive seconds, so failures that are known are
replayed under many profiles, and only a profile under which all of them pass is driven. The target
stays as it was loaded; what is changed is what it is judged by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from poolproof.certification.description import Description
from poolproof.certification.driving import Driving
from poolproof.certification.jobs import Shrink, effort_to_read, make_for, shrink_trace
from poolproof.certification.run_kinds import Chunk, RunKind
from poolproof.contract.errors import PoolproofError
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import Profile
from poolproof.contract.profile_costs import RowChange, with_changes
from poolproof.contract.trace import Trace
from poolproof.harness.isolation import Beacon, Finished, Lost
from poolproof.harness.replay import replay
from poolproof.harness.weak_hashes import WEAK_HASHES
from poolproof.targets.target import Target

__all__ = ["Changes", "Course", "ProfileTrials", "TrialLostError", "blocks_never_free"]

Changes = tuple[RowChange, ...]

PORTIONS: tuple[Sequence[range], ...] = (
    (range(20),),
    (range(20, 100),),
    (range(100, 200), range(200, 300), range(300, 400)),
)
"""The runs of each kind, a portion after the other: most profiles fail in the first."""

_SHRINK_ATTEMPTS = 600

_REPLAYS_PER_JOB = 200

_BLOCKS_LOOKED_AT = 16


class TrialLostError(PoolproofError):
    """The target hung, ended its process or ran out of memory, which costs a worker each time."""


@dataclass(frozen=True, slots=True)
class Course:
    """How the replay of a trace went: how far, what was left out, what was wrong at its end."""

    num_applied: int
    num_left_out: int
    wrong: str | None

    @property
    def passes(self) -> bool:
        """Whether nothing was wrong."""
        return self.wrong is None


def courses(target: Target, traces: Sequence[Trace], beacon: Beacon) -> tuple[Course, ...]:
    """How the replay of each trace goes, under the profile that stands in it."""
    found = []
    for trace in traces:
        beacon.bump()
        if trace.num_blocks <= (trace.profile.null_block or 0):
            # A pool without its null block is never built under such a profile.
            found.append(Course(0, len(trace.commands), None))
            continue
        ended = replay(trace, make_for(target, trace), beacon.bump)
        broken = ended.violation
        wrong = None if broken is None else f"{broken.invariant}, {broken.sentence}"
        found.append(Course(len(ended.applied), ended.num_left_out, wrong))
    return tuple(found)


def blocks_never_free(target: Target, _: None, beacon: Beacon) -> tuple[int, ...]:
    """The block that a fresh instance's free queue leaves out, if it is the only one."""
    found: set[int] = set()
    makes = [layout.make for layout in target.layouts] or [target.make]
    for make in makes:
        beacon.bump()
        if make is None:
            continue
        try:
            free = {int(block) for block in make(_BLOCKS_LOOKED_AT, True).free_order()}
        except (Exception, SystemExit):  # noqa: BLE001, S112 -- a finding when it is driven
            continue
        left_out = set(range(_BLOCKS_LOOKED_AT)) - free
        found |= left_out if len(left_out) == 1 else set()
    return tuple(sorted(found))


class ProfileTrials:
    """Profiles of one target, tried one after the other; counts what it did."""

    def __init__(
        self,
        driving: Driving,
        about: Description,
        kinds: Sequence[RunKind],
        seed: int,
        tell: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._driving = driving
        self._about = about
        self._kinds = kinds
        self._seed = seed
        self._tell = tell
        self.num_replays = 0
        self.num_drives = 0

    def profile_of(self, kind: RunKind, changes: Changes) -> Profile:
        """The profile by which runs of that kind are judged, with these rows changed."""
        layout = self._about.layout_of_kind(kind)
        own = self._about.profile_at(kind.level) if layout is None else layout.profile
        return kind.level.judged_by(with_changes(own, changes))

    def courses(self, traces: Sequence[Trace], tries: Sequence[Changes]) -> list[Course]:
        """How each trace goes under each of the `tries`: those of the first trace, then the next.

        Raises TrialLostError where a replay cost the worker.
        """
        changed = [
            replace(trace, profile=trace.level.judged_by(with_changes(self._own(trace), changes)))
            for trace in traces
            for changes in tries
        ]
        self.num_replays += len(changed)
        found: list[Course] = []
        for first in range(0, len(changed), _REPLAYS_PER_JOB):
            part = changed[first : first + _REPLAYS_PER_JOB]
            outcome = self._driving.one(courses, part)
            if isinstance(outcome, Lost):
                raise TrialLostError(outcome.sentence("a replayed command"))
            found += outcome.value
        return found

    def numbers_seen(self) -> dict[str, Sequence[int]]:
        """Numbers that the target itself shows, for rows whose numbers could be any."""
        outcome = self._driving.one(blocks_never_free, None)
        return {"null_block": outcome.value} if isinstance(outcome, Finished) else {}

    def failures(self, changes: Changes) -> list[Trace]:
        """What fails when the target is driven under these changes, the shortest first; minimised.

        Raises TrialLostError where a run cost its worker.
        """
        self.num_drives += 1
        for portion in PORTIONS:
            chunks = [
                Chunk(kind, self._seed, numbers.start, len(numbers), self.profile_of(kind, changes))
                for kind in self._kinds
                for numbers in portion
            ]
            found: list[Trace] = []
            for result in self._driving.run(chunks):
                self._tell(result.num_steps)
                if result.lost is not None:
                    assert result.lost.violation is not None
                    raise TrialLostError(result.lost.violation.sentence)
                found += result.failures.values()
            if found:
                return self._minimised(found)
        return []

    def _own(self, trace: Trace) -> Profile:
        """The profile that the target has where the trace was recorded."""
        name = trace.options.get("layout")
        layout = next((one for one in self._about.layouts if one.name == name), None)
        if layout is None:
            return self._about.profile_at(trace.level)
        if WEAK_HASHES in trace.options:
            # Where nothing is declared such runs are judged as trusting their hashes.
            assert isinstance(trace.profile, ManagerProfile)
            assert isinstance(layout.profile, ManagerProfile)
            return replace(layout.profile, collisions=trace.profile.collisions)
        return layout.profile

    def _minimised(self, traces: Sequence[Trace]) -> list[Trace]:
        """One trace for each promise that was broken, as few commands as a brief search finds."""
        shortest: dict[tuple[str, str], Trace] = {}
        for trace in sorted(traces, key=effort_to_read, reverse=True):
            assert trace.violation is not None
            shortest[trace.violation.invariant, trace.level] = trace
        found = []
        for trace in shortest.values():
            outcome = self._driving.one(shrink_trace, Shrink(trace, _SHRINK_ATTEMPTS))
            found.append(outcome.value if isinstance(outcome, Finished) else trace)
        return sorted(found, key=effort_to_read)
