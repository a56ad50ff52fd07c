"""How long blocks stay, by a clock that the test turns."""

import pytest

from poolproof.impl.block_hash import BlockHasher
from poolproof.impl.kv_cache_manager import KVCacheManager
from poolproof.impl.kv_cache_request import Request
from poolproof.impl.kv_cache_residency import Residency, ResidencyMetrics, WatchedPool


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


def watched(**kwargs):
    clock = Clock()
    metrics = ResidencyMetrics(1, clock=clock, **kwargs)
    return clock, metrics, WatchedPool(3, metrics, null_block=0)


def test_a_stay_ends_when_the_block_is_handed_out_again():
    clock, metrics, pool = watched()
    (block, _) = pool.allocate(2)
    clock.now_s = 2.0
    pool.free([block])
    assert metrics.take() == []
    clock.now_s = 5.0
    pool.allocate(1)
    assert metrics.take() == [Residency(5.0, 5.0, ())]
    assert metrics.take() == []


def test_hits_make_idle_time_and_gaps():
    clock, metrics, pool = watched()
    pool.allocate(1)
    for clock.now_s in (1.0, 4.0, 6.0):
        pool.touch([1])
    clock.now_s = 10.0
    pool.evict([1])
    assert metrics.take() == [Residency(10.0, 4.0, (3.0, 2.0))]


def test_a_stay_begins_when_the_block_is_handed_out():
    clock, metrics, pool = watched()
    clock.now_s = 7.0
    pool.allocate(1)
    clock.now_s = 9.0
    pool.evict([1])
    assert metrics.take() == [Residency(2.0, 2.0, ())]


def test_one_block_in_a_hundred_is_watched_by_default():
    assert ResidencyMetrics().sample_rate == 0.01


def test_gaps_of_a_hot_block_are_bounded():
    clock, metrics, pool = watched()
    pool.allocate(1)
    for clock.now_s in range(100):
        pool.touch([1])
    pool.evict([1])
    (stay,) = metrics.take()
    assert stay.reuse_gaps_s == (1, 1, 1)


def test_a_reset_forgets_all():
    _, metrics, pool = watched()
    pool.allocate(2)
    pool.evict([1])
    assert not pool.reset()
    pool.free([1, 2])
    assert pool.reset()
    assert metrics.take() == []
    pool.allocate(1)
    assert metrics.take() == []


def test_only_a_sample_is_watched():
    metrics = ResidencyMetrics(0.25, clock=Clock(), seed=7)
    metrics.allocated(range(1000))
    metrics.used(range(1000))
    metrics.evicted(range(1000))
    again = ResidencyMetrics(0.25, clock=Clock(), seed=7)
    again.allocated(range(1000))
    again.evicted(range(1000))
    assert 200 < len(metrics.take()) == len(again.take()) < 300


@pytest.mark.parametrize("rate", [0, -0.5, 1.01])
def test_a_rate_is_a_share(rate):
    with pytest.raises(ValueError, match="sample_rate must be above 0 and at most 1"):
        ResidencyMetrics(rate)


def test_a_refused_call_is_not_recorded():
    _, metrics, pool = watched()
    with pytest.raises(MemoryError):
        pool.allocate(3)
    with pytest.raises(ValueError, match="carries no hash"):
        pool.touch([1])
    pool.allocate(2)
    assert metrics.take() == []


def test_a_manager_tells_what_its_requests_do():
    clock = Clock()
    metrics = ResidencyMetrics(1, clock=clock)
    manager = KVCacheManager(4, 2, max_model_len=9, metrics=metrics)
    hasher = BlockHasher(seed=b"s", block_size=2)
    first, second = (Request(name, [1, 2, 3], hasher=hasher) for name in "ab")
    manager.allocate_slots(first, 3)
    manager.free(first)
    clock.now_s = 2.0
    blocks, num_hit = manager.get_computed_blocks(second)
    manager.allocate_slots(second, 1, num_hit, blocks)
    clock.now_s = 3.0
    manager.evict_blocks([1])
    assert metrics.take() == [Residency(2.0, 2.0, ()), Residency(3.0, 1.0, ())]
