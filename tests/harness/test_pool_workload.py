"""The grammar yields legal commands only, from any tape and under every profile."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolproof.contract.commands import Acquire, Allocate, Cache, Evict, Free, Touch
from poolproof.contract.profile import Profile
from poolproof.harness.choices import SeededChoices, TapeChoices
from poolproof.harness.pool_session import PoolSession
from poolproof.harness.pool_workload import PoolWorkload, alphabet
from poolproof.reference.legality import misuse_of
from poolproof.reference.native_pool import NativeDictPool


class AcquireOnly(NativeDictPool):
    lookup = touch = evict = reset = None

    def acquire(self, hashes):
        found = []
        for key in hashes:
            carriers = self._model.lookup(key)
            if not carriers:
                break
            found.append(carriers[0])
        self._model.touch(found)
        return found


profiles = st.builds(
    Profile,
    null_block=st.sampled_from([None, 0]),
    recache=st.sampled_from(["replace", "forbidden"]),
    null_in_lists=st.sampled_from(["misuse", "ignored"]),
    duplicates=st.sampled_from(["kept", "first", "last"]),
)


@settings(max_examples=150, deadline=None)
@given(
    tape=st.binary(max_size=300),
    profile=profiles,
    caching=st.booleans(),
    cls=st.sampled_from([NativeDictPool, AcquireOnly]),
)
def test_every_command_is_legal_and_every_misuse_is_misuse(tape, profile, caching, cls):
    target = cls(4, profile=profile, enable_caching=caching)
    session = PoolSession(target, profile, 4, enable_caching=caching)
    choices = TapeChoices(tape)
    workload = PoolWorkload(choices, session.reference, session.can, alphabet(3, 0))
    workload.bias()
    for step in range(40):
        wrong = workload.misuse() if step % 8 == 7 else None
        if wrong is not None:
            assert misuse_of(session.reference, wrong) is not None
            assert session.is_defined(wrong)
            assert session.step_any(wrong) is None
        command = workload.next()
        assert misuse_of(session.reference, command) is None
        assert session.is_defined(command)
        assert session.step(command) is None
        workload.references.extend(session.last.taken)
        held = [b for b, by in session.reference.holders.items() for _ in by]
        assert sorted(workload.references) == held
    while (command := workload.drain()) is not None:
        assert session.step(command) is None
    assert session.end() is None


def workload_of(choices, *, num_blocks=4, **rows):
    profile = Profile(**rows)
    session = PoolSession(NativeDictPool(num_blocks, profile=profile), profile, num_blocks)
    return PoolWorkload(choices, session.reference, session.can, alphabet(3, 0)), session


def test_hashes_are_distinct_as_they_are_shown_and_the_first_two_end_alike():
    for seed in range(20):
        hashes = alphabet(4, seed)
        assert all(len(key) == 16 for key in hashes)
        assert len({key[:4] for key in hashes}) == 4
        assert [key[4:] == hashes[0][4:] for key in hashes] == [True, True, False, False]
    assert alphabet(4, 1) == alphabet(4, 1) != alphabet(4, 2)
    assert len(alphabet(1, 0)) == 1


def test_a_workload_without_legal_draws_allocates_nothing():
    workload, _ = workload_of(SeededChoices(0))
    workload.set_weights({"allocate": 0, "lookup": 0, "reset": 0})
    assert workload.next() == Allocate(0)


def test_weights_replace_the_usual_ones():
    workload, _ = workload_of(SeededChoices(0))
    usual = len(workload._urn)
    workload.set_weights({"reset": 42})
    assert len(workload._urn) == usual + 40


def test_a_remapped_reference_is_followed():
    workload, _ = workload_of(SeededChoices(0))
    workload.references = [3, 1, 3]
    workload.remap([(3, 2), (1, 2)])
    assert workload.references == [2, 2, 3]


def test_large_pools_are_drained_in_small_steps():
    workload, session = workload_of(SeededChoices(1), num_blocks=200)
    for _ in range(60):
        session.step(Allocate(3))
        workload.references.extend(session.last.taken)
    sizes = set()
    while (command := workload.drain()) is not None:
        sizes.add(len(command.block_ids))
    assert sizes == {1, 2, 3, 4}


@pytest.mark.parametrize("length", [1, 2, 3])
def test_acquired_hashes_are_distinct(length):
    target = AcquireOnly(2)
    session = PoolSession(target, Profile(), 2)
    workload = PoolWorkload(
        SeededChoices(length), session.reference, session.can, alphabet(length, 0)
    )
    for _ in range(20):
        command = workload.acquire()
        assert isinstance(command, Acquire)
        assert len(set(command.hashes)) == len(command.hashes) <= length


def test_misuse_hides_behind_legal_entries():
    workload, session = workload_of(SeededChoices(5))
    session.step(Allocate(3))
    workload.references.extend(session.last.taken)
    drawn = {workload.misuse() for _ in range(300)}
    for verb in (Free, Touch):
        mixed = [c for c in drawn if type(c) is verb and len(c.block_ids) > 1]
        assert any(c.block_ids[0] in session.last.taken for c in mixed)


def misuse_drawn(profile):
    """What misuse is drawn while three blocks are held, and those blocks."""
    target = NativeDictPool(6, profile=profile)
    session = PoolSession(target, profile, 6)
    workload = PoolWorkload(SeededChoices(5), session.reference, session.can, alphabet(3, 0))
    session.step(Allocate(3))
    workload.references.extend(session.last.taken)
    return {workload.misuse() for _ in range(400)}, set(session.last.taken)


@pytest.mark.parametrize("verb", [Free, Touch, Cache, Evict])
def test_the_null_block_hides_behind_held_ones(verb):
    drawn, held = misuse_drawn(Profile(null_block=0))
    lists = [command.block_ids for command in drawn if type(command) is verb]
    assert any(ids[-1] == 0 and set(ids[:-1]) & held for ids in lists if ids)


def test_lists_of_unequal_length_begin_with_pairs_that_are_right():
    drawn, held = misuse_drawn(Profile())
    surplus = {
        len(command.block_ids) - len(command.hashes)
        for command in drawn
        if type(command) is Cache and command.hashes and set(command.block_ids) <= held
    }
    assert surplus >= {1, -1}


def test_a_call_with_an_empty_list_is_legal_at_any_time_and_changes_nothing():
    for target_class in (NativeDictPool, AcquireOnly):
        session = PoolSession(target_class(4), Profile(), 4)
        workload = PoolWorkload(SeededChoices(0), session.reference, session.can, alphabet(2, 0))
        session.step(Allocate(2))
        before = set(session.facts)
        drawn = {workload.empty(number) for number in range(4)}
        assert {command.verb for command in drawn} == {
            verb for verb in ("touch", "free", "cache", "evict") if verb in session.can.verbs
        }
        for command in drawn:
            assert session.is_defined(command)
            assert session.step(command) is None
        assert session.facts == before
