"""The allocator of one device, the blocks and tables that it deals in, and their arithmetic."""

from __future__ import annotations

from typing import Any

import pytest

from poolproof.impl.block_tables import (
    BlockAllocator,
    BlockLayout,
    BlockTable,
    Device,
    Growth,
    PhysicalTokenBlock,
)
from poolproof.impl.sequence_group import LogicalTokenBlock


def test_blocks_are_handed_out_from_the_highest_number() -> None:
    allocator = BlockAllocator(Device.GPU, 3)
    assert allocator.free_order() == [2, 1, 0]
    assert [allocator.allocate().block_number for _ in range(3)] == [2, 1, 0]


def test_the_block_freed_last_is_reused_first() -> None:
    allocator = BlockAllocator(Device.GPU, 3)
    first, second = allocator.allocate(), allocator.allocate()
    allocator.free(first)
    allocator.free(second)
    assert allocator.free_order() == [1, 2, 0]


def test_an_allocated_block_has_one_reference() -> None:
    allocator = BlockAllocator(Device.CPU, 2)
    block = allocator.allocate()
    assert (block.device, block.ref_count, allocator.ref_count(1)) == (Device.CPU, 1, 1)
    assert allocator.get_num_free_blocks() == 1


def test_a_shared_block_is_free_after_its_last_reference() -> None:
    allocator = BlockAllocator(Device.GPU, 1)
    block = allocator.allocate()
    allocator.share(block)
    allocator.free(block)
    assert allocator.get_num_free_blocks() == 0
    allocator.free(block)
    assert allocator.get_num_free_blocks() == 1


def test_an_exhausted_allocator_refuses() -> None:
    with pytest.raises(MemoryError, match="all 0 cpu blocks are in use"):
        BlockAllocator(Device.CPU, 0).allocate()


@pytest.mark.parametrize("operation", ["free", "share"])
def test_a_free_block_has_no_holder(operation: str) -> None:
    allocator = BlockAllocator(Device.GPU, 1)
    block = allocator.allocate()
    allocator.free(block)
    with pytest.raises(ValueError, match=rf"{operation}: gpu block 0 \(ref_count 0\) is free"):
        getattr(allocator, operation)(block)
    assert allocator.free_order() == [0]


@pytest.mark.parametrize("number", [0, 1])
def test_a_block_of_another_allocator_is_refused(number: int) -> None:
    allocator, other = BlockAllocator(Device.GPU, 1), BlockAllocator(Device.CPU, 2)
    allocator.allocate()
    foreign = [other.allocate(), other.allocate()][1 - number]
    with pytest.raises(ValueError, match=f"cpu block {number} .* is none of these 1 gpu blocks"):
        allocator.free(foreign)
    assert (foreign.ref_count, allocator.ref_count(0)) == (1, 1)


@pytest.mark.parametrize("num_blocks", [-1, True, 1.0, None])
def test_the_number_of_blocks_is_a_count(num_blocks: Any) -> None:
    with pytest.raises(ValueError, match="num_gpu_blocks must be an int of at least 0"):
        BlockAllocator(Device.GPU, num_blocks)


def test_a_table_without_a_ring_names_each_block_once() -> None:
    allocator = BlockAllocator(Device.GPU, 3)
    blocks = [allocator.allocate() for _ in range(3)]
    assert BlockTable(Device.GPU, blocks, 3, 9).block_numbers() == [2, 1, 0]


def test_a_table_with_a_ring_comes_round() -> None:
    allocator = BlockAllocator(Device.GPU, 3)
    blocks = [allocator.allocate() for _ in range(3)]
    assert BlockTable(Device.GPU, blocks, 8, 24).block_numbers() == [2, 1, 0, 2, 1, 0, 2, 1]


def test_a_copied_table_grows_by_itself() -> None:
    allocator = BlockAllocator(Device.GPU, 2)
    table = BlockTable(Device.GPU, [allocator.allocate()], 1, 3)
    copy = table.copy()
    copy.blocks.append(allocator.allocate())
    assert len(table.blocks) == 1
    assert (copy.device, copy.num_logical_blocks, copy.num_tokens) == (Device.GPU, 1, 3)


def test_a_logical_block_fills_up() -> None:
    block = LogicalTokenBlock(0, 3)
    block.append_tokens([1, 2])
    assert (block.get_num_empty_slots(), block.is_full()) == (1, False)
    block.append_tokens([3])
    assert (block.get_num_empty_slots(), block.is_full()) == (0, True)


def test_what_does_not_fit_into_a_logical_block_is_not_added() -> None:
    block = LogicalTokenBlock(4, 2)
    with pytest.raises(ValueError, match="logical block 4 has 2 empty slots, not 3"):
        block.append_tokens([1, 2, 3])
    assert block.token_ids == []


def test_a_copied_logical_block_fills_up_by_itself() -> None:
    block = LogicalTokenBlock(4, 3)
    block.append_tokens([1])
    copy = block.copy()
    copy.append_tokens([2])
    assert (copy.block_number, copy.block_size, copy.token_ids) == (4, 3, [1, 2])
    assert block.token_ids == [1]


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
