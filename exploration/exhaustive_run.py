"""Parts of an exhaustive run on a target, small enough to be handed to workers.

A part is a slice of the states of a scope, in the order in which breadth-first exploration meets
them: the first that fails is one of the nearest to the fresh pool. What a part does depends on
nothing but the part and its seed, so a run that never came back can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from poolproof.contract.level import Level
from poolproof.contract.profile import Profile
from poolproof.contract.tapes import PlaysTapes
from poolproof.contract.target import Capabilities
from poolproof.contract.trace import Trace
from poolproof.exploration.fast_check import FastCheck
from poolproof.exploration.index_check import IndexCheck, IndexScope
from poolproof.exploration.orbit_space import OrbitSpace
from poolproof.exploration.queue_check import QueueCheck
from poolproof.exploration.representative import Representative, of_orbit, of_state
from poolproof.exploration.scope import ALL_VERBS, Scope
from poolproof.exploration.state_check import StateCheck
from poolproof.exploration.state_space import StateSpace
from poolproof.exploration.tape_check import TapeCheck, suits_tapes
from poolproof.exploration.watch import Watch
from poolproof.harness.failure_kind import FailureKind, failure_kind
from poolproof.harness.pool_workload import different_hashes

__all__ = ["PartResult", "ScopePart", "check_part", "parts_of", "scope_under", "why_not"]

Make = Callable[[int, bool], Any]

MOST_FAILURES = 20
"""A part that has met so many failing states tells nothing new."""

_MOST_FALSE_ALARMS = 20
"""A target that the fast form cannot read is left to the sessions after so many states."""

_STATES_A_PART = 400


@dataclass(frozen=True, slots=True)
class ScopePart:
    """States number `first` and following of a scope, joined; queue orders where `scope` is None.

    `scope` says the level as well.

    `unreduced`: the states are those of `StateSpace`, not orbits. `wide`: calls for two blocks and
    misuse as well. `by_sessions`: nothing in the fast form, so that every command is announced.
    """

    first: int
    states: tuple[bytes, ...]
    seed: int
    scope: Scope | IndexScope | None
    num_blocks: int
    wide: bool = False
    unreduced: bool = False
    by_sessions: bool = False

    @property
    def level(self) -> Level:
        """The level of the states."""
        if self.scope is None:
            return Level.QUEUE
        return Level.INDEX if isinstance(self.scope, IndexScope) else Level.POOL

    def only(self, place: int) -> ScopePart:
        """The part that is one state of this one, executed by sessions."""
        state = self.states[place]
        return replace(self, first=self.first + place, states=(state,), by_sessions=True)


@dataclass(slots=True)
class PartResult:
    """What a part did: the first failing trace of each kind of failure."""

    num_states: int = 0
    num_commands: int = 0
    num_failing: int = 0
    failures: dict[FailureKind, Trace] = field(default_factory=dict)

    def add(self, trace: Trace) -> None:
        """Keep the trace if it is the first of its kind."""
        assert trace.violation is not None
        self.num_failing += 1
        self.failures.setdefault(failure_kind(trace.violation, trace.commands), trace)


def why_not(profile: Profile, can: Capabilities, num_blocks: int) -> str | None:
    """Why a pool cannot be explored exhaustively, in words; None if it can."""
    if "touch" not in can.verbs:
        return "the target has no touch(), so references cannot be taken one by one"
    if profile.retention == "may-drop":
        return "retention=may-drop: a state has no one successor when entries vanish at any time"
    if profile.retention == "while-held":
        return "retention=while-held: the states that are listed have free blocks with hashes"
    if profile.null_block is not None and profile.null_block > num_blocks:
        return f"null_block={profile.null_block} does not exist in a pool of {num_blocks + 1}"
    return None


def scope_under(scope: Scope, profile: Profile, can: Capabilities) -> Scope:
    """The bounds with the rules of a profile and the verbs of a target.

    A profile without an order of eviction is explored in the states of `lru`; what the target
    hands out is followed.
    """
    eviction = "lru" if profile.eviction == "unspecified" else profile.eviction
    return Scope(
        scope.num_blocks,
        scope.num_hashes,
        scope.max_references,
        eviction,
        profile.duplicates,
        profile.recache,
        tuple(verb for verb in ALL_VERBS if verb in can.verbs),
    )


def parts_of(
    states: Sequence[bytes], scope: Scope | IndexScope | None, num_blocks: int, seed: int,
    *, wide: bool = False, unreduced: bool = False,
) -> Iterator[ScopePart]:  # fmt: skip
    """The states in slices."""
    for first in range(0, len(states), _STATES_A_PART):
        some = tuple(states[first : first + _STATES_A_PART])
        yield ScopePart(first, some, seed, scope, num_blocks, wide, unreduced)


def check_part(
    name: str,
    *,
    make: Make,
    profile: Profile,
    can: Capabilities,
    part: ScopePart,
    watch: Watch,
    mark: Callable[[int], object],
    tapes: PlaysTapes | None = None,
) -> PartResult:
    """Check the states of a part; `mark` hears the place of each in it, from 1, beforehand.

    A target that takes whole tapes is asked for a state at a time.
    """
    if part.scope is None:
        queues = QueueCheck(name, make, part.num_blocks, watch)
        return _check_each(part, queues, lambda order: queues.check(tuple(order)), mark)
    if isinstance(part.scope, IndexScope):
        indexes = IndexCheck(name, make, part.scope, watch)
        return _check_each(part, indexes, indexes.check, mark)
    result = PartResult()
    slow = StateCheck(name, make, profile, part.scope, watch, wide=part.wide)
    fast: FastCheck | TapeCheck | None = None
    if part.by_sessions:
        pass
    elif tapes is not None and suits_tapes(profile, can):
        fast = TapeCheck(tapes, profile, part.scope, wide=part.wide)
    elif not part.wide and _suits_the_fast_form(part.scope, profile, can):
        fast = FastCheck(make, profile, part.scope)
    false_alarms = 0
    for place, state in enumerate(_representatives(part, slow.blocks, profile), 1):
        mark(place)
        result.num_states += 1
        if fast is not None and false_alarms < _MOST_FALSE_ALARMS:
            if fast.passes(state):
                continue
            false_alarms += 1
        trace = slow.check(state)
        if trace is not None:
            result.add(trace)
            if result.num_failing >= MOST_FAILURES:
                break
    result.num_commands = slow.num_commands + (fast.num_commands if fast else 0)
    return result


def _suits_the_fast_form(scope: Scope, profile: Profile, can: Capabilities) -> bool:
    return (
        scope.duplicates == "kept"
        and profile.eviction != "unspecified"
        and {*ALL_VERBS, "lookup"} <= can.verbs
    )


def _representatives(
    part: ScopePart, blocks: Sequence[int], profile: Profile
) -> Iterator[Representative]:
    assert isinstance(part.scope, Scope)
    if part.unreduced:
        space = StateSpace(part.scope)
        random = Random(part.seed)
        number = part.scope.num_hashes + part.scope.num_blocks
        keys = different_hashes(random, number, profile.usual_hash_bytes)
        for state in part.states:
            yield of_state(space, state, blocks, keys)
        return
    orbits = OrbitSpace(part.scope)
    for number, orbit in enumerate(part.states, part.first):
        # One generator a state: what becomes of it does not depend on how parts are cut.
        random = Random(part.seed * 1_000_003 + number)
        yield of_orbit(orbits, orbit, blocks, random, profile.usual_hash_bytes)


def _check_each(
    part: ScopePart,
    checker: QueueCheck | IndexCheck,
    check: Callable[[bytes], Trace | None],
    mark: Callable[[int], object],
) -> PartResult:
    result = PartResult()
    for place, state in enumerate(part.states, 1):
        mark(place)
        result.num_states += 1
        trace = check(state)
        if trace is not None:
            result.add(trace)
            if result.num_failing >= MOST_FAILURES:
                break
    result.num_commands = checker.num_commands
    return result
