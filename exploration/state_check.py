"""Executes every command in a given state on the target itself, beside the reference.

The state is built by commands on a fresh target, and left and entered again by commands, so that
nothing of the target but its contract is used; after each command everything that it shows is
compared. Where a command breaks something, the shortest way to it that is known is tried first:
the building commands on a fresh target and the one command.

The narrow alphabet is the transition relation of `orbit_space.py` with everything around it that
must change nothing: every allocation from none to one too many, a reset that is refused, an
eviction of what has no hash, the same hash again. The wide one adds calls for two blocks and
misuse. The caller that executes the commands leaves out what the profile does not define.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations, product
from typing import Any

from poolproof.contract.commands import Allocate, Cache, Command, Evict, Free, Reset, Touch
from poolproof.contract.content import Key
from poolproof.contract.level import Level
from poolproof.contract.profile import USUAL_HASH_BYTES, Profile
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.exploration.representative import Representative
from poolproof.exploration.scope import Scope
from poolproof.exploration.watch import Watch
from poolproof.harness.pool_session import PoolSession
from poolproof.harness.target_call import constructing, crash

__all__ = ["StateCheck", "Try", "narrow_tries", "wide_tries"]


Try = tuple[Command, tuple[Command, ...] | None]
"""A command and what leads back to the state; None where only a fresh pool does."""

_STAYS: tuple[Command, ...] = ()


def narrow_tries(scope: Scope, state: Representative, null: int | None = None) -> Iterator[Try]:
    """Commands of one block, allocations, the reset; the null block where lists may name it."""
    num_free = len(state.free)
    yield Allocate(0), _STAYS
    yield Allocate(num_free + 1), _STAYS
    if state.references:
        yield Reset(), _STAYS
    if null is not None:
        for command in (Touch((null,)), Free((null,)), *(Cache((null,), (k,)) for k in state.keys)):
            yield command, _STAYS
    for block in state.distinct_held():
        yield from _on_held(scope, state, block, state.references[block])
    for block in state.free:
        if state.label_of[block]:
            yield Touch((block,)), state.requeueing(block)
            yield Evict((block,)), state.restoring(num_free)
    unhashed = state.first_unhashed()
    if unhashed is not None:
        yield Evict((unhashed,)), _STAYS
    for count in state.counts():
        yield Allocate(count), state.restoring(num_free - count)
    if not state.references:
        yield Reset(), state.restoring(num_free)


def wide_tries(
    state: Representative, null: int | None = None, hash_bytes: int = USUAL_HASH_BYTES
) -> Iterator[Try]:
    """Calls for two blocks, the same one twice included, and misuse of each kind."""
    beside = [] if null is None else [null]
    held = [*state.references, *beside]
    cached = [b for b in state.free if state.label_of[b]]
    keys = state.keys
    for pair in product([*held, *cached], repeat=2):
        yield Touch(pair), None
        yield Evict(pair), None
    for pair in product(held, repeat=2):
        yield Free(pair), None
    for pair, pair_keys in product(permutations(held, 2), product(keys, repeat=2)):
        yield Cache(pair, pair_keys), None
    beyond = (max([*state.label_of, *beside]) + 1,)
    some = state.spare_keys[:1] or keys[:1] or (b"\1" * hash_bytes,)
    yield Allocate(-1), _STAYS
    for misuse in (Touch(beyond), Free(beyond), Free((-1,)), Evict(beyond), Cache(beyond, some)):
        yield misuse, _STAYS
    yield Cache((), some), _STAYS
    for block, count in state.references.items():
        yield Free((block,) * (count + 1)), _STAYS
        yield Cache((block, block), some * 2), _STAYS
    for block in state.free:
        yield Free((block,)), _STAYS
        yield Cache((block,), some), _STAYS


def _on_held(scope: Scope, state: Representative, block: int, references: int) -> Iterator[Try]:
    """Commands for a held block; most have a command that undoes them."""
    one = (block,)
    label = state.label_of[block]
    if references < scope.max_references:
        yield Touch(one), (Free(one),)
    if references > 1 or label:
        yield Free(one), (Touch(one),)
    elif scope.eviction == "lru":
        yield Free(one), state.restoring(len(state.free) + 1)
    else:
        yield Free(one), (Allocate(1),)
    if label:
        yield Evict(one), (Cache(one, (state.key_of(block),)),)
    alone = scope.duplicates == "kept"
    for number, key in enumerate(state.keys, 1):
        if number == label:
            yield Cache(one, (key,)), _STAYS
        elif not alone or (not label and "evict" not in scope.verbs):
            yield Cache(one, (key,)), None
        elif label:
            yield Cache(one, (key,)), (Cache(one, (state.key_of(block),)),)
        else:
            yield Cache(one, (key,)), (Evict(one),)


Make = Callable[[int, bool], Any]


class StateCheck:
    """Checks states of one scope, one after the other.

    `num_commands` counts the commands that were executed and compared, `num_instances` the
    targets that were built.
    """

    def __init__(
        self, name: str, make: Make, profile: Profile, scope: Scope, watch: Watch, *, wide: bool
    ) -> None:
        self.num_blocks = scope.num_blocks + (profile.null_block is not None)
        self.blocks = [block for block in range(self.num_blocks) if block != profile.null_block]
        self.num_commands = 0
        self.num_instances = 0
        self._make = make
        self._profile = profile
        self._scope = scope
        self._watch = watch
        self._wide = wide
        self._setup = Trace(name, Level.POOL, profile, self.num_blocks, True, ())

    def check(self, state: Representative) -> Trace | None:
        """Every command in the state; the trace of the first that breaks something, or None."""
        building = state.building()
        session: _Session | None = None
        done: list[Command] = []
        for command, back in self._tries(state):
            if session is None:
                begun = self._begin()
                if isinstance(begun, Violation):
                    return self._trace([], begun)
                session, done = begun, []
                violation = self._build(session, state.keys, building, done)
                if violation is not None:
                    return self._trace(done, violation)
            if not session.is_defined(command):
                continue
            done.append(command)
            self._watch.announce(command)
            self.num_commands += 1
            violation = session.step_any(command)
            if violation is None and back:
                violation = self._follow(session, back, done)
            if violation is not None:
                return self._again(building, command) or self._trace(done, violation)
            if back is None:
                session = None
        return None

    def _tries(self, state: Representative) -> Iterator[Try]:
        null = self._profile.null_block
        listed = self._profile.null_in_lists != "misuse"
        yield from narrow_tries(self._scope, state, null if listed else None)
        if self._wide:
            yield from wide_tries(state, null, self._profile.usual_hash_bytes)

    def _begin(self) -> _Session | Violation:
        self._watch.begin(self._setup)
        self.num_instances += 1
        try:
            return _Session(self._make(self.num_blocks, True), self._profile, self.num_blocks)
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- a target may raise anything
            return crash(constructing("target", self.num_blocks), error)

    def _build(
        self, session: _Session, keys: Sequence[Key], building: Iterable[Command],
        done: list[Command],
    ) -> Violation | None:  # fmt: skip
        """Lead a fresh session into the state, and look at the whole of it there."""
        violation = session.first_look() or self._follow(session, building, done)
        session.keys.know(keys)
        return violation or session.look()

    def _follow(
        self, session: _Session, commands: Iterable[Command], done: list[Command]
    ) -> Violation | None:
        """Apply commands whose state is compared with the next command's; answers are judged."""
        session.compares(False)
        for command in commands:
            done.append(command)
            self._watch.announce(command)
            violation = session.step(command)
            if violation is not None:
                return violation
        session.compares(True)
        return None

    def _again(self, building: Sequence[Command], command: Command) -> Trace | None:
        """The failure once more, with nothing before it but what builds the state."""
        session = self._begin()
        assert isinstance(session, _Session)
        done: list[Command] = []
        for step in (*building, command):
            done.append(step)
            self._watch.announce(step)
            violation = session.step_any(step)
            if violation is not None:
                return self._trace(done, violation)
        return None

    def _trace(self, commands: Sequence[Command], violation: Violation) -> Trace:
        return replace(self._setup, commands=tuple(commands), violation=violation)


class _Session(PoolSession):
    """A pool session whose comparisons can be put off."""

    def look(self) -> Violation | None:
        """The violation that the whole state shows after the last command, or None."""
        found = self.first_look()
        return found and self._numbered(found)

    def compares(self, now: bool) -> None:
        """Whether the next steps compare the whole state."""
        self._checked = now
