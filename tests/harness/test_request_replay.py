"""The replay loop: what it asks a pool for, in which order, and when a request ends."""

from collections import deque
from types import SimpleNamespace

import pytest

from poolproof.contract.profile import Profile
from poolproof.contract.violation import ViolationError
from poolproof.harness.request_replay import NativeDriver, RequestReplay
from poolproof.harness.request_trace import TraceRequest, block_hashes
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
    monkeypatch.setattr("poolproof.harness.request_replay.time", clock)

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
