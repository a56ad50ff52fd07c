"""The bridge from the proof to what runs: abstract pool and `DictPool`, compared entirely.

For a small number of blocks, hashes and references every state that satisfies the invariants is
built, in both; every action with every parameter is tried on both. Each is a function of state and
parameters where it is enabled, so equal guards and equal states after mean that the relation which
Z3 proves things about and the specification agree on all (state, action, state after).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any

from poolproof.contract.commands import (
    Allocate,
    Cache,
    Command,
    Evict,
    Free,
    Lookup,
    Reset,
    Touch,
)
from poolproof.contract.content import Key
from poolproof.contract.profile import Profile
from poolproof.exploration.proof.concrete_state import broken_in
from poolproof.exploration.proof.logic import ConcreteLogic
from poolproof.exploration.proof.model import Action, Model, State
from poolproof.exploration.proof.pool_model import POOL
from poolproof.reference.dict_pool import DictPool
from poolproof.reference.legality import misuse_of, undefined_in

__all__ = ["BridgeError", "PoolScope", "compare_pool", "profiles"]

Facts = tuple[Any, ...]


@dataclass(frozen=True)
class PoolScope:
    """How many blocks, hashes and references; block 0 is null where `has_null` says so."""

    num_blocks: int
    num_hashes: int
    num_references: int
    has_null: bool = False


def profiles(has_null: bool) -> Iterator[Profile]:
    """Every profile that the abstract pool covers."""
    rows = product(
        ("lru", "unhashed-first", "lifo"), ("kept", "first", "last"), ("replace", "forbidden")
    )
    for eviction, duplicates, recache in rows:
        yield Profile(
            null_block=0 if has_null else None,
            eviction=eviction,
            duplicates=duplicates,
            recache=recache,
            null_in_lists="ignored" if has_null else "misuse",
        )


def compare_pool(scope: PoolScope, profile: Profile, model: Model = POOL) -> int:
    """Compare everything in the scope; how many (state, action, parameters) that were.

    Raises BridgeError with state and step where the two differ.
    """
    bridge = _Bridge(scope, profile, model)
    bridge.compare_initial()
    return sum(bridge.compare(facts) for facts in bridge.all_facts)


class BridgeError(AssertionError):
    """The abstract pool and the specification differ; the message names state and step."""


@dataclass(frozen=True)
class _Step:
    """One command to the specification, and the actions of the abstract pool that stand for it."""

    command: Command
    actions: tuple[tuple[str, tuple[int, ...]], ...]
    reference: int | None = None


class _Bridge:
    def __init__(self, scope: PoolScope, profile: Profile, model: Model) -> None:
        self.scope = scope
        self.profile = profile
        self.model = model
        self.logic = ConcreteLogic(
            {
                "Block": range(scope.num_blocks),
                "Hash": range(scope.num_hashes),
                "Reference": range(scope.num_references),
                "Int": range(-2, scope.num_blocks + 2),
            }
        )
        self.all_facts = dict.fromkeys(_all_facts(scope, profile))

    def compare_initial(self) -> None:
        """A new pool is the one initial state."""
        facts = _facts_of_pool(DictPool(self.scope.num_blocks, self.profile))
        state = self._state(facts)
        clock = state.after({"clock": state.end})
        if facts not in self.all_facts or not self.model.initial(self.logic, clock):
            raise BridgeError(f"a new pool is no initial state: {facts}")

    def compare(self, facts: Facts) -> int:
        """Every step from one state, on both."""
        state = self._state(facts)
        broken = broken_in(self.model, self.logic, state)
        if broken:
            raise BridgeError(f"{facts} breaks {', '.join(broken)}")
        compared = 0
        for step in self._steps(facts):
            pool = self._pool(facts)
            expected = self._by_reference(pool, step)
            found = [
                self._by_model(state, self.model.action(name), parameters)
                for name, parameters in step.actions
            ]
            compared += len(found)
            enabled = [after for after in found if after is not None]
            if (expected is None) != (not enabled) or any(after != expected for after in enabled):
                raise BridgeError(
                    f"{self.profile}: in {facts}, {step.command} gives {expected} in the "
                    f"specification and {enabled} in the model"
                )
            if expected is not None and expected not in self.all_facts:
                raise BridgeError(f"in {facts}, {step.command} leads to {expected}, out of scope")
        return compared

    def _by_reference(self, pool: DictPool, step: _Step) -> Facts | None:
        """The facts after the command, None where it is refused, misuse or undefined."""
        command = step.command
        if misuse_of(pool, command) or undefined_in(pool, command):
            return None
        pool.command_number = -1 if step.reference is None else step.reference
        match command:
            case Allocate(count=count):
                if count > len(pool.free):
                    return None
                pool.allocate(count)
            case Touch(block_ids=ids):
                pool.touch(ids)
            case Free(block_ids=ids):
                pool.release(ids)
            case Cache(block_ids=ids, hashes=hashes):
                pool.cache(ids, hashes)
            case Evict(block_ids=ids):
                pool.evict(ids)
            case Lookup(block_hash=key):
                (_, (_, block)) = step.actions[0]
                if block not in pool.lookup(key):
                    return None
            case _:
                assert isinstance(command, Reset)
                if not pool.reset():
                    return None
        return _facts_of_pool(pool)

    def _by_model(self, state: State, action: Action, parameters: tuple[int, ...]) -> Facts | None:
        """The facts after the action, None where it is not enabled."""
        if not action.guard(self.logic, state, *parameters):
            return None
        after = state.after(action.effect(self.logic, state, *parameters))
        facts = self._facts_of(after)
        # What the facts do not show, queue places and references' blocks, must fit them.
        broken = broken_in(self.model, self.logic, after)
        if broken:
            raise BridgeError(f"{action.name}{parameters} leads to {facts}, breaks {broken}")
        return facts

    def _steps(self, facts: Facts) -> Iterator[_Step]:
        holders = facts[0]
        used = {r for line in holders for r in line}
        fresh = [r for r in range(self.scope.num_references) if r not in used]
        keys = [_key(h) for h in range(self.scope.num_hashes)]
        for r in fresh:
            yield _Step(Allocate(1), (("allocate", (r,)),), r)
        for b in range(self.scope.num_blocks):
            null = b == self.profile.null_block
            skipped = (("null in a list", (b,)),)
            yield _Step(Free((b,)), skipped if null else (("free", (b,)),))
            yield _Step(Evict((b,)), (("evict", (b,)),))
            for r in fresh:
                yield _Step(Touch((b,)), skipped if null else (("touch", (b, r)),), r)
            for h, key in enumerate(keys):
                cached = (
                    ("cache", (b, h)),
                    *(("cache, first stays", (b, h, c)) for c in range(self.scope.num_blocks)),
                )
                yield _Step(Cache((b,), (key,)), skipped if null else cached)
                yield _Step(Lookup(key), (("lookup", (h, b)),))
        yield _Step(Reset(), (("reset", ()),))

    def _pool(self, facts: Facts) -> DictPool:
        """The specification in this state."""
        holders, order, hashes = facts
        pool = DictPool(self.scope.num_blocks, self.profile)
        pool.free.clear()
        pool.free.update(dict.fromkeys(order))
        for block, line in enumerate(holders):
            pool.holders[block] = list(line)
            if hashes[block] is not None:
                key = _key(hashes[block])
                pool.keys[block] = [key]
                pool.carriers.setdefault(key, []).append(block)
        return pool

    def _facts_of(self, s: State) -> Facts:
        """Of an abstract state what the specification has, too."""
        blocks = range(self.scope.num_blocks)
        holders = tuple(tuple(s.holder(b, i) for i in range(s.count(b))) for b in blocks)
        order = tuple(s.at(i) for i in range(s.first, s.end))
        return holders, order, tuple(s.hash(b) if s.hashed(b) else None for b in blocks)

    def _state(self, facts: Facts) -> State:
        """The abstract state of these facts; ghosts are chosen to fit."""
        holders, order, hashes = facts
        profile = self.profile
        at = dict(enumerate(order))
        index = {block: place for place, block in at.items()}
        on = {r: b for b, line in enumerate(holders) for r in line}
        place = {r: i for line in holders for i, r in enumerate(line)}
        line = {(b, i): r for b, held in enumerate(holders) for i, r in enumerate(held)}
        fields = {
            "lifo": profile.eviction == "lifo",
            "unhashed_first": profile.eviction == "unhashed-first",
            "keep_first": profile.duplicates == "first",
            "keep_last": profile.duplicates == "last",
            "recache_forbidden": profile.recache == "forbidden",
            "null": lambda b: b == profile.null_block,
            "count": lambda b: len(holders[b]),
            "holder": lambda b, i: line.get((b, i), 0),
            "live": lambda r: r in on,
            "on": lambda r: on.get(r, 0),
            "place": lambda r: place.get(r, 0),
            "queued": lambda b: b in index,
            "first": 0,
            "end": len(order),
            "at": lambda i: at.get(i, 0),
            "index": lambda b: index.get(b, 0),
            "num_free": len(order),
            "hashed": lambda b: hashes[b] is not None,
            "hash": lambda b: hashes[b] or 0,
            "indexed": lambda h, b: hashes[b] == h,
            "joined": lambda b: index.get(b, 0),
            "clock": len(order),
        }
        return State(fields)


def _all_facts(scope: PoolScope, profile: Profile) -> Iterator[Facts]:
    """Holders by block, free order, hash by block: all that the invariants allow."""
    usable = range(1 if scope.has_null else 0, scope.num_blocks)
    no_hash = (None, *range(scope.num_hashes))
    for hashes in product(no_hash, repeat=len(usable)):
        carried = [h for h in hashes if h is not None]
        if profile.duplicates != "kept" and len(set(carried)) != len(carried):
            continue
        null = (None,) if scope.has_null else ()
        for holders in _all_holders(scope, usable):
            free = [b for b in usable if not holders[b]]
            for order in permutations(free):
                yield holders, order, (*null, *hashes)


def _all_holders(scope: PoolScope, usable: Sequence[int]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Every way in which references hold blocks, in every order within a block."""
    for places in product((None, *usable), repeat=scope.num_references):
        held = [
            [r for r, place in enumerate(places) if place == b] for b in range(scope.num_blocks)
        ]
        yield from product(*(tuple(permutations(line)) for line in held))


def _facts_of_pool(pool: DictPool) -> Facts:
    """Holders by block, free order, hash by block. Raises BridgeError for an index that differs."""
    hashes = tuple(_hash(keys[0]) if keys else None for keys in pool.keys.values())
    carried = {(key, block) for key, blocks in pool.carriers.items() for block in blocks}
    if carried != {(key, block) for block, keys in pool.keys.items() for key in keys}:
        raise BridgeError(f"index and hashes of the specification differ: {pool.carriers}")
    return tuple(map(tuple, pool.holders.values())), tuple(pool.free), hashes


def _key(number: int) -> bytes:
    return bytes([number])


def _hash(key: Key) -> int:
    assert isinstance(key, bytes)
    return key[0]
