"""Where a worker keeps states behind drafts: each row of a table here is a step."""

from __future__ import annotations

import pytest

from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import Accept, Draft, Fork, SwapOut, Truncate
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.reference.manager_legality import undefined_for_manager
from poolproof.reference.sequence_model import SequenceModel
from poolproof.reference.state_columns import copied_to_own_entries, left_in_columns, own_entry


@pytest.mark.parametrize(("end", "entry"), [(1, 0), (4, 0), (5, 1), (8, 1), (9, 2)])
def test_a_state_has_its_own_entry_where_its_last_token_lies(end, entry):
    assert own_entry(end, 4) == entry


@pytest.mark.parametrize(
    ("first", "known", "end", "left"),
    [
        # Without drafts a step leaves its state where its last token lies.
        (0, 3, 3, {3: 0}),
        (3, 4, 4, {4: 0}),
        (4, 9, 9, {9: 2}),
        # With drafts in the column of the last of them, and behind it.
        (3, 4, 6, {4: 1, 5: 2, 6: 3}),
        (4, 5, 7, {5: 1, 6: 2, 7: 3}),
        (0, 8, 9, {8: 2, 9: 3}),
    ],
)
def test_a_step_leaves_a_state_behind_what_is_known_and_each_draft(first, known, end, left):
    assert left_in_columns(first, known, end, 4, every_block=False) == left


@pytest.mark.parametrize(
    ("first", "known", "end", "left"),
    [
        (0, 9, 9, {4: 0, 8: 1, 9: 2}),
        (2, 8, 8, {4: 0, 8: 1}),
        (4, 5, 7, {5: 1, 6: 2, 7: 3}),
        # The end of a block that drafts reach is no state of what is known.
        (4, 7, 9, {7: 2, 8: 3, 9: 4}),
    ],
)
def test_or_one_at_the_end_of_each_block_besides(first, known, end, left):
    assert left_in_columns(first, known, end, 4, every_block=True) == left


@pytest.mark.parametrize(
    ("states", "copied"),
    [([], {}), ([7], {}), ([8], {8: 1}), ([7, 8, 9], {8: 1}), ([4, 8], {4: 0, 8: 1})],
)
def test_only_states_at_the_ends_of_blocks_are_copied(states, copied):
    assert copied_to_own_entries(states, 4) == copied


def test_no_copy_takes_the_place_of_a_state_that_is_still_to_be_copied():
    """So the order of the copies is no matter, however small the blocks are."""
    for size in (1, 2, 3, 4):
        for known in range(1, 9):
            for end in range(known, known + 6):
                left = left_in_columns(known - 1, known, end, size, every_block=False)
                copied = copied_to_own_entries(left, size)
                for until, into in copied.items():
                    assert into not in {left[later] for later in left if later > until}


ROWS = {"null_block": 0, "groups": "full+state", "state_blocks": 3, "lookahead_tokens": 2}


def model_of(**rows):
    return SequenceModel(32, 4, ManagerProfile.from_mapping({**ROWS, **rows}))


def sequence_of(model, num_tokens, computed=0, scheduled=0):
    sequence = model.new_sequence(0, TokenChain(tuple(range(num_tokens))))
    sequence.num_computed, sequence.num_scheduled = computed, scheduled
    return sequence


def test_tables_of_states_have_blocks_for_drafts_in_place_of_lookahead():
    model = model_of()
    assert [model.num_entries(sequence_of(model, 7, 0, 7), group) for group in (0, 1)] == [3, 5]
    assert [model.num_entries(sequence_of(model, 7, 7), group) for group in (0, 1)] == [2, 5]


def test_without_blocks_for_drafts_groups_of_states_take_lookahead_as_others_do():
    model = model_of(state_blocks=0)
    assert [model.num_entries(sequence_of(model, 7, 0, 7), group) for group in (0, 1)] == [3, 3]


def test_drafts_need_room_as_tokens_do():
    model = model_of()
    sequence = sequence_of(model, 8, 7, 1)
    model.draft(sequence, [1])
    assert [model.num_entries(sequence, group) for group in (0, 1)] == [3, 6]


@pytest.mark.parametrize(("states", "most"), [("every-block", 3 + 6), ("step-end", 3 + 4)])
def test_an_admission_takes_blocks_for_drafts(states, most):
    model = model_of(states=states)
    assert model.most_blocks_needed(sequence_of(model, 9, 0, 9), 0) == most


@pytest.mark.parametrize(("states", "most"), [("every-block", 2 + 2), ("step-end", 2 + 1)])
def test_where_one_state_is_left_blocks_for_drafts_move_along(states, most):
    model = model_of(states=states)
    sequence = sequence_of(model, 17, 4, 7)
    sequence.tables = [[1, 2], [3, 4, 5, 6]]
    assert model.num_new_entries(sequence) == most


def running(**rows):
    """A model and a sequence whose last token is scheduled."""
    model = model_of(**rows)
    sequence = sequence_of(model, 6, 5, 1)
    model.sequences[0] = sequence
    sequence.tables = [[1, 2], [3, 4, 5, 6, 7]]
    return model, sequence


def test_there_are_no_more_drafts_than_blocks_for_them():
    model, _ = running()
    assert undefined_for_manager(model, Draft(0, (1, 1, 1))) is None
    assert "behind 3 drafts" in undefined_for_manager(model, Draft(0, (1, 1, 1, 1)))


@pytest.mark.parametrize("rows", [{"state_blocks": 0}, {"groups": "full"}])
def test_without_such_blocks_nothing_is_said_of_their_number(rows):
    model, _ = running(**rows)
    assert undefined_for_manager(model, Draft(0, (1, 1, 1, 1))) is None


@pytest.mark.parametrize("command", [Fork(0, 1), Truncate(0, 4), SwapOut(0)])
def test_who_moves_a_sequence_would_have_to_know_where_its_state_stands(command):
    model, sequence = running(host_blocks=9)
    sequence.num_computed, sequence.num_scheduled = 6, 0
    assert "only the worker knows" in undefined_for_manager(model, command)
    bare, sequence = running(host_blocks=9, state_blocks=0)
    sequence.num_computed, sequence.num_scheduled = 6, 0
    assert "only the worker" not in (undefined_for_manager(bare, command) or "")


def test_drafts_may_pass_the_end_of_the_block_in_which_a_step_began():
    model, sequence = running(states="step-end")
    model.draft(sequence, [1, 1, 1])
    assert sequence.num_tokens + sequence.num_drafts == 9
    sequence.num_computed, sequence.num_scheduled, sequence.drafts_computed = 6, 0, True
    assert undefined_for_manager(model, Accept(0, 3)) is None
