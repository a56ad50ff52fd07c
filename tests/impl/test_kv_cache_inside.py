"""Hits that end inside a block, in our own manager: blocks of 4 tokens, hashes of 2."""

import pytest

from poolproof.impl.block_hash import BlockHasher
from poolproof.impl.kv_cache_group import FullAttention, RecurrentState, SlidingWindow
from poolproof.impl.kv_cache_manager import KVCacheManager
from poolproof.impl.kv_cache_request import Request

HASHER = BlockHasher(seed=b"s", block_size=2)


HYBRID = (FullAttention(), RecurrentState())


def manager_of(num_blocks=16, groups=HYBRID, **named):
    arguments = {"max_model_len": 100, "hash_block_size": 2, "groups": groups, **named}
    return KVCacheManager(num_blocks, 4, **arguments)


def request_of(tokens, name="r"):
    return Request(name, range(tokens) if isinstance(tokens, int) else tokens, hasher=HASHER)


def serve(manager, request, num_new=None):
    """Admit a request, or let it grow, and compute what is scheduled; how much was found."""
    blocks, found = None, 0
    if not request.num_computed_tokens:
        blocks, found = manager.get_computed_blocks(request)
    left = request.num_tokens - found - request.num_computed_tokens
    if manager.allocate_slots(request, num_new or left, found, blocks) is None:
        return None
    request.num_computed_tokens += found + (num_new or left)
    manager.new_step_starts()
    return found


def after_chunk(end=6, num_tokens=7, num_blocks=16):
    manager, request = manager_of(num_blocks), request_of(num_tokens)
    serve(manager, request, end)
    return manager, request


def test_a_chunk_that_ends_inside_a_block_is_found_and_copied():
    manager, _ = after_chunk()
    other = request_of(7, "s")
    assert serve(manager, other) == 6
    full, state = manager.get_block_ids("s")
    (b0, b1), (_, s1) = manager.get_block_ids("r")
    assert full[0] == b0
    assert full[1] != b1
    assert state[0] == 0
    assert manager.take_block_copies() == [(b1, full[1]), (s1, state[1])]
    assert manager.take_block_copies() == []
    assert manager.block_pool.ref_count(b1) == 1


def test_the_end_of_a_prompt_is_not_kept():
    manager, _ = after_chunk(6, 6)
    assert manager.get_computed_blocks(request_of(7, "s"))[1] == 4


def test_an_end_between_hashes_is_not_kept():
    manager, _ = after_chunk(5, 7)
    assert manager.get_computed_blocks(request_of(7, "s"))[1] == 4


def test_a_token_is_left_to_compute():
    manager, _ = after_chunk(6, 9)
    assert manager.get_computed_blocks(request_of(6, "s"))[1] == 4
    assert manager.get_computed_blocks(request_of(7, "s"))[1] == 6


def test_nothing_inside_a_block_is_found_in_its_own_step():
    manager, request = manager_of(), request_of(7)
    manager.allocate_slots(request, 6)
    assert manager.get_computed_blocks(request_of(7, "s"))[1] == 0
    manager.new_step_starts()
    assert manager.get_computed_blocks(request_of(7, "s"))[1] == 6


def test_another_beginning_is_not_found():
    manager, _ = after_chunk()
    assert manager.get_computed_blocks(request_of([0, 1, 2, 3, 4, 9, 6], "s"))[1] == 4
    assert manager.get_computed_blocks(request_of([9, 1, 2, 3, 4, 5, 6], "s"))[1] == 0


def test_a_state_goes_elsewhere_before_its_request_goes_on():
    manager, request = after_chunk()
    (_, source) = manager.get_block_ids("r")[1]
    serve(manager, request)
    ((copied, into),) = manager.take_block_copies()
    assert copied == source
    assert manager.block_pool.block_hash(source) is None
    assert manager.block_pool.free_order()[-1] == into
    assert manager.get_computed_blocks(request_of(7, "s"))[0].blocks[1] == [0, into]


def test_without_a_free_block_the_key_goes_and_the_request_goes_on():
    manager, request = after_chunk(2, 3, num_blocks=3)
    assert manager.block_pool.num_free() == 0
    assert serve(manager, request) == 0
    assert manager.take_block_copies() == []
    assert manager.get_computed_blocks(request_of(3, "s"))[1] == 0


def test_what_slides_out_is_room_for_the_state_that_is_kept():
    manager, request = after_chunk(6, 7, num_blocks=5)
    slid, source = manager.get_block_ids("r")[1]
    assert serve(manager, request) == 0
    assert manager.take_block_copies() == [(source, slid)]


def test_attention_that_goes_on_serves_a_state_that_ended_before():
    manager, request = after_chunk(6, 9)
    serve(manager, request)
    # The key of the whole block has taken the place of the one inside it.
    blocks, found = manager.get_computed_blocks(request_of(8, "s"))
    assert found == 6
    assert blocks.blocks[0] == manager.get_block_ids("r")[0][:2]
    assert blocks.blocks[1] == [0, manager.take_block_copies()[0][1]]
    assert manager.get_computed_blocks(request_of(7, "s"))[1] == 4


def test_a_request_that_has_ended_leaves_what_is_found():
    manager, request = after_chunk()
    manager.free(request)
    assert serve(manager, request_of(7, "s")) == 6


def test_the_sources_of_copies_are_no_room():
    manager, request = after_chunk(6, 7, num_blocks=6)
    manager.free(request)
    # Of five blocks three are found, two of them to be copied: two are left for the copies.
    assert serve(manager, request_of(7, "s")) == 6
    manager, request = after_chunk(6, 7, num_blocks=5)
    manager.free(request)
    before = manager.block_pool.free_order()
    assert serve(manager, request_of(7, "s")) is None
    assert manager.block_pool.free_order() == before
    assert manager.take_block_copies() == []


def test_what_was_evicted_since_it_was_found_is_refused():
    manager, request = after_chunk()
    other = request_of(7, "s")
    blocks, found = manager.get_computed_blocks(other)
    manager.evict_blocks([blocks.blocks[1][1]])
    with pytest.raises(ValueError, match="no longer holds what was found"):
        manager.allocate_slots(other, 1, found, blocks)
    assert request.num_computed_tokens == 6


def test_a_hit_is_as_long_as_its_blocks():
    manager, _ = after_chunk()
    other = request_of(7, "s")
    blocks, _ = manager.get_computed_blocks(other)
    with pytest.raises(ValueError, match="num_new_computed_tokens says 4"):
        manager.allocate_slots(other, 1, 4, blocks)


def test_what_is_not_computed_after_all_has_no_key_inside_a_block():
    manager, request = manager_of(), request_of(7)
    manager.allocate_slots(request, 6)
    manager.uncache_blocks(request, 0)
    manager.new_step_starts()
    assert manager.get_computed_blocks(request_of(7, "s"))[1] == 0


def test_what_is_computed_keeps_its_key():
    manager, request = after_chunk()
    manager.uncache_blocks(request, 6)
    assert manager.get_computed_blocks(request_of(7, "s"))[1] == 6


def test_a_cut_takes_the_key_of_what_is_written_over():
    manager, request = after_chunk()
    kept = manager.truncate(request, 5)
    assert kept == 4
    request.num_computed_tokens = kept
    assert manager.get_computed_blocks(request_of(7, "s"))[1] == 4


def test_a_second_allocation_before_the_step_leaves_no_state_there():
    manager, request = manager_of(), request_of(7)
    manager.allocate_slots(request, 6)
    request.num_computed_tokens = 0
    manager.allocate_slots(request, 7)
    assert manager.take_block_copies() == []
    manager.new_step_starts()
    assert manager.get_computed_blocks(request_of(7, "s"))[1] == 4


@pytest.mark.parametrize(
    ("groups", "named"),
    [
        ((FullAttention(),), {}),
        ((FullAttention(), SlidingWindow(window=3)), {}),
        ((FullAttention(), RecurrentState(block_size=8)), {}),
        ((FullAttention(), RecurrentState()), {"use_eagle": True}),
        ((FullAttention(), RecurrentState()), {"hash_block_size": 4}),
    ],
)
def test_other_layouts_find_whole_blocks_and_copy_nothing(groups, named):
    manager = manager_of(groups=groups, **named)
    hasher = BlockHasher(seed=b"s", block_size=named.get("hash_block_size", 2))
    request = Request("r", range(7), hasher=hasher)
    serve(manager, request, 6)
    assert manager.get_computed_blocks(Request("s", range(7), hasher=hasher))[1] in (0, 4)
    assert manager.take_block_copies() == []


def test_states_alone_have_hits_inside_blocks_as_well():
    manager = manager_of(groups=(RecurrentState(),))
    request = request_of(7)
    serve(manager, request, 6)
    assert serve(manager, request_of(7, "s")) == 6
    ((source, into),) = manager.take_block_copies()
    assert (source, into) == (manager.get_block_ids("r")[0][1], manager.get_block_ids("s")[0][1])


@pytest.mark.parametrize(
    ("end", "is_kept"),
    [(2, True), (3, False), (4, False), (6, True), (7, False), (8, False), (10, False)],
)
def test_keys_are_kept_where_a_hash_ends_and_no_block_does_before_the_end_of_a_prompt(end, is_kept):
    assert manager_of()._keeps(end, 10) is is_kept
