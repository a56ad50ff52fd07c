"""Where states stand: what is left, copied, zeroed and kept elsewhere."""

from __future__ import annotations

import pytest

from poolproof.contract.manager_profile import CacheGroup
from poolproof.contract.state_use import PARTS, StateCopy
from poolproof.reference.recurrent_states import ZERO, StateMemory, uses_by_table
from poolproof.reference.shadow_memory import ShadowMemory, Writer

WRITER = Writer(0, 1)
OTHER = Writer(1, 2)


def memory():
    """Four blocks; block 1 holds the states after 5, 6 and 7 tokens of a part."""
    states = StateMemory(ShadowMemory(4, 2))
    states.leave(1, "a", {0: 5, 1: 6, 2: 7}, WRITER)
    return states


def test_a_copy_takes_a_part_of_another_block_along():
    states = memory()
    states.copy(StateCopy(1, 2), ["a"])
    assert [states.found((2, at), "a") for at in range(3)] == [
        (5, WRITER),
        (6, WRITER),
        (7, WRITER),
    ]
    assert states.found((2, 0), "b") == (None, None)


def test_a_copy_leaves_out_the_first_states():
    states = memory()
    states.copy(StateCopy(1, 2, skip=1), ["a"])
    assert [states.found((2, at), "a") for at in range(3)] == [
        (6, WRITER), (7, WRITER), (None, None),
    ]  # fmt: skip


def test_a_copy_of_a_block_that_was_never_written_is_zero():
    states = memory()
    states.copy(StateCopy(3, 1), ["a"])
    assert states.found((1, 0), "a") == (ZERO, None)
    assert states.held(1) == {"a": {0: (ZERO, None)}}


def test_a_copy_of_a_part_that_is_not_there_has_no_state():
    states = memory()
    states.copy(StateCopy(1, 2), ["b"])
    assert states.held(2) == {"b": {}}


def test_whoever_reads_kv_in_its_place_is_told_what_was_copied_last():
    slots = ShadowMemory(4, 2)
    states = StateMemory(slots)
    states.leave(1, "a", {0: 5}, WRITER)
    states.copy(StateCopy(1, 2), ["a"])
    assert slots.last_written(2) == (5, WRITER)
    assert slots.slots[2] == [5, 5]
    states.leave(3, "a", {1: 9}, OTHER)
    states.copy(StateCopy(3, 2), ["a"])
    assert slots.slots[2] == [None, None]


def test_what_is_zeroed_and_what_gets_nothing_hold_no_state():
    states = memory()
    states.zero(1)
    states.zero(2)
    assert (states.held(1), states.held(2)) == (None, None)
    states = memory()
    states.put(1, None)
    assert states.held(1) is None


def test_sizes_belong_to_groups():
    with pytest.raises(ValueError, match="zip"):
        uses_by_table([CacheGroup("state")], [4, 4], [[0]], 0, 1, every_block=False)


@pytest.mark.parametrize("end", [4, 5, 8])
def test_a_step_leaves_both_parts_of_its_state_in_the_block_of_its_last_position(end):
    (use,) = uses_by_table([CacheGroup("state")], [4], [[7, 6, 5]], 1, end - 1, every_block=False)
    assert use.leaves == ((end, ([7, 6][(end - 1) // 4], 0)),)
    assert use.parts == PARTS
