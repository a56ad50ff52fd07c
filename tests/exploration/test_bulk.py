"""Whole levels at once lead to what orbit after orbit leads to: every orbit, every transition."""

import sys
from itertools import permutations, product

import pytest

from poolproof.exploration.breadth_first import OnePartition, explore, reachable, space_of
from poolproof.exploration.orbit_space import OrbitSpace
from poolproof.exploration.packed_orbits import (
    VERB_BITS,
    Packing,
    plain_changes,
    why_not_in_bulk,
)
from poolproof.exploration.scope import Scope

np = pytest.importorskip("numpy")

from poolproof.exploration.bulk_partition import (  # noqa: E402 -- it needs NumPy
    BulkPartition,
    _exact_sum,
)
from poolproof.exploration.bulk_relation import BulkRelation  # noqa: E402 -- it needs NumPy

RULES = [
    {"eviction": eviction, "duplicates": duplicates, "recache": recache}
    for eviction, duplicates, recache in product(
        ("lru", "lifo", "unhashed-first", "unhashed-lifo"),
        ("kept", "first", "last"),
        ("replace", "forbidden"),
    )
]
# Every combination of rows at one size; other sizes, as far as 61 bits, under rows that differ.
SCOPES = [Scope(4, 2, 2, **rules) for rules in RULES] + [
    Scope(1, 0, 1),
    Scope(1, 1, 1, "lifo", "last"),
    Scope(5, 0, 3, "unhashed-first"),
    Scope(5, 1, 1, "unhashed-first", "last"),
    Scope(3, 3, 3, "unhashed-first", "first", "forbidden"),
    Scope(3, 3, 2, "lru", "last"),
    Scope(4, 3, 1),
    Scope(3, 4, 2),
    Scope(3, 4, 1, "unhashed-lifo", "last", "forbidden"),
    Scope(2, 5, 2, "lifo", "first"),
    Scope(5, 2, 2, verbs=("allocate", "touch", "free", "cache")),
    Scope(4, 2, 2, "unhashed-first", verbs=("allocate", "touch", "free", "cache", "evict")),
    Scope(4, 1, 2, "lru", "first", verbs=("allocate", "free", "cache", "reset")),
]


def named(scope):
    return f"{scope.num_blocks}-{scope.num_hashes}-{scope.max_references}-{scope.rules}"


def cut(joined, width):
    return [joined[place : place + width] for place in range(0, len(joined), width)]


@pytest.mark.some(8)
@pytest.mark.parametrize("scope", SCOPES, ids=named)
def test_every_orbit_leads_where_it_leads_one_by_one(scope):
    space, bulk = OrbitSpace(scope), BulkRelation(scope)
    for orbit in reachable(space):
        ((queued, packed),) = bulk.from_bytes(orbit).items()
        after = bulk.successors(packed, queued)
        found = []
        for goes_to, keys in after.found.items():
            states = cut(bulk.as_bytes(keys >> np.uint64(VERB_BITS), goes_to), space.width)
            verbs = [int(key) & ((1 << VERB_BITS) - 1) for key in keys]
            found += zip(verbs, states, strict=True)
        expected, degree = space.successors(orbit)
        # As often as there: what fired is counted by verb.
        assert sorted(found) == sorted(expected)
        assert [int(number) for number in after.degrees] == [degree]
        assert after.fired == [sum(v == verb for v, _ in expected) for verb in range(6)]
        assert [int(size) for size in bulk.sizes(packed)] == [space.size(orbit)]


@pytest.mark.parametrize("scope", SCOPES, ids=named)
def test_levels_hold_the_same_orbits_and_the_same_counts(scope):
    levels = []
    for partitions in (OnePartition(OrbitSpace(scope)), BulkPartition(scope)):
        frontiers = []
        found = explore(
            OrbitSpace(scope),
            partitions,
            after_level=lambda _, states, kept=frontiers: kept.append(sorted(states)),
        )
        levels.append((found.levels, frontiers))
    assert levels[0] == levels[1]
    if scope.is_closed:
        total = found.total
        assert (total.num_found, total.num_states) == (scope.num_orbits, scope.num_states)


def test_counts_that_need_more_than_one_part_of_a_level(monkeypatch):
    scope = Scope(7)
    monkeypatch.setattr("poolproof.exploration.bulk_partition._ORBITS_AT_ONCE", 5)
    monkeypatch.setattr("poolproof.exploration.bulk_partition._BYTES_AT_ONCE", 3)
    space = OrbitSpace(scope)
    bulk = BulkPartition(scope)
    found = explore(space, bulk)
    assert found.levels == explore(space).levels
    assert (found.total.num_found, found.total.num_states) == (scope.num_orbits, scope.num_states)


def test_a_hash_that_two_blocks_carry_is_taken_from_both():
    # No command leads there where one block carries a hash, but the rule is for any orbit.
    scope = Scope(4, 2, 2, duplicates="last")
    space, bulk = OrbitSpace(scope), BulkRelation(scope)
    orbit = space.canonical(b"\1", bytes([3, 4, 7]))
    ((queued, packed),) = bulk.from_bytes(orbit).items()
    after = bulk.successors(packed, queued).found
    states = {
        state
        for goes_to, keys in after.items()
        for state in cut(bulk.as_bytes(keys >> np.uint64(VERB_BITS), goes_to), space.width)
    }
    assert states == {state for _, state in space.successors(orbit)[0]}


def test_an_orbit_is_the_same_bytes_when_it_comes_out_again():
    scope = Scope(5)
    bulk = BulkRelation(scope)
    joined = b"".join(reachable(OrbitSpace(scope)))
    parts = bulk.from_bytes(joined)
    assert set(parts) == set(range(6))
    written = [s for q, orbits in parts.items() for s in cut(bulk.as_bytes(orbits, q), 5)]
    assert sorted(written) == sorted(cut(joined, 5))
    for orbits in parts.values():
        assert (bulk.canonical(orbits) == orbits).all()


@pytest.mark.parametrize("first", ["bulk", "one by one"])
def test_one_continues_what_the_other_began(first):
    scope = Scope(4)
    space = OrbitSpace(scope)
    both = [BulkPartition(scope), OnePartition(space)]
    begins, goes_on = both if first == "bulk" else both[::-1]
    levels = [[space.initial()]]
    begun = explore(
        space, begins, max_depth=6, after_level=lambda _, states: levels.append(list(states))
    )
    begun.stopped = ""
    goes_on.begin(levels)
    assert explore(space, goes_on, earlier=begun).levels == explore(space).levels


def test_an_interruption_keeps_whole_levels():
    def interrupt(found, frontier):
        if len(found.levels) == 5:
            raise KeyboardInterrupt

    space = space_of(Scope(5), symmetry=True)
    found = explore(space, BulkPartition(Scope(5)), after_level=interrupt)
    assert found.stopped == "interrupted"
    assert found.levels == explore(space, max_depth=4).levels


def test_sums_beyond_a_word_are_exact():
    numbers = [(1 << 64) - 1, (1 << 64) - 2, 1 << 33, 5]
    assert _exact_sum(np.array(numbers, dtype=np.uint64)) == sum(numbers)


@pytest.mark.parametrize("count", range(6))
def test_exchanging_neighbours_comes_through_every_order_once(count):
    order = list(range(count))
    seen = [tuple(order)]
    for place in plain_changes(count):
        order[place : place + 2] = order[place : place + 2][::-1]
        seen.append(tuple(order))
    assert sorted(seen) == sorted(permutations(range(count)))


def test_what_does_not_fit_into_an_integer_is_said():
    assert (Packing(Scope(14)).bits, Packing(Scope(15)).bits) == (52, 54)
    assert why_not_in_bulk(Scope(15)) is None
    assert why_not_in_bulk(Scope(16)) == "an orbit and a verb take 65 bits, and an integer has 64"
    assert why_not_in_bulk(Scope(20, 0, 1)) is not None
    assert "of one orbit exceed 64 bits" in why_not_in_bulk(Scope(20, 0, 1))


@pytest.mark.parametrize("scope", SCOPES, ids=named)
def test_what_is_tried_here_fits(scope):
    assert why_not_in_bulk(scope) is None


def test_without_numpy_the_reason_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert "pip install 'poolproof[bulk]'" in why_not_in_bulk(Scope(4))
