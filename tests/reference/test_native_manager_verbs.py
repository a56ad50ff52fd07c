"""The verbs of the specification of managers, one by one, against tables worked out by hand.

Whether it agrees with the model over long runs is asked in test_native_manager.py.
"""

from __future__ import annotations

import pytest

from poolproof.contract.manager_profile import ManagerProfile
from poolproof.reference.native_manager import NativeSequenceManager

TOKENS = [1, 2, 3, 4, 5]


def manager(num_blocks=8, *, caching=True, **rows):
    """Blocks of two tokens."""
    profile = ManagerProfile.from_mapping(rows)
    return NativeSequenceManager(num_blocks, 2, enable_caching=caching, profile=profile)


def computed(spec, seq_id, tokens):
    assert spec.admit(seq_id, list(tokens)) == 0
    spec.step([(seq_id, len(tokens))])
    return spec


def state(spec, seq_id=0):
    return spec._model.sequences[seq_id]


def test_a_prompt_is_computed_in_chunks():
    spec = manager()
    assert spec.admit(0, TOKENS, num_tokens=2) == 0
    assert spec.block_table(0) == [0]
    assert spec.schedule(0, 1) == []
    assert spec.block_table(0) == [0, 1]
    assert state(spec).num_scheduled == 3
    spec.step([(0, 3)])
    assert state(spec).num_computed == 3
    assert spec.schedule(0, 2) == []
    assert spec.block_table(0) == [0, 1, 2]


def test_a_chunk_that_does_not_fit_is_not_scheduled():
    spec = manager(1)
    spec.admit(0, [1, 2, 3], num_tokens=1)
    spec.schedule(0, 1)
    assert spec.schedule(0, 1) == "later"
    assert (state(spec).num_scheduled, spec.block_table(0)) == (2, [0])


def test_a_chunk_behind_a_hit_copies_nothing():
    spec = computed(manager(), 0, [1, 2])
    assert spec.admit(1, [1, 2, 3, 4], num_tokens=1) == 2
    assert spec.schedule(1, 1) == []
    assert spec.block_table(1) == [0, 1]


def test_a_chunk_of_a_prompt_is_no_sampled_token():
    spec = manager(publishes="prompts")
    spec.admit(0, [1, 2, 3], num_tokens=1)
    spec.step([(0, 1)])
    spec.schedule(0, 1)
    spec.step([(0, 1)])
    assert spec.lookup_prefix(TOKENS) == 2


def test_hits_are_shared_in_their_order():
    spec = manager(publishes="scheduled", full_hit="allowed", duplicates="kept")
    spec.admit(0, [9, 9, 1, 2])
    spec.admit(1, [1, 2, 3, 4])
    assert spec.admit(2, TOKENS) == 4
    assert spec.block_table(2) == [2, 3, 4]
    assert [spec.ref_count(block) for block in (2, 3, 4)] == [2, 2, 1]


def test_of_two_carriers_the_older_is_taken():
    spec = manager()
    spec.admit(0, [1, 2])
    spec.admit(1, [1, 2])
    spec.step([(0, 2), (1, 2)])
    spec.admit(2, [1, 2, 3])
    assert spec.block_table(2) == [0, 2]


def test_a_hit_behind_a_window_names_null_blocks():
    spec = computed(manager(groups="sliding:4", null_block=7), 0, [1, 2, 3, 4, 5, 6, 7])
    spec.finish(0)
    assert spec.admit(1, [1, 2, 3, 4, 5, 6, 8]) == 6
    assert spec.block_table(1)[:3] == [7, 1, 2]


def test_each_group_has_hits_of_its_own():
    spec = manager(groups="full+full")
    spec.admit(0, [1, 2])
    spec.step([(0, 2)])
    assert (spec.block_table(0, 0), spec.block_table(0, 1)) == ([0], [1])
    assert spec.admit(1, [1, 2, 3]) == 2
    assert (spec.block_table(1, 0), spec.block_table(1, 1)) == ([0, 2], [1, 3])


def test_what_slid_out_of_the_window_goes_back_before_more_is_taken():
    spec = computed(manager(4, groups="sliding:3", null_block=3), 0, TOKENS)
    spec.append(0, [6])
    spec.step([(0, 1)])
    assert spec.block_table(0) == [3, 1, 2]
    assert spec.append(0, [7]) == []
    assert spec.block_table(0) == [3, 3, 2, 0]


def test_null_blocks_stand_where_the_window_has_passed():
    spec = computed(manager(groups="sliding:3", null_block=5), 0, TOKENS)
    spec.append(0, [6])
    assert spec.block_table(0) == [5, 1, 2]
    assert spec.num_free() == 5


def test_waiting_helps_only_who_fits_into_the_empty_pool():
    spec = manager(4, null_block=0, watermark_blocks=1)
    assert spec.admit(0, [1, 2, 3, 4, 5]) == "never"
    assert spec.admit(0, [1, 2, 3, 4]) == 0
    assert spec.admit(1, [1]) == "later"
    assert spec.admit(1, [1, 2, 3, 4]) == "later"
    assert spec.num_free() == 1


def test_a_prompt_that_is_computed_in_chunks_has_to_fit_with_the_first():
    spec = manager(2)
    assert spec.admit(0, TOKENS, num_tokens=5) == "never"
    assert spec.admit(0, TOKENS, num_tokens=4) == 0
    assert spec.admit(1, TOKENS, num_tokens=4) == "later"
    assert spec.admit(1, TOKENS, num_tokens=99) == "never"


def test_where_it_is_not_told_everybody_waits():
    assert manager(1, never="untold").admit(0, TOKENS) == "later"


def test_a_preempted_sequence_comes_back_with_its_hits():
    spec = computed(manager(), 0, [1, 2, 3])
    spec.append(0, [4])
    spec.preempt(0)
    assert spec.num_free() == 8
    assert state(spec).tokens == (1, 2, 3, 4)
    assert spec.admit(0, [], num_tokens=1) == 2
    assert (state(spec).num_computed, state(spec).num_scheduled) == (2, 1)
    assert spec.block_table(0) == [0, 2]


def test_a_preempted_sequence_that_does_not_fit_has_nothing_scheduled():
    spec = computed(manager(2), 0, [1, 2, 3])
    spec.preempt(0)
    computed(spec, 1, [7, 8])
    assert spec.admit(0, []) == "later"
    assert (state(spec).num_computed, state(spec).num_scheduled) == (0, 0)


def test_a_refused_token_leaves_those_before_it_scheduled():
    spec = computed(manager(2), 0, [1, 2])
    assert spec.append(0, [3]) == []
    assert spec.append(0, [4, 5]) == "later"
    assert state(spec).num_scheduled == 1
    assert state(spec).tokens == (1, 2, 3)
    assert spec.append(0, [4]) == []


def test_the_last_free_block_can_be_had():
    spec = computed(manager(2), 0, [1, 2])
    assert spec.append(0, [3]) == []
    assert spec.block_table(0) == [0, 1]


def drafted(**rows):
    spec = manager(3, **rows)
    spec.admit(0, [1, 2])
    assert spec.draft(0, [3, 4]) == []
    spec.step([(0, 2)])
    return spec


def test_accepted_drafts_can_be_found_at_once():
    spec = drafted()
    assert spec.block_table(0) == [0, 1]
    assert spec.lookup_prefix(TOKENS) == 2
    spec.accept(0, 2)
    assert state(spec).tokens == (1, 2, 3, 4)
    assert spec.lookup_prefix(TOKENS) == 4


def test_rejected_drafts_are_no_tokens():
    spec = drafted()
    spec.accept(0, 1)
    assert state(spec).tokens == (1, 2, 3)
    assert spec.lookup_prefix(TOKENS) == 2


def test_accepted_drafts_are_found_with_the_next_space_where_keys_come_early():
    spec = drafted(publishes="scheduled")
    spec.accept(0, 2)
    assert spec.lookup_prefix(TOKENS) == 2
    spec.append(0, [6])
    assert spec.lookup_prefix(TOKENS) == 4


def test_drafts_that_do_not_fit_are_dropped():
    spec = manager(1)
    spec.admit(0, [1])
    assert spec.draft(0, [2, 3]) == "later"
    assert state(spec).num_drafts == 0
    assert spec.draft(0, [2]) == []


def test_a_preempted_sequence_has_no_drafts():
    spec = drafted()
    spec.preempt(0)
    assert spec._drafts == {}
    spec.preempt(0)


def forked(num_blocks=8, tokens=(1, 2, 3)):
    spec = computed(manager(num_blocks), 0, tokens)
    assert spec.fork(0, 1) == []
    return spec


def test_a_fork_shares_every_block():
    spec = forked()
    assert spec.block_table(1) == spec.block_table(0) == [0, 1]
    assert [spec.ref_count(block) for block in (0, 1)] == [2, 2]


def test_a_fork_takes_what_is_computed_alone():
    spec = manager(lookahead_tokens=3)
    spec.admit(0, [1, 2])
    assert spec.block_table(0) == [0, 1, 2]
    spec.step([(0, 2)])
    spec.fork(0, 1)
    assert spec.block_table(1) == [0]


def test_who_writes_first_copies_the_last_block():
    spec = forked()
    assert spec.append(1, [7]) == [(1, 2)]
    assert spec.block_table(1) == [0, 2]
    assert spec.append(0, [8]) == []
    assert spec.block_table(0) == [0, 1]


def test_a_copy_needs_a_free_block():
    spec = forked(2)
    assert spec.append(1, [7]) == "later"
    assert spec.block_table(1) == [0, 1]


def test_a_copy_and_a_further_block_need_two():
    spec = forked(3)
    assert spec.append(1, [7, 8]) == "later"
    spec = forked(4)
    assert spec.append(1, [7, 8]) == [(1, 2)]
    assert spec.block_table(1) == [0, 2, 3]


def test_a_cut_copies_the_shared_block_that_it_leaves_partly_filled():
    spec = forked(tokens=TOKENS)
    assert spec.truncate(1, 3) == [(1, 3)]
    assert spec.block_table(1) == [0, 3]
    assert spec.block_table(0) == [0, 1, 2]
    assert spec.num_free() == 4


def test_a_cut_at_a_block_end_copies_nothing():
    spec = forked(3, TOKENS)
    assert spec.truncate(1, 2) == []
    assert spec.block_table(1) == [0]


def test_a_cut_of_what_nobody_shares_copies_nothing():
    spec = computed(manager(3), 0, TOKENS)
    assert spec.truncate(0, 3) == []
    assert spec.block_table(0) == [0, 1]


def test_a_cut_that_has_to_copy_waits_for_a_free_block():
    spec = forked(3, TOKENS)
    assert spec.truncate(1, 3) == "later"
    assert spec.block_table(1) == [0, 1, 2]
    assert state(spec, 1).tokens == tuple(TOKENS)


@pytest.mark.parametrize("end", ["finish", "abort"])
def test_the_end_gives_everything_back_and_comes_once(end):
    spec = computed(manager(), 0, [1, 2, 3])
    getattr(spec, end)(9)
    assert spec.num_free() == 6
    getattr(spec, end)(0)
    assert spec.num_free() == 8
    getattr(spec, end)(0)


def test_a_lookup_takes_nothing_and_is_no_sequence():
    spec = computed(manager(), 0, TOKENS)
    assert spec.lookup_prefix([*TOKENS, 6]) == 4
    assert set(spec._model.sequences) == {0}


def test_a_reset_forgets_all_keys_unless_a_block_is_held():
    spec = computed(manager(), 0, TOKENS)
    assert spec.reset() is False
    assert spec.is_cached(0) is True
    spec.finish(0)
    assert spec.reset() is True
    assert spec.is_cached(0) is False
    assert spec.lookup_prefix(TOKENS) == 0


def test_it_shows_the_order_of_its_free_blocks():
    spec = computed(manager(4), 0, [1, 2, 3])
    spec.finish(0)
    assert spec.free_order() == [2, 3, 1, 0]


def test_without_caching_nothing_is_found():
    assert computed(manager(caching=False), 0, TOKENS).lookup_prefix(TOKENS) == 0


FORKS, LOADS = ["fork", "truncate"], ["load", "loaded"]
DRAFTS, SWAPS = ["draft", "accept"], ["swap_out", "swap_in", "num_free_host"]


@pytest.mark.parametrize(
    ("rows", "missing"),
    [
        ({}, SWAPS),
        ({"host_blocks": 2}, []),
        ({"groups": "full+full", "host_blocks": 2}, FORKS),
        ({"groups": "sliding:4", "null_block": 0, "host_blocks": 2}, FORKS + LOADS + SWAPS),
        ({"groups": "full+state", "null_block": 0}, FORKS + LOADS + DRAFTS + SWAPS),
    ],
)
def test_verbs_that_are_not_covered_are_not_offered(rows, missing):
    spec = manager(**rows)
    every = FORKS + LOADS + DRAFTS + SWAPS
    assert [verb for verb in every if getattr(spec, verb) is None] == missing
