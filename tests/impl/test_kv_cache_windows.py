"""Groups that read only a part of the past, and several groups over one pool."""

import pytest

from poolproof.impl.block_hash import BlockHasher
from poolproof.impl.kv_cache_group import (
    ChunkedLocal,
    FullAttention,
    RecurrentState,
    SlidingWindow,
)
from poolproof.impl.kv_cache_manager import KVCacheManager
from poolproof.impl.kv_cache_request import Request

HASHER = BlockHasher(seed=b"s", block_size=2)


def manager_of(num_blocks, *groups, **kwargs):
    return KVCacheManager(num_blocks, 2, **{"max_model_len": 100, "groups": groups, **kwargs})


def request_of(tokens, name="r"):
    return Request(name, range(tokens) if isinstance(tokens, int) else tokens, hasher=HASHER)


def serve(manager, request, num_new=None, **kwargs):
    blocks, num_hit = manager.get_computed_blocks(request)
    num_new = request.num_tokens - num_hit if num_new is None else num_new
    if manager.allocate_slots(request, num_new, num_hit, blocks, **kwargs) is None:
        return None
    request.num_computed_tokens = num_hit + num_new
    manager.new_step_starts()
    return num_hit


def grow(manager, request, num_new=1):
    if manager.allocate_slots(request, num_new) is None:
        return None
    request.num_computed_tokens += num_new
    manager.new_step_starts()
    return manager.get_block_ids(request.request_id)


def test_blocks_behind_the_window_become_the_null_block():
    manager, request = manager_of(10, SlidingWindow(window=3)), request_of(9)
    serve(manager, request, 6)
    # The token at 6 reads 4, 5 and itself: the blocks of 0 to 3 go, the last first.
    assert grow(manager, request) == ([0, 0, 3, 4],)
    assert manager.block_pool.free_order()[-2:] == [2, 1]


def test_a_block_stays_while_one_of_its_tokens_is_in_the_window():
    # imp#967: rounding up here frees the block of the first token that is still read.
    manager, request = manager_of(10, SlidingWindow(window=4)), request_of(9)
    serve(manager, request, 6)
    assert grow(manager, request) == ([0, 2, 3, 4],)


def test_unsettled_tokens_hold_the_window_back():
    # With asynchronous scheduling the last step may still be reading.
    manager, request = manager_of(10, SlidingWindow(window=3)), request_of(9)
    serve(manager, request, 6)
    request.num_in_flight_tokens = 6
    assert grow(manager, request) == ([1, 2, 3, 4],)
    request.num_in_flight_tokens = 1
    assert grow(manager, request) == ([0, 0, 3, 4],)


def test_a_window_can_be_moved_between_steps():
    manager, request = manager_of(10, SlidingWindow(window=3)), request_of(9)
    serve(manager, request, 6)
    manager.remove_skipped_blocks("r", 6)
    manager.remove_skipped_blocks("r", 6)
    manager.remove_skipped_blocks("nobody", 6)
    assert manager.get_block_ids("r") == ([0, 0, 3],)


def test_what_slides_out_is_room_for_what_comes():
    manager, request = manager_of(4, SlidingWindow(window=3)), request_of(12)
    serve(manager, request, 6)
    assert manager.block_pool.num_free() == 0
    assert grow(manager, request, 4) == ([0, 0, 3, 2, 1],)


def test_a_refused_step_leaves_the_window_where_it_is():
    manager, request = manager_of(5, SlidingWindow(window=3)), request_of(20)
    serve(manager, request, 8)
    before = manager.get_block_ids("r"), manager.block_pool.free_order()
    assert grow(manager, request, 8) is None
    assert (manager.get_block_ids("r"), manager.block_pool.free_order()) == before


def test_a_shared_block_that_slides_out_is_no_room():
    manager = manager_of(5, SlidingWindow(window=3))
    first, second = request_of(9, "a"), request_of(9, "b")
    serve(manager, first, 4)
    manager.new_step_starts()
    assert serve(manager, second, 2) == 4
    # One block is free; b shares block 2, which slides out of the window of both.
    assert grow(manager, second, 3) is None
    manager.free(first)
    assert grow(manager, second, 3) is not None


def test_a_block_that_stands_twice_under_a_weak_hash_slides_out_as_room_for_one():
    weak = BlockHasher(lambda data: b"x", seed=b"s", block_size=2)
    manager = manager_of(5, SlidingWindow(window=4))
    first = Request("a", range(4), hasher=weak)
    serve(manager, first, 2)
    manager.free(first)
    second = Request("b", range(14), hasher=weak)
    blocks, num_hit = manager.get_computed_blocks(Request("b", range(5), hasher=weak))
    assert (blocks.blocks, num_hit) == (([1, 1],), 4)
    manager.allocate_slots(second, 4, num_hit, blocks)
    second.num_computed_tokens = 8
    # Both entries of block 1 slide out: two blocks are free then, not one and not three.
    assert grow(manager, second, 6) is None
    assert grow(manager, second, 4) == ([0, 0, 2, 3, 4, 1],)
    assert manager.block_pool.num_free() == 0


def test_a_hit_needs_the_blocks_of_the_window_only():
    manager, request = manager_of(10, SlidingWindow(window=4)), request_of(9)
    serve(manager, request)
    manager.evict_blocks([1, 2])
    blocks, num_hit = manager.get_computed_blocks(request_of(9, "b"))
    assert (blocks.blocks, num_hit) == (([0, 0, 3, 4],), 8)
    manager.evict_blocks([4])
    assert manager.get_computed_blocks(request_of(9, "b"))[1] == 0


def test_a_short_prefix_is_a_hit_from_its_first_token_on():
    manager, request = manager_of(10, SlidingWindow(window=8)), request_of(9)
    serve(manager, request)
    manager.evict_blocks([3])
    blocks, num_hit = manager.get_computed_blocks(request_of(9, "b"))
    assert (blocks.blocks, num_hit) == (([1, 2],), 4)


def test_hits_before_the_window_of_loaded_tokens_are_not_taken():
    manager = manager_of(10, SlidingWindow(window=4))
    serve(manager, request_of(5, "a"))
    request = request_of(13, "b")
    blocks, num_hit = manager.get_computed_blocks(request)
    assert num_hit == 4
    manager.allocate_slots(request, 1, num_hit, blocks, num_external_computed_tokens=8)
    assert manager.get_block_ids("b") == ([0, 0, 0, 0, 4, 5, 6],)
    assert manager.block_pool.ref_count(2) == 1


def test_chunks_are_forgotten_whole():
    manager, request = manager_of(10, ChunkedLocal(chunk_size=4)), request_of(11)
    assert grow(manager, request, 7) == ([1, 2, 3, 4],)
    assert grow(manager, request) == ([0, 0, 3, 4],)
    assert grow(manager, request) == ([0, 0, 0, 0, 5],)


def test_a_hit_at_a_chunk_boundary_needs_no_block():
    manager = manager_of(10, ChunkedLocal(chunk_size=4))
    blocks, num_hit = manager.get_computed_blocks(request_of(9, "b"))
    assert (blocks.blocks, num_hit) == (([0, 0, 0, 0],), 8)


def test_a_state_hit_needs_its_last_block_only():
    manager, request = manager_of(10, RecurrentState()), request_of(9)
    serve(manager, request)
    manager.evict_blocks([1, 2, 3])
    blocks, num_hit = manager.get_computed_blocks(request_of(9, "b"))
    assert (blocks.blocks, num_hit) == (([0, 0, 0, 4],), 8)


def test_a_state_is_found_from_the_next_step_on():
    manager, first, late = manager_of(10, RecurrentState()), request_of(9, "a"), request_of(9, "b")
    manager.allocate_slots(first, 5)
    assert manager.get_computed_blocks(late)[1] == 0
    first.num_computed_tokens = 5
    manager.new_step_starts()
    assert manager.get_computed_blocks(late)[1] == 4
    manager.allocate_slots(first, 4)
    assert manager.get_computed_blocks(late)[1] == 4


def test_keys_and_values_are_found_in_the_same_step():
    manager = manager_of(10, SlidingWindow(window=4))
    manager.allocate_slots(request_of(9, "a"), 5)
    assert manager.get_computed_blocks(request_of(9, "b"))[1] == 4


def test_a_state_cached_after_its_step_is_found_at_once():
    manager, request = manager_of(10, RecurrentState()), request_of(9, "a")
    manager.allocate_slots(request, 5, delay_cache_blocks=True)
    manager.cache_blocks(request, 5)
    assert manager.get_computed_blocks(request_of(9, "b"))[1] == 4


def test_states_after_drafts_have_blocks_of_their_own():
    manager, request = manager_of(10, RecurrentState(num_speculative_blocks=2)), request_of(3)
    serve(manager, request)
    assert manager.get_block_ids("r") == ([1, 2, 3, 4],)
    request.append([3])
    assert grow(manager, request) == ([0, 2, 3, 4],)


def test_each_group_has_a_table_and_keys_of_its_own():
    manager = manager_of(12, FullAttention(), SlidingWindow(window=3))
    serve(manager, request_of(5, "a"))
    assert manager.get_block_ids("a") == ([1, 2, 3], [4, 5, 6])
    blocks, num_hit = manager.get_computed_blocks(request_of(5, "b"))
    assert (blocks.blocks, num_hit) == (([1, 2], [0, 5]), 4)
    assert manager.get_num_common_prefix_blocks("a") == [3, 0]


def test_a_hit_serves_every_group():
    manager = manager_of(20, FullAttention(), SlidingWindow(window=3))
    serve(manager, request_of(9, "a"))
    assert manager.get_block_ids("a") == ([1, 2, 3, 4, 5], [6, 7, 8, 9, 10])
    manager.evict_blocks([4])
    assert manager.get_computed_blocks(request_of(9, "b"))[1] == 6
    manager.evict_blocks([8])
    assert manager.get_computed_blocks(request_of(9, "b"))[1] == 4


def test_hits_end_where_blocks_of_all_sizes_end():
    manager = manager_of(20, FullAttention(block_size=4), FullAttention(block_size=6))
    serve(manager, request_of(30, "a"))
    assert manager.get_computed_blocks(request_of(30, "b"))[1] == 24
    assert manager.get_computed_blocks(request_of(24, "b"))[1] == 12


def test_what_no_hit_can_need_is_not_cached():
    # Of blocks of 2 before a boundary at 4, a window of 3 needs only the second.
    manager = manager_of(20, FullAttention(block_size=4), SlidingWindow(window=3, block_size=2))
    serve(manager, request_of(11, "a"))
    (_, small) = manager.get_block_ids("a")
    hashes = [manager.block_pool.block_hash(block) for block in small]
    assert [block_hash is not None for block_hash in hashes] == [0, 1, 0, 1, 0, 0]


def test_the_block_behind_a_boundary_is_cached_where_a_speculative_head_needs_it():
    groups = FullAttention(block_size=4), SlidingWindow(window=3, block_size=2)
    manager = manager_of(20, *groups, use_eagle=True)
    serve(manager, request_of(11, "a"))
    assert manager.get_computed_blocks(request_of(11, "b"))[1] == 4


def test_the_hits_of_all_groups_are_pinned_before_any_group_gets_blocks():
    # vllm#44409: group 0 must not be given what group 1 has just found.
    manager = manager_of(7, FullAttention(), SlidingWindow(window=5))
    first = request_of(5, "a")
    serve(manager, first)
    manager.free(first)
    second = request_of(5, "b")
    assert serve(manager, second) == 4
    tables = manager.get_block_ids("b")
    assert len(set(tables[0]) | set(tables[1])) == 6


def test_refused_when_one_group_has_no_room():
    manager = manager_of(6, FullAttention(), SlidingWindow(window=5))
    before = manager.block_pool.free_order()
    assert serve(manager, request_of(5, "a")) is None
    assert manager.block_pool.free_order() == before
    assert serve(manager, request_of(4, "b")) == 0


def test_computed_tokens_need_slots():
    manager, request = manager_of(9, FullAttention(), SlidingWindow(window=5)), request_of(9)
    serve(manager, request, 4)
    request.num_computed_tokens = 5
    with pytest.raises(ValueError, match=r"^request 'r' has 4 slots, which cannot hold 5 computed"):
        manager.allocate_slots(request, 1)


def test_a_windowed_sequence_fits_if_its_peak_does():
    # vllm#40946: 40 tokens never need more than 4 blocks at once in steps of 4; with an uncapped
    # estimate they would never be admitted, and what is admitted must get through.
    manager = manager_of(6, SlidingWindow(window=4), max_in_flight_tokens=4)
    request = request_of(40)
    assert manager.allocate_slots(request, 4, full_sequence_must_fit=True)
    request.num_computed_tokens = 4
    while request.num_computed_tokens < 40:
        assert grow(manager, request, 4) is not None


def test_what_is_held_already_is_part_of_the_peak_and_null_blocks_are_not():
    manager = manager_of(6, SlidingWindow(window=4), max_in_flight_tokens=4)
    request = request_of(40)
    serve(manager, request, 4)
    for _ in range(4):
        grow(manager, request, 4)
    assert manager.get_block_ids("r")[0].count(0) == 6
    other = request_of([1] * 4, "b")
    serve(manager, other, 2)
    assert manager.allocate_slots(request, 4, full_sequence_must_fit=True)
    assert manager.block_pool.num_free() == 0


def test_null_blocks_are_no_part_of_what_is_held():
    manager = manager_of(5, SlidingWindow(window=4), max_in_flight_tokens=4)
    request = request_of(40)
    serve(manager, request, 4)
    for _ in range(4):
        grow(manager, request, 4)
    manager.remove_skipped_blocks("r", 20)
    serve(manager, request_of([1], "b"))
    # Two blocks are held and one is free; the peak is four.
    assert manager.allocate_slots(request, 1, full_sequence_must_fit=True) is None
    assert manager.allocate_slots(request, 1) is not None


def test_a_windowed_sequence_whose_peak_does_not_fit_is_refused():
    manager = manager_of(4, SlidingWindow(window=4), max_in_flight_tokens=4)
    request = request_of(40)
    assert manager.allocate_slots(request, 4, full_sequence_must_fit=True) is None
    serve(manager, request, 4)
    before = manager.get_block_ids("r"), manager.block_pool.free_order()
    assert manager.allocate_slots(request, 2, full_sequence_must_fit=True) is None
    assert (manager.get_block_ids("r"), manager.block_pool.free_order()) == before
    assert grow(manager, request, 2)


def test_truncation_behind_the_window_starts_anew():
    manager, request = manager_of(10, SlidingWindow(window=3)), request_of(12)
    serve(manager, request, 9)
    grow(manager, request)
    assert manager.truncate(request, 6) == 0
    assert manager.usage == 0


def test_truncation_within_the_window_keeps_it():
    manager = manager_of(20, FullAttention(), SlidingWindow(window=5))
    request = request_of(10)
    serve(manager, request, 9)
    assert manager.truncate(request, 7) == 6
    assert manager.get_block_ids("r") == ([1, 2, 3], [6, 7, 8])


def test_a_state_cannot_be_cut_back_into_its_block():
    manager, request = (
        manager_of(10, RecurrentState(block_size=4), hash_block_size=2),
        request_of(11),
    )
    serve(manager, request)
    assert manager.truncate(request, 10) == 8
    assert manager.get_block_ids("r") == ([1, 2],)


def test_dropped_keys_of_all_groups_are_taken_back():
    manager = manager_of(20, FullAttention(), SlidingWindow(window=3))
    request = request_of(9)
    serve(manager, request, 4)
    manager.allocate_slots(request, 4)
    manager.uncache_blocks(request, 4)
    manager.uncache_blocks(request, 4)
    assert manager.get_computed_blocks(request_of(9, "b"))[1] == 4
    manager.cache_blocks(request, 8)
    assert manager.get_computed_blocks(request_of(9, "b"))[1] == 8


def test_blocks_that_slid_out_before_they_were_cached_stay_uncached():
    manager, request = manager_of(20, SlidingWindow(window=3)), request_of(10)
    serve(manager, request, 6, delay_cache_blocks=True)
    manager.remove_skipped_blocks("r", 6)
    manager.cache_blocks(request, 6)
    assert manager.block_pool.block_hash(0) is None
    assert manager.get_computed_blocks(request_of(7, "b"))[1] == 6
    assert manager.get_computed_blocks(request_of(5, "b"))[1] == 0


def test_all_groups_are_free_in_the_end():
    manager = manager_of(20, FullAttention(), SlidingWindow(window=3), RecurrentState())
    request = request_of(9)
    serve(manager, request, 5)
    grow(manager, request, 4)
    held = [block for table in manager.get_block_ids("r") for block in table if block]
    assert manager.pop_blocks_for_free(request) == held
    manager.block_pool.free(held[::-1])
    assert manager.usage == 0


def test_truncation_gives_back_each_group_from_its_tail():
    manager, request = manager_of(12, FullAttention(), SlidingWindow(window=99)), request_of(8)
    serve(manager, request)
    assert manager.get_block_ids("r") == ([1, 2, 3, 4], [5, 6, 7, 8])
    assert manager.truncate(request, 4) == 4
    assert manager.get_block_ids("r") == ([1, 2], [5, 6])
    assert manager.block_pool.free_order() == [9, 10, 11, 4, 3, 8, 7]


def test_a_state_stays_when_all_that_is_computed_is_kept():
    manager, request = manager_of(6, RecurrentState()), request_of(5)
    serve(manager, request)
    assert manager.truncate(request, 5) == 5
    assert manager.truncate(request, 3) == 2


def test_a_window_of_one_token_waits_until_the_first_one_is_settled():
    manager = KVCacheManager(6, 1, max_model_len=9, groups=(SlidingWindow(window=1),))
    request = Request("r", range(3), hasher=BlockHasher(seed=b"s", block_size=1))
    manager.allocate_slots(request, 1)
    request.num_computed_tokens = request.num_in_flight_tokens = 1
    manager.allocate_slots(request, 1)
    assert manager.get_block_ids("r") == ([1, 2],)


def test_blocks_that_were_found_need_no_room():
    manager = manager_of(5, FullAttention(), SlidingWindow(window=99))
    serve(manager, request_of(4, "a"))
    found = request_of([*range(4), 9], "b")
    blocks, num_hit = manager.get_computed_blocks(found)
    assert (num_hit, manager.block_pool.num_free()) == (4, 0)
    assert manager.allocate_slots(found, 0, num_hit, blocks) is not None
    assert manager.get_block_ids("b") == ([1, 2], [3, 4])


def test_hits_that_nobody_holds_are_no_room_for_new_blocks():
    manager = manager_of(6, FullAttention(), SlidingWindow(window=99))
    first = request_of(4, "a")
    serve(manager, first)
    manager.free(first)
    longer = request_of([*range(4), 9, 9], "b")
    blocks, num_hit = manager.get_computed_blocks(longer)
    assert (num_hit, manager.block_pool.num_free()) == (4, 5)
    assert manager.allocate_slots(longer, 2, num_hit, blocks) is None
    assert manager.block_pool.num_free() == 5


def test_a_stale_hit_of_a_group_is_refused_by_the_name_of_its_request():
    manager = manager_of(8, FullAttention(), SlidingWindow(window=99))
    serve(manager, request_of(4, "a"))
    found = request_of([*range(4), 9], "b")
    blocks, num_hit = manager.get_computed_blocks(found)
    manager.evict_blocks([3])
    message = r"^allocate_slots: of the blocks \[3, 4\] found for request 'b', at least one no lo"
    with pytest.raises(ValueError, match=message):
        manager.allocate_slots(found, 1, num_hit, blocks)


def test_requests_of_different_lengths_have_a_common_prefix():
    manager = manager_of(20, FullAttention(), SlidingWindow(window=99))
    serve(manager, request_of(4, "a"))
    serve(manager, request_of([*range(4), 8, 9, 9], "b"))
    assert manager.get_num_common_prefix_blocks("a") == [2, 0]


def test_a_cut_to_a_whole_block_of_one_group_may_not_be_one_of_another():
    manager, request = manager_of(20, FullAttention(), FullAttention(block_size=4)), request_of(9)
    serve(manager, request)
    assert manager.truncate(request, 6) == 4
    assert manager.get_block_ids("r") == ([1, 2], [6])


def test_a_cut_inside_blocks_that_are_not_cached_keeps_all_that_is_asked():
    manager, request = manager_of(20, FullAttention(), FullAttention(block_size=4)), request_of(7)
    serve(manager, request)
    assert manager.truncate(request, 6) == 6


@pytest.mark.parametrize(("use_eagle", "num_cached"), [(False, 2), (True, 3)])
def test_only_a_proof_block_is_cached_beyond_the_common_boundary(use_eagle, num_cached):
    groups = FullAttention(), FullAttention(block_size=4)
    manager, request = manager_of(20, *groups, use_eagle=use_eagle), request_of(7)
    serve(manager, request)
    hashes = [manager.block_pool.block_hash(b) for b in manager.get_block_ids("r")[0]]
    assert sum(block_hash is not None for block_hash in hashes) == num_cached


def test_a_block_before_a_boundary_is_cached_although_the_window_has_slid_to_it():
    manager = manager_of(40, FullAttention(block_size=8), SlidingWindow(window=3))
    request = request_of(17)
    serve(manager, request, 12)
    grow(manager, request, 5)
    assert manager.get_computed_blocks(request_of([*range(16), 99], "b"))[1] == 16


def test_a_cut_keeps_an_uncached_end_although_a_group_of_smaller_blocks_has_cached_it():
    groups = FullAttention(), FullAttention(block_size=6)
    manager, request = manager_of(20, *groups, use_eagle=True), request_of(10)
    serve(manager, request)
    assert manager.truncate(request, 8) == 8


def test_a_sequence_whose_blocks_are_there_fits_without_room():
    manager = manager_of(5, FullAttention(), SlidingWindow(window=99))
    request = request_of(4)
    serve(manager, request, 3)
    assert manager.block_pool.num_free() == 0
    assert manager.allocate_slots(request, 1, full_sequence_must_fit=True) is not None


def test_what_has_slid_out_of_the_window_is_not_part_of_the_outlook():
    manager = manager_of(6, SlidingWindow(window=3), max_in_flight_tokens=99)
    request = request_of(10)
    serve(manager, request, 9)
    assert manager.block_pool.num_free() == 0
    assert manager.allocate_slots(request, 1, full_sequence_must_fit=True) is not None


def test_a_hit_ends_one_block_before_the_proof_that_is_missing():
    manager = manager_of(20, FullAttention(), SlidingWindow(window=3), use_eagle=True)
    request = request_of(9)
    serve(manager, request, 8)
    assert manager.get_computed_blocks(request_of(9, "b"))[1] == 6
    manager.evict_blocks([manager.get_block_ids("r")[1][3]])
    assert manager.get_computed_blocks(request_of(9, "b"))[1] == 4


def test_a_proof_block_is_a_whole_block():
    manager = manager_of(20, SlidingWindow(window=3), use_eagle=True)
    serve(manager, request_of(9), 8)
    blocks, num_hit = manager.get_computed_blocks(request_of(8, "b"))
    assert (num_hit, type(num_hit), len(blocks.blocks[0])) == (4, int, 2)


def test_what_slides_out_now_does_not_count_as_held_in_the_outlook():
    manager = manager_of(4, SlidingWindow(window=3), max_in_flight_tokens=8)
    request = request_of(20)
    serve(manager, request, 6)
    assert manager.allocate_slots(request, 1, full_sequence_must_fit=True) is None
    assert manager.allocate_slots(request, 1) is not None
