"""A whole workload: the replay loop, hit rates, evictions, violations and their traces.

Of the loop: what it asks a pool for, in which order, and when a request ends.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from types import SimpleNamespace
from typing import ClassVar

import pytest

from poolproof.contract.profile import Profile
from poolproof.contract.target import TargetError
from poolproof.contract.trace import read_trace, write_trace
from poolproof.contract.violation import ViolationError
from poolproof.harness.replay import replay
from poolproof.harness.request_generator import RequestMix, generate_requests
from poolproof.harness.request_trace import TraceRequest, block_hashes
from poolproof.harness.request_workload import NativeDriver, RequestReplay, RequestWorkload
from poolproof.harness.smaller_pool_traces import hashes_of
from poolproof.impl.block_pool import BlockPool
from poolproof.reference.native_pool import NativeDictPool


class Recorder(NativeDictPool):
    """A pool that writes down how it was called."""

    def __init__(self, num_blocks):
        super().__init__(num_blocks)
        self.calls = deque()

    def allocate(self, n, /):
        self.calls.append(("allocate", n))
        return super().allocate(n)

    def touch(self, block_ids, /):
        self.calls.append(("touch", list(block_ids)))
        super().touch(block_ids)

    def free(self, block_ids, /):
        self.calls.append(("free", list(block_ids)))
        super().free(block_ids)

    def cache(self, block_ids, hashes, /):
        self.calls.append(("cache", list(block_ids)))
        return super().cache(block_ids, hashes)

    def lookup(self, block_hash, /):
        self.calls.append(("lookup", block_hash))
        return super().lookup(block_hash)


def serve(pool, requests, block_size=256, **options):
    replay = RequestReplay(
        NativeDriver(pool), block_size=block_size, **{"concurrent": 4, **options}
    )
    replay.run(requests, lambda request: block_hashes(request, block_size))
    return replay.counts


def names(pool):
    return [call[0] for call in pool.calls]


def request(length, *ids, output=1):
    return TraceRequest(0, length, output, ids)


def test_a_new_prompt_is_looked_up_until_the_first_miss_then_allocated_and_cached():
    pool = Recorder(8)
    serve(pool, [request(1000, 1, 2)])
    assert names(pool) == ["lookup", "allocate", "cache", "free"]


def test_the_partial_last_block_is_never_cached():
    pool = Recorder(8)
    serve(pool, [request(1000, 1, 2)])
    assert ("allocate", 4) in pool.calls
    assert ("cache", [0, 1, 2]) in pool.calls


def test_blocks_go_back_with_the_end_of_the_prompt_first():
    pool = Recorder(8)
    serve(pool, [request(1000, 1, 2)])
    assert pool.calls[-1] == ("free", [3, 2, 1, 0])


def test_a_cached_prefix_is_touched_and_the_rest_allocated():
    pool = Recorder(8)
    counts = serve(pool, [request(1024, 1, 2), request(1536, 1, 2, 3)])
    assert ("touch", [0, 1, 2, 3]) in pool.calls
    assert pool.calls.count(("allocate", 2)) == 1
    assert (counts.blocks_hit, counts.blocks_allocated, counts.tokens_hit) == (4, 6, 1024)


def test_a_prompt_that_is_cached_to_its_end_computes_its_last_block_again():
    pool = Recorder(8)
    counts = serve(pool, [request(1024, 1, 2), request(1024, 1, 2)])
    assert counts.blocks_hit == 3
    assert pool.calls.count(("allocate", 1)) == 1


def test_a_prompt_that_ends_one_token_into_a_block_may_find_all_its_full_blocks():
    counts = serve(Recorder(8), [request(1024, 1, 2), request(1025, 1, 2, 3)])
    assert counts.blocks_hit == 4


def test_so_many_requests_are_live_and_the_oldest_ends_first():
    pool = Recorder(8)
    serve(pool, [request(256, number) for number in range(3)], concurrent=2)
    assert [call for call in pool.calls if call[0] in ("allocate", "free")] == [
        ("allocate", 1),
        ("allocate", 1),
        ("free", [0]),
        ("allocate", 1),
        ("free", [1]),
        ("free", [2]),
    ]


def test_by_output_length_the_first_to_finish_decoding_ends_first():
    pool = Recorder(8)
    requests = [request(256, 1, output=9), request(256, 2, output=2), request(256, 3, output=8)]
    serve(pool, requests, concurrent=2, finish="output-length")
    # Request 3 starts when request 2 has decoded 2 tokens, so it ends after request 1.
    assert [call[1] for call in pool.calls if call[0] == "free"] == [[1], [0], [2]]


def test_a_pool_too_full_ends_the_oldest_request_early():
    pool = Recorder(4)
    counts = serve(pool, [request(512, 1), request(512, 2), request(512, 3)])
    assert counts.num_ended_early == 1
    assert counts.peak_held == 4
    assert pool.calls.index(("free", [1, 0])) < len(pool.calls) - 2


def test_the_most_blocks_held_are_remembered_after_they_went():
    counts = serve(Recorder(8), [request(1536, 1, 2, 3), request(256, 4)], concurrent=1)
    assert counts.peak_held == 6


def test_the_prefix_that_is_about_to_be_used_survives_the_end_of_its_owner():
    pool = Recorder(5)
    counts = serve(pool, [request(1024, 1, 2), request(1280, 1, 2, 3)])
    assert counts.blocks_hit == 4
    counts = serve(Recorder(4), [request(1024, 1, 2), request(1024, 1, 2)])
    assert (counts.blocks_hit, counts.num_ended_early) == (3, 1)


def test_a_request_larger_than_the_pool_is_left_out_and_counted():
    pool = Recorder(3)
    counts = serve(pool, [request(1024, 1, 2), request(256, 1)])
    assert (counts.num_requests, counts.num_skipped, counts.blocks) == (2, 1, 1)


def test_every_block_is_free_at_the_end():
    pool = Recorder(8)
    serve(pool, [request(1000, number, 9) for number in range(6)])
    assert pool.num_free() == 8


def test_the_null_block_is_no_part_of_the_capacity():
    pool = NativeDictPool(4, profile=Profile(null_block=0))
    counts = serve(pool, [request(1024, 1, 2)])
    assert counts.num_skipped == 1


def test_a_pool_that_hands_back_other_blocks_gets_those_freed():
    class Merging(Recorder):
        def cache(self, block_ids, hashes, /):
            super().cache(block_ids, hashes)
            self.touch([0])
            super().free([block_ids[0]])
            return [0, *block_ids[1:]]

    pool = Merging(8)
    serve(pool, [request(256, 5), request(256, 6)])
    assert pool.calls[-1] == ("free", [0])


def test_a_pool_with_acquire_needs_no_lookup():
    class Acquiring(NativeDictPool):
        lookup = touch = None

        def acquire(self, hashes, /):
            found = []
            for block_hash in hashes:
                block = NativeDictPool.lookup(self, block_hash)
                if block is None:
                    break
                found.append(block)
            NativeDictPool.touch(self, found)
            return found

    counts = serve(Acquiring(8), [request(1024, 1, 2), request(1024, 1, 2)])
    assert counts.blocks_hit == 3


@pytest.mark.parametrize("answer", [None, [0], "01"])
def test_an_answer_of_the_wrong_form_is_a_violation(answer):
    class Odd(NativeDictPool):
        def allocate(self, n, /):
            return answer

    with pytest.raises(ViolationError) as caught:
        serve(Odd(8), [request(512, 1)])
    assert "must answer" in caught.value.violation.sentence


def test_the_time_is_that_of_the_pool_without_the_hashing(monkeypatch):
    clock = SimpleNamespace(now_s=0.0)
    clock.perf_counter = clock.process_time = lambda: clock.now_s
    monkeypatch.setattr("poolproof.harness.request_workload.time", clock)

    class Slow(NativeDictPool):
        def allocate(self, n, /):
            clock.now_s += 1
            return super().allocate(n)

    def hashed_slowly(asked):
        clock.now_s += 100
        return block_hashes(asked, 256)

    replay = RequestReplay(NativeDriver(Slow(8)), block_size=256, concurrent=1)
    replay.run([request(512, 1), request(512, 2)], hashed_slowly)
    assert (replay.counts.process_s, replay.counts.wall_s) == (2, 2)


MIX = RequestMix(mean_user_length=300, max_input_length=3000)
REQUESTS = list(islice(generate_requests(3, MIX), 60))
EVENTS = Profile(events="per-copy")


def run(cls, profile=None, served=None, **options):
    profile = profile or Profile()
    rows = profile.to_json()
    for row in ("retention", "same_step_hit", "hash_bytes", "repeats_in_free"):
        del rows[row]

    def make(num_blocks, enable_caching):
        if issubclass(cls, BlockPool):
            return cls(num_blocks, enable_caching=enable_caching, **rows)
        return cls(num_blocks, enable_caching=enable_caching, profile=profile)

    workload = RequestWorkload(
        **{"requests": REQUESTS, "num_blocks": 150, "block_size": 64, "concurrent": 8, **options}
    )
    return workload.run("target", make, profile, served)


class ListensToHashes(NativeDictPool):
    """Notes how long the hashes are that it is given."""

    lengths: ClassVar[set[int]] = set()

    def cache(self, block_ids, hashes):
        self.lengths.update(map(len, hashes))
        super().cache(block_ids, hashes)


@pytest.mark.parametrize("length", [8, 20, 32, 200])
@pytest.mark.parametrize("check_every", [1, None])
def test_requests_get_hashes_of_the_one_length_that_a_pool_takes(length, check_every):
    ListensToHashes.lengths.clear()
    profile = Profile(hash_bytes=length)
    result = run(ListensToHashes, profile, check_every=check_every)
    assert result.violation is None
    assert ListensToHashes.lengths == {length}
    usual = run(NativeDictPool, check_every=check_every)
    assert result.counts.blocks_hit == usual.counts.blocks_hit > 0


def test_the_trace_of_a_violation_has_those_hashes_again():
    result = run(KeepsEvictedHash, Profile(hash_bytes=32))
    assert result.violation is not None
    hashes = {len(key) for command in result.trace.commands for key in hashes_of(command)}
    assert hashes == {32}


def test_hashes_that_would_collide_stand_for_no_requests():
    with pytest.raises(TargetError, match="target has hash_bytes=4, and among the blocks"):
        run(NativeDictPool, Profile(hash_bytes=4))


class LosesLinks(BlockPool):
    """Forgets that a free block that is touched has to leave the queue."""

    def touch(self, block_ids):
        for block_id in block_ids:
            self._ref_counts[block_id] += 1


class KeepsEvictedHash(BlockPool):
    """A recycled block stays in the index (bugs.md D1)."""

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


class LeaksOne(BlockPool):
    """The first block of every request is forgotten."""

    def free(self, block_ids):
        super().free(block_ids[:-1])


class LosesEvents(BlockPool):
    """The first announcement after the 40th question never comes."""

    questions = 0
    lost = False

    def take_events(self):
        events = super().take_events()
        self.questions += 1
        if not events or self.lost or self.questions < 40:
            return events
        self.lost = True
        return []


@pytest.mark.parametrize("check_every", [1, 7, None])
def test_a_right_pool_holds(check_every):
    result = run(BlockPool, check_every=check_every)
    assert result.violation is None
    assert result.counts.num_requests == 60
    assert result.trace is None


@pytest.mark.parametrize("check_every", [1, 7, None])
@pytest.mark.parametrize("eviction", ["lru", "unhashed-first", "lifo"])
def test_checks_do_not_change_what_the_pool_is_asked(check_every, eviction):
    profile = Profile(eviction=eviction, events="per-copy")
    expected = run(NativeDictPool, profile, check_every=None)
    found = run(BlockPool, profile, check_every=check_every)
    for name in ("blocks", "blocks_hit", "tokens_hit", "num_ended_early", "peak_held"):
        assert getattr(found.counts, name) == getattr(expected.counts, name), name
    assert expected.counts.blocks_hit > 0


def test_evictions_are_counted_alike_with_and_without_checks():
    checked, unchecked = run(BlockPool), run(BlockPool, check_every=None)
    assert checked.evictions == unchecked.evictions > 0


def test_evictions_are_unknown_where_hashes_are_not_shown():
    class Hidden(BlockPool):
        block_hash = None

    assert run(Hidden, check_every=None).evictions is None
    assert run(Hidden).evictions == run(BlockPool).evictions


def test_evictions_are_unknown_without_checks_where_duplicates_are_merged():
    assert run(BlockPool, Profile(duplicates="first"), check_every=None).evictions is None


@pytest.mark.parametrize("num_blocks", [60, 150])
@pytest.mark.parametrize("check_every", [1, 7])
@pytest.mark.parametrize(
    ("broken", "invariants"),
    [
        (LosesLinks, {"I1", "LINK", "OWN", "I2"}),
        (KeepsEvictedHash, {"IDX"}),
        (LeaksOne, {"LEAK", "OWN", "I1"}),
    ],
)
def test_a_broken_pool_is_found(broken, invariants, check_every, num_blocks):
    result = run(broken, check_every=check_every, num_blocks=num_blocks)
    assert result.violation is not None
    assert result.violation.invariant in invariants


def test_a_lost_event_is_found_when_the_whole_pool_is_read():
    assert run(BlockPool, EVENTS, full_every=5).violation is None
    result = run(LosesEvents, EVENTS, full_every=5)
    assert result.violation is not None
    assert result.violation.invariant == "EVT"


def test_a_leak_is_found_without_checks():
    class LeaksAtEnd(BlockPool):
        def num_free(self):
            return super().num_free() - (self._queue.length == self.num_blocks and self.used)

        used = False

        def free(self, block_ids):
            self.used = True
            super().free(block_ids)

    result = run(LeaksAtEnd, check_every=None)
    assert result.violation is not None
    assert result.violation.invariant == "LEAK"


@pytest.mark.parametrize("check_every", [1, 7])
def test_the_trace_shows_the_violation_again(tmp_path, check_every):
    result = run(KeepsEvictedHash, check_every=check_every)
    path = tmp_path / "trace.jsonl"
    write_trace(result.trace, path)
    trace = read_trace(path)
    again = replay(trace, lambda n, caching: KeepsEvictedHash(n, enable_caching=caching))
    assert again.num_left_out == 0
    assert again.violation is not None
    assert again.violation.invariant == result.violation.invariant


def test_every_judged_step_is_in_the_trace():
    result = run(LosesLinks)
    assert len(result.trace.commands) == result.num_steps


@pytest.mark.parametrize("check_every", [1, None])
def test_what_the_target_raises_is_a_violation(check_every):
    class Raises(BlockPool):
        def touch(self, block_ids):
            raise KeyError("lost")

    result = run(Raises, check_every=check_every)
    assert result.violation.invariant == "CRASH"
    assert "lost" in result.violation.sentence


@pytest.mark.parametrize("check_every", [1, None])
def test_a_constructor_that_raises_is_a_violation(check_every):
    class Unbuilt(BlockPool):
        def __init__(self, num_blocks, **rows):
            raise RuntimeError("no GPU")

    result = run(Unbuilt, check_every=check_every)
    assert "constructing the target with 150 blocks" in result.violation.sentence


def test_a_target_without_a_required_method_cannot_be_run():
    class Lacking(BlockPool):
        free = None

    with pytest.raises(TargetError) as caught:
        run(Lacking)
    assert "free()" in str(caught.value)


def test_requests_too_large_for_the_pool_are_counted():
    large = TraceRequest(0, 2048, 1, (1, 2, 3, 4))
    result = run(BlockPool, requests=[large, TraceRequest(0, 64, 1, (9,))], num_blocks=3)
    assert result.counts.num_skipped == 1
    assert result.violation is None


def test_served_is_called_after_each_request():
    calls = []
    run(BlockPool, served=lambda: calls.append(1))
    assert len(calls) == 60


@pytest.mark.parametrize("size", [0, -16, 3, 48, 1024])
def test_a_block_size_that_does_not_divide_512_is_refused(size):
    with pytest.raises(ValueError) as caught:
        run(BlockPool, block_size=size)
    assert f"block size {size} does not divide 512" in str(caught.value)


@pytest.mark.parametrize("name", ["num_blocks", "concurrent", "check_every", "full_every"])
def test_a_size_below_one_is_refused(name):
    with pytest.raises(ValueError) as caught:
        run(BlockPool, **{name: 0})
    assert str(caught.value) == f"{name} must be at least 1, not 0"


class CountsReads(BlockPool):
    def __init__(self, num_blocks, **rows):
        super().__init__(num_blocks, **rows)
        self.counter_reads = self.whole_reads = 0
        CountsReads.last = self

    def num_free(self):
        self.counter_reads += 1
        return super().num_free()

    def free_order(self):
        self.whole_reads += 1
        return super().free_order()


def test_sampling_compares_the_state_for_few_requests():
    run(CountsReads, check_every=1)
    every = CountsReads.last.counter_reads
    run(CountsReads, check_every=10)
    assert CountsReads.last.counter_reads < every / 5


def test_the_whole_pool_is_read_at_the_stated_rate_and_at_the_end():
    run(CountsReads, full_every=10)
    assert CountsReads.last.whole_reads == 6 + 1


def test_a_leak_is_found_at_the_end_although_the_last_requests_are_not_compared():
    class LeaksAtEnd(BlockPool):
        used = False

        def allocate(self, n):
            self.used = True
            return super().allocate(n)

        def num_free(self):
            return super().num_free() - (self.used and self._queue.length == self.num_blocks)

    small = [TraceRequest(0, 64, 1, (number,)) for number in range(3)]
    result = run(LeaksAtEnd, requests=small, check_every=9)
    assert result.violation is not None
    assert result.violation.invariant == "LEAK"


def test_events_are_taken_without_checks_so_that_they_do_not_pile_up():
    pools = []

    class Kept(BlockPool):
        def __init__(self, num_blocks, **rows):
            super().__init__(num_blocks, **rows)
            pools.append(self)

    run(Kept, EVENTS, check_every=None)
    assert pools[0].take_events() == []


@pytest.mark.parametrize("check_every", [1, None])
def test_a_pool_that_merges_duplicates_holds(check_every):
    class Merging(NativeDictPool):
        merged = 0

        def cache(self, block_ids, hashes, /):
            answer = []
            for block_id, block_hash in zip(block_ids, hashes, strict=True):
                carrier = self.lookup(block_hash)
                if carrier is None:
                    super().cache([block_id], [block_hash])
                    answer.append(block_id)
                else:
                    self.touch([carrier])
                    self.free([block_id])
                    answer.append(carrier)
                    Merging.merged += 1
            return answer

    twice = [
        TraceRequest(0, 512, 1, (1,)),
        TraceRequest(0, 512, 1, (1,)),
        TraceRequest(0, 512, 1, (2,)),
    ]
    result = run(Merging, requests=twice, num_blocks=20, check_every=check_every)
    assert result.violation is None
    assert Merging.merged == 1


@pytest.mark.parametrize("check_every", [1, None])
def test_a_pool_with_acquire_in_place_of_lookup_is_served(check_every):
    class Acquiring(NativeDictPool):
        lookup = touch = None

        def acquire(self, hashes, /):
            found = []
            for block_hash in hashes:
                block_id = NativeDictPool.lookup(self, block_hash)
                if block_id is None:
                    break
                found.append(block_id)
            NativeDictPool.touch(self, found)
            return found

    result = run(Acquiring, check_every=check_every)
    assert result.violation is None
    assert result.counts.blocks_hit == run(BlockPool).counts.blocks_hit
