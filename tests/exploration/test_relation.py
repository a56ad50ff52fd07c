"""The explored transition relation is the reference's own steps, exhaustively at small sizes."""

from dataclasses import replace
from itertools import product

import pytest

from poolproof.contract.commands import Allocate, Cache, Command, Evict, Free, Reset, Touch
from poolproof.contract.profile import Profile
from poolproof.exploration.orbit_space import OrbitSpace
from poolproof.exploration.scope import ALL_VERBS, Scope
from poolproof.exploration.state_space import StateSpace
from poolproof.reference.dict_pool import DictPool
from poolproof.reference.legality import misuse_of, undefined_in

PROFILES = [
    Profile(eviction=eviction, duplicates=duplicates, recache=recache)
    for eviction, duplicates, recache in product(
        ("lru", "lifo", "unhashed-first"), ("kept", "first", "last"), ("replace", "forbidden")
    )
]
# One of each row, at more than one size; every combination of rows at the smaller one.
CASES = [(Scope(3), profile) for profile in PROFILES] + [
    (Scope(2, 3, 3), Profile()),
    (Scope(4, 1, 1), Profile(eviction="unhashed-first", duplicates="last")),
    (Scope(3), Profile(eviction="unhashed-lifo")),
]


def named(value):
    return value.rules if isinstance(value, Scope) else f"{value.eviction}-{value.duplicates}"


def pool_in(space: StateSpace, state: bytes, profile: Profile) -> DictPool:
    """The reference, put into a state through its public dictionaries."""
    pool = DictPool(space.scope.num_blocks, profile)
    blocks, queue = space.split(state)
    pool.free.clear()
    for block in queue:
        pool.free[block] = None
    for block, (references, label) in enumerate(blocks):
        pool.holders[block].extend([0] * references)
        if label:
            pool.keys[block].append(bytes([label]))
            pool.carriers.setdefault(bytes([label]), []).append(block)
    return pool


def state_of(space: StateSpace, pool: DictPool) -> bytes:
    radix = space.scope.num_hashes + 1
    codes = [
        len(pool.holders[block]) * radix + (pool.keys[block][0][0] if pool.keys[block] else 0)
        for block in range(pool.num_blocks)
    ]
    return bytes(codes) + bytes(pool.free).ljust(pool.num_blocks, b"\xff")


def applied(pool: DictPool, command: Command) -> None:
    match command:
        case Allocate(count=count):
            pool.allocate(count)
        case Touch(block_ids=ids):
            pool.touch(ids)
        case Free(block_ids=ids):
            pool.release(ids)
        case Cache(block_ids=ids, hashes=hashes):
            pool.cache(ids, hashes)
        case Evict(block_ids=ids):
            pool.evict(ids)
        case Reset():
            pool.reset()


def steps_of_the_reference(space: StateSpace, state: bytes, profile: Profile):
    """(verb, state) for every defined command of one block that changes the reference."""
    scope = space.scope
    labels = [bytes([label]) for label in range(1, scope.num_hashes + 1)]
    blocks = range(scope.num_blocks)
    commands = [Allocate(1), Reset(), *(Touch((b,)) for b in blocks), *(Free((b,)) for b in blocks)]
    commands += [Evict((block,)) for block in blocks]
    commands += [Cache((block,), (label,)) for block in blocks for label in labels]
    found = []
    for command in commands:
        pool = pool_in(space, state, profile)
        if command == Allocate(1) and not pool.free:
            continue
        if misuse_of(pool, command) or undefined_in(pool, command):
            continue
        applied(pool, command)
        counts = [len(holders) for holders in pool.holders.values()]
        after = state_of(space, pool)
        if max(counts) <= scope.max_references and after != state:
            found.append((ALL_VERBS.index(command.verb), after))
    return sorted(found)


@pytest.mark.some(7)
@pytest.mark.parametrize(("scope", "profile"), CASES, ids=named)
def test_the_relation_is_what_the_reference_does(scope, profile):
    space = StateSpace(scope.under(profile))
    seen = {space.initial()}
    todo = [space.initial()]
    for state in todo:
        found, degree = space.successors(state)
        assert sorted(found) == steps_of_the_reference(space, state, profile)
        assert degree == len(found)
        new = {after for _, after in found} - seen
        seen |= new
        todo += new


@pytest.mark.some(7)
@pytest.mark.parametrize(("scope", "profile"), CASES, ids=named)
def test_orbits_move_exactly_as_their_states_do(scope, profile):
    scope = scope.under(profile)
    states, orbits = StateSpace(scope), OrbitSpace(scope)
    members: dict[bytes, int] = {}
    seen = {states.initial()}
    todo = [states.initial()]
    for state in todo:
        orbit = states.orbit_of(state)
        members[orbit] = members.get(orbit, 0) + 1
        found, degree = states.successors(state)
        reduced, orbit_degree = orbits.successors(orbit)
        assert orbit_degree == degree
        assert set(reduced) == {(verb, states.orbit_of(after)) for verb, after in found}
        new = {after for _, after in found} - seen
        seen |= new
        todo += new
    assert members == {orbit: orbits.size(orbit) for orbit in members}
    if scope.is_closed:
        assert (len(members), len(seen)) == (scope.num_orbits, scope.num_states)
    else:
        assert len(members) < scope.num_orbits
        assert len(seen) < scope.num_states


def test_a_relation_without_eviction_keeps_hashed_blocks_behind_in_unhashed_first():
    scope = replace(
        Scope(3, eviction="unhashed-first"), verbs=("allocate", "touch", "free", "cache")
    )
    assert not scope.is_closed
    space = OrbitSpace(scope)
    seen = {space.initial()}
    todo = [space.initial()]
    for orbit in todo:
        queue, _ = space.split(orbit)
        assert b"\0" not in queue.lstrip(b"\0")
        new = {after for _, after in space.successors(orbit)[0]} - seen
        seen |= new
        todo += new
    assert len(seen) < scope.num_orbits
