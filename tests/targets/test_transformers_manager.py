"""Slots of a cache allocator of Transformers as a block table, without the library."""

from __future__ import annotations

import pytest

from poolproof.targets.transformers_manager import (
    NO_BLOCK,
    ScatteredSlotsError,
    blocks_of,
    check_indices,
)

PAGE, STRIDE = 2, 4


class Full:
    """Pages of two tokens, every second pair of slots holding values."""

    layer_type = "full_attention"
    tokens_per_page = PAGE
    block_physical_stride = STRIDE

    def __init__(self, *table):
        self.table = table

    def slot(self, position):
        return self.table[position // PAGE] * STRIDE + position % PAGE

    def get_read_indices(self, request_id, past, count):
        return [self.slot(position) for position in range(past + count)]


class Ring(Full):
    layer_type = "sliding_attention"
    sliding_window = 4
    sentinel_index = 1
    write_trash_index = 99

    def slot(self, position):
        return super().slot(position % self.sliding_window)

    def get_write_indices(self, request_id, past, count):
        return [self.slot(position) for position in range(past, past + count)]


class Crooked(Full):
    def slot(self, position):
        return super().slot(position) + (position == 3)


def test_a_table_is_made_of_what_is_read():
    assert blocks_of(Full(5, 3, 8), "r", 5) == [5, 3, 8]
    assert blocks_of(Ring(5, 3), "r", 7) == [5, 3, 5, 3]


@pytest.mark.parametrize(("allocator", "table"), [(Crooked(5, 3), [5, NO_BLOCK])])
def test_a_page_whose_slots_are_scattered_is_no_block(allocator, table):
    assert blocks_of(allocator, "r", 4) == table


def test_a_page_that_begins_inside_a_block_is_none():
    class Shifted(Full):
        def slot(self, position):
            return super().slot(position) + 1

    assert blocks_of(Shifted(5), "r", 2) == [NO_BLOCK]


def test_full_attention_reads_everything_and_writes_what_is_new():
    check_indices(Full(5, 3), "r", 1, [20, 21, 12], [21, 12])
    with pytest.raises(ScatteredSlotsError, match=r"reads at \[20, 12\]"):
        check_indices(Full(5, 3), "r", 1, [20, 12], [21, 12])
    with pytest.raises(ScatteredSlotsError, match=r"writes at \[21, 13\]"):
        check_indices(Full(5, 3), "r", 1, [20, 21, 12], [21, 13])


def test_a_window_is_read_before_it_is_written_over():
    # Positions 2, 3 and 4 are read; 5 comes into the slot of position 1.
    check_indices(Ring(5, 3), "r", 5, [12, 13, 20, 1], [21])


def test_what_does_not_fit_into_the_window_is_written_to_the_trash():
    check_indices(Ring(5, 3), "r", 0, [1] * 6, [99, 99, 12, 13, 20, 21])
