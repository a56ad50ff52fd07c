"""What a worker does for an exhaustive run: a part of the states, or all short sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from poolproof.contract.profile import Profile
from poolproof.contract.target import Capabilities, capabilities_of
from poolproof.contract.trace import Trace
from poolproof.description import part_of
from poolproof.explore.exhaustive_run import Part, PartResult, check_part
from poolproof.explore.index_check import plain_keys
from poolproof.explore.shortest import (
    ShortestResult,
    shortest_failure,
    shortest_index_failure,
    shortest_queue_failure,
)
from poolproof.explore.watch import Watch
from poolproof.harness.isolation import Beacon
from poolproof.harness.lost_run import Again, Journal, find_culprit
from poolproof.levels import Sequences
from poolproof.targets.target import Target

__all__ = [
    "PartJob",
    "SequenceJob",
    "check_sequences",
    "check_states",
    "trace_of_lost_part",
    "trace_of_lost_sequence",
]

_MOST_STATES = 1_000_000


@dataclass(frozen=True, slots=True)
class PartJob:
    """A part, and what the target can do at that level."""

    part: Part
    can: Capabilities


@dataclass(frozen=True, slots=True)
class SequenceJob:
    """Sequences of commands at a level, "pool", "queue" or "index", on so many blocks."""

    level: str
    num_blocks: int
    bounds: Sequences


def check_sequences(target: Target, job: SequenceJob, beacon: Beacon) -> ShortestResult:
    """Try all sequences, the shortest first, up to the first that fails."""
    return _try_sequences(target, job, Watch(beacon.bump, beacon.bump))


def trace_of_lost_sequence(isolation: Any, job: SequenceJob, lost: Any, setup: Trace) -> Trace:
    """The trace of the sequence in which the worker was lost."""
    return find_culprit(isolation, _repeat_sequences, job, lost, setup)


def _repeat_sequences(target: Target, again: Again[SequenceJob], beacon: Beacon) -> None:
    with Journal(again.journal, beacon) as journal:
        _try_sequences(target, again.run, Watch(journal.begin, journal.announce))


def _try_sequences(target: Target, job: SequenceJob, watch: Watch) -> ShortestResult:
    level = part_of(target, job.level)
    bounds = job.bounds
    profile = Profile() if job.level == "queue" else level.profile
    setup = Trace(level.name, job.level, profile, job.num_blocks, True, ())

    def make(num_blocks: int, enable_caching: bool) -> Any:
        watch.begin(setup)
        return level.make(num_blocks, enable_caching)

    if job.level == "queue":
        return shortest_queue_failure(
            make,
            job.num_blocks,
            max_commands=bounds.max_commands,
            max_states=_MOST_STATES,
            max_count=bounds.max_count,
            max_list=bounds.max_list,
            max_applied=bounds.most_steps,
            announce=watch.announce,
        )
    if job.level == "index":
        kinds = capabilities_of(make(job.num_blocks, True)).key_kinds
        keys = plain_keys(kinds, bounds.num_hashes, profile.usual_hash_bytes)
        return shortest_index_failure(
            make,
            profile,
            job.num_blocks,
            keys,
            max_commands=bounds.max_commands,
            max_states=_MOST_STATES,
            announce=watch.announce,
        )
    return shortest_failure(
        make,
        target.profile,
        job.num_blocks,
        hashes=bounds.num_hashes,
        max_commands=bounds.max_commands,
        max_states=_MOST_STATES,
        max_count=bounds.max_count,
        max_list=bounds.max_list,
        max_applied=bounds.most_steps,
        announce=watch.announce,
    )


def check_states(target: Target, job: PartJob, beacon: Beacon) -> PartResult:
    """Check the part's states; `beacon.mark` holds the place of the one in progress, from 1."""
    return _check(target, job, Watch(beacon.bump, beacon.bump), beacon)


def trace_of_lost_part(
    isolation: Any, job: PartJob, lost: Any, name: str, profile: Profile
) -> Trace:
    """The trace of the state in which a part's worker was lost."""
    alone = PartJob(job.part.only(max(lost.mark - 1, 0)), job.can)
    num_blocks = job.part.num_blocks
    setup = Trace(name, job.part.level, profile, num_blocks, True, ())
    return find_culprit(isolation, _repeat, alone, lost, setup)


def _repeat(target: Target, again: Again[PartJob], beacon: Beacon) -> None:
    with Journal(again.journal, beacon) as journal:
        _check(target, again.run, Watch(journal.begin, journal.announce), beacon)


def _check(target: Target, job: PartJob, watch: Watch, beacon: Beacon) -> PartResult:
    level = part_of(target, job.part.level)
    return check_part(
        level.name,
        make=level.make,
        profile=level.profile,
        can=job.can,
        part=job.part,
        watch=watch,
        mark=beacon.mark,
        tapes=level.tapes,
    )
