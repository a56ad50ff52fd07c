"""What is counted of lookups: requests, tokens and hits, those of preempted requests apart."""

from poolproof.impl.kv_cache_stats import PrefixCacheStats


def test_admitted_requests_add_up() -> None:
    stats = PrefixCacheStats()
    stats.record(10, 4, preempted=False)
    stats.record(5, 2, preempted=False)
    assert stats == PrefixCacheStats(requests=2, queries=15, hits=6)


def test_preempted_requests_add_up_apart() -> None:
    stats = PrefixCacheStats()
    stats.record(10, 4, preempted=True)
    stats.record(5, 2, preempted=True)
    expected = PrefixCacheStats(preempted_requests=2, preempted_queries=15, preempted_hits=6)
    assert stats == expected
