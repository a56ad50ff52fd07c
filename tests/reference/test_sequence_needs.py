"""What sequences may expect of a manager, where cache groups and windows differ.

The usual cases are in test_sequence_model.py.
"""

from __future__ import annotations

import pytest

from poolproof.contract.content import TokenChain
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.reference.sequence_model import SequenceModel

RING = {"window_blocks": "reused", "publishes": "never"}


def model_of(num_blocks=12, *, caching=True, **rows):
    """Blocks of two tokens."""
    profile = ManagerProfile.from_mapping(rows)
    return SequenceModel(num_blocks, 2, profile, enable_caching=caching)


def asking(model, tokens):
    sequence = model.new_sequence(9, TokenChain(tuple(tokens)))
    sequence.num_scheduled = len(tokens)
    return sequence


def computed(model, seq_id, tokens, *tables):
    sequence = model.new_sequence(seq_id, TokenChain(tuple(tokens)))
    sequence.num_scheduled = len(tokens)
    model.admit(sequence, 0, [list(table) for table in tables])
    model.computed(sequence)
    model.publish(sequence)
    return sequence


def forked(model, parent, seq_id=1):
    child = model.new_sequence(seq_id, parent.chain)
    model.share(parent, child)
    return child


def lengths_gone(model, sequence):
    return [n for n in range(1, sequence.num_tokens + 1) if model.is_gone(sequence, n)]


def test_a_new_sequence_has_no_keyed_blocks():
    assert model_of(groups="full+full").new_sequence(0, TokenChain((1,))).num_keyed == [0, 0]


def test_a_block_is_found_only_under_its_last_token_too():
    model = model_of()
    computed(model, 0, [1, 2, 3, 4], [0, 1])
    assert model.cached_prefix(asking(model, [1, 2, 3, 9, 5])) == 2


@pytest.mark.parametrize(
    ("groups", "window_blocks", "needed"),
    [
        ("sliding:4", "freed", 5),
        ("sliding:4", "reused", 2),
        ("sliding:3", "reused", 2),
        ("full+sliding:4", "freed", 10),
        ("full+sliding:4", "reused", 7),
    ],
)
def test_only_a_ring_needs_no_more_blocks_than_its_window(groups, window_blocks, needed):
    null_block = 0 if window_blocks == "freed" else None
    model = model_of(
        groups=groups, window_blocks=window_blocks, publishes="never", null_block=null_block
    )
    sequence = asking(model, range(9))
    assert model.most_blocks_needed(sequence, 0) == needed
    assert model.num_new_entries(sequence) == needed


def test_one_state_a_step_takes_one_block_and_the_other_groups_all_of_theirs():
    model = model_of(groups="full+full+state", states="step-end", null_block=0)
    assert model.num_new_entries(asking(model, range(6))) == 3 + 3 + 1


def test_who_has_its_blocks_needs_none():
    model = model_of()
    assert model.num_new_entries(computed(model, 0, [1, 2, 3], [0, 1])) == 0


def test_hits_are_needed_in_every_group_where_they_wait():
    model = model_of(groups="full+full")
    model.end(computed(model, 0, [1, 2, 3], [0, 1], [2, 3]))
    new = model.new_sequence(1, TokenChain((1, 2, 9)))
    new.num_computed, new.num_scheduled = 2, 1
    assert model.most_blocks_needed(new, 2) == 2 + 2


def test_nothing_slides_out_of_a_ring():
    model = model_of(groups="sliding:4", **RING)
    assert model.sliding_out(computed(model, 0, range(7), [0, 1])) == []


def test_what_another_sequence_holds_cannot_be_had_back():
    model = model_of(groups="sliding:3", null_block=0)
    parent = computed(model, 0, range(5), [1, 2, 3])
    child = forked(model, parent)
    assert model.sliding_out(child) == []
    model.end(parent)
    assert model.sliding_out(child) == [1]


def test_a_write_behind_a_window_meets_the_blocks_at_its_place():
    model = model_of(groups="sliding:4", null_block=0)
    child = forked(model, computed(model, 0, range(7), [1, 2, 3, 4]))
    model.follow(child, [[1, 2, 3, 5]])
    assert [model.num_copied_on_write(child, first) for first in (4, 6)] == [1, 0]


def test_a_write_into_a_new_block_of_a_ring_meets_nobody():
    model = model_of(groups="sliding:6", **RING)
    child = forked(model, computed(model, 0, range(4), [0, 1]))
    model.append(child, [4])
    child.num_scheduled = 1
    assert model.num_copied_on_write(child, 4) == 0


def test_a_write_meets_the_shared_blocks_of_every_group():
    model = model_of(groups="full+full")
    child = forked(model, computed(model, 0, range(3), [0, 1], [2, 3]))
    assert model.num_copied_on_write(child, 2) == 2


@pytest.mark.parametrize(("num_tokens", "most"), [(3, 2), (4, 0)])
def test_a_fork_copies_the_last_block_of_every_group_unless_it_is_full(num_tokens, most):
    model = model_of(groups="full+full")
    parent = computed(model, 0, range(num_tokens), [0, 1], [2, 3])
    assert model.num_forked(parent) == most


def test_a_cut_window_that_has_let_go_of_nothing_is_there():
    model = model_of(groups="sliding:2", null_block=0)
    assert lengths_gone(model, computed(model, 0, range(5), [1, 2, 3])) == []


def test_a_cut_window_needs_what_stands_before_its_end():
    model = model_of(groups="sliding:3", null_block=0)
    sequence = computed(model, 0, range(7), [1, 2, 3, 4])
    model.follow(sequence, [[0, 0, 3, 4]])
    assert lengths_gone(model, sequence) == [1, 2, 3, 4, 5]


def test_a_ring_has_room_for_whole_blocks():
    model = model_of(groups="sliding:3", **RING)
    assert lengths_gone(model, computed(model, 0, range(7), [0, 1])) == [1, 2, 3, 4]


def test_a_row_ends_the_slots_beyond_it():
    """Those of tokens to come, which an engine never computes there."""
    for row, slots in ((0, 7), (4, 4), (9, 7)):
        model = model_of(max_tokens=row, lookahead_tokens=4)
        assert model.num_slots(asking(model, range(3))) == slots


def test_there_is_a_row_for_each_sequence_that_holds_blocks():
    model = model_of(max_sequences=2)
    sequences = [computed(model, 0, [1, 2], [0])]
    assert (model.num_rows(), model.has_no_row()) == (1, False)
    sequences.append(computed(model, 1, [3, 4], [1]))
    assert (model.num_rows(), model.has_no_row()) == (2, True)
    model.preempt(sequences[0])
    assert (model.num_rows(), model.has_no_row()) == (1, False)


def test_one_row_is_a_limit_and_none_is_not():
    for most, is_full in ((1, True), (0, False)):
        model = model_of(max_sequences=most)
        computed(model, 0, [1, 2], [0])
        assert model.has_no_row() is is_full


def test_the_full_groups_alone_may_find_more_than_all():
    model = model_of(groups="full+sliding:2", null_block=0)
    model.end(computed(model, 0, [1, 2, 3, 4, 5], [1, 2, 3], [4, 5, 6]))
    model.pool.forget_keys([5])
    again = asking(model, [1, 2, 3, 4, 6])
    assert (model.cached_prefix(again), model.longest_of_full(again)) == (2, 4)


def test_without_a_full_group_or_without_caching_nothing_is_found_by_full_groups():
    windows = model_of(groups="sliding:2", null_block=0)
    model = model_of(caching=False)
    for one, tables in ((windows, [[1, 2]]), (model, [[0, 1]])):
        computed(one, 0, [1, 2, 3], *tables)
        assert one.longest_of_full(asking(one, [1, 2, 3])) == 0


def test_a_hit_that_is_proved_by_the_next_block_needs_both():
    model = model_of(proof_blocks=1)
    model.end(computed(model, 0, [1, 2, 3, 4, 5, 6], [0, 1, 2]))
    assert model.cached_prefix(asking(model, [1, 2, 3, 4, 5, 6, 7])) == 4
    model.pool.forget_keys([2])
    assert model.cached_prefix(asking(model, [1, 2, 3, 4, 5, 6, 7])) == 2
    model.pool.forget_keys([1])
    assert model.cached_prefix(asking(model, [1, 2, 3, 4, 5, 6, 7])) == 0


def test_what_a_sequence_holds_is_in_the_index_and_found_by_nobody():
    model = model_of(held_blocks="exclusive")
    first = computed(model, 0, [1, 2, 3, 4], [0, 1])
    wanted = asking(model, [1, 2, 3, 4, 5])
    assert (model.cached_prefix(wanted), model.indexed_prefix(wanted)) == (0, 4)
    model.end(first)
    assert (model.cached_prefix(wanted), model.indexed_prefix(wanted)) == (4, 4)


def test_a_hit_ends_where_a_block_has_its_user_and_goes_on_where_a_copy_is_free():
    model = model_of(held_blocks="exclusive")
    first = computed(model, 0, [1, 2, 3, 4], [0, 1])
    computed(model, 1, [1, 2], [2])
    model.end(first)
    wanted = asking(model, [1, 2, 3, 4, 5])
    assert model.cached_prefix(wanted) == 4
    again = model.new_sequence(3, TokenChain((1, 2, 9)))
    again.num_scheduled = 1
    model.admit(again, 2, [[0, 3]])
    assert model.cached_prefix(wanted) == 0


def test_who_is_shared_with_needs_no_room_and_who_is_not_needs_all():
    shared, exclusive = (model_of(held_blocks=value) for value in ("shared", "exclusive"))
    for model, needed in (shared, 1), (exclusive, 2):
        computed(model, 0, [1, 2], [0])
        wanted = asking(model, [1, 2, 3])
        cached = model.cached_prefix(wanted)
        wanted.num_computed, wanted.num_scheduled = cached, 3 - cached
        assert model.most_blocks_needed(wanted, cached) == needed


def test_a_fork_may_copy_everything_where_blocks_are_exclusive():
    model = model_of(held_blocks="exclusive")
    assert model.num_forked(computed(model, 0, [1, 2, 3], [0, 1])) == 2


def test_a_found_block_that_is_held_counts_as_one_that_nobody_knows():
    model = model_of(held_blocks="exclusive")
    computed(model, 0, [1, 2], [0])
    assert model.num_unknown(asking(model, [1, 2, 3]), 2) == 1
    assert model.num_unknown(asking(model, [1, 2, 3]), 0) == 0


def test_who_gave_a_block_back_does_not_use_it_any_more():
    model = model_of(held_blocks="exclusive", frees="after-step")
    first = computed(model, 0, [1, 2], [0])
    assert model.users(0) == [0]
    forked(model, first)
    model.end(first)
    assert model.pool.holders[0] == [0, 1]
    assert model.users(0) == [1]
    assert model.cached_prefix(asking(model, [1, 2, 3])) == 0
