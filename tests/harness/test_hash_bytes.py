"""Where hashes have one length, whatever makes hashes keeps to it, and each kind of run works."""

# Fixtures and fakes come by name; the types of tests are not checked.
# mypy: ignore-errors

from __future__ import annotations

from dataclasses import replace

import pytest

from poolproof.bugs.clean_index import CleanIndex
from poolproof.bugs.clean_pool import CleanPool
from poolproof.contract.commands import Allocate, Cache, Lookup
from poolproof.contract.content import TokenChain
from poolproof.contract.index_commands import Get, Insert, Pop
from poolproof.contract.profile import Profile
from poolproof.contract.target import capabilities_of
from poolproof.contract.trace import Trace
from poolproof.exploration.exhaustive_run import PartResult, check_part, parts_of, scope_under
from poolproof.exploration.graph import reachable
from poolproof.exploration.index_check import IndexCheck, IndexScope, index_states
from poolproof.exploration.orbit_space import OrbitSpace
from poolproof.exploration.scope import Scope
from poolproof.exploration.shortest import shortest_failure
from poolproof.exploration.state_space import StateSpace
from poolproof.exploration.watch import Watch
from poolproof.harness.fingerprint import fingerprint_of
from poolproof.harness.index_driver import IndexCampaign
from poolproof.harness.index_session import IndexSession
from poolproof.harness.index_workload import required_index_facts
from poolproof.harness.minimise import execute_in_process, minimise
from poolproof.harness.pool_session import PoolSession
from poolproof.harness.pool_workload import alphabet
from poolproof.harness.production import ProductionSizes
from poolproof.harness.random_driver import PoolCampaign
from poolproof.harness.replay import replay
from poolproof.stateful_tests.index_machine import IndexMachine
from poolproof.stateful_tests.pool_machine import PoolMachine
from poolproof.stateful_tests.run_machine import run_machine
from poolproof.stateful_tests.settings import machine_settings

LENGTHS = (1, 2, 5, 8, 20, 32, 256)
# Whole runs: the shortest, one with room for few families of hashes, and a server's.
DRIVEN = [n if n in (1, 8, 32) else pytest.param(n, marks=pytest.mark.deep) for n in LENGTHS]
SIZES = ProductionSizes(12, 1, 1_500, 600, 300)
SIZES_OF_INDEX = ProductionSizes(12, 2, 5_000, 2_048, 300)
DEAF = Watch(lambda _trace: None, lambda _command: None)


def require(length, keys):
    for key in keys:
        block_hash = key[0] if isinstance(key, tuple) else key
        if len(block_hash) != length:
            raise ValueError(f"a hash of {len(block_hash)} bytes")


def pool_of(length, **rows):
    """A maker of pools that raise on every hash of another length, and their profile."""
    profile = Profile(hash_bytes=length, **rows)

    class OneWidth(CleanPool):
        def cache(self, block_ids, hashes):
            require(length, hashes)
            super().cache(block_ids, hashes)

        def lookup(self, block_hash):
            require(length, [block_hash])
            return super().lookup(block_hash)

    return lambda n, on: OneWidth(n, enable_caching=on, rules=profile), profile


def index_of(length, kinds=("bytes", "pair")):
    class OneWidth(CleanIndex):
        key_kinds = kinds

        def insert(self, key, block_id):
            require(length, [key])
            return super().insert(key, block_id)

        def pop(self, key, block_id):
            require(length, [key])
            return super().pop(key, block_id)

        def get(self, key):
            require(length, [key])
            return super().get(key)

    return lambda _n, _on: OneWidth(), Profile(hash_bytes=length)


def violations(campaign, numbers):
    found = (campaign.run(number).trace for number in numbers)
    return [trace.violation for trace in found if trace is not None]


# --- hashes ---------------------------------------------------------------------------------------


def test_without_a_length_hashes_are_what_they_were():
    assert [key.hex() for key in alphabet(3, "x")] == [
        "ad9bc64770cb0d15cb40e102a640a1ac",
        "7423044970cb0d15cb40e102a640a1ac",
        "aad779f30fd8c3ff37f059088b230669",
    ]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("size", [1, 2, 5, 200])
def test_hashes_of_any_length_are_different(length, size):
    hashes = alphabet(size, "y", length)
    assert len(set(hashes)) == size
    assert {len(key) for key in hashes} == {length}


def test_there_are_no_more_hashes_than_a_byte_has_values():
    assert len(set(alphabet(1_000, 0, 1))) == 256


# --- pools ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", DRIVEN)
def test_the_usual_runs_of_a_pool_keep_to_the_length(length):
    make, profile = pool_of(length, eviction="unhashed-first")
    # Number 1 and 17 are careful.
    assert not violations(PoolCampaign("x", make, profile), range(24))


@pytest.mark.some(1)
@pytest.mark.parametrize("length", DRIVEN)
def test_runs_at_production_sizes_keep_to_the_length_and_say_so(length):
    make, profile = pool_of(length)
    campaign = PoolCampaign("x", make, profile, production=SIZES)
    for number in range(SIZES.num_runs):
        run = campaign.run(number)
        assert run.trace is None, run.trace.violation
        assert run.extent.get("bytes of a hash") in (None, (length, length))


@pytest.mark.parametrize("length", [1, 32])
def test_the_state_machine_of_a_pool_keeps_to_the_length(length):
    make, profile = pool_of(length)
    campaign = PoolCampaign("x", make, profile)
    settings = machine_settings("quick", share=20)
    assert run_machine(lambda log: PoolMachine(campaign, log), settings, seed=0).trace is None


@pytest.mark.parametrize("length", [1, 2, 32])
@pytest.mark.parametrize("hashes", [0, 2])
@pytest.mark.parametrize("unreduced", [False, True])
def test_every_state_of_a_pool_is_built_from_hashes_of_the_length(length, hashes, unreduced):
    make, profile = pool_of(length, eviction="unhashed-first")
    can = capabilities_of(make(4, True))
    scope = scope_under(Scope(2, hashes), profile, can)
    total = PartResult()
    for by_sessions in (False, True):
        states = reachable((StateSpace if unreduced else OrbitSpace)(scope))
        for part in parts_of(states, scope, 2, 0, wide=by_sessions, unreduced=unreduced):
            result = check_part(
                "x", make=make, profile=profile, can=can, part=part, watch=DEAF,
                mark=lambda _: None,
            )  # fmt: skip
            total.num_states += result.num_states
            assert not result.failures
    assert total.num_states > 4


def test_short_sequences_are_made_of_hashes_of_the_length():
    make, profile = pool_of(32)
    assert shortest_failure(make, profile, 2, max_commands=3).violation is None


# --- indexes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", DRIVEN)
def test_runs_of_an_index_keep_to_the_length_and_reach_every_fact(length):
    make, profile = index_of(length)
    can = IndexSession(make(4, True), 4, profile).can
    for sizes, num_runs in ((None, 30), (SIZES_OF_INDEX, SIZES_OF_INDEX.num_runs)):
        campaign = IndexCampaign("x", make, profile, production=sizes)
        facts = set()
        for number in range(num_runs):
            run = campaign.run(number)
            assert run.trace is None, run.trace.violation
            facts |= run.facts
        assert set(required_index_facts(profile, can, is_large=sizes is not None)) <= facts


def test_the_state_machine_of_an_index_keeps_to_the_length():
    make, profile = index_of(20)
    campaign = PoolCampaign("x", make, profile)
    settings = machine_settings("quick", share=20)
    assert run_machine(lambda log: IndexMachine(campaign, log), settings, seed=0).trace is None


@pytest.mark.parametrize("kinds", [("bytes",), ("pair",)])
def test_every_state_of_an_index_is_built_from_keys_of_the_length(kinds):
    make, profile = index_of(20, kinds)
    scope = IndexScope(2, 2, kinds, profile)
    check = IndexCheck("x", make, scope, DEAF)
    assert not [found for state in index_states(scope) if (found := check.check(state))]


def test_a_minimal_trace_of_an_index_keeps_its_length():
    class Forgets(CleanIndex):
        def get(self, key):
            require(20, [key])
            found = super().get(key)
            return None if key[-1] % 2 else found

    def make(_num_blocks, _enable_caching):
        return Forgets()

    for profile, lengths in ((Profile(hash_bytes=20), {20}), (Profile(), {1, 2, 3, 4, 20})):
        odd = bytes(range(19)) + b"\x07"
        commands = (Insert(bytes(20), 4), Insert(odd, 3), Pop(bytes(20), 4), Get(odd))
        trace = Trace("x", "index", profile, 8, True, commands)
        minimal = minimise(trace, execute_in_process(make))
        assert minimal.violation is not None
        keys = {command.key for command in minimal.commands}
        assert {len(key) for key in keys} <= lengths


# --- names, and what is never given ---------------------------------------------------------------


@pytest.mark.parametrize("length", [8, 16, 32, 128, 256])
def test_a_finding_has_one_name_whatever_the_one_length_is(length):
    class LosesHashes(CleanPool):
        def lookup(self, block_hash):
            return None

    profile = Profile(hash_bytes=length)
    names = {fingerprint_of(failing(LosesHashes, Profile(), 16, "a"))}
    names |= {fingerprint_of(failing(LosesHashes, profile, length, seed)) for seed in range(12)}
    assert len(names) == 1


def failing(cls, profile, length, seed):
    first, second = alphabet(2, seed, length)
    commands = (Allocate(2), Cache((0, 1), (first, second)))
    trace = Trace("x", "pool", profile, 2, True, commands)
    done = replay(trace, lambda n, on: cls(n, enable_caching=on))
    return replace(trace, violation=done.violation)


def test_a_hash_of_another_length_is_never_given():
    make, profile = pool_of(32, misuse="raises")
    session = PoolSession(make(4, True), profile, 4)
    assert session.step(Allocate(1)) is None
    for command in (
        Lookup(b"a" * 16),
        Cache((0,), (b"a" * 31,)),
        Cache((3,), (b"a" * 33,)),  # misuse besides
    ):
        assert not session.is_defined(command)
    assert session.is_defined(Cache((0,), (b"a" * 32,)))
    assert session.is_defined(Cache((3,), (b"a" * 32,)))

    make, profile = index_of(8)
    index = IndexSession(make(4, True), 4, profile)
    assert not index.is_defined(Insert(b"a" * 16, 0))
    assert not index.is_defined(Get((b"a" * 7, 1)))
    assert index.is_defined(Pop((b"a" * 8, 1), 0))


def test_a_trace_with_other_hashes_is_replayed_without_them():
    make, profile = pool_of(32)
    commands = (Allocate(1), Cache((0,), (b"a" * 16,)), Lookup(b"b" * 32))
    done = replay(Trace("x", "pool", profile, 2, True, commands), make)
    assert done.violation is None
    assert (len(done.applied), done.num_left_out) == (2, 1)


def test_keys_of_token_chains_have_no_length():
    make, profile = pool_of(32)
    session = PoolSession(make(4, True), profile, 4)
    key = TokenChain((1, 2, 3)).prefix(2, 0)
    assert session.is_defined(Lookup(key))
