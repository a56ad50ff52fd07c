"""The moves of one block agree with explore's relation and with what commands do."""

import random

import pytest

from poolproof.contract.profile import Profile
from poolproof.exploration.orbit_space import OrbitSpace
from poolproof.exploration.scope import Scope
from poolproof.fuzz.one_block import MOST_KEYS, OneBlockRules
from poolproof.fuzz.pool_run import PoolPosition
from poolproof.harness.pool_session import PoolSession
from poolproof.harness.pool_workload import alphabet
from poolproof.impl.block_pool import BlockPool

EVICTIONS = ["lru", "lifo", "unhashed-first"]


@pytest.mark.parametrize("most_keys", [MOST_KEYS, 0])
@pytest.mark.parametrize("eviction", EVICTIONS)
@pytest.mark.parametrize("recache", ["replace", "forbidden"])
def test_moves_reach_exactly_the_orbits_that_explore_counts(eviction, recache, most_keys):
    scope = Scope(4, 2, 2, eviction=eviction, recache=recache)
    rules, space = OneBlockRules(scope, most_keys), OrbitSpace(scope)
    state_of = rules.keys.state
    todo, orbits = [rules.key_of(bytes(4))], set()
    seen = set(todo)
    for key in todo:
        orbit = space.canonical(*state_of(key))
        orbits.add(orbit)
        found = {space.canonical(*state_of(after)) for after in rules.moves(key)[1]}
        expected = {after for _, after in space.successors(orbit)[0]}
        assert found == expected
        for after in rules.moves(key)[1]:
            if after not in seen:
                seen.add(after)
                todo.append(after)
    assert len(orbits) == scope.num_orbits


@pytest.mark.parametrize("most_keys", [MOST_KEYS, 0])
@pytest.mark.parametrize("eviction", EVICTIONS)
def test_a_move_leads_where_its_command_leads(eviction, most_keys):
    profile = Profile(eviction=eviction, misuse="undefined")
    pool = BlockPool(5, eviction=eviction, misuse="undefined")
    session = PoolSession(pool, profile, 5)
    rules = OneBlockRules(Scope(5, 2, 2, eviction=eviction), most_keys)
    position = PoolPosition(session.reference, rules, alphabet(2, 0))
    source = random.Random(1)
    key = rules.key_of(position.read())
    for _ in range(2_000):
        moves, successors = rules.moves(key)
        place = source.randrange(len(moves))
        assert session.step(position.take(moves[place])) is None
        key = successors[place]
        now = PoolPosition(session.reference, rules, alphabet(2, 0)).read()
        assert b"".join(rules.keys.state(key)) == now


def test_a_state_outside_of_the_bounds_has_no_place():
    session = PoolSession(BlockPool(3, misuse="undefined"), Profile(misuse="undefined"), 3)
    position = PoolPosition(session.reference, OneBlockRules(Scope(3, 2, 1)), alphabet(2, 0))
    assert position.read() is not None
    blocks = session.reference.allocate(1)
    session.reference.touch(blocks)
    assert position.read() is None
