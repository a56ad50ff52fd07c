"""The vLLM-V0-shaped manager: swapping, and the order of the copies of a step."""

from __future__ import annotations

import random
from typing import Any

import pytest

from poolproof.impl.block_space_manager import AllocStatus, BlockSpaceManager, BlocksToCopy
from poolproof.impl.block_tables import Device
from poolproof.impl.sequence_group import Sequence, SequenceGroup, SequenceStatus

OK, LATER, NEVER = AllocStatus.OK, AllocStatus.LATER, AllocStatus.NEVER


def manager_of(num_gpu_blocks: int, num_cpu_blocks: int, **options: Any) -> BlockSpaceManager:
    options.setdefault("watermark", 0)
    return BlockSpaceManager(2, num_gpu_blocks, num_cpu_blocks, **options)


def moved(group: SequenceGroup, status: SequenceStatus) -> None:
    for seq in group.get_seqs():
        seq.status = status


def running(manager: BlockSpaceManager, num_tokens: int, *seq_ids: int) -> SequenceGroup:
    group = SequenceGroup("r", [Sequence(i, range(num_tokens), 2) for i in seq_ids or (0,)])
    manager.allocate(group)
    moved(group, SequenceStatus.RUNNING)
    return group


def swapped(manager: BlockSpaceManager, num_tokens: int, *seq_ids: int) -> SequenceGroup:
    group = running(manager, num_tokens, *seq_ids)
    manager.swap_out(group)
    moved(group, SequenceStatus.SWAPPED)
    return group


def tables(manager: BlockSpaceManager, group: SequenceGroup) -> list[list[int]]:
    return [manager.get_block_table(seq) for seq in group.get_seqs()]


def ref_counts(manager: BlockSpaceManager) -> tuple[list[int], list[int]]:
    return (
        [block.ref_count for block in manager.gpu_allocator.blocks],
        [block.ref_count for block in manager.cpu_allocator.blocks],
    )


def test_each_block_is_moved_once_and_stays_shared() -> None:
    manager = manager_of(3, 3)
    group = running(manager, 3, 0, 1)
    assert manager.can_swap_out(group)
    assert manager.swap_out(group) == {2: 2, 1: 1}
    assert tables(manager, group) == [[2, 1], [2, 1]]
    assert ref_counts(manager) == ([0, 0, 0], [0, 2, 2])


def test_what_is_swapped_in_is_shared_as_before() -> None:
    manager = manager_of(3, 3)
    group = swapped(manager, 3, 0, 1)
    assert manager.swap_in(group) == {2: 1, 1: 2}
    assert tables(manager, group) == [[1, 2], [1, 2]]
    assert ref_counts(manager) == ([0, 2, 2], [0, 0, 0])


def test_a_ring_is_swapped_block_by_block() -> None:
    # vLLM 0.2.7 frees a block once a slot: "Double free!".
    manager = manager_of(2, 2, sliding_window=4)
    group = running(manager, 7, 0, 1)
    assert manager.swap_out(group) == {1: 1, 0: 0}
    assert ref_counts(manager) == ([0, 0], [2, 2])
    moved(group, SequenceStatus.SWAPPED)
    assert manager.swap_in(group) == {1: 0, 0: 1}
    assert tables(manager, group) == [[0, 1, 0, 1]] * 2
    manager.free_group(group)
    assert manager.get_num_free_gpu_blocks() == 2


@pytest.mark.parametrize(("num_cpu_blocks", "fits"), [(1, False), (2, True)])
def test_room_on_the_cpu_is_counted_exactly(num_cpu_blocks: int, fits: bool) -> None:
    manager = manager_of(3, num_cpu_blocks)
    assert manager.can_swap_out(running(manager, 3, 0, 1)) is fits


def test_a_refused_swap_out_changes_nothing() -> None:
    manager = manager_of(4, 1)
    group = running(manager, 3)
    manager.append_slot(group.get_seqs()[0], 2)
    before = (ref_counts(manager), tables(manager, group))
    with pytest.raises(MemoryError, match="swap_out: 2 cpu blocks needed, 1 of 1 free"):
        manager.swap_out(group)
    assert (ref_counts(manager), tables(manager, group)) == before


def test_lookahead_slots_are_not_swapped() -> None:
    manager = manager_of(5, 1)
    group = running(manager, 2, 0, 1)
    for seq in group.get_seqs():
        manager.append_slot(seq, 3)
    assert manager.swap_out(group) == {4: 0}
    assert ref_counts(manager) == ([0] * 5, [2])
    assert tables(manager, group) == [[0], [0]]


def test_a_refused_swap_in_changes_nothing() -> None:
    manager = manager_of(2, 2)
    group = swapped(manager, 3)
    running(manager, 1, 1)
    before = (ref_counts(manager), tables(manager, group))
    with pytest.raises(MemoryError, match="swap_in: 2 gpu blocks needed, 1 of 2 free"):
        manager.swap_in(group)
    assert (ref_counts(manager), tables(manager, group)) == before


@pytest.mark.parametrize(
    ("num_tokens", "num_seqs", "lookahead", "needed"),
    [
        (1, 1, 0, 1),
        (2, 1, 0, 2),
        (1, 1, 1, 2),
        (1, 2, 0, 2),
        (2, 2, 0, 3),
        (3, 3, 0, 4),
        (3, 3, 1, 7),
    ],
)
def test_room_to_swap_in_and_append_is_counted_exactly(
    num_tokens: int, num_seqs: int, lookahead: int, needed: int
) -> None:
    # vLLM 0.2.7 adds one block for every sequence, and knows no lookahead (vllm#8824).
    for num_gpu_blocks, answer in ((needed, OK), (needed - 1, NEVER)):
        if num_gpu_blocks < (num_tokens + 1) // 2:
            continue
        manager = manager_of(num_gpu_blocks, 4)
        group = swapped(manager, num_tokens, *range(num_seqs))
        for seq in group.get_seqs():
            seq.append_tokens([0])
        assert manager.can_swap_in(group, lookahead) is answer
        if answer:
            manager.swap_in(group)
            for seq in group.get_seqs():
                manager.append_slot(seq, lookahead)
            assert manager.get_num_free_gpu_blocks() == 0


def test_swapping_in_waits_for_others_to_leave() -> None:
    manager = manager_of(2, 2)
    group = swapped(manager, 3)
    other = running(manager, 1, 1)
    assert manager.can_swap_in(group) is LATER
    manager.free_group(other)
    assert manager.can_swap_in(group) is OK


def test_the_watermark_stays_free_when_swapping_in() -> None:
    manager = manager_of(4, 5, watermark=0.5)
    assert manager.can_swap_in(swapped(manager, 4)) is OK
    assert manager.can_swap_in(swapped(manager, 6, 1)) is NEVER


def test_a_sequence_on_the_cpu_does_not_append() -> None:
    manager = manager_of(2, 2)
    seq = swapped(manager, 1).get_seqs()[0]
    with pytest.raises(ValueError, match=r"sequence 0 .* is on the CPU; swap its group in first"):
        manager.append_slot(seq)


@pytest.mark.parametrize("operation", ["swap_out", "can_append_slot", "can_swap_out"])
def test_a_status_that_does_not_fit_the_device_is_refused(operation: str) -> None:
    manager = manager_of(2, 2)
    group = swapped(manager, 1)
    moved(group, SequenceStatus.RUNNING)
    with pytest.raises(ValueError, match=r"sequence 0 .* has its blocks on the cpu"):
        getattr(manager, operation)(group)


def test_a_finished_sequence_that_still_has_blocks_is_not_moved() -> None:
    manager = manager_of(4, 1)
    group = running(manager, 1, 0)
    finished = running(manager, 1, 1).get_seqs()[0]
    group.add(finished)
    finished.status = SequenceStatus.FINISHED
    assert manager.can_swap_out(group)
    manager.swap_out(group)
    assert (manager.device_of(finished), manager.get_num_free_cpu_blocks()) == (Device.GPU, 0)


@pytest.mark.parametrize("status", [SequenceStatus.FINISHED, SequenceStatus.RUNNING])
def test_only_the_swapped_sequences_come_back(status: SequenceStatus) -> None:
    manager = manager_of(2, 2)
    group = swapped(manager, 1)
    stays = swapped(manager, 2, 1).get_seqs()[0]
    group.add(stays)
    stays.status = status
    running(manager, 1, 2)
    assert manager.can_swap_in(group) is OK
    assert len(manager.swap_in(group)) == 1
    assert manager.device_of(stays) is Device.CPU


def test_a_sequence_freed_already_is_passed_over() -> None:
    # openvino.genai#4332: a group is preempted while one of its beams has gone.
    manager = manager_of(3, 3)
    group = running(manager, 3, 0, 1)
    manager.free(group.get_seqs()[0])
    assert manager.swap_out(group) == {2: 2, 1: 1}
    assert ref_counts(manager) == ([0, 0, 0], [0, 1, 1])


def test_a_finished_sequence_keeps_its_blocks_on_the_gpu_until_it_is_freed() -> None:
    manager = manager_of(2, 2)
    group = running(manager, 1, 0, 1)
    done, other = group.get_seqs()
    done.status = SequenceStatus.FINISHED
    assert manager.swap_out(group) == {1: 1}
    assert ref_counts(manager) == ([0, 1], [0, 1])
    manager.free(done)
    assert manager.get_num_free_gpu_blocks() == 2
    assert manager.get_block_table(other) == [1]


def test_a_swapped_sequence_is_freed_on_the_cpu() -> None:
    manager = manager_of(2, 2)
    manager.free_group(swapped(manager, 3))
    assert (manager.get_num_free_gpu_blocks(), manager.get_num_free_cpu_blocks()) == (2, 2)


def test_a_swapped_sequence_can_be_forked() -> None:
    manager = manager_of(2, 2)
    group = swapped(manager, 3)
    child = group.get_seqs()[0].fork(1)
    manager.fork(group.get_seqs()[0], child)
    group.add(child)
    assert ref_counts(manager) == ([0, 0], [2, 2])
    assert manager.swap_in(group) == {1: 0, 0: 1}
    assert ref_counts(manager) == ([2, 2], [0, 0])


def collected(pairs: list[tuple[int, int]]) -> BlocksToCopy:
    copies = BlocksToCopy()
    for pair in pairs:
        copies.add(pair)
    return copies


def test_the_copies_of_one_source_are_merged() -> None:
    assert collected([(1, 2), (5, 6), (1, 3)]).batches() == [{1: [2, 3], 5: [6]}]


def test_no_copy_is_nothing() -> None:
    copies = BlocksToCopy()
    copies.add(None)
    assert (copies.pairs, copies.batches()) == ([], [])


def test_a_reused_source_waits() -> None:
    assert collected([(1, 2), (4, 1)]).batches() == [{1: [2]}, {4: [1]}]


def test_a_copy_of_a_copy_waits() -> None:
    assert collected([(1, 2), (2, 3)]).batches() == [{1: [2]}, {2: [3]}]


def test_what_does_not_have_to_wait_does_not() -> None:
    assert collected([(1, 2), (2, 3), (2, 4)]).batches() == [{1: [2]}, {2: [3, 4]}]


def test_a_block_written_twice_waits() -> None:
    assert collected([(1, 2), (3, 2)]).batches() == [{1: [2]}, {3: [2]}]


def test_a_source_with_new_content_is_not_merged_with_its_old_one() -> None:
    assert collected([(1, 2), (4, 1), (1, 3)]).batches() == [{1: [2]}, {4: [1]}, {1: [3]}]


def test_a_reset_leaves_no_copy() -> None:
    copies = collected([(1, 2)])
    copies.clear()
    assert copies.batches() == []


def test_batches_in_any_order_within_give_what_the_pairs_give_in_order() -> None:
    choose = random.Random(0)
    for _ in range(300):
        pairs = [tuple(choose.sample(range(5), 2)) for _ in range(choose.randint(0, 6))]
        expected, memory = list(range(5)), list(range(5))
        for source, destination in pairs:
            expected[destination] = expected[source]
        for batch in collected(pairs).batches():
            single = [(s, d) for s, destinations in batch.items() for d in destinations]
            choose.shuffle(single)
            for source, destination in single:
                memory[destination] = memory[source]
        assert memory == expected
