"""The arithmetic of blocks: how many tokens take, and which of them a step writes."""

from typing import Any

import pytest

from poolproof.impl.block_layout import BlockLayout, Growth
from poolproof.impl.block_table import BlockTable
from poolproof.impl.physical_block import Device, PhysicalTokenBlock


def table(num_blocks: int, num_tokens: int) -> BlockTable:
    blocks = [PhysicalTokenBlock(Device.GPU, number) for number in range(num_blocks)]
    return BlockTable(Device.GPU, blocks, num_blocks, num_tokens)


@pytest.mark.parametrize("window", [0, -2, 3, True, 4.0])
def test_a_window_is_a_multiple_of_the_block_size(window: Any) -> None:
    message = f"^sliding_window must be a positive multiple of the block size 2, not {window!r}$"
    with pytest.raises(ValueError, match=message):
        BlockLayout(2, window)


def test_the_smallest_window_is_one_block_of_one_token() -> None:
    assert BlockLayout(1, 1).num_physical_blocks(5) == 1


def test_a_sequence_that_became_shorter_is_refused() -> None:
    message = "^the sequence has 3 tokens and had 4; free it and allocate it anew to go back$"
    with pytest.raises(ValueError, match=message):
        BlockLayout(2, None).growth(table(2, 4), 3, 0)


def test_nothing_new_writes_nothing() -> None:
    assert BlockLayout(2, None).growth(table(2, 4), 4, 0) == Growth(range(0), False, 0, 2)


def test_more_than_one_token_beyond_the_window_is_refused_with_its_number() -> None:
    message = "^2 tokens cannot be written at once beyond a sliding window of 4 tokens; "
    with pytest.raises(ValueError, match=f"{message}append one, without lookahead$"):
        BlockLayout(2, 4).growth(table(2, 3), 5, 0)


@pytest.mark.parametrize(
    ("num_tokens", "num_lookahead_slots", "written"),
    [(3, 0, range(1, 2)), (4, 0, range(1, 2)), (5, 0, range(1, 3)), (4, 1, range(1, 3))],
)
def test_of_blocks_left_by_a_lookahead_only_those_of_the_new_tokens_are_written(
    num_tokens: int, num_lookahead_slots: int, written: range
) -> None:
    growth = BlockLayout(2, None).growth(table(4, 2), num_tokens, num_lookahead_slots)
    assert growth == Growth(written, False, 0, 4)


@pytest.mark.parametrize(("num_tokens", "index"), [(5, 0), (6, 0), (7, 1), (8, 1), (9, 0)])
def test_a_token_in_a_ring_writes_the_one_block_that_it_falls_into(
    num_tokens: int, index: int
) -> None:
    blocks = table(2, num_tokens - 1)
    blocks.num_logical_blocks = -(-(num_tokens - 1) // 2)
    growth = BlockLayout(2, 4).growth(blocks, num_tokens, 0)
    assert growth == Growth(range(index, index + 1), True, 0, -(-num_tokens // 2))
