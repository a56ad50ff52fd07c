"""The manager with one group of full attention: lookups, slots, release, one behaviour each."""

from __future__ import annotations

import pytest

from poolproof.impl.block_hash import BlockHasher, LoRA, Salt
from poolproof.impl.kv_cache_group import FullAttention
from poolproof.impl.kv_cache_manager import KVCacheBlocks, KVCacheManager, PrefixCacheStats
from poolproof.impl.kv_cache_request import ImageSpan, Request

HASHER = BlockHasher(seed=b"s", block_size=4)
COUNTS = (
    "^allocate_slots: the numbers of new, new computed, lookahead and external computed "
    "tokens must be"
)
NOTHING = "^allocate_slots: no token is new, found or loaded; there is nothing to do$"
STALE_HITS = (
    "^allocate_slots: of the blocks .* found for request 'b', at least one no longer holds what "
    "was found; look up again after whatever was allocated$"
)
JOIN = (
    "^allocate_slots: request 'r' has blocks, and computed blocks of others cannot join them; "
    "look up before the first allocation only$"
)


def manager_of(num_blocks=10, **kwargs):
    return KVCacheManager(num_blocks, 4, **{"max_model_len": 100, **kwargs})


def request_of(tokens, name="r", **kwargs):
    if isinstance(tokens, int):
        tokens = range(tokens)
    return Request(name, tokens, **{"hasher": HASHER, **kwargs})


def serve(manager, request, num_new=None, **kwargs):
    """Look up, take slots, compute; the number of tokens found, or None when refused."""
    blocks, num_hit = manager.get_computed_blocks(request)
    num_new = request.num_tokens - num_hit if num_new is None else num_new
    if manager.allocate_slots(request, num_new, num_hit, blocks, **kwargs) is None:
        return None
    request.num_computed_tokens = num_hit + num_new
    return num_hit


def state_of(manager, *requests):
    pool = manager.block_pool
    return (
        pool.free_order(),
        [(pool.ref_count(b), pool.block_hashes(b)) for b in range(pool.num_blocks)],
        [manager.get_block_ids(request.request_id) for request in requests],
        manager.prefix_cache_stats,
    )


def test_a_request_gets_blocks_for_its_tokens():
    manager, request = manager_of(), request_of(9)
    assert manager.allocate_slots(request, 9).blocks == ([1, 2, 3],)
    assert manager.get_block_ids("r") == ([1, 2, 3],)
    assert manager.get_blocks("r").get_block_ids() == ([1, 2, 3],)
    assert manager.usage == 3 / 9


def test_tables_that_are_given_away_are_the_callers():
    manager, request = manager_of(), request_of(9)
    manager.allocate_slots(request, 9)
    manager.get_block_ids("r")[0].append(7)
    manager.get_blocks("r").blocks[0].clear()
    assert manager.get_block_ids("r") == ([1, 2, 3],)


def test_a_token_within_the_last_block_takes_none():
    manager, request = manager_of(), request_of(7)
    serve(manager, request)
    request.append([7])
    answer = manager.allocate_slots(request, 1)
    assert answer is not None
    assert answer.blocks == ((),)


@pytest.mark.parametrize("num_drafts", [0, 4])
def test_the_token_that_fills_a_block_makes_it_found(num_drafts):
    manager, request = manager_of(), request_of(7)
    serve(manager, request, num_lookahead_tokens=num_drafts)
    request.append([7])
    assert manager.allocate_slots(request, 1).blocks == ((),)
    assert manager.get_computed_blocks(request_of(9, "b"))[1] == 8


def test_a_token_behind_a_full_block_takes_one():
    manager, request = manager_of(), request_of(8)
    serve(manager, request)
    request.append([8])
    assert manager.allocate_slots(request, 1).blocks == ([3],)


def test_lookahead_takes_slots_that_are_used_later():
    manager, request = manager_of(), request_of(7)
    serve(manager, request, num_lookahead_tokens=3)
    assert manager.get_block_ids("r") == ([1, 2, 3],)
    request.append([7, 8])
    assert manager.allocate_slots(request, 2).blocks == ((),)


def test_more_slots_than_needed_after_rejected_drafts_cost_nothing():
    # vllm#52707: a need below what is held is none, not a negative one.
    manager, request = manager_of(), request_of(4)
    serve(manager, request, num_lookahead_tokens=12)
    request.append([4])
    free = manager.block_pool.num_free()
    assert manager.allocate_slots(request, 1).blocks == ((),)
    assert manager.block_pool.num_free() == free == 5


def test_no_slots_beyond_the_longest_sequence():
    manager, request = manager_of(max_model_len=6), request_of(6)
    assert manager.allocate_slots(request, 6, num_lookahead_tokens=9).blocks == ([1, 2],)


def test_full_blocks_are_found_by_equal_prefixes():
    manager = manager_of()
    serve(manager, request_of(10, "a"))
    blocks, num_hit = manager.get_computed_blocks(request_of([*range(8), 99, 98], "b"))
    assert (blocks.blocks, num_hit) == (([1, 2],), 8)


def test_a_lookup_changes_nothing():
    manager = manager_of()
    first = request_of(10, "a")
    serve(manager, first)
    manager.free(first)
    before = state_of(manager)
    for _ in range(3):
        manager.get_computed_blocks(request_of(10, "b"))
    assert state_of(manager) == before
    assert manager.make_prefix_cache_stats().requests == 1


@pytest.mark.parametrize(("num_tokens", "num_hit"), [(7, 4), (8, 4), (9, 8)])
def test_a_last_token_is_left_to_compute(num_tokens, num_hit):
    # vllm#11186: a prompt that is cached to its end has to sample from something.
    manager = manager_of()
    serve(manager, request_of(12, "a"))
    assert manager.get_computed_blocks(request_of(num_tokens, "b"))[1] == num_hit


def test_a_request_without_tokens_finds_nothing():
    assert manager_of().get_computed_blocks(request_of(0))[1] == 0


@pytest.mark.parametrize(
    "other",
    [
        {"lora": LoRA("a", "/a")},
        {"salt": Salt("tenant")},
        {"images": [ImageSpan("cat", 1, 2)]},
    ],
)
def test_equal_tokens_with_other_keys_are_not_found(other):
    manager = manager_of()
    serve(manager, request_of(10, "a"))
    assert manager.get_computed_blocks(request_of(10, "b", **other))[1] == 0
    serve(manager, request_of(10, "c", **other))
    assert manager.get_computed_blocks(request_of(10, "d", **other))[1] == 8


def test_hits_are_shared_and_counted():
    manager = manager_of()
    serve(manager, request_of(10, "a"))
    assert serve(manager, request_of(10, "b")) == 8
    assert manager.get_block_ids("b") == ([1, 2, 4],)
    assert [manager.block_pool.ref_count(block) for block in range(1, 5)] == [2, 2, 1, 1]


def test_hash_blocks_may_be_smaller_than_blocks():
    manager = KVCacheManager(10, 8, max_model_len=100, hash_block_size=4)
    serve(manager, request_of(20, "a"))
    assert manager.get_computed_blocks(request_of([*range(16), 1, 2, 3], "b"))[1] == 16
    assert manager.get_computed_blocks(request_of([*range(12), 1, 2, 3, 4], "b"))[1] == 8


def test_a_speculative_head_computes_the_last_hit_block_again():
    manager = manager_of(use_eagle=True)
    serve(manager, request_of(13, "a"))
    blocks, num_hit = manager.get_computed_blocks(request_of(13, "b"))
    assert (blocks.blocks, num_hit) == (([1, 2],), 8)
    assert manager.get_computed_blocks(request_of(5, "b"))[1] == 0


def test_refused_when_blocks_are_missing():
    manager = manager_of(4)
    assert manager.allocate_slots(request_of(12, "a"), 12) is not None
    other = request_of([9], "b")
    before = state_of(manager, other)
    assert manager.allocate_slots(other, 1) is None
    assert state_of(manager, other) == before


def test_a_refused_growth_changes_nothing():
    manager, request = manager_of(4), request_of(12, "a")
    serve(manager, request)
    request.append([1])
    before = state_of(manager, request)
    assert manager.allocate_slots(request, 1) is None
    assert state_of(manager, request) == before


def test_a_refusal_with_hits_changes_nothing():
    # vllm#11565: touching before the check left references behind.
    manager = manager_of(6)
    first, holder = request_of(9, "a"), request_of([7] * 4, "h")
    serve(manager, first)
    serve(manager, holder)
    manager.free(first)
    second = request_of(20, "b")
    blocks, num_hit = manager.get_computed_blocks(second)
    assert num_hit == 8
    before = state_of(manager, second)
    assert manager.allocate_slots(second, 12, num_hit, blocks) is None
    assert state_of(manager, second) == before


def test_free_hits_are_no_room_for_new_blocks():
    # Five blocks are free, two of them are the hit: of the other three, four cannot be had.
    manager = manager_of(6)
    first = request_of(9, "a")
    serve(manager, first)
    manager.free(first)
    blocks, num_hit = manager.get_computed_blocks(request_of(22, "b"))
    assert manager.allocate_slots(request_of(24, "b"), 16, num_hit, blocks) is None
    assert manager.allocate_slots(request_of(20, "b"), 12, num_hit, blocks) is not None
    assert manager.block_pool.num_free() == 0


def test_held_hits_take_no_room():
    manager = manager_of(5)
    serve(manager, request_of(9, "a"))
    assert serve(manager, request_of(9, "b")) == 8


def test_a_hit_that_stands_twice_under_a_weak_hash_leaves_the_queue_once():
    weak = BlockHasher(lambda data: b"x", seed=b"s", block_size=4)
    manager = manager_of(3)
    first = request_of(4, "a", hasher=weak)
    serve(manager, first)
    manager.free(first)
    second = request_of(9, "b", hasher=weak)
    assert serve(manager, second) == 8
    assert manager.get_block_ids("b") == ([1, 1, 2],)
    manager.free(second)
    assert manager.usage == 0


def test_hits_are_pinned_before_new_blocks_are_taken():
    # vllm#44409: the new block must not be the one that was just found.
    manager = manager_of(4)
    first = request_of(9, "a")
    serve(manager, first)
    manager.free(first)
    assert serve(manager, request_of(9, "b")) == 8
    (table,) = manager.get_block_ids("b")
    assert len(set(table)) == 3


def test_a_lookup_that_has_been_overtaken_is_refused():
    # vllm#39702: found, not touched, and evicted by somebody else's allocation.
    manager = manager_of(4)
    first, late = request_of(9, "a"), request_of(9, "b")
    serve(manager, first)
    manager.free(first)
    blocks, num_hit = manager.get_computed_blocks(late)
    serve(manager, request_of([5] * 12, "c"))
    manager.free(request_of([5] * 12, "c"))
    before = state_of(manager, late)
    with pytest.raises(ValueError, match=STALE_HITS):
        manager.allocate_slots(late, 1, num_hit, blocks)
    assert state_of(manager, late) == before


@pytest.mark.parametrize("ids", [[99, 98], ["x", "y"], [1, None]])
def test_blocks_that_no_lookup_gave_are_refused(ids):
    manager = manager_of()
    serve(manager, request_of(9, "a"))
    with pytest.raises(ValueError, match="look up again"):
        manager.allocate_slots(request_of(9, "b"), 1, 8, KVCacheBlocks((ids,)))


def test_the_tail_of_a_request_is_evicted_first():
    manager = manager_of(5)
    request = request_of(17)
    serve(manager, request, 16)
    manager.free(request)
    assert manager.block_pool.free_order() == [4, 3, 2, 1]
    serve(manager, request_of([9] * 5, "b"))
    assert manager.get_computed_blocks(request_of(17, "c"))[1] == 8


def test_blocks_without_a_hash_are_reused_first():
    manager = manager_of(5)
    request = request_of(9)
    serve(manager, request)
    manager.free(request)
    assert manager.block_pool.free_order() == [3, 4, 2, 1]


def test_freeing_what_was_never_allocated_is_harmless():
    # vllm#18829
    manager = manager_of()
    before = state_of(manager)
    manager.free(request_of(5, "never"))
    assert state_of(manager) == before
    assert manager.get_block_ids("never") == ([],)


def test_freeing_twice_is_harmless():
    # vllm#25067: a request may be finished and aborted.
    manager = manager_of()
    request, other = request_of(9, "a"), request_of(9, "b")
    serve(manager, request)
    serve(manager, other)
    manager.free(request)
    before = state_of(manager, other)
    manager.free(request)
    assert state_of(manager, other) == before


def test_blocks_can_be_given_back_later():
    manager = manager_of()
    request = request_of(9)
    serve(manager, request)
    ids = manager.pop_blocks_for_free(request)
    assert ids == [1, 2, 3]
    assert manager.pop_blocks_for_free(request) == []
    assert manager.usage == 3 / 9
    manager.block_pool.free(ids[::-1])
    assert manager.usage == 0


def test_a_resumed_request_finds_its_own_blocks_with_its_outputs():
    # vllm#9972: hashes over the prompt alone would lose what was generated.
    manager = manager_of()
    request = request_of(6)
    serve(manager, request)
    for token in range(6, 10):
        request.append([token])
        manager.allocate_slots(request, 1)
        request.num_computed_tokens += 1
    manager.free(request)
    request.num_computed_tokens = 0
    request.num_preemptions += 1
    assert serve(manager, request) == 8


def test_drafts_are_not_cached():
    # vllm#18668: of 8 slots the last two are drafts.
    manager, request = manager_of(), request_of(6)
    manager.allocate_slots(request, 8)
    assert manager.get_computed_blocks(request_of(9, "b"))[1] == 4
    request.append([6, 7])
    request.num_computed_tokens = 8
    request.append([8])
    manager.allocate_slots(request, 1)
    assert manager.get_computed_blocks(request_of(9, "b"))[1] == 8


def test_only_scheduled_tokens_are_cached():
    manager, request = manager_of(), request_of(12)
    manager.allocate_slots(request, 7)
    assert manager.get_computed_blocks(request_of(12, "b"))[1] == 4


def test_caching_can_wait_until_the_tokens_are_there():
    # vllm#29387
    manager, request = manager_of(), request_of(10)
    serve(manager, request, delay_cache_blocks=True)
    assert manager.get_computed_blocks(request_of(10, "b"))[1] == 0
    manager.cache_blocks(request, 7)
    assert manager.get_computed_blocks(request_of(10, "b"))[1] == 4
    manager.cache_blocks(request, 10)
    assert manager.get_computed_blocks(request_of(10, "b"))[1] == 8


def test_late_caching_of_a_freed_request_is_harmless():
    manager, request = manager_of(), request_of(10)
    serve(manager, request, delay_cache_blocks=True)
    manager.free(request)
    before = state_of(manager)
    manager.cache_blocks(request, 8)
    assert state_of(manager) == before


def test_no_more_tokens_can_be_cached_than_there_are_slots():
    manager, request = manager_of(), request_of(20)
    serve(manager, request, 6, delay_cache_blocks=True)
    with pytest.raises(ValueError, match=r"^request 'r' has 8 slots, which cannot hold 9 computed"):
        manager.cache_blocks(request, 9)


def test_a_dropped_request_takes_its_keys_back():
    # text-generation-inference#2489: scheduled, never computed.
    manager, request = manager_of(), request_of(12)
    serve(manager, request, 4)
    manager.allocate_slots(request, 8)
    manager.uncache_blocks(request, request.num_computed_tokens)
    manager.free(request)
    assert manager.get_computed_blocks(request_of(12, "b"))[1] == 4
    manager.uncache_blocks(request, 0)


def test_externally_computed_tokens_get_blocks_of_their_own():
    manager = manager_of()
    serve(manager, request_of(5, "a"))
    request = request_of(14, "b")
    blocks, num_hit = manager.get_computed_blocks(request)
    new = manager.allocate_slots(
        request, 2, num_hit, blocks, num_external_computed_tokens=8, delay_cache_blocks=True
    )
    assert new.blocks == ([3, 4, 5],)
    assert manager.get_block_ids("b") == ([1, 3, 4, 5],)
    request.num_computed_tokens = 12
    manager.cache_blocks(request, 12)
    assert manager.get_computed_blocks(request_of(14, "c"))[1] == 12


def test_truncation_gives_back_what_is_behind_and_keeps_shared_blocks_whole():
    manager, request = manager_of(), request_of(14)
    serve(manager, request)
    kept = manager.truncate(request, 6)
    assert kept == 4  # the block of positions 4 to 7 is cached and cannot be written over
    request.num_computed_tokens = kept
    request.truncate(6)
    assert manager.get_block_ids("r") == ([1],)
    request.append([50, 51, 52])
    manager.allocate_slots(request, 5)
    assert manager.get_computed_blocks(request_of([*range(6), 50, 51, 52], "b"))[1] == 8
    assert manager.get_computed_blocks(request_of(9, "c"))[1] == 8


def decode(manager, request, num_steps):
    """One token a step; the blocks that each step took."""
    taken = []
    for _ in range(num_steps):
        request.append([7])
        new = manager.allocate_slots(request, 1)
        taken.append(None if new is None else list(new.blocks[0]))
        request.num_computed_tokens = request.num_tokens
    return taken


@pytest.mark.parametrize("enable_caching", [True, False])
def test_one_token_in_a_blocks_worth_takes_a_block(enable_caching):
    hasher = HASHER if enable_caching else None
    manager, request = manager_of(enable_caching=enable_caching), request_of(5, hasher=hasher)
    serve(manager, request)
    assert decode(manager, request, 12) == [[], [], [], [3], [], [], [], [4], [], [], [], [5]]
    num_hit = manager.get_computed_blocks(Request("b", request.token_ids, hasher=HASHER))[1]
    assert num_hit == (16 if enable_caching else 0)


def test_each_block_is_found_with_the_step_that_fills_it():
    manager, request = manager_of(), request_of(5)
    serve(manager, request)
    found = []
    for _ in range(8):
        decode(manager, request, 1)
        other = Request("b", [*request.token_ids, 9], hasher=HASHER)
        found.append(manager.get_computed_blocks(other)[1])
    assert found == [4, 4, 8, 8, 8, 8, 12, 12]


def test_tokens_behind_a_cut_are_given_slots_again():
    manager, request = manager_of(), request_of(10)
    serve(manager, request)
    assert decode(manager, request, 1) == [[]]
    request.num_computed_tokens = manager.truncate(request, 5)
    request.truncate(5)
    assert manager.get_block_ids("r") == ([1],)
    assert manager.allocate_slots(request, 1).blocks == ([3],)  # unhashed ones go first


def test_a_key_that_was_taken_back_is_given_again_with_the_tokens():
    manager, request = manager_of(), request_of(9)
    serve(manager, request, 7)
    manager.allocate_slots(request, 2)
    manager.uncache_blocks(request, request.num_computed_tokens)
    assert manager.get_computed_blocks(request_of(9, "b"))[1] == 4
    manager.allocate_slots(request, 2)
    assert manager.get_computed_blocks(request_of(9, "b"))[1] == 8


def test_a_request_that_comes_again_after_its_end_has_no_slots():
    manager, request = manager_of(), request_of(6)
    serve(manager, request)
    manager.free(request)
    request.num_computed_tokens = 0
    assert manager.allocate_slots(request, 1).blocks == ([2],)


@pytest.mark.parametrize("limit", [5, 6, 7])
def test_slots_end_with_the_longest_sequence_also_within_a_block(limit):
    manager, request = manager_of(max_model_len=limit), request_of(5)
    serve(manager, request)
    assert decode(manager, request, 5) == [[]] * 5
    num_hit = manager.get_computed_blocks(Request("b", request.token_ids, hasher=HASHER))[1]
    assert num_hit == 4


@pytest.mark.parametrize("count", [0, -1, 1.0, None])
def test_a_count_that_is_none_is_refused_within_a_block_as_well(count):
    manager, request = manager_of(), request_of(5)
    serve(manager, request)
    decode(manager, request, 1)
    with pytest.raises(ValueError, match=COUNTS if count != 0 else NOTHING):
        manager.allocate_slots(request, count)


def test_computed_blocks_of_others_cannot_join_within_a_block_either():
    manager, request = manager_of(), request_of(5)
    serve(manager, request)
    blocks, num_hit = manager.get_computed_blocks(request_of(9, "b"))
    request.append([5])
    with pytest.raises(ValueError, match=JOIN):
        manager.allocate_slots(request, 1, num_hit, blocks)
    with pytest.raises(ValueError):
        manager.allocate_slots(request, 1, 0, blocks)


def test_loaded_tokens_cannot_join_within_a_block_either():
    manager, request = manager_of(), request_of(5)
    serve(manager, request)
    request.append([5])
    with pytest.raises(ValueError):
        manager.allocate_slots(request, 1, num_external_computed_tokens=1)


def test_all_of_a_sequence_must_fit_also_where_a_token_needs_no_block():
    manager, request = manager_of(num_blocks=5), request_of(18)
    assert manager.allocate_slots(request, 5).blocks == ([1, 2],)
    request.num_computed_tokens = 5
    assert manager.allocate_slots(request, 1, full_sequence_must_fit=True) is None
    assert manager.allocate_slots(request, 1).blocks == ((),)


def test_slots_that_lookahead_took_are_not_taken_again_where_all_must_fit():
    manager, request = manager_of(), request_of(18)
    manager.allocate_slots(request, 1, num_lookahead_tokens=11)
    request.num_computed_tokens = 1
    assert manager.allocate_slots(request, 1, full_sequence_must_fit=True).blocks == ((),)
    assert manager.get_block_ids("r") == ([1, 2, 3],)


def test_hashes_of_tokens_that_were_cut_off_are_refused_before_a_block_is_taken():
    manager, request = manager_of(), request_of(8)
    serve(manager, request)
    request.append([8])
    request.block_hashes.append(b"of a token too many")
    before = state_of(manager, request)
    with pytest.raises(ValueError, match="no more and no less"):
        manager.allocate_slots(request, 1)
    assert state_of(manager, request) == before


def test_truncation_within_an_uncached_block_keeps_it():
    manager, request = manager_of(), request_of(11)
    serve(manager, request)
    assert manager.truncate(request, 9) == 9
    assert manager.get_block_ids("r") == ([1, 2, 3],)


def test_truncation_to_nothing_ends_the_tables():
    manager, request = manager_of(), request_of(11)
    serve(manager, request)
    assert manager.truncate(request, 3) == 0
    assert manager.usage == 0
    assert manager.truncate(request, 2) == request.num_computed_tokens


def test_truncation_takes_back_keys_of_tokens_that_will_not_be_computed():
    manager, request = manager_of(), request_of(11)
    manager.allocate_slots(request, 11)
    request.num_computed_tokens = 2
    assert manager.truncate(request, 6) == 2
    assert manager.get_computed_blocks(request_of(11, "b"))[1] == 4


@pytest.mark.parametrize("length", [0, 11])
def test_truncation_may_keep_all_or_nothing(length):
    manager, request = manager_of(), request_of(11)
    serve(manager, request)
    assert manager.truncate(request, length) == length
    assert manager.get_block_ids("r") == (([1, 2, 3] if length else []),)


@pytest.mark.parametrize("length", [-1, 12])
def test_truncation_stays_within_the_tokens(length):
    with pytest.raises(ValueError, match=f"has 11 tokens, which cannot be cut to {length}"):
        manager_of().truncate(request_of(11), length)


def test_stale_hashes_are_refused():
    # vllm#49377: tokens replaced, hashes kept.
    manager, request = manager_of(), request_of(12)
    assert len(request.block_hashes) == 3
    del request.token_ids[6:]
    before = state_of(manager)
    with pytest.raises(ValueError, match="6 tokens and 3 block hashes; it needs one for every"):
        manager.get_computed_blocks(request)
    with pytest.raises(
        ValueError, match=r"^request 'r' has 6 tokens and .* of 4 tokens, no more and no less$"
    ):
        manager.allocate_slots(request, 6)
    assert state_of(manager) == before


def test_the_whole_sequence_may_be_asked_to_fit():
    manager = manager_of(6)
    serve(manager, request_of(8, "a"))
    request = request_of([7] * 16, "b")
    assert manager.allocate_slots(request, 4, full_sequence_must_fit=True) is None
    assert manager.allocate_slots(request_of([7] * 12, "b"), 4, full_sequence_must_fit=True)
    running = request_of([7] * 20, "b")
    running.num_computed_tokens = 4
    assert manager.allocate_slots(running, 4, full_sequence_must_fit=True) is None
    running = request_of([7] * 9, "b")
    running.num_computed_tokens = 4
    assert manager.allocate_slots(running, 1, full_sequence_must_fit=True).blocks == ([4],)
    assert manager.allocate_slots(running, 2, full_sequence_must_fit=True).blocks == ((),)


def test_the_rest_of_a_running_sequence_may_be_asked_to_fit_where_no_block_is_needed():
    manager, request = manager_of(4), request_of(20)
    serve(manager, request, 3)
    assert manager.allocate_slots(request, 1, full_sequence_must_fit=True) is None
    assert manager.allocate_slots(request, 1) is not None


def test_common_prefix_of_all_running_requests():
    manager = manager_of(20)
    for name, tokens in [("a", range(13)), ("b", range(10)), ("c", [*range(8), 9, 9, 9])]:
        serve(manager, request_of(tokens, name))
    assert manager.get_num_common_prefix_blocks("a") == [2]
    serve(manager, request_of([5], "d"))
    assert manager.get_num_common_prefix_blocks("a") == [0]
    assert manager.get_num_common_prefix_blocks("nobody") == [0]


def test_events_tell_the_index():
    manager = manager_of(events="per-copy")
    request = request_of(9)
    serve(manager, request)
    assert [event["type"] for event in manager.take_events()] == ["stored", "stored"]
    assert manager.take_events() == []


def test_evicted_blocks_are_not_found_and_stay_held():
    manager, request = manager_of(), request_of(9)
    serve(manager, request)
    manager.evict_blocks([2])
    assert manager.get_computed_blocks(request_of(9, "b"))[1] == 4
    assert manager.get_block_ids("r") == ([1, 2, 3],)


def test_reset_waits_for_the_last_request():
    manager, request = manager_of(), request_of(9)
    serve(manager, request)
    assert not manager.reset_prefix_cache()
    assert not manager.make_prefix_cache_stats().reset
    manager.free(request)
    assert manager.reset_prefix_cache()
    assert manager.get_computed_blocks(request_of(9, "b"))[1] == 0
    assert manager.make_prefix_cache_stats().reset


def test_statistics_count_admitted_tokens_and_resumed_ones_apart():
    manager = manager_of()
    first = request_of(10, "a")
    serve(manager, first)
    serve(manager, request_of(9, "b"))
    manager.free(first)
    first.num_computed_tokens, first.num_preemptions = 0, 1
    serve(manager, first)
    manager.allocate_slots(request_of(3, "no lookup"), 3)
    stats = manager.make_prefix_cache_stats()
    assert (stats.requests, stats.queries, stats.hits) == (2, 19, 8)
    assert (stats.preempted_requests, stats.preempted_queries, stats.preempted_hits) == (1, 10, 8)
    assert manager.make_prefix_cache_stats().requests == 0


def test_without_caching_nothing_is_found_or_hashed():
    manager = manager_of(enable_caching=False)
    request = request_of(10, "a", hasher=None)
    serve(manager, request)
    manager.cache_blocks(request, 8)
    assert manager.get_computed_blocks(request_of(10, "b"))[1] == 0
    with pytest.raises(ValueError, match=r"^allocate_slots: there are no computed blocks without"):
        manager.allocate_slots(request_of(10, "b"), 2, 8, KVCacheBlocks(([1, 2],)))


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"num_new_tokens": -1}, f"{COUNTS} ints of at least 0, not"),
        ({"num_new_tokens": True}, f"{COUNTS} ints"),
        ({"num_new_tokens": 1, "num_lookahead_tokens": -1}, f"{COUNTS} ints of at least 0"),
        ({"num_new_tokens": 1, "num_new_computed_tokens": "4"}, f"{COUNTS} ints"),
        ({"num_new_tokens": 0}, NOTHING),
        ({"num_new_tokens": 0, "num_lookahead_tokens": 4}, NOTHING),
    ],
)
def test_numbers_of_tokens_must_be_counts(counts, message):
    manager = manager_of()
    with pytest.raises(ValueError, match=message):
        manager.allocate_slots(request_of(4), **counts)
    assert manager.usage == 0


def test_computed_tokens_need_blocks():
    manager, request = manager_of(), request_of(8)
    request.num_computed_tokens = 4
    with pytest.raises(ValueError, match=r"^allocate_slots: request 'r' has 4 computed tokens but"):
        manager.allocate_slots(request, 4)


def test_computed_tokens_need_slots():
    manager, request = manager_of(), request_of(12)
    serve(manager, request, 4)
    request.num_computed_tokens = 8
    with pytest.raises(ValueError, match=r"^request 'r' has 4 slots, which cannot hold 8 computed"):
        manager.allocate_slots(request, 4)


def test_the_only_token_is_left_to_compute():
    manager = KVCacheManager(4, 1, max_model_len=9)
    hasher = BlockHasher(seed=b"s", block_size=1)
    serve(manager, request_of(1, "a", hasher=hasher))
    assert manager.get_computed_blocks(request_of(1, "b", hasher=hasher))[1] == 0


def test_delayed_blocks_of_one_token_are_not_cached():
    manager = KVCacheManager(4, 1, max_model_len=9)
    hasher = BlockHasher(seed=b"s", block_size=1)
    manager.allocate_slots(request_of(2, "a", hasher=hasher), 2, delay_cache_blocks=True)
    assert manager.get_computed_blocks(request_of(2, "b", hasher=hasher))[1] == 0


def test_tokens_beyond_the_longest_sequence_get_no_slots_and_no_keys():
    manager, request = manager_of(max_model_len=8), request_of(13)
    assert manager.allocate_slots(request, 13).blocks == ([1, 2],)
    assert manager.get_computed_blocks(request_of(13, "b"))[1] == 8


def test_blocks_that_were_found_or_loaded_are_reason_enough_to_allocate():
    manager = manager_of()
    serve(manager, request_of(9, "a"))
    found = request_of(9, "b")
    blocks, num_hit = manager.get_computed_blocks(found)
    assert manager.allocate_slots(found, 0, num_hit, blocks).blocks == ((),)
    assert manager.get_block_ids("b") == ([1, 2],)
    loaded = request_of(9, "c")
    assert manager.allocate_slots(loaded, 0, num_external_computed_tokens=4) is not None
    assert len(manager.get_block_ids("c")[0]) == 1


def test_hits_join_no_request_that_has_blocks():
    manager, request = manager_of(), request_of(12)
    serve(manager, request)
    blocks, num_hit = manager.get_computed_blocks(request_of(12, "b"))
    for arguments in [(1, num_hit, blocks), (1, 0, blocks), (1, 4)]:
        with pytest.raises(ValueError, match=JOIN):
            manager.allocate_slots(request, *arguments)
    with pytest.raises(ValueError, match=JOIN):
        manager.allocate_slots(request, 1, num_external_computed_tokens=4)
    assert manager.allocate_slots(request, 1, 0, manager.empty_kv_cache_blocks)


@pytest.mark.parametrize(("blocks", "num_hit"), [(([1, 2],), 4), (([1], []), 4), ((), 0)])
def test_hits_must_cover_the_tokens_that_they_are_for(blocks, num_hit):
    manager = manager_of()
    serve(manager, request_of(12, "a"))
    with pytest.raises(ValueError, match=r"request 'b' are for .* num_new_computed_tokens says"):
        manager.allocate_slots(request_of(12, "b"), 1, num_hit, KVCacheBlocks(blocks))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_blocks": 0}, "num_blocks must be an int of at least 1"),
        ({"max_model_len": 0}, "max_model_len must be an int of at least 1"),
        ({"max_in_flight_tokens": 0}, "max_in_flight_tokens must be an int of at least 1"),
        ({"events": "all"}, "events must be one of"),
        ({"groups": ()}, "groups must be a list"),
        ({"groups": [FullAttention(block_size=6)], "hash_block_size": 4}, "does not divide"),
    ],
)
def test_arguments_out_of_bounds_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        manager_of(**arguments)


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
