"""The model of a manager: what must come out of each operation, and how it follows."""

import pytest

from poolproof.contract.content import TokenChain
from poolproof.contract.manager_profile import CacheGroup, ManagerProfile
from poolproof.reference.sequence_model import SequenceModel


def model_of(num_blocks=8, block_size=2, *, caching=True, **rows):
    profile = ManagerProfile.from_mapping(rows)
    return SequenceModel(num_blocks, block_size, profile, enable_caching=caching)


def admitted(model, seq_id, tokens, table, *, scheduled=None):
    sequence = model.new_sequence(seq_id, TokenChain(tuple(tokens)))
    sequence.num_scheduled = len(tokens) if scheduled is None else scheduled
    model.admit(sequence, 0, [list(table)])
    model.publish(sequence)
    return sequence


def step(model):
    for sequence in model.sequences.values():
        sequence.num_computed += sequence.num_scheduled
        sequence.num_scheduled = 0
        model.publish(sequence)
    model.drain()


def asking(model, tokens, **setting):
    return model.new_sequence(9, TokenChain(tuple(tokens), **setting))


def test_full_blocks_are_found_once_they_are_computed():
    model = model_of()
    admitted(model, 0, [1, 2, 3, 4, 5], [0, 1, 2])
    assert model.cached_prefix(asking(model, [1, 2, 3, 4, 9])) == 0
    step(model)
    assert model.cached_prefix(asking(model, [1, 2, 3, 4, 9])) == 4
    assert model.cached_prefix(asking(model, [1, 2, 9, 4, 9])) == 2
    assert model.cached_prefix(asking(model, [3, 4, 9])) == 0
    assert model.cached_prefix(asking(model, [1, 2, 3], salt="s")) == 0


def test_blocks_are_found_as_soon_as_they_are_scheduled_where_the_profile_says_so():
    model = model_of(publishes="scheduled")
    admitted(model, 0, [1, 2, 3, 4, 5], [0, 1, 2], scheduled=3)
    assert model.cached_prefix(asking(model, [1, 2, 3, 4, 9])) == 2


def test_a_token_is_left_to_compute_unless_a_full_hit_is_allowed():
    for full_hit, cached in (("recompute-token", 2), ("allowed", 4)):
        model = model_of(full_hit=full_hit)
        admitted(model, 0, [1, 2, 3, 4], [0, 1])
        step(model)
        assert model.cached_prefix(asking(model, [1, 2, 3, 4])) == cached


@pytest.mark.parametrize(("caching", "publishes"), [(False, "computed"), (True, "never")])
def test_without_a_cache_nothing_is_found(caching, publishes):
    model = model_of(caching=caching, publishes=publishes)
    admitted(model, 0, [1, 2, 3], [0, 1])
    step(model)
    assert model.cached_prefix(asking(model, [1, 2, 3])) == 0


def test_a_window_needs_its_last_blocks_alone():
    model = model_of(groups="sliding:3", null_block=0)
    admitted(model, 0, [1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4])
    step(model)
    assert list(model.hit_entries(0, 6)) == [2]
    model.pool.evict([1, 2])
    assert model.cached_prefix(asking(model, [1, 2, 3, 4, 5, 6, 9])) == 6
    assert model.cached_prefix(asking(model, [1, 2, 3, 4, 9])) == 0


def test_a_state_is_found_at_the_end_of_a_block():
    model = model_of(groups="state")
    assert list(model.hit_entries(0, 6)) == [2]
    assert list(model.hit_entries(0, 0)) == []


def test_a_prefix_must_be_in_every_group():
    model = model_of(12, groups="full+sliding:3")
    sequence = asking(model, [1, 2, 3, 4, 5])
    sequence.num_scheduled = 5
    model.admit(sequence, 0, [[0, 1, 2], [3, 4, 5]])
    step(model)
    assert model.cached_prefix(asking(model, [1, 2, 3, 4, 6])) == 4
    model.pool.evict([4])
    assert model.cached_prefix(asking(model, [1, 2, 3, 4, 6])) == 2


def test_hits_that_wait_in_the_free_queue_are_needed_too():
    model = model_of()
    first = admitted(model, 0, [1, 2, 3, 4, 5], [0, 1, 2])
    step(model)
    new = asking(model, [1, 2, 3, 4, 6])
    new.num_scheduled = 1
    new.num_computed = 4
    assert model.most_blocks_needed(new, 4) == 1
    model.end(first)
    assert model.most_blocks_needed(new, 4) == 3


def test_reserving_the_whole_sequence_needs_more_than_what_is_scheduled():
    for reserves, entries in (("scheduled", 1), ("sequence", 3)):
        model = model_of(reserves=reserves)
        sequence = asking(model, [1, 2, 3, 4, 5])
        sequence.num_scheduled = 2
        assert model.num_entries(sequence, 0) == entries
        assert model.num_new_entries(sequence) == entries


def test_lookahead_and_drafts_need_slots():
    model = model_of(lookahead_tokens=3)
    sequence = admitted(model, 0, [1, 2], [0, 1, 2])
    assert model.num_entries(sequence, 0) == 3
    model.draft(sequence, [5, 6])
    assert model.num_entries(sequence, 0) == 4
    step(model)
    assert model.num_slots(sequence) == 4


def test_a_ring_needs_no_more_than_its_window():
    model = model_of(groups="sliding:4", window_blocks="reused", publishes="never")
    sequence = asking(model, range(9))
    sequence.num_scheduled = 9
    assert model.most_blocks_needed(sequence, 0) == 2
    assert model.num_new_entries(sequence) == 2
    assert model.sliding_out(sequence) == []


def test_blocks_before_the_window_can_be_had_back():
    model = model_of(groups="sliding:3", null_block=0)
    sequence = admitted(model, 0, [1, 2, 3, 4, 5], [1, 2, 3])
    step(model)
    assert model.sliding_out(sequence) == [1]
    model.follow(sequence, [[0, 2, 3]])
    assert 1 in model.pool.free
    assert model.sliding_out(sequence) == []


def test_a_copy_on_write_takes_one_block_and_gives_the_other_back():
    model = model_of()
    parent = admitted(model, 0, [1, 2, 3], [0, 1])
    step(model)
    child = model.new_sequence(1, parent.chain)
    model.share(parent, child)
    assert model.is_shared(child, 3)
    assert not model.is_shared(child, 4)
    model.follow(child, [[0, 5]])
    assert model.pool.holders[1] == [0]
    assert model.pool.holders[5] == [1]
    assert not model.is_shared(child, 3)
    assert model.is_shared(child, 0)
    assert child.family == parent.family
    assert model.family_of(child) == [parent, child]


def forked(model, parent, seq_id):
    child = model.new_sequence(seq_id, parent.chain)
    model.share(parent, child)
    return child


def test_a_write_meets_the_shared_blocks_from_its_position_on():
    model = model_of()
    parent = admitted(model, 0, [1, 2, 3, 4, 5], [0, 1, 2])
    step(model)
    child = forked(model, parent, 1)
    assert [model.num_copied_on_write(child, first) for first in (0, 1, 2, 4, 6)] == [3, 3, 2, 1, 0]
    model.follow(child, [[0, 1, 5]])
    assert [model.num_copied_on_write(child, first) for first in (0, 4)] == [2, 0]


def test_a_write_into_a_ring_comes_round_to_the_shared_blocks():
    model = model_of(groups="sliding:4", window_blocks="reused")
    parent = admitted(model, 0, [1, 2, 3, 4], [0, 1])
    step(model)
    child = forked(model, parent, 1)
    model.append(child, [5])
    child.num_scheduled = 1
    assert [model.num_copied_on_write(child, first) for first in (2, 3, 4)] == [2, 2, 1]
    model.append(child, [6, 7])
    child.num_scheduled = 3
    assert model.num_copied_on_write(child, 4) == 2


def test_a_cut_copies_the_shared_block_that_it_leaves_partly_filled():
    model = model_of()
    parent = admitted(model, 0, [1, 2, 3, 4, 5], [0, 1, 2])
    step(model)
    assert model.num_cut(parent, 3) == 0
    forked(model, parent, 1)
    assert [model.num_cut(parent, length) for length in (1, 2, 3, 4, 5)] == [1, 0, 1, 0, 1]


def test_a_cut_ring_may_have_overwritten_what_would_be_read_again():
    model = model_of(groups="sliding:4", window_blocks="reused", publishes="never")
    sequence = admitted(model, 0, [1, 2, 3, 4, 5, 6, 7], [0, 1])
    step(model)
    gone = [length for length in range(1, 8) if model.is_gone(sequence, length)]
    assert gone == [1, 2, 3, 4, 5]


def test_a_cut_state_that_has_passed_the_tokens_is_gone():
    model = model_of(groups="state", null_block=7)
    sequence = admitted(model, 0, [1, 2, 3, 4, 5], [0, 1, 2])
    step(model)
    gone = [length for length in range(1, 6) if model.is_gone(sequence, length)]
    assert gone == [1, 3]


def test_merged_tables_share_what_they_name():
    model = model_of(duplicates="first", tables="merged")
    admitted(model, 0, [1, 2, 3], [0, 1])
    second = admitted(model, 1, [1, 2, 4], [2, 3])
    step(model)
    model.merge(second, [[0, 3]])
    assert model.pool.holders[0] == [0, 1]
    assert 2 in model.pool.free


def test_the_tail_of_a_chain_goes_back_first():
    model = model_of(4)
    sequence = admitted(model, 0, [1, 2, 3, 4, 5], [0, 1, 2])
    model.end(sequence)
    assert list(model.pool.free) == [3, 2, 1, 0]
    assert model.ended_ids == {0}
    assert model.sequences == {}


@pytest.mark.parametrize(
    ("release_order", "joined"),
    [("tail-first", [2, 1, 4, 3, 5]), ("head-first", [1, 2, 5, 3, 4])],
)
@pytest.mark.parametrize("ending", ["end", "preempt"])
def test_groups_go_back_in_their_order_and_each_block_once(release_order, joined, ending):
    """The order that docs/managers.md states."""
    groups = (CacheGroup(), CacheGroup("sliding", window=8))
    model = model_of(7, null_block=0, groups=groups, release_order=release_order)
    sequence = model.new_sequence(0, TokenChain((1, 2, 3, 4, 5)))
    sequence.num_scheduled = 5
    tables = [[1, 2], [0, 5, 3, 4]] if release_order == "head-first" else [[1, 2], [5, 0, 3, 4]]
    model.admit(sequence, 0, tables)
    getattr(model, ending)(sequence)
    assert list(model.pool.free) == [6, *joined]


def test_what_slid_out_of_windows_goes_back_in_the_order_of_the_groups_the_tail_first():
    groups = (CacheGroup("sliding", window=4), CacheGroup("sliding", window=4))
    model = model_of(9, null_block=0, groups=groups, release_order="head-first")
    sequence = model.new_sequence(0, TokenChain((1, 2, 3, 4, 5)))
    sequence.num_scheduled = 5
    model.admit(sequence, 0, [[1, 2, 3], [4, 5, 6]])
    model.follow(sequence, [[0, 0, 3], [0, 0, 6]])
    assert list(model.pool.free) == [7, 8, 2, 1, 5, 4]


def test_the_head_goes_back_first_where_the_block_freed_last_is_used_first():
    model = model_of(eviction="lifo", release_order="head-first")
    sequence = admitted(model, 0, (1, 2, 3, 4), [5, 2])
    model.end(sequence)
    assert list(model.pool.free)[:2] == [2, 5]


def test_what_is_given_back_may_be_free_only_after_the_step():
    model = model_of(4, frees="after-step")
    sequence = admitted(model, 0, [1, 2, 3], [0, 1])
    model.end(sequence)
    assert list(model.pool.free) == [2, 3]
    model.drain()
    assert list(model.pool.free) == [2, 3, 1, 0]


def test_a_preempted_sequence_keeps_its_tokens_and_nothing_else():
    model = model_of()
    sequence = admitted(model, 0, [1, 2, 3], [0, 1])
    step(model)
    model.append(sequence, [4])
    model.preempt(sequence)
    assert (sequence.place, sequence.num_computed, sequence.num_scheduled) == ("nowhere", 0, 0)
    assert sequence.tokens == (1, 2, 3, 4)
    assert sequence.tables == [[]]
    assert len(model.pool.free) == 8


def test_a_sequence_under_transfer_keeps_its_blocks_when_it_ends():
    model = model_of()
    sequence = admitted(model, 0, [1, 2, 3], [0, 1], scheduled=0)
    sequence.loading = 2
    model.publish(sequence)
    model.end(sequence)
    assert sequence.ended
    assert model.pool.holders[0] == [0]
    sequence.loading = 0
    model.end(sequence)
    assert model.sequences == {}


def test_accepted_drafts_become_tokens_and_the_rest_is_void():
    model = model_of()
    sequence = admitted(model, 0, [1, 2], [0, 1, 2])
    model.draft(sequence, [5, 6, 7])
    step(model)
    sequence.drafts_computed = True
    model.accept(sequence, [5])
    assert sequence.tokens == (1, 2, 5)
    assert sequence.num_computed == 3
    assert len(sequence.contents[0]) == 3
    assert sequence.num_drafts == 0


def test_a_cut_tail_takes_its_keys_away():
    model = model_of()
    sequence = admitted(model, 0, [1, 2, 3, 4], [0, 1])
    step(model)
    model.truncate(sequence, 3)
    assert not model.pool.keys[1]
    assert model.pool.keys[0]
    assert sequence.num_computed == 3
    model.append(sequence, [9])
    assert model.names.tokens(sequence.contents[0][-1]) == (1, 2, 3, 9)


def test_a_cut_tail_that_another_sequence_holds_stays_findable():
    model = model_of()
    sequence = admitted(model, 0, [1, 2, 3, 4], [0, 1])
    step(model)
    model.share(sequence, model.new_sequence(1, sequence.chain))
    model.truncate(sequence, 1)
    assert model.pool.keys[1]


def test_a_family_settles_with_its_sharing():
    model = model_of(host_blocks=3)
    parent = admitted(model, 0, [1, 2, 3], [0, 1])
    step(model)
    child = model.new_sequence(1, parent.chain)
    model.share(parent, child)
    model.follow(child, [[0, 4]])
    for sequence in (parent, child):
        model.release(sequence)
        sequence.place = "host"
    model.settle([parent, child], [[[2, 1]], [[2, 0]]], model.host)
    assert len(model.pool.free) == 8
    assert model.host.holders[2] == [0, 1]
    assert model.host.holders[0] == [1]
    model.release(child)
    assert list(model.host.free) == [0]


def test_a_prompt_of_less_than_a_block_finds_nothing():
    model = model_of(groups="sliding:3", null_block=0, proof_blocks=1)
    assert model.cached_prefix(asking(model, [1])) == 0
    assert model.cached_prefix(asking(model, [1, 2])) == 0


def test_the_proof_of_a_window_has_to_be_cached_as_well():
    model = model_of(groups="sliding:3", null_block=0, proof_blocks=1, full_hit="allowed")
    admitted(model, 0, [1, 2, 3, 4, 5, 6], [1, 2, 3])
    step(model)
    assert model.cached_prefix(asking(model, [1, 2, 3, 4, 5, 6])) == 4
    model.pool.evict([3])
    assert model.cached_prefix(asking(model, [1, 2, 3, 4, 5, 6])) == 2


def test_what_full_groups_have_ends_at_their_first_gap_and_at_a_common_end():
    model = model_of(groups="full:0:4+full:0:2", full_hit="allowed")
    sequence = model.new_sequence(0, TokenChain(tuple(range(8))))
    sequence.num_scheduled = 8
    model.admit(sequence, 0, [[0, 1], [2, 3, 4, 5]])
    step(model)
    again = asking(model, range(8))
    assert model.longest_of_full(again) == 8
    model.pool.evict([3])
    assert model.longest_of_full(again) == 0
    assert model.cached_prefix(again) == 0


def test_entries_of_a_hit_that_no_block_carries_are_counted():
    model = model_of()
    admitted(model, 0, [1, 2, 3, 4, 5, 6], [0, 1, 2])
    step(model)
    again = asking(model, [1, 2, 3, 4, 5, 6])
    assert model.num_unknown(again, 6) == 0
    model.pool.evict([1, 2])
    assert (model.num_unknown(again, 6), model.num_unknown(again, 4)) == (2, 1)
