"""Where recurrent states of a running request stand, and which of them its steps leave."""

from __future__ import annotations

import pytest

from poolproof.impl.engine import Engine
from poolproof.impl.kv_cache_group import FullAttention, RecurrentState
from poolproof.impl.running_states import RunningStates, StateGroup

GROUPS = [StateGroup(1, 4, 3)]
TABLE = [10, 11, 12, 90, 91, 92]
"""Three blocks of positions, and three of scratch."""


def step(states, count, num_drafts=0, num_accepted=1, *, every_block=True, table=TABLE):
    (use,) = states.step(
        count, num_drafts, num_accepted, [[], table], GROUPS, every_block=every_block
    )
    return use["starts"], dict(use["leaves"])


def fresh():
    return RunningStates.after_hit(0, [[], TABLE], GROUPS)


def test_a_prompt_starts_from_zero_and_leaves_the_ends_of_blocks():
    assert step(fresh(), 10) == (None, {4: 10, 8: 11, 10: 90})


def test_a_step_that_leaves_one_state_leaves_its_end():
    assert step(fresh(), 4, num_accepted=0, every_block=False) == (None, {4: 10})


def test_a_hit_starts_from_its_last_block():
    states = RunningStates.after_hit(8, [[], TABLE], GROUPS)
    assert step(states, 1) == (11, {9: 90})


def test_a_state_stands_behind_each_draft_and_the_ends_of_blocks_in_their_own():
    states = RunningStates.after_hit(4, [[], TABLE], GROUPS)
    assert step(states, 2) == (10, {6: 90})
    assert step(states, 3, num_drafts=2) == (90, {7: 90, 8: 11, 9: 92})


@pytest.mark.parametrize(("accepted", "starts"), [(1, 90), (2, 91), (3, 92)])
def test_as_many_drafts_as_were_right_say_where_the_next_step_starts(accepted, starts):
    states = RunningStates.after_hit(4, [[], TABLE], GROUPS)
    step(states, 3, num_drafts=2, num_accepted=accepted)
    assert step(states, 1)[0] == starts


def test_a_state_stays_where_it_is_when_its_scratch_becomes_the_block_of_a_position():
    states = RunningStates.after_hit(8, [[], TABLE], GROUPS)
    step(states, 3, num_drafts=2, num_accepted=1)
    grown = [*TABLE, 93]
    assert step(states, 3, num_drafts=2, table=grown) == (90, {10: 91, 11: 92, 12: 12})


def test_without_scratch_a_state_stands_in_the_block_that_its_last_position_began():
    groups = [StateGroup(0, 4, 0)]
    states = RunningStates.after_hit(4, [[10, 11]], groups)
    (use,) = states.step(1, 0, 1, [[10, 11]], groups, every_block=True)
    assert (use["starts"], use["leaves"]) == (10, [(5, 11)])


def test_drafts_need_scratch():
    groups = (FullAttention(), RecurrentState(num_speculative_blocks=2))
    with pytest.raises(ValueError, match="needs tells_states and 3 speculative blocks, not 2"):
        Engine(8, 4, groups=groups, draft_tokens=2, tells_states=True)
    with pytest.raises(ValueError, match="needs tells_states"):
        Engine(8, 4, groups=(RecurrentState(num_speculative_blocks=3),), draft_tokens=2)


def test_a_step_names_its_group():
    (use,) = fresh().step(2, 0, 1, [[], TABLE], GROUPS, every_block=True)
    assert use["group"] == 1


def test_the_ends_of_blocks_count_from_the_block_in_which_a_step_begins():
    states = fresh()
    step(states, 6, num_accepted=0)
    assert step(states, 6, num_accepted=0) == (90, {8: 11, 12: 12})


def test_a_step_that_samples_nothing_is_computed_whole():
    states = fresh()
    step(states, 5, num_accepted=0)
    assert states.num_computed == 5
    step(states, 2, num_accepted=1)
    assert states.num_computed == 7
