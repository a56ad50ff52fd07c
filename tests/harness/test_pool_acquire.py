"""Targets that pin a prefix in one call, and that merge duplicates when a block is cached."""

import pytest

from poolproof.contract.commands import (
    Acquire,
    Allocate,
    Cache,
    Free,
)
from poolproof.contract.profile import Profile
from poolproof.contract.violation import Severity
from poolproof.harness.pool_session import PoolSession
from poolproof.impl.block_pool import BlockPool

A, B, C = b"\xaa" * 16, b"\xbb" * 16, b"\xcc" * 16
WRONG, CRASH = Severity.WRONG_DATA_OF_ANOTHER, Severity.CRASH


class Integer:
    """An integer of another library: equal to Python's, usable as one, and no subclass."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value

    def __eq__(self, other):
        return self.value == other

    __hash__ = None


def session_of(target, **rows):
    profile = Profile.from_mapping({**target.profile, **rows})
    return PoolSession(target, profile, target.num_blocks)


def answering(verb, answer, num_blocks=4, **rows):
    """A session whose pool does all things right, and answers something else to one verb."""

    class Other(BlockPool):
        pass

    def method(self, *arguments):
        right = getattr(BlockPool, verb)(self, *arguments)
        return answer(right) if callable(answer) else answer

    setattr(Other, verb, method)
    return session_of(Other(num_blocks, **rows))


def after(session, *commands):
    *before, last = commands
    for command in before:
        assert session.step_any(command) is None, command
    return session.step_any(last)


class Acquires(BlockPool):
    """Looks up and pins in one call, as a target without lookup and touch does."""

    lookup = touch = None

    def acquire(self, hashes):
        found = []
        for block_hash in hashes:
            block = BlockPool.lookup(self, block_hash)
            if block is None:
                break
            found.append(block)
        BlockPool.touch(self, found)
        return found


PREPARED = (Allocate(3), Cache((0, 1), (A, B)), Free((0, 1)))


def test_acquire_pins_the_longest_prefix():
    session = session_of(Acquires(4))
    assert after(session, *PREPARED, Acquire((C,)), Acquire((A, B, C))) is None
    assert list(session.last.taken) == [0, 1]
    assert {"a lookup hit", "a lookup missed", "a free cached block was touched"} <= session.facts


@pytest.mark.parametrize(
    ("answer", "severity"),
    [([], Severity.LOST_HIT), (None, Severity.LOST_HIT), ((), Severity.LOST_HIT),
     ([0], Severity.LOST_HIT), ([2], WRONG), ([1], WRONG), ([0, 2], WRONG), ([1, 0], WRONG),
     ([0, 1, 2], WRONG), ("01", WRONG)],
)  # fmt: skip
def test_a_wrong_answer_of_acquire_is_named(answer, severity):
    class Other(Acquires):
        def acquire(self, hashes):
            return answer

    found = after(session_of(Other(4)), *PREPARED, Acquire((A, B, C)))
    assert (found.invariant, found.severity) == ("IDX", severity)
    assert "the longest cached prefix has 2 blocks" in found.sentence


def test_acquire_may_answer_a_tuple():
    class Tuples(Acquires):
        def acquire(self, hashes):
            return tuple(map(Integer, super().acquire(hashes)))

    session = session_of(Tuples(4))
    assert after(session, *PREPARED, Acquire((A, B))) is None
    assert [type(block) for block in session.last.taken] == [int, int]


def test_a_black_box_that_may_drop_shows_it_by_a_shorter_prefix():
    class DropsTheSecond(Acquires):
        free_order = free_neighbours = ref_count = block_hash = None

        def acquire(self, hashes):
            if not self._ref_counts[1]:
                self._cached.drop(1)
            return super().acquire(hashes)

    session = session_of(DropsTheSecond(4), retention="may-drop")
    assert after(session, *PREPARED, Acquire((A, B)), Acquire((A, B))) is None
    assert session.reference.keys[1] == []
    held = session_of(DropsTheSecond(4), retention="may-drop")
    assert after(held, *PREPARED[:2], Acquire((A, B))) is None
    exact = session_of(DropsTheSecond(4))
    assert after(exact, *PREPARED, Acquire((A, B))).invariant == "IDX"


class Merges(BlockPool):
    """Answers `cache` with the blocks that the caller holds from now on."""

    def cache(self, block_ids, hashes):
        answer = []
        for block, block_hash in zip(block_ids, hashes, strict=True):
            other = self.lookup(block_hash)
            if other is None or other == block:
                super().cache([block], [block_hash])
                answer.append(block)
            else:
                self.touch([other])
                self.evict([block])
                self.free([block])
                answer.append(other)
        return answer


@pytest.mark.parametrize("wrap", [list, tuple, lambda ids: list(map(Integer, ids))])
@pytest.mark.parametrize("full_every", [1, 50])
def test_a_cache_call_may_remap_duplicates(wrap, full_every):
    class Wrapped(Merges):
        def cache(self, block_ids, hashes):
            return wrap(super().cache(block_ids, hashes))

    target = Wrapped(4)
    session = PoolSession(target, Profile(), 4, full_every=full_every)
    assert after(session, Allocate(3), Cache((0,), (A,)), Cache((2, 1), (B, A))) is None
    assert session.last.remapped == [(1, 0)]
    assert 0 in session.last.touched
    assert session.reference.holders[1] == []
    assert after(session, Free((0, 0, 2))) is None
    assert session.last.remapped == []


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ([0], "must answer one block for each of 2, but answered [0]"),
        ([0, 2], "remapped block 1 to 2, which does not carry that hash"),
        ([0, "x"], "remapped block 1 to 'x', which does not carry that hash"),
    ],
)
def test_a_wrong_remapping_is_named(answer, words):
    session = answering("cache", answer)
    found = after(session, Allocate(3), Cache((0, 1), (A, B)))
    assert found.invariant == "I2"
    assert found.sentence.endswith(words)


def test_a_held_block_is_not_forgotten_by_a_shorter_prefix():
    class Refuses(Acquires):
        free_order = free_neighbours = ref_count = block_hash = None

        def acquire(self, hashes):
            return []

    session = session_of(Refuses(4), retention="may-drop")
    found = after(session, Allocate(1), Cache((0,), (A,)), Acquire((A,)))
    assert (found.invariant, found.severity) == ("IDX", Severity.LOST_HIT)
