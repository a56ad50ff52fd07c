"""Hits that end inside a block, as the specification of a manager sees them."""

import pytest

from poolproof.contract.content import TokenChain
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.reference.recurrent_states import (
    furthest_end,
    most_scheduled,
    states_left,
    waits_for_state,
)
from poolproof.reference.sequence_model import SequenceModel

ROWS = {
    "null_block": 0, "groups": "full+state", "states": "step-end", "publishes": "scheduled",
    "keys": "partial", "hash_tokens": 2,
}  # fmt: skip


def model_of(**rows):
    return SequenceModel(16, 4, ManagerProfile.from_mapping({**ROWS, **rows}))


def sequence_of(model, num_tokens, computed=0, scheduled=0, *, seq_id=0, first=0):
    tokens = TokenChain(tuple(range(first, first + num_tokens)))
    sequence = model.new_sequence(seq_id, tokens)
    sequence.num_computed, sequence.num_scheduled = computed, scheduled
    return sequence


@pytest.mark.parametrize(
    ("num_tokens", "boundary"), [(1, 0), (2, 0), (3, 2), (4, 2), (5, 0), (6, 0), (7, 6), (9, 0)]
)
def test_the_last_boundary_leaves_a_token_and_lies_inside_a_block(num_tokens, boundary):
    model = model_of()
    assert model.last_boundary(sequence_of(model, num_tokens)) == boundary


def test_a_whole_block_behind_the_prompt_makes_its_boundary_a_matter_of_no_step():
    model = model_of()
    sequence = sequence_of(model, 7)
    model.append(sequence, [7])
    assert model.last_boundary(sequence) == 6
    model.append(sequence, [8])
    assert model.last_boundary(sequence) == 0


def test_without_finer_hashes_there_is_no_boundary():
    model = model_of(hash_tokens=0)
    assert model.last_boundary(sequence_of(model, 7)) == 0
    assert most_scheduled(model, sequence_of(model, 7, computed=2)) == 5


@pytest.mark.parametrize(
    ("num_tokens", "computed", "most"),
    [(7, 0, 6), (7, 4, 2), (7, 6, 1), (11, 6, 2), (11, 8, 2), (9, 0, 9), (6, 2, 2)],
)
def test_an_admission_ends_where_a_state_is_to_be_left(num_tokens, computed, most):
    model = model_of()
    assert most_scheduled(model, sequence_of(model, num_tokens, computed)) == most


def test_a_state_at_every_block_s_end_asks_for_no_stop():
    model = model_of(states="every-block")
    sequence = sequence_of(model, 7, computed=2)
    assert furthest_end(model, sequence) is None
    assert most_scheduled(model, sequence) == 5


def test_a_step_that_has_begun_ends_at_the_boundary_at_the_latest():
    model = model_of()
    assert furthest_end(model, sequence_of(model, 7, computed=4, scheduled=1)) == 6
    assert furthest_end(model, sequence_of(model, 7, computed=6, scheduled=1)) == 8


def test_a_hit_inside_a_block_needs_its_whole_blocks_and_no_whole_state():
    model = model_of()
    assert (model.hit_entries(0, 6), model.hit_entries(1, 6)) == (range(1), range(0))
    assert (model.hit_entries(0, 8), model.hit_entries(1, 8)) == (range(2), range(1, 2))


def test_the_sources_of_the_copies_are_no_room():
    model = model_of()
    sequence = sequence_of(model, 7, computed=6, scheduled=1)
    # A block for each group, and what is copied from in each.
    assert model.most_blocks_needed(sequence, 6) == 4


def test_a_state_inside_a_block_is_copied_before_its_sequence_goes_on():
    model = model_of()
    assert model.num_kept_inside(sequence_of(model, 7, computed=6)) == 1
    assert model.num_kept_inside(sequence_of(model, 9, computed=8)) == 0
    assert model.num_kept_inside(sequence_of(model, 9, computed=7)) == 0


@pytest.mark.parametrize(
    ("computed", "scheduled", "first", "waits"),
    [(0, 6, 0, True), (6, 1, 0, True), (0, 6, 1, False), (0, 8, 0, False), (6, 0, 0, False)],
)
def test_who_may_hit_a_state_that_this_step_reads_or_leaves_waits(
    computed, scheduled, first, waits
):
    model = model_of()
    busy = sequence_of(model, 9, computed, scheduled, seq_id=1, first=first)
    model.sequences[1] = busy
    assert waits_for_state(model, sequence_of(model, 7), 0) == waits


@pytest.mark.parametrize(
    ("states", "computed", "scheduled", "ends"),
    [
        ("step-end", 0, 6, [6]),
        ("every-block", 0, 6, [4, 6]),
        ("every-block", 3, 1, [4]),
        ("every-block", 4, 8, [8, 12]),
        ("every-block", 4, 0, []),
    ],
)
def test_a_step_leaves_states_at_its_end_or_at_the_ends_of_blocks_as_well(
    states, computed, scheduled, ends
):
    model = model_of(states=states)
    sequence = sequence_of(model, 12, computed, scheduled)
    assert states_left(model, sequence, 1) == ends


def test_where_contents_decide_a_state_at_a_block_s_end_may_be_waited_for_as_well():
    model = model_of(states="every-block", hash_tokens=0)
    model.sequences[1] = sequence_of(model, 9, 0, 9, seq_id=1)
    assert waits_for_state(model, sequence_of(model, 5), 0)
    assert not waits_for_state(model, sequence_of(model, 4), 0)
    assert not waits_for_state(model, sequence_of(model, 5, first=1), 0)
    model = model_of(states="every-block", hash_tokens=0, index="exact")
    model.sequences[1] = sequence_of(model, 9, 0, 9, seq_id=1)
    assert not waits_for_state(model, sequence_of(model, 5), 4)
