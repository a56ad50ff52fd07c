"""A session names the invariant that a planted fault breaks, and accuses nobody who is right."""

import itertools

import pytest

from poolproof.contract.commands import (
    Allocate,
    Append,
    Cache,
    Evict,
    Free,
    Reset,
    Touch,
)
from poolproof.contract.profile import Profile
from poolproof.contract.violation import Severity
from poolproof.exploration.recorded_session import RecordedPool
from poolproof.harness import pool_session
from poolproof.harness.pool_session import PoolSession
from poolproof.harness.random_driver import PoolCampaign
from poolproof.impl.block_pool import BlockPool
from poolproof.reference.native_pool import NativeDictPool

A, B = b"\xaa" * 16, b"\xbb" * 16
ROWS = {
    "null_block": (None, 0),
    "eviction": ("lru", "unhashed-first", "lifo"),
    "duplicates": ("kept", "first", "last"),
    "recache": ("replace", "forbidden"),
    "null_in_lists": ("misuse", "ignored"),
    "events": ("none", "per-copy", "per-hash"),
    "misuse": ("raises", "ignores", "undefined"),
}


def session_of(cls=BlockPool, num_blocks=4, *, full_every=None, **rows):
    target = cls(num_blocks, **rows)
    return PoolSession(
        target, Profile.from_mapping(target.profile), num_blocks, full_every=full_every
    )


def first_violation(session, *commands):
    """What the last command shows; all before it pass."""
    assert session.first_look() is None
    *before, last = commands
    for command in before:
        assert session.step_any(command) is None, command
    return session.step_any(last)


class KeepsAnIndexEntry(BlockPool):
    def __init__(self, num_blocks, **rows):
        super().__init__(num_blocks, **rows)
        self.stale = {}

    def allocate(self, n):
        hashes = list(map(self.block_hash, range(self.num_blocks)))
        taken = super().allocate(n)
        for block in taken:
            if super().lookup(hashes[block]) is None:
                self.stale[hashes[block]] = block
        return taken

    def lookup(self, block_hash, *, group=0):
        found = super().lookup(block_hash, group=group)
        return self.stale.get(block_hash) if found is None else found


class LosesAFreedBlock(BlockPool):
    def free(self, block_ids):
        super().free(block_ids)
        if len(block_ids) > 1:
            self._queue.unlink(block_ids[-1])
            self._queue.length += 1


class ForgetsTheCounter(BlockPool):
    def free(self, block_ids):
        super().free(block_ids)
        self._queue.length -= 1


class CountsOneTooFew(BlockPool):
    def touch(self, block_ids):
        super().touch(block_ids)
        for block in set(block_ids):
            if self._ref_counts[block] > 2:
                self._ref_counts[block] -= 1


class RevivesWithoutHash(BlockPool):
    def touch(self, block_ids):
        revived = [block for block in block_ids if not self._ref_counts[block]]
        super().touch(block_ids)
        for block in revived:
            self._cached.drop(block)


class DropsAHashOnFree(BlockPool):
    def free(self, block_ids):
        super().free(block_ids)
        for block in block_ids:
            if not self._ref_counts[block]:
                self._cached.drop(block)


class HashesTheNullBlock(BlockPool):
    def cache(self, block_ids, hashes):
        super().cache(block_ids, hashes)
        self._cached.primary[0] = hashes[0]


class FreesForward(BlockPool):
    def free(self, block_ids):
        super().free(list(block_ids)[::-1])


class TearsLinks(BlockPool):
    def free_neighbours(self, block):
        links = super().free_neighbours(block)
        return links and links[::-1]


class ReordersOnRefusal(BlockPool):
    def allocate(self, n):
        if n > self.num_free():
            super().free(super().allocate(1))
        return super().allocate(n)


class SwallowsEvents(BlockPool):
    def evict(self, block_ids):
        super().evict(block_ids)
        self.take_events()


class TouchesBeforeItRaises(BlockPool):
    def free(self, block_ids):
        legal = [block for block in block_ids if 0 <= block < self.num_blocks]
        if len(legal) < len(block_ids) and legal:
            super().free(legal)
        super().free(block_ids)


@pytest.mark.parametrize(
    ("cls", "rows", "expected", "commands"),
    [
        (KeepsAnIndexEntry, {}, ("IDX", Severity.WRONG_DATA_OF_ANOTHER),
         [Allocate(4), Cache((0,), (A,)), Free((0,)), Allocate(1)]),
        (LosesAFreedBlock, {}, ("I1", Severity.LEAK), [Allocate(2), Free((0, 1))]),
        (ForgetsTheCounter, {}, ("OWN", Severity.FALSE_REFUSAL), [Allocate(1), Free((0,))]),
        (CountsOneTooFew, {}, ("OWN", Severity.WRONG_DATA_OF_ANOTHER),
         [Allocate(1), Touch((0,)), Touch((0,))]),
        (RevivesWithoutHash, {}, ("IDX", Severity.LOST_HIT),
         [Allocate(1), Cache((0,), (A,)), Free((0,)), Touch((0,))]),
        (DropsAHashOnFree, {}, ("I4", Severity.LOST_HIT),
         [Allocate(1), Cache((0,), (A,)), Free((0,))]),
        (FreesForward, {}, ("ORD", Severity.ORDER), [Allocate(2), Free((0, 1))]),
        (ReordersOnRefusal, {}, ("ATOM", Severity.ORDER), [Allocate(9)]),
        (SwallowsEvents, {"events": "per-copy"}, ("EVT", Severity.EVENTS),
         [Allocate(1), Cache((0,), (A,)), Evict((0,))]),
        (SwallowsEvents, {"events": "per-hash"}, ("EVT", Severity.EVENTS),
         [Allocate(1), Cache((0,), (A,)), Evict((0,))]),
        (TouchesBeforeItRaises, {}, ("MISUSE", Severity.WRONG_DATA_OF_ANOTHER),
         [Allocate(2), Free((1, 9))]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("full_every", [1, 50])
def test_a_planted_fault_is_named(cls, rows, expected, commands, full_every):
    session = session_of(cls, full_every=full_every, **rows)
    found = first_violation(session, *commands)
    assert (found.invariant, found.severity) == expected
    assert found.command_index == len(commands) - 1
    assert first_violation(session_of(**rows), *commands) is None


def test_a_hash_on_the_null_block_is_seen_by_a_full_observation():
    session = session_of(HashesTheNullBlock, null_block=0)
    found = first_violation(session, Allocate(1), Cache((1,), (A,)))
    assert (found.invariant, found.severity) == ("I3", Severity.WRONG_DATA_OF_ANOTHER)


def test_torn_links_of_a_fresh_pool_are_seen_at_first_look():
    assert session_of(TearsLinks).first_look().invariant == "LINK"


@pytest.mark.some(22)
@pytest.mark.parametrize(
    "rows",
    [
        dict(zip(ROWS, values, strict=True))
        for values in itertools.product(*ROWS.values())
        if not (values[0] is None and values[4] == "ignored")
    ][::7],
    ids=lambda rows: "-".join(map(str, rows.values())),
)
def test_impl_is_never_accused(rows):
    campaign = PoolCampaign(
        "impl",
        lambda num_blocks, caching: BlockPool(num_blocks, enable_caching=caching, **rows),
        Profile.from_mapping(rows),
    )
    for number in range(4):
        result = campaign.run(number)
        assert result.trace is None, result.trace.violation


@pytest.mark.parametrize("retention", ["exact", "may-drop"])
@pytest.mark.parametrize("eviction", ["lru", "unspecified"])
@pytest.mark.parametrize("full_every", [1, 5])
def test_the_reference_is_never_accused(retention, eviction, full_every):
    profile = Profile(retention=retention, eviction=eviction, events="per-copy", keys="partial")
    for chain_block_size in (0, 4):
        campaign = PoolCampaign(
            "reference",
            lambda num_blocks, caching, size=chain_block_size: NativeDictPool(
                num_blocks, enable_caching=caching, profile=profile, block_size=size or 1
            ),
            profile,
            chain_block_size=chain_block_size,
            hash_block_size=2,
            full_every=full_every,
        )
        for number in range(6):
            result = campaign.run(number)
            assert result.trace is None, result.trace.violation


def cached_and_free(num_blocks=80, full_every=1000):
    """A pool larger than small ones, six of whose blocks are cached and free, side by side."""
    session = session_of(num_blocks=num_blocks, full_every=full_every)
    hashes = tuple(bytes([number]) * 16 for number in range(6))
    for command in (Allocate(6), Cache(tuple(range(6)), hashes), Free(tuple(range(6)))):
        assert session.step(command) is None
    return session


def test_neighbours_that_leave_the_queue_together_are_no_gap():
    assert cached_and_free().step(Touch((3, 2))) is None
    assert cached_and_free().step(Touch((0, 3, 2))) is None


def test_a_gap_that_a_full_observation_has_seen_is_forgotten():
    session = cached_and_free(full_every=4)
    assert session.step(Touch((5,))) is None
    assert session.step(Allocate(1)) is None
    assert session.step(Free((6,))) is None


def test_a_gap_from_unchecked_commands_is_forgotten():
    session = cached_and_free()
    session._checked = False
    assert session.step(Touch((5,))) is None
    session._checked = True
    assert session.step(Allocate(1)) is None
    assert session.step(Free((6,))) is None


def test_a_gap_that_stays_open_is_seen_in_a_large_pool():
    class LeavesAGap(BlockPool):
        def free_neighbours(self, block):
            return (0, 2) if block == 3 else super().free_neighbours(block)

    session = cached_and_free()
    session._incremental.neighbours = LeavesAGap.free_neighbours.__get__(session.target)
    assert session.step(Touch((2,))).invariant == "CRASH"


def test_a_large_pool_is_read_whole_at_the_stated_rate():
    session = session_of(num_blocks=pool_session.SMALL_POOL + 1, full_every=3)
    session.target._ref_counts[30] = 1
    assert session.step(Allocate(1)) is None
    assert session.step(Allocate(1)) is None
    assert session.step(Allocate(1)).invariant == "I1"


def test_the_default_rate_depends_on_the_size():
    assert session_of(num_blocks=pool_session.SMALL_POOL)._full_every == 1
    assert session_of(num_blocks=pool_session.SMALL_POOL + 1)._full_every == 1000


def test_an_unchecked_session_applies_commands_and_looks_at_nothing():
    target = ForgetsTheCounter(4)
    session = PoolSession(target, Profile(), 4, checked=False)
    for command in (Allocate(1), Free((0,)), Free((9,))):
        assert session.step_any(command) is None


@pytest.mark.parametrize(
    ("profile", "command", "defined"),
    [
        (Profile(), Allocate(-1), True),
        (Profile(misuse="undefined"), Allocate(-1), False),
        (Profile(), Touch((0,)), False),
        (Profile(), Append(0), False),
        (Profile(), Reset(), True),
    ],
)
def test_a_command_is_defined_or_not(profile, command, defined):
    session = PoolSession(BlockPool(2), profile, 2)
    assert session.is_defined(command) == defined
    if not defined:
        with pytest.raises(AssertionError, match="is not defined in this state"):
            session.step_any(command)


def test_a_verb_that_the_target_lacks_is_not_defined():
    target = BlockPool(2)
    target.evict = None
    assert not PoolSession(target, Profile(), 2).is_defined(Evict((0,)))


def test_the_end_needs_every_reference_back():
    session = session_of()
    session.step(Allocate(1))
    assert not session.nobody_holds()
    with pytest.raises(AssertionError, match="still outstanding"):
        session.end()
    session.step(Free((0,)))
    assert session.nobody_holds()
    assert session.end() is None
    assert "everything was freed at the end" in session.facts


def test_a_leak_that_shows_at_the_end_only_is_named():
    session = session_of()
    for command in (Allocate(1), Cache((0,), (A,)), Free((0,))):
        session.step(command)
    session.target.num_free = lambda: 3
    found = session.end()
    assert found.invariant == "LEAK"
    assert "3 of 4 blocks are free: 0 live, 1 reclaimable by the prefix cache, 1 lost" in (
        found.sentence
    )


def test_a_target_is_told_when_it_has_failed():
    class Tells(NativeDictPool):
        told = 0

        def free(self, block_ids, /):
            """Lose them."""

        def poolproof_abandon(self):
            self.told += 1

    session = PoolSession(Tells(2), Profile(), 2)
    assert session.step(Allocate(1)) is None
    assert session.target.told == 0
    assert session.step(Free((0,))) is not None
    assert session.target.told == 1


class StoresAgain(NativeDictPool):
    """Takes a hash away and gives it back where a block is cached again under its own."""

    def cache(self, block_ids, hashes, /):
        same = [h for b, h in zip(block_ids, hashes, strict=True) if self.block_hash(b) == h]
        super().cache(block_ids, hashes)
        self._told = [{"type": kind, "hashes": [h]} for h in same for kind in ("removed", "stored")]

    def take_events(self):
        told, self._told = getattr(self, "_told", []), []
        return [*told, *super().take_events()]


@pytest.mark.parametrize("kind", ["per-copy", "per-hash"])
def test_no_event_tells_of_a_block_that_keeps_its_hash(kind):
    profile = Profile(events=kind)
    session = PoolSession(StoresAgain(4, profile=profile), profile, 4)
    first, second = bytes(16), bytes([1]) * 16
    for legal in (Allocate(3), Cache((0, 1), (first, second)), Cache((0,), (second,))):
        assert session.step(legal) is None
    found = session.step(Cache((1, 0), (second, second)))
    assert (found.invariant, found.severity) == ("EVT", Severity.EVENTS)
    assert found.sentence == (
        "an event tells that hash 01010101 was removed, although each block was cached again "
        "under the one hash that it had"
    )


class TellsAgain(NativeDictPool):
    """Says once more that a block's hash is stored."""

    def cache(self, block_ids, hashes, /):
        same = [h for b, h in zip(block_ids, hashes, strict=True) if self.block_hash(b) == h]
        super().cache(block_ids, hashes)
        self._told = [{"type": "stored", "hashes": same}] * bool(same)

    def take_events(self):
        told, self._told = getattr(self, "_told", []), []
        return [*told, *super().take_events()]


def test_what_is_stored_may_be_told_again_where_copies_are_not_counted():
    profile = Profile(events="per-hash")
    session = PoolSession(TellsAgain(4, profile=profile), profile, 4)
    for legal in (Allocate(1), Cache((0,), (A,)), Cache((0,), (A,))):
        assert session.step(legal) is None


def test_events_of_commands_that_went_unheard_are_no_events_of_the_last():
    profile = Profile(events="per-copy")
    session = RecordedPool(NativeDictPool(3, profile=profile), profile, 3)
    session.replaying = True
    for unheard in (Allocate(1), Cache((0,), (A,))):
        assert session.step(unheard) is None
    session.replaying = False
    assert session.step(Cache((0,), (A,))) is None
