"""Checked replays of request traces: faults are found, correct pools are not accused."""

from poolproof.contract.commands import Allocate, Cache, Lookup
from poolproof.contract.profile import Profile
from poolproof.harness.pool_session import SMALL_POOL
from poolproof.harness.request_checks import CommandLog, RequestSession
from poolproof.harness.request_trace import TraceRequest, block_hashes
from poolproof.impl.block_pool import BlockPool

LARGE = SMALL_POOL + 6


def session(num_blocks=LARGE, cls=BlockPool, **rows):
    return RequestSession(cls(num_blocks, **rows), Profile(**rows), num_blocks)


def key(number):
    return number.to_bytes(16, "little")


def test_keys_for_full_observations_stay_bounded_and_keep_what_is_cached():
    pool = session()
    assert pool.step(Allocate(1)) is None
    assert pool.step(Cache((0,), (key(0),))) is None
    for number in range(1, 5000):
        assert pool.step(Lookup(key(number))) is None
    assert len(pool.keys) <= 2 * LARGE + 1000
    assert key(0) in pool.keys
    assert key(4999) in pool.keys


class CountsReads(BlockPool):
    reads = 0

    def free_order(self):
        self.reads += 1
        return super().free_order()


class LiesAboutOrder(BlockPool):
    lies = False

    def free_order(self):
        return [] if self.lies else super().free_order()


def test_a_large_pool_is_read_whole_only_when_that_is_asked():
    pool = session(cls=CountsReads)
    assert pool.step(Allocate(3)) is None
    assert pool.target.reads == 0
    assert pool.read_everything() is None
    assert pool.target.reads == 1


def test_a_small_pool_is_read_whole_after_every_step():
    pool = session(num_blocks=8, cls=CountsReads)
    assert pool.step(Allocate(3)) is None
    assert pool.step(Allocate(1)) is None
    assert pool.target.reads == 2


def test_without_checking_the_state_is_not_compared():
    pool = session(num_blocks=8, cls=LiesAboutOrder)
    pool.target.lies = True
    pool.checking = False
    assert pool.step(Allocate(2)) is None
    pool.checking = True
    assert pool.step(Allocate(2)) is not None


def test_without_checking_answers_are_judged_all_the_same():
    class HandsOutHeld(BlockPool):
        def allocate(self, n):
            super().allocate(n)
            return [0]

    pool = session(num_blocks=8, cls=HandsOutHeld)
    pool.checking = False
    assert pool.step(Allocate(1)) is None
    assert pool.step(Allocate(1)).invariant == "I2"


def test_reading_everything_says_which_invariant_is_broken():
    pool = session()
    pool.target._ref_counts[60] = 1
    assert pool.read_everything().invariant in {"I1", "OWN"}


def test_the_log_gives_the_commands_in_order_with_their_hashes():
    request = TraceRequest(0, 512, 1, (7,))
    hashes = block_hashes(request, 128)
    log = CommandLog()
    log.add_lookups(request, 2)
    log.add(Allocate(3))
    log.add_caching(request, 1, (4, 5, 6))
    assert list(log.commands(128)) == [
        Lookup(hashes[0]),
        Lookup(hashes[1]),
        Allocate(3),
        Cache((4, 5, 6), tuple(hashes[1:])),
    ]
