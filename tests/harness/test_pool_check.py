"""The fast checks say no exactly where the invariants, which are the specification, say something.

A right pool is driven into some state; then one thing that it shows is replaced.
"""

import dataclasses

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from poolproof.contract.commands import Allocate, Cache, Free, Touch
from poolproof.contract.profile import Profile
from poolproof.contract.target import POOL_OBSERVERS, capabilities_of
from poolproof.harness.choices import SeededChoices
from poolproof.harness.pool_check import FullCheck, IncrementalCheck, observe
from poolproof.harness.pool_session import PoolSession
from poolproof.harness.pool_workload import PoolWorkload, alphabet
from poolproof.invariants.catalogue import broken_in_state
from poolproof.reference.native_pool import NativeDictPool

HASHES = alphabet(3, "checks")
NEVER_GIVEN = b"never given to anybody"


class Tampered:
    """A right pool; `lies` replaces single answers, `order` the queue and the links with it."""

    def __init__(self, profile, num_blocks, hidden=()):
        self.pool = NativeDictPool(num_blocks, profile=profile)
        self.lies = {}
        self.order = None
        for verb in ("allocate", "touch", "free", "cache", "evict", "reset"):
            setattr(self, verb, getattr(self.pool, verb))
        for name in hidden:
            setattr(self, name, None)

    def num_free(self):
        return self.lies.get("num_free", self.pool.num_free())

    def free_order(self):
        return self.pool.free_order() if self.order is None else self.order

    def ref_count(self, block):
        return self.lies.get(("ref_count", block), self.pool.ref_count(block))

    def block_hash(self, block):
        return self.lies.get(("block_hash", block), self.pool.block_hash(block))

    def lookup(self, key):
        return self.lies.get(("lookup", key), self.pool.lookup(key))

    def free_neighbours(self, block):
        if ("neighbours", block) in self.lies:
            return self.lies["neighbours", block]
        if self.order is None or not self.lies.get("links follow"):
            return self.pool.free_neighbours(block)
        if block not in self.order:
            return None
        place = self.order.index(block)
        padded = [None, *self.order, None]
        return padded[place], padded[place + 2]


profiles = st.builds(
    Profile,
    null_block=st.sampled_from([None, 0, 2]),
    eviction=st.sampled_from(["lru", "unhashed-first", "unspecified"]),
    duplicates=st.sampled_from(["kept", "first"]),
    null_in_lists=st.sampled_from(["misuse", "ignored"]),
)
hidden_parts = st.sets(st.sampled_from(POOL_OBSERVERS[:4]), max_size=2)


def driven(profile, seed, steps, hidden=()):
    """A session with a tampered pool after some legal commands, all of which passed."""
    num_blocks = 3 + seed % 5
    session = PoolSession(Tampered(profile, num_blocks, hidden), profile, num_blocks)
    workload = PoolWorkload(SeededChoices(seed), session.reference, session.can, HASHES)
    for _ in range(steps):
        command = workload.next()
        assert session.step(command) is None
        workload.references.extend(session.last.taken)
    session.keys.know(HASHES)
    return session


def verdicts(session):
    """What the fast check says, and what the invariants say."""
    pool = session.reference
    full = FullCheck(session.target, session.can, pool, session.keys).passes()
    seen = observe(session.target, session.can, pool.num_blocks, session.keys, pool.null_block)
    return full, broken_in_state(seen, pool.ledger())


SINGLE = ("num_free", "ref_count", "block_hash", "lookup", "neighbours")
OF_THE_ORDER = ("swap", "drop", "duplicate", "stranger", "insert")


def corrupt(draw, session, kinds=(*SINGLE, *OF_THE_ORDER)):
    """Replace one thing that the pool shows; what was replaced, with the block or key."""
    target, pool = session.target, session.reference
    blocks = st.sampled_from(range(pool.num_blocks))
    neighbours = st.none() | st.tuples(st.none() | blocks, st.none() | blocks)
    kind = draw(st.sampled_from(kinds))
    block, order = draw(blocks), list(pool.free)
    if kind == "num_free":
        target.lies["num_free"] = draw(st.integers(0, 9))
    elif kind == "ref_count":
        target.lies["ref_count", block] = draw(st.integers(-1, 3))
    elif kind == "block_hash":
        target.lies["block_hash", block] = draw(st.sampled_from([None, NEVER_GIVEN, *HASHES]))
    elif kind == "lookup":
        key = draw(st.sampled_from(HASHES))
        target.lies["lookup", key] = draw(st.none() | blocks | st.just(99))
        return kind, key
    elif kind == "neighbours":
        target.lies["neighbours", block] = draw(neighbours)
    else:
        assume(len(order) >= 2)
        target.lies["links follow"] = draw(st.booleans())
        place = draw(st.integers(0, len(order) - 2))
        if kind == "swap":
            order[place : place + 2] = order[place + 1], order[place]
        elif kind == "drop":
            del order[place]
        elif kind == "duplicate":
            order.insert(draw(st.integers(0, len(order))), order[place])
        elif kind == "stranger":
            order.insert(place, draw(st.sampled_from([-1, pool.num_blocks])))
        else:
            order.insert(place, block)
        target.order = order
        return kind, place
    return kind, block


states = {"profile": profiles, "seed": st.integers(0, 10**6), "steps": st.integers(0, 25)}


@pytest.mark.some(0)
@settings(max_examples=400, deadline=None)
@given(data=st.data(), hidden=hidden_parts, **states)
def test_the_full_check_says_no_exactly_where_an_invariant_is_broken(
    data, hidden, profile, seed, steps
):
    session = driven(profile, seed, steps, hidden)
    assert verdicts(session) == (True, None)
    corrupt(data.draw, session)
    passes, broken = verdicts(session)
    assert passes == (broken is None), broken


@pytest.mark.some(0)
@settings(max_examples=400, deadline=None)
@given(data=st.data(), **states)
def test_the_incremental_check_sees_what_was_touched_and_both_ends(data, profile, seed, steps):
    session = driven(profile, seed, steps)
    pool, null = session.reference, profile.null_block
    check = IncrementalCheck(session.target, session.can, pool)
    everything = range(pool.num_blocks)
    assert check.passes(everything, HASHES)
    # What the walk from the head alone shows is read at the full observations' rate.
    kind, where = corrupt(data.draw, session, SINGLE)
    broken = verdicts(session)[1]
    touched = [where] if kind in ("ref_count", "block_hash") else []
    if kind == "neighbours":
        ends = {*list(pool.free)[:1], *list(pool.free)[-1:]}
        was_queued, is_queued = where in pool.free, session.target.free_neighbours(where)
        at_an_end = where in ends and profile.eviction != "unspecified"
        assume(at_an_end or (was_queued != (is_queued is not None) and where != null))
        touched = [where]
    keys = [where] if kind == "lookup" else []
    assert check.passes(touched, keys) == (broken is None), broken


@pytest.mark.some(0)
@settings(max_examples=200, deadline=None)
@given(data=st.data(), **states)
def test_the_incremental_check_sees_another_order_at_an_end(data, profile, seed, steps):
    assume(profile.eviction != "unspecified")
    session = driven(profile, seed, steps)
    order = list(session.reference.free)
    assume(len(order) >= 2)
    place = data.draw(st.sampled_from([0, len(order) - 2]))
    order[place : place + 2] = order[place + 1], order[place]
    session.target.order = order
    session.target.lies["links follow"] = True
    assert not IncrementalCheck(session.target, session.can, session.reference).passes((), ())


LIES = {
    "counter": {"num_free": 4},
    "count": {("ref_count", 0): 2},
    "hash": {("block_hash", 0): NEVER_GIVEN},
    "hash of the null block": {("block_hash", 4): NEVER_GIVEN},
    "links": {("neighbours", 2): (None, None)},
    "links of a held block": {("neighbours", 0): (None, 2)},
    "no links": {("neighbours", 2): None},
    "lost hit": {("lookup", HASHES[0]): None},
    "hit on another block": {("lookup", HASHES[0]): 3},
    "hit under no key": {("lookup", HASHES[1]): 2},
}
"""One answer each that differs from what a pool of five blocks shows after `half_used`."""


def half_used():
    """Blocks 0 (cached) and 1 are held, 2 and 3 are free, 4 is the null block."""
    profile = Profile(null_block=4)
    session = PoolSession(Tampered(profile, 5), profile, 5)
    for command in (Allocate(2), Cache((0,), (HASHES[0],))):
        assert session.step(command) is None
    session.keys.know(HASHES)
    return session


@pytest.mark.parametrize("lie", LIES)
def test_each_single_lie_is_seen_by_both_checks(lie):
    session = half_used()
    full = FullCheck(session.target, session.can, session.reference, session.keys)
    incremental = IncrementalCheck(session.target, session.can, session.reference)
    assert full.passes()
    assert incremental.passes(range(5), HASHES)
    session.target.lies.update(LIES[lie])
    assert not full.passes()
    assert not incremental.passes(range(5), HASHES)


@pytest.mark.parametrize("lie", [(None, 3), (None, 2), None])
def test_a_lie_at_an_end_is_seen_without_a_touch(lie):
    session = half_used()
    check = IncrementalCheck(session.target, session.can, session.reference)
    assert check.passes((), ())
    session.target.lies["neighbours", 3] = lie
    assert not check.passes((), ())


@pytest.mark.parametrize(
    ("eviction", "order"),
    [("lru", [3, 2]), ("unspecified", [2, 1]), ("unspecified", [2, 3, 2])],
)
def test_an_order_that_is_no_order_of_the_free_blocks_is_seen(eviction, order):
    profile = Profile(eviction=eviction)
    session = PoolSession(Tampered(profile, 4), profile, 4)
    assert session.step(Allocate(2)) is None
    session.target.order = order
    assert not FullCheck(session.target, session.can, session.reference, []).passes()


def test_the_links_may_be_left_out():
    session = half_used()
    session.target.lies["neighbours", 2] = None
    check = FullCheck(session.target, session.can, session.reference, [])
    assert check.passes(links=False)
    assert not check.passes()


def test_a_gap_that_was_not_closed_is_seen():
    session = driven(Profile(), 4, 0)
    check = IncrementalCheck(session.target, session.can, session.reference)
    session.target.pool.allocate(1)
    session.reference.allocate(1)
    assert check.passes([0], [], (None, 1))
    assert not check.passes([0], [], (0, 1))
    assert not check.passes([0], [], (1, 3))
    assert check.passes([0], [], (1, 2))
    last = session.reference.num_blocks - 1
    assert check.passes([0], [], (last, None))
    assert not check.passes([0], [], (last - 1, None))


def test_a_link_at_an_end_that_leads_past_the_next_block_is_seen():
    class SkipsOne(NativeDictPool):
        def free_neighbours(self, block_id, /):
            return (None, 2) if block_id == 0 else super().free_neighbours(block_id)

    target = SkipsOne(4)
    session = PoolSession(target, Profile(), 4)
    check = IncrementalCheck(target, capabilities_of(target), session.reference)
    assert not check._ends_pass(2)
    assert check._ends_pass(1)


def test_a_hash_on_a_touched_null_block_is_seen():
    profile = Profile(null_block=0, null_in_lists="ignored")
    session = driven(profile, 4, 0)
    session.target.lies["block_hash", 0] = NEVER_GIVEN
    check = IncrementalCheck(session.target, session.can, session.reference)
    assert check.passes([1], [])
    assert not check.passes([0, 1], [])


def test_a_black_box_is_read_by_counter_and_lookups_alone():
    session = driven(Profile(), 4, 12, POOL_OBSERVERS)
    session.target.lookup = None
    session.can = capabilities_of_black_box(session.target)
    check = IncrementalCheck(session.target, session.can, session.reference)
    assert check.passes([0], HASHES)
    assert verdicts(session) == (True, None)
    session.target.lies["num_free"] = 99
    assert not check.passes([0], HASHES)
    assert verdicts(session)[1].invariant == "OWN"


def capabilities_of_black_box(target):
    can = capabilities_of(target.pool)
    return dataclasses.replace(can, verbs=can.verbs - {"lookup"}, observers=frozenset())


def test_the_null_block_is_asked_for_its_hash_alone():
    class Asked(Tampered):
        def ref_count(self, block):
            assert block != 0
            return super().ref_count(block)

        def free_neighbours(self, block):
            assert block != 0
            return super().free_neighbours(block)

    profile = Profile(null_block=0)
    session = PoolSession(Asked(profile, 4), profile, 4)
    assert session.first_look() is None
    for command in (Allocate(2), Cache((1,), (HASHES[0],)), Touch((1,)), Free((1, 2, 1))):
        assert session.step(command) is None


@pytest.mark.parametrize("order", [[1, 0, 2], (2, 1, 0)])
def test_an_unspecified_order_may_be_any(order):
    session = driven(Profile(eviction="unspecified"), 0, 0)
    session.target.order = order
    session.target.lies["links follow"] = True
    assert verdicts(session) == (True, None)


def test_a_repeat_in_an_unspecified_order_is_seen_by_its_length_alone():
    hidden = ("ref_count", "free_neighbours")
    session = driven(Profile(eviction="unspecified"), 0, 0, hidden)
    session.target.order = [0, 1, 2, 1]
    passes, broken = verdicts(session)
    assert not passes
    assert broken.invariant == "OWN"
