"""The grammar of token chains yields legal commands, and chains that differ in one thing."""

from hypothesis import given, settings
from hypothesis import strategies as st

from poolproof.contract.commands import Allocate, CacheChain, CachePartial, Lookup
from poolproof.contract.profile import Profile
from poolproof.harness.chain_workload import ChainWorkload
from poolproof.harness.choices import SeededChoices, TapeChoices
from poolproof.harness.pool_session import PoolSession
from poolproof.reference.legality import misuse_of
from poolproof.reference.native_pool import NativeDictPool


def workload_on(choices, profile):
    target = NativeDictPool(5, profile=profile, block_size=4)
    session = PoolSession(target, profile, 5, block_size=4)
    workload = ChainWorkload(
        choices, session.reference, session.can, block_size=4, hash_block_size=2
    )
    return workload, session


@settings(max_examples=80, deadline=None)
@given(
    tape=st.binary(max_size=400),
    keys=st.sampled_from(["block", "partial"]),
    null=st.sampled_from([None, 0]),
)
def test_every_command_is_legal(tape, keys, null):
    profile = Profile(keys=keys, null_block=null, null_in_lists="ignored")
    workload, session = workload_on(TapeChoices(tape), profile)
    workload.bias()
    for _ in range(30):
        command = workload.next()
        assert session.is_defined(command)
        assert session.step(command) is None
        workload.references.extend(session.last.taken)


@settings(max_examples=80, deadline=None)
@given(
    tape=st.binary(max_size=400),
    keys=st.sampled_from(["block", "partial"]),
    null=st.sampled_from([None, 0]),
    answer=st.sampled_from(["raises", "ignores"]),
)
def test_all_misuse_is_misuse(tape, keys, null, answer):
    profile = Profile(keys=keys, null_block=null, misuse=answer)
    workload, session = workload_on(TapeChoices(tape), profile)
    for step in range(30):
        wrong = workload.misuse() if step % 3 == 2 else None
        if wrong is not None:
            assert misuse_of(session.reference, wrong) is not None
            assert session.step_any(wrong) is None
        assert session.step(workload.next()) is None
        workload.references.extend(session.last.taken)


def test_chains_are_published_on_blocks_that_nobody_holds():
    workload, session = workload_on(SeededChoices(0), Profile(keys="partial"))
    session.step(Allocate(2))
    workload.references.extend(session.last.taken)
    drawn = {workload.misuse() for _ in range(400)}
    free = set(session.reference.free)
    assert any(type(c) is CachePartial and c.block_id in free for c in drawn)
    chains = [c for c in drawn if type(c) is CacheChain]
    assert any(set(c.block_ids) & free and set(c.block_ids) - free for c in chains)


def test_partial_entries_are_made_where_the_profile_has_them():
    for keys in ("block", "partial"):
        workload, _ = workload_on(SeededChoices(0), Profile(keys=keys))
        assert ("cache_partial" in workload.verbs) == (keys == "partial")


def test_nothing_is_cached_while_nothing_is_held():
    workload, session = workload_on(SeededChoices(0), Profile(keys="partial"))
    assert workload.cache_chain() is None
    assert workload.cache_partial() is None
    workload.references.extend(session.reference.allocate(1))
    assert any(isinstance(workload.cache_partial(), CachePartial) for _ in range(20))


def test_keys_are_those_of_full_blocks_in_all_groups():
    workload, _ = workload_on(SeededChoices(3), Profile())
    assert {key.group for key in workload.hashes} == {0, 1}
    assert all(len(key.tokens) % 4 == 0 for key in workload.hashes)
    assert isinstance(workload.lookup(), Lookup)


def test_chains_come_with_and_without_each_extra_key():
    chains = [
        chain
        for seed in range(20)
        for chain in workload_on(SeededChoices(seed), Profile())[0].chains
    ]
    assert {bool(chain.lora) for chain in chains} == {True, False}
    assert {bool(chain.salt) for chain in chains} == {True, False}
    assert {bool(chain.images) for chain in chains} == {True, False}
    assert {len(chain.tokens) for chain in chains} == {4, 8, 12}
    assert any(chain.lora and chain.salt == chain.lora[0] for chain in chains)


@settings(max_examples=60, deadline=None)
@given(tape=st.binary(max_size=400), keys=st.sampled_from(["block", "partial"]))
def test_the_same_blocks_are_published_before_and_after_a_reset(tape, keys):
    workload, session = workload_on(TapeChoices(tape), Profile(keys=keys))
    taken = []
    for command in workload.around_a_reset():
        assert session.is_defined(command)
        assert session.step(command) is None
        workload.references.extend(session.last.taken)
        if isinstance(command, Allocate):
            taken.append(sorted(session.last.taken))
    assert taken == [[0, 1, 2, 3, 4]] * 2
    assert "a reset was done" in session.facts
