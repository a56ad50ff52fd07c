"""Every operation in every state of a small index, everything read after it.

A state says which blocks carry each key, and in which order they came; nothing is reduced. Each is
built in three ways: by inserting what has to be there, by inserting it twice, and by inserting
every block and popping the rest. An index may keep one block in another form than several, and come
to the same blocks in either. `shortest.py` adds all sequences of operations up to a length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.index_commands import Clear, Contains, Get, IndexKey, Insert, Pop
from poolproof.contract.level import Level
from poolproof.contract.profile import USUAL_HASH_BYTES, Profile
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.exploration.watch import Watch
from poolproof.harness.index_session import IndexSession
from poolproof.harness.target_call import constructing, crash

__all__ = ["IndexCheck", "IndexScope", "index_states", "plain_keys"]

_BETWEEN_KEYS = 255


@dataclass(frozen=True, slots=True)
class IndexScope:
    """An index over so many blocks and keys; of `key_kinds` the first is explored."""

    num_blocks: int
    num_keys: int
    key_kinds: tuple[str, ...]
    profile: Profile


def plain_keys(
    key_kinds: Sequence[str], num_keys: int, hash_bytes: int = USUAL_HASH_BYTES
) -> list[IndexKey]:
    """Keys of the first of the kinds, as simple as they can be."""
    hashes = [bytes([number]) * hash_bytes for number in range(1, num_keys + 1)]
    if key_kinds[0] == "int":
        return list(range(1, num_keys + 1))
    return [(block_hash, 0) for block_hash in hashes] if key_kinds[0] == "pair" else list(hashes)


def index_states(scope: IndexScope) -> Iterator[bytes]:
    """Every state, the emptiest first: for each key its blocks in the order of their arrival."""
    most = scope.num_blocks if scope.profile.duplicates == "kept" else 1
    orders = [
        order
        for length in range(most + 1)
        for order in permutations(range(scope.num_blocks), length)
    ]
    states = [
        b"".join(bytes((*order, _BETWEEN_KEYS)) for order in of_keys)
        for of_keys in product(orders, repeat=scope.num_keys)
    ]
    yield from sorted(states, key=len)


class IndexCheck:
    """Checks states of indexes of a scope; `num_commands` counts the operations."""

    def __init__(
        self, name: str, make: Callable[[int, bool], Any], scope: IndexScope, watch: Watch
    ) -> None:
        self.num_commands = 0
        self._make = make
        self._scope = scope
        hash_bytes = scope.profile.usual_hash_bytes
        self._keys = plain_keys(scope.key_kinds, scope.num_keys, hash_bytes)
        self._watch = watch
        self._setup = Trace(name, Level.INDEX, scope.profile, scope.num_blocks, True, ())

    def check(self, state: bytes) -> Trace | None:
        """Every operation in the state; the trace of the first that breaks something, or None."""
        of_keys = [tuple(part) for part in state.split(bytes((_BETWEEN_KEYS,)))[:-1]]
        orders = dict(zip(self._keys, of_keys, strict=True))
        inserted = [Insert(key, block) for key, order in orders.items() for block in order]
        twice = [command for command in inserted for _ in range(2)]
        for building in (inserted, twice, self._left_over(orders)):
            for operation in self._operations():
                failed = self._run((*building, operation))
                if failed is not None:
                    return failed
                self.num_commands += 1
        return None

    def _left_over(self, orders: dict[IndexKey, tuple[int, ...]]) -> list[Command]:
        commands: list[Command] = []
        keeps_all = self._scope.profile.duplicates == "kept"
        for key, order in orders.items():
            others = [block for block in range(self._scope.num_blocks) if block not in order]
            wanted = [Insert(key, block) for block in order]
            commands += [Insert(key, block) for block in others]
            commands += wanted if keeps_all else ()
            commands += [Pop(key, block) for block in others]
            commands += () if keeps_all else wanted
        return commands

    def _operations(self) -> Iterator[Command]:
        yield from map(Get, self._keys)
        for kind in (Insert, Pop, Contains):
            for key, block in product(self._keys, range(self._scope.num_blocks)):
                yield kind(key, block)
        yield Clear()

    def _run(self, commands: Sequence[Command]) -> Trace | None:
        self._watch.begin(self._setup)
        num_blocks = self._scope.num_blocks
        try:
            session = IndexSession(self._make(num_blocks, True), num_blocks, self._scope.profile)
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- a target may raise anything
            return self._trace((), crash(constructing("target", num_blocks), error))
        broken = session.first_look()
        if broken is not None:
            return self._trace((), broken)
        done: list[Command] = []
        for command in commands:
            if not session.is_defined(command):
                return None  # an operation that the target does not have
            done.append(command)
            self._watch.announce(command)
            broken = session.step(command)
            if broken is not None:
                return self._trace(done, broken)
        return None

    def _trace(self, commands: Sequence[Command], violation: Violation) -> Trace:
        return replace(self._setup, commands=tuple(commands), violation=violation)
