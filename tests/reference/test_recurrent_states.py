"""What recurrent states ask of admissions and steps."""

from __future__ import annotations

import pytest

from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import AppendTokens, Schedule
from poolproof.contract.manager_profile import CacheGroup, ManagerProfile
from poolproof.reference.manager_legality import undefined_for_manager
from poolproof.reference.recurrent_states import furthest_end, has_state, waits_for_state
from poolproof.reference.sequence_model import SequenceModel

ROWS = {
    "null_block": 0,
    "publishes": "scheduled",
    "same_step_hit": "allowed",
}


def model(
    states: str, groups: tuple[CacheGroup, ...] = (CacheGroup(), CacheGroup("state"))
) -> SequenceModel:
    rows = {**ROWS, "states": states, "groups": groups}
    return SequenceModel(16, 4, ManagerProfile.from_mapping(rows))


def admitted(made: SequenceModel, num_tokens: int, num_scheduled: int):
    """A sequence of ones whose first tokens are scheduled."""
    sequence = made.new_sequence(len(made.sequences), TokenChain((1,) * num_tokens))
    sequence.num_scheduled = num_scheduled
    made.admit(sequence, 0, _tables(made, sequence))
    made.publish(sequence)
    return sequence


def _tables(made, sequence):
    free = iter(list(made.pool.free))
    groups = range(len(made.groups))
    return [[next(free) for _ in range(made.num_entries(sequence, g))] for g in groups]


def computed(sequence):
    sequence.num_computed += sequence.num_scheduled
    sequence.num_scheduled = 0


def test_a_state_of_this_step_is_not_found_yet():
    made = model("every-block")
    first = admitted(made, 5, 5)
    second = made.new_sequence(9, TokenChain((1,) * 6))
    assert made.cached_prefix(second) == 0
    computed(first)
    assert made.cached_prefix(second) == 4


def test_who_would_start_from_a_state_of_this_step_may_be_put_off():
    made = model("step-end")
    first = admitted(made, 5, 5)
    second = made.new_sequence(9, TokenChain((1,) * 6))
    assert made.cached_prefix(second) == 4
    assert waits_for_state(made, second, 4)
    assert not waits_for_state(made, second, 0)
    computed(first)
    assert not waits_for_state(made, second, 4)


def test_only_groups_of_states_have_states():
    assert has_state((CacheGroup(), CacheGroup("state")))
    assert not has_state((CacheGroup(), CacheGroup("sliding", 0, 4)))


def test_states_are_waited_for_where_there_is_nothing_else():
    made = model("step-end", (CacheGroup("state"),))
    admitted(made, 5, 5)
    assert waits_for_state(made, made.new_sequence(9, TokenChain((1,) * 6)), 4)


def test_a_step_ends_with_the_block_of_the_state_and_not_of_another_group():
    made = model("step-end", (CacheGroup("full", 8), CacheGroup("state", 4)))
    sequence = admitted(made, 13, 1)
    assert furthest_end(made, sequence) == 4


def test_where_every_block_keeps_a_state_steps_end_anywhere():
    made = model("every-block")
    first = admitted(made, 9, 5)
    assert furthest_end(made, first) is None


@pytest.mark.parametrize(
    ("num_computed", "num_scheduled", "end"),
    [(0, 0, None), (4, 0, None), (5, 0, 8), (0, 3, 4), (0, 4, 4), (4, 5, 12)],
)
def test_a_step_may_not_pass_the_block_in_which_it_began(num_computed, num_scheduled, end):
    made = model("step-end")
    sequence = admitted(made, 13, num_computed)
    computed(sequence)
    sequence.num_scheduled = num_scheduled
    assert furthest_end(made, sequence) == end


def test_a_chunk_that_passes_a_blocks_end_is_not_legal():
    made = model("step-end")
    sequence = admitted(made, 13, 6)
    computed(sequence)
    assert undefined_for_manager(made, Schedule(0, 2)) is None
    assert "has to leave a state at position 7" in undefined_for_manager(made, Schedule(0, 3))


def test_a_chunk_counts_from_what_is_scheduled_already():
    made = model("step-end")
    sequence = admitted(made, 13, 4)
    computed(sequence)
    sequence.num_scheduled = 2
    assert undefined_for_manager(made, Schedule(0, 2)) is None
    assert "has to leave a state at position 7" in undefined_for_manager(made, Schedule(0, 3))


def test_tokens_that_pass_a_blocks_end_are_not_legal():
    made = model("step-end")
    computed(admitted(made, 7, 7))
    assert undefined_for_manager(made, AppendTokens(0, (1,))) is None
    assert "has to leave a state" in undefined_for_manager(made, AppendTokens(0, (1, 1)))


def test_a_step_that_leaves_one_state_takes_one_block():
    made = model("step-end")
    sequence = made.new_sequence(0, TokenChain((1,) * 12))
    sequence.num_scheduled = 12
    assert made.num_new_entries(sequence) == 3 + 1


def test_only_what_a_hit_can_need_is_keyed():
    groups = (CacheGroup("full", 8), CacheGroup("sliding", 4, 5))
    rows = {"null_block": 0, "keyed": "reachable", "groups": groups}
    made = SequenceModel(16, 4, ManagerProfile.from_mapping(rows))
    sequence = admitted(made, 12, 12)
    computed(sequence)
    made.publish(sequence)
    keyed = [[bool(made.pool.keys[b]) for b in table] for table in sequence.tables]
    assert keyed == [[True, False], [False, True, False]]


def test_a_block_that_proves_a_hit_is_computed_again():
    rows = {"null_block": 0, "proof_blocks": 1}
    made = SequenceModel(16, 4, ManagerProfile.from_mapping(rows))
    sequence = made.new_sequence(0, TokenChain((1,) * 12))
    sequence.num_scheduled = 12
    made.admit(sequence, 0, [list(made.pool.free)[:3]])
    computed(sequence)
    made.publish(sequence)
    assert made.cached_prefix(made.new_sequence(1, TokenChain((1,) * 13))) == 8
    assert made.cached_prefix(made.new_sequence(2, TokenChain((1,) * 12))) == 4
    assert made.cached_prefix(made.new_sequence(3, TokenChain((1,) * 3))) == 0


def test_a_hit_needs_the_block_that_proves_it():
    made = SequenceModel(16, 4, ManagerProfile.from_mapping({"null_block": 0, "proof_blocks": 1}))
    sequence = made.new_sequence(0, TokenChain((1,) * 12))
    sequence.num_scheduled = 12
    made.admit(sequence, 0, [list(made.pool.free)[:3]])
    computed(sequence)
    made.publish(sequence)
    asking = made.new_sequence(1, TokenChain((*(1,) * 8, *(2,) * 5)))
    assert made.cached_prefix(asking) == 4


def with_checkpoints(groups, **rows):
    rows = {"null_block": 0, "keyed": "checkpoints", "groups": groups, **rows}
    return SequenceModel(40, 4, ManagerProfile.from_mapping(rows))


def keyed_entries(made, num_tokens, seq_id=0, cached=0):
    sequence = made.new_sequence(seq_id, TokenChain((1,) * num_tokens))
    sequence.num_computed, sequence.num_scheduled = cached, num_tokens - cached
    free = [b for b in made.pool.free if not made.pool.keys[b]]
    tables = []
    for group in range(len(made.groups)):
        hits = [made.pool.null_block] * (cached // made.block_sizes[group])
        for entry in made.hit_entries(group, cached):
            hits[entry] = made.pool.lookup(made.key(sequence, group, entry))[0]
        new = made.num_entries(sequence, group) - len(hits)
        tables.append([*hits, *(free.pop(0) for _ in range(new))])
    made.admit(sequence, cached, tables)
    computed(sequence)
    made.publish(sequence)
    return [
        [entry for entry, b in enumerate(table) if b and made.pool.keys[b]]
        for table in sequence.tables
    ]


@pytest.mark.parametrize(
    ("num_tokens", "window"), [(16, [1, 2]), (17, [2, 3]), (19, [2, 3]), (4, []), (5, [0])]
)
def test_a_window_is_kept_where_the_hit_of_the_same_prompt_ends(num_tokens, window):
    made = with_checkpoints("full+sliding:6")
    full = list(range(num_tokens // 4))
    assert keyed_entries(made, num_tokens) == [full, window]


@pytest.mark.parametrize(
    ("num_tokens", "window"), [(16, [1, 2, 3]), (17, [2, 3]), (20, [2, 3, 4]), (5, [0])]
)
def test_a_proof_is_kept_with_the_hits_of_a_prompt_and_of_a_longer_one(num_tokens, window):
    rows = {"proof_blocks": 1, "full_hit": "allowed"}
    made = with_checkpoints("full+sliding:3", **rows)
    assert keyed_entries(made, num_tokens)[1] == window


@pytest.mark.parametrize(
    ("every", "window"), [(12, [1, 2, 4, 5, 6]), (16, [2, 3, 5, 6]), (8, list(range(7)))]
)
def test_a_window_is_kept_every_so_many_tokens_as_well(every, window):
    made = with_checkpoints("full+sliding:6", checkpoint_tokens=every)
    assert keyed_entries(made, 30)[1] == window


@pytest.mark.parametrize(("every", "states"), [(0, [6]), (8, [1, 3, 5, 6]), (4, list(range(7)))])
def test_states_are_kept_at_checkpoints(every, states):
    made = with_checkpoints("full+state", checkpoint_tokens=every)
    assert keyed_entries(made, 30)[1] == states


def test_windows_are_kept_where_the_full_group_had_more_than_they():
    made = with_checkpoints("full+sliding:6")
    keyed_entries(made, 29)
    other = made.new_sequence(1, TokenChain((*(1,) * 17, *(2,) * 12)))
    assert made.cached_prefix(other) == 0
    other.num_scheduled = 29
    free = [b for b in made.pool.free if not made.pool.keys[b]]
    made.admit(other, 0, [free[:8], free[8:16]])
    assert other.junction == 16
    computed(other)
    made.publish(other)
    assert [e for e, b in enumerate(other.tables[1]) if made.pool.keys[b]] == [2, 3, 5, 6]


def test_chunked_attention_is_kept_whole():
    made = with_checkpoints("full+chunked:8")
    assert keyed_entries(made, 17) == [[0, 1, 2, 3]] * 2


@pytest.mark.parametrize(("num_tokens", "full"), [(7, 0), (8, 2), (12, 3), (15, 3), (16, 4)])
def test_a_proof_block_is_kept_behind_an_end_that_was_reached(num_tokens, full):
    rows = {"null_block": 0, "keyed": "reachable", "proof_blocks": 1}
    profile = ManagerProfile.from_mapping({**rows, "groups": "full+sliding:6:8"})
    made = SequenceModel(40, 4, profile)
    assert len(keyed_entries(made, num_tokens)[0]) == full


def test_a_hit_that_has_all_of_the_full_group_leaves_no_junction():
    made = with_checkpoints("full+sliding:6")
    keyed_entries(made, 17)
    keyed_entries(made, 20, seq_id=1, cached=16)
    assert made.sequences[1].junction == 0


def test_where_every_reachable_end_counts_a_window_is_kept_at_each():
    made = with_checkpoints("full:0:8+sliding:3", keyed="reachable")
    assert keyed_entries(made, 20)[1] == [1, 3]


def test_a_checkpoint_may_stand_at_every_token():
    made = with_checkpoints("full:0:1+sliding:2:1", checkpoint_tokens=1)
    assert keyed_entries(made, 6)[1] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("every", "window"), [(8, [0, 1, 2, 3, 4]), (16, [2, 3, 4])])
def test_proofs_that_reach_the_next_hit_leave_nothing_out(every, window):
    rows = {"proof_blocks": 1, "full_hit": "allowed", "checkpoint_tokens": every}
    assert keyed_entries(with_checkpoints("full+sliding:3", **rows), 20)[1] == window


def test_a_state_needs_nothing_behind_it():
    made = with_checkpoints("full+state", proof_blocks=1, full_hit="allowed")
    assert keyed_entries(made, 20)[1] == [2, 3]


def test_a_prompt_that_is_shorter_than_a_proof_has_no_end_behind_it():
    made = with_checkpoints("full:0:1+sliding:3:1", proof_blocks=1, full_hit="allowed")
    keyed_entries(made, 1)
    sequence = made.sequences[0]
    made.append(sequence, [1, 1])
    new = list(made.pool.free)[:4]
    made.follow(sequence, [sequence.tables[0] + new[:2], sequence.tables[1] + new[2:]])
    sequence.num_scheduled = 2
    computed(sequence)
    made.publish(sequence)
    assert [bool(made.pool.keys[block]) for block in sequence.tables[1]] == [True, False, False]
