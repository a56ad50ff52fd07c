"""States are built as asked for, every command is executed in them, and what breaks is found."""

from itertools import product
from random import Random

import pytest

from poolproof.bugs.catalogue import SPECIMENS
from poolproof.bugs.clean_pool import CleanPool
from poolproof.contract.profile import Profile
from poolproof.contract.target import capabilities_of
from poolproof.exploration.breadth_first import reachable
from poolproof.exploration.exhaustive_run import (
    MOST_FAILURES,
    PartResult,
    check_part,
    parts_of,
    scope_under,
    why_not,
)
from poolproof.exploration.fast_check import FastCheck
from poolproof.exploration.orbit_space import OrbitSpace
from poolproof.exploration.representative import of_orbit, of_state
from poolproof.exploration.scope import ALL_VERBS, Scope
from poolproof.exploration.state_check import StateCheck, narrow_tries
from poolproof.exploration.state_space import StateSpace
from poolproof.exploration.watch import Watch
from poolproof.harness.pool_session import PoolSession
from poolproof.stateful_tests.profile_pairs import all_pairs

DEAF = Watch(lambda _: None, lambda _: None)
ROWS = {
    "eviction": ("lru", "lifo", "unhashed-first", "unhashed-lifo"),
    "duplicates": ("kept", "first"),
    "recache": ("replace", "forbidden"),
    "events": ("none", "per-copy"),
}
PRODUCT = [Profile(**dict(zip(ROWS, values, strict=True))) for values in product(*ROWS.values())]
PAIRS = [Profile(**rows) for rows in all_pairs(ROWS)]


def rest_is_deep(profiles):
    """Those in which every two values of rows stand together, and the others in deep runs."""
    deep = pytest.mark.deep
    return [one if one in PAIRS else pytest.param(one, marks=deep) for one in profiles]


PROFILES = [
    *rest_is_deep(PRODUCT),
    Profile(null_block=0, null_in_lists="ignored", events="per-hash"),
    Profile(null_block=0, null_in_lists="uncached", repeats_in_free="forbidden"),
    Profile(null_block=2, misuse="ignores", duplicates="last"),
    Profile(eviction="unspecified"),
]  # fmt: skip


def named(profile):
    return "-".join(str(value) for value in profile.to_json().values())


def clean(profile):
    return lambda num_blocks, enable_caching=True: CleanPool(
        num_blocks, enable_caching=enable_caching, rules=profile
    )


def checked(make, profile, scope, *, wide=False, unreduced=False, by_sessions=False):
    can = capabilities_of(make(scope.num_blocks + 1, True))
    scope = scope_under(scope, profile, can)
    states = reachable((StateSpace if unreduced else OrbitSpace)(scope))
    total = PartResult()
    for whole in parts_of(states, scope, scope.num_blocks, 0, wide=wide, unreduced=unreduced):
        part = whole.only(0) if by_sessions else whole
        result = check_part(
            "it", make=make, profile=profile, can=can, part=part, watch=DEAF, mark=lambda _: None
        )
        total.num_states += result.num_states
        total.num_commands += result.num_commands
        for trace in result.failures.values():
            total.add(trace)
    return total


@pytest.mark.some(4)
@pytest.mark.parametrize("profile", PROFILES, ids=named)
def test_a_pool_without_bugs_holds_in_every_state(profile):
    small = checked(clean(profile), profile, Scope(2, 2, 2), wide=True)
    fast = checked(clean(profile), profile, Scope(3, 2, 2))
    unreduced = checked(clean(profile), profile, Scope(2, 2, 2), unreduced=True)
    assert small.failures == fast.failures == unreduced.failures == {}
    assert fast.num_commands > 5 * fast.num_states


@pytest.mark.some(4)
@pytest.mark.parametrize("profile", PROFILES, ids=named)
def test_a_representative_is_in_the_state_that_it_stands_for(profile):
    make = clean(profile)
    null = profile.null_block is not None
    blocks = [block for block in range(3 + null) if block != profile.null_block]
    scope = scope_under(Scope(3), profile, capabilities_of(make(4, True)))
    orbits, states = OrbitSpace(scope), StateSpace(scope)
    for state in reachable(states):
        keys = [bytes([number]) * 16 for number in range(1, 6)]
        for found in (
            of_state(states, state, blocks, keys),
            of_orbit(orbits, states.orbit_of(state), blocks, Random(1)),
        ):
            session = PoolSession(make(3 + null, True), profile, 3 + null)
            for command in found.building():
                assert session.step(command) is None
            pool = session.reference
            assert profile.eviction in {scope.eviction, "unspecified"}
            if profile.eviction != "unspecified":
                assert tuple(pool.free) == found.free
            assert set(pool.free) == set(found.free)
            for block in blocks:
                assert len(pool.holders[block]) == found.references.get(block, 0)
                keys_of = [found.key_of(block)] if found.label_of[block] else []
                assert pool.keys[block] == keys_of


class Spy(CleanPool):
    """A pool that keeps what it was called with."""

    calls = ()

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        Spy.calls = []

    def __getattribute__(self, name):
        found = super().__getattribute__(name)
        if name not in ALL_VERBS:
            return found

        def call(*arguments):
            Spy.calls.append((name, *[tuple(a) if isinstance(a, list) else a for a in arguments]))
            return found(*arguments)

        return call


@pytest.mark.parametrize(
    "profile",
    [
        *rest_is_deep(profile for profile in PRODUCT if profile.duplicates == "kept"),
        Profile(null_block=0, null_in_lists="ignored", events="per-hash"),
    ],
    ids=named,
)
def test_the_fast_form_makes_the_calls_of_the_sessions(profile):
    def make(num_blocks, enable_caching):
        return Spy(num_blocks, enable_caching=enable_caching, rules=profile)

    scope = Scope(3).under(profile)
    slow = StateCheck("it", make, profile, scope, DEAF, wide=False)
    fast = FastCheck(make, profile, scope)
    space = OrbitSpace(scope)
    for number, orbit in enumerate(reachable(space)):
        state = of_orbit(space, orbit, slow.blocks, Random(number))
        assert slow.check(state) is None
        by_sessions = sorted(Spy.calls)
        assert fast.passes(state)
        # The last command of a state is not undone by either.
        assert set(Spy.calls) == set(by_sessions)
        assert len(list(narrow_tries(scope, state))) > 3
    assert fast.num_commands == slow.num_commands


FOUND_ONLY_BY_SEQUENCES = {"E7", "E13"}
"""They remember what no state shows: where a block stood before a hit, that it lost a merge."""


POOL_SPECIMENS = [name for name, found in SPECIMENS.items() if found.level == "pool"]


@pytest.mark.parametrize(
    "name",
    # One in six and the exceptions, and the others in deep runs.
    [
        name
        if number % 6 == 0 or name in FOUND_ONLY_BY_SEQUENCES
        else pytest.param(name, marks=pytest.mark.deep)
        for number, name in enumerate(POOL_SPECIMENS)
    ],
)
def test_every_bug_of_a_pool_shows_in_some_state_of_three_blocks(name):
    specimen = SPECIMENS[name]
    found = checked(specimen.make, specimen.profile, Scope(3), wide=True)
    assert bool(found.failures) == (name not in FOUND_ONLY_BY_SEQUENCES)
    for trace in found.failures.values():
        assert trace.violation.command_index == len(trace.commands) - 1


def test_hashes_are_new_for_each_state_so_no_value_is_safe():
    class OneValue(CleanPool):
        """A hash is forgotten if it begins with a certain byte."""

        def lookup(self, block_hash):
            return None if block_hash[0] == 0xC7 else super().lookup(block_hash)

    profile = Profile()
    assert checked(lambda n, c=True: OneValue(n, enable_caching=c), profile, Scope(4)).failures

    # The same for a block: every id plays every part.
    class OneBlock(CleanPool):
        def ref_count(self, block_id):
            return super().ref_count(block_id) % (2 if block_id == 3 else 9)

    assert checked(lambda n, c=True: OneBlock(n, enable_caching=c), profile, Scope(4)).failures


def test_a_target_that_the_fast_form_cannot_read_is_left_to_the_sessions():
    class Tuples(CleanPool):
        def allocate(self, n):
            return (super().allocate(n), None)

    profile = Profile()
    found = checked(lambda n, c=True: Tuples(n, enable_caching=c), profile, Scope(3))
    assert found.failures == {}
    assert found.num_states == 108


def test_a_part_that_fails_everywhere_ends_early():
    specimen = SPECIMENS["A6"]
    found = checked(specimen.make, specimen.profile, Scope(4))
    assert found.num_states <= MOST_FAILURES


def test_a_part_may_be_one_state_executed_by_sessions():
    profile = Profile()
    assert checked(clean(profile), profile, Scope(2), by_sessions=True).num_states == 1


def test_a_target_that_cannot_be_built_or_is_broken_from_the_start_is_a_finding():
    class Unbuilt(CleanPool):
        built = 0

        def __init__(self, *arguments, **options):
            Unbuilt.built += 1
            if Unbuilt.built > 1:
                raise OSError("no memory")
            super().__init__(*arguments, **options)

    found = checked(lambda n, c=True: Unbuilt(n, enable_caching=c), Profile(), Scope(2))
    assert {kind.invariant for kind in found.failures} == {"CRASH"}

    class Miscounts(CleanPool):
        def num_free(self):
            return super().num_free() + 1

    found = checked(lambda n, c=True: Miscounts(n, enable_caching=c), Profile(), Scope(2))
    (trace,) = found.failures.values()
    assert trace.commands == ()


def test_a_failure_that_needs_its_history_keeps_it():
    class Tires(CleanPool):
        """The third touch of an instance loses a hash."""

        calls = 0

        def touch(self, block_ids):
            super().touch(block_ids)
            self.calls += 1
            if self.calls == 3:
                self._drop_hash(block_ids[0])

    found = checked(lambda n, c=True: Tires(n, enable_caching=c), Profile(), Scope(3))
    traces = found.failures.values()
    assert any(sum(c.verb == "touch" for c in trace.commands) >= 3 for trace in traces)


@pytest.mark.parametrize(
    ("profile", "verbs", "says"),
    [
        (Profile(), ALL_VERBS, None),
        (Profile(null_block=3), ALL_VERBS, None),
        (Profile(null_block=9), ALL_VERBS, "null_block=9 does not exist in a pool of 4"),
        (Profile(retention="may-drop"), ALL_VERBS, "vanish at any time"),
        (Profile(), ("allocate", "free", "cache", "acquire"), "no touch()"),
    ],
)
def test_what_cannot_be_explored_has_a_reason(profile, verbs, says):
    class Can:
        pass

    can = Can()
    can.verbs = frozenset(verbs)
    reason = why_not(profile, can, 3)
    assert reason == says or says in reason


@pytest.mark.some(0)
def test_a_target_without_evict_and_reset_is_explored_as_far_as_it_goes():
    class Plain(CleanPool):
        evict = None
        reset = None

    for eviction in ("lru", "lifo", "unhashed-first", "unhashed-lifo"):
        profile = Profile(eviction=eviction)
        found = checked(
            lambda n, c=True, rules=profile: Plain(n, enable_caching=c, rules=rules),
            profile,
            Scope(3),
            wide=True,
        )
        assert found.failures == {}
        assert found.num_commands > 500
