"""The vLLM-V0-shaped manager: admission, appending, forks, windows, and the known bugs."""

from collections.abc import Callable
from typing import Any

import pytest

from poolproof.impl.block_space_manager import AllocStatus, BlockSpaceManager
from poolproof.impl.block_tables import Device
from poolproof.impl.sequence_group import Sequence, SequenceGroup, SequenceStatus

OK, LATER, NEVER = AllocStatus.OK, AllocStatus.LATER, AllocStatus.NEVER


def manager_of(num_gpu_blocks: int, num_cpu_blocks: int = 0, **options: Any) -> BlockSpaceManager:
    options.setdefault("watermark", 0)
    return BlockSpaceManager(2, num_gpu_blocks, num_cpu_blocks, **options)


def waiting(num_tokens: int, *seq_ids: int) -> SequenceGroup:
    return SequenceGroup("r", [Sequence(i, range(num_tokens), 2) for i in seq_ids or (0,)])


def running(manager: BlockSpaceManager, num_tokens: int, *seq_ids: int) -> SequenceGroup:
    group = waiting(num_tokens, *seq_ids)
    manager.allocate(group)
    for seq in group.get_seqs():
        seq.status = SequenceStatus.RUNNING
    return group


def forked(manager: BlockSpaceManager, group: SequenceGroup, seq_id: int) -> Sequence:
    parent = group.get_seqs()[0]
    child = parent.fork(seq_id)
    manager.fork(parent, child)
    group.add(child)
    return child


def grown(manager: BlockSpaceManager, seq: Sequence, num_tokens: int = 1) -> tuple[int, int] | None:
    seq.append_tokens([0] * num_tokens)
    return manager.append_slot(seq)


def ref_counts(manager: BlockSpaceManager) -> list[int]:
    return [block.ref_count for block in manager.gpu_allocator.blocks]


def state(manager: BlockSpaceManager, *seqs: Sequence) -> Any:
    return (
        manager.gpu_allocator.free_order(),
        manager.cpu_allocator.free_order(),
        ref_counts(manager),
        [block.ref_count for block in manager.cpu_allocator.blocks],
        [manager.get_block_table(s) if manager.has_table(s) else None for s in seqs],
    )


# Admission.


def test_a_prompt_gets_a_block_for_each_logical_block() -> None:
    manager = manager_of(4)
    group = running(manager, 5)
    assert manager.get_block_table(group.get_seqs()[0]) == [3, 2, 1]
    assert manager.get_num_free_gpu_blocks() == 1


def test_admission_says_now_later_or_never() -> None:
    manager = manager_of(3)
    assert manager.can_allocate(waiting(6)) is OK
    assert manager.can_allocate(waiting(7)) is NEVER
    running(manager, 1)
    assert manager.can_allocate(waiting(6, 1)) is LATER
    assert manager.can_allocate(waiting(4, 1)) is OK


def test_only_now_is_true() -> None:
    assert [bool(status) for status in (OK, LATER, NEVER)] == [True, False, False]


def test_the_watermark_stays_free_at_admission() -> None:
    manager = manager_of(4, watermark=0.25)
    assert manager.watermark_blocks == 1
    assert manager.can_allocate(waiting(6)) is OK
    assert manager.can_allocate(waiting(8)) is NEVER
    running(manager, 2)
    assert manager.can_allocate(waiting(6, 1)) is LATER


def test_the_watermark_is_exact() -> None:
    # In floating point the product is below 29.
    assert manager_of(100, watermark=0.29).watermark_blocks == 29


def test_the_sequences_of_a_prompt_share_its_blocks() -> None:
    manager = manager_of(4)
    group = running(manager, 3, 0, 1, 2)
    assert [manager.get_block_table(s) for s in group.get_seqs()] == [[3, 2]] * 3
    assert ref_counts(manager) == [0, 0, 3, 3]


def test_only_the_waiting_sequences_are_counted() -> None:
    # vLLM 0.2.7 counts every sequence of the group, and never gets the blocks back.
    manager = manager_of(2)
    group = waiting(1, 0, 1)
    group.get_seqs()[0].status = SequenceStatus.FINISHED
    manager.allocate(group)
    assert ref_counts(manager) == [0, 1]
    manager.free_group(group)
    assert manager.get_num_free_gpu_blocks() == 2


def test_waiting_sequences_with_different_tokens_do_not_share() -> None:
    manager = manager_of(4)
    group = SequenceGroup("r", [Sequence(0, [1, 2], 2), Sequence(1, [1, 3], 2)])
    for operation in (manager.can_allocate, manager.allocate):
        with pytest.raises(
            ValueError,
            match=r"sequence 1 .* and sequence 0 .* wait in one group with different tokens",
        ):
            operation(group)


@pytest.mark.parametrize("operation", ["can_allocate", "allocate"])
def test_a_group_without_a_waiting_sequence_is_not_admitted(operation: str) -> None:
    manager = manager_of(4)
    group = running(manager, 1)
    with pytest.raises(ValueError, match=f"{operation}: no sequence of the group is waiting"):
        getattr(manager, operation)(group)


def test_a_refused_admission_changes_nothing() -> None:
    # vLLM 0.2.7 has handed out blocks by then.
    manager = manager_of(3)
    running(manager, 3)
    group = waiting(3, 1)
    before = state(manager, *group.get_seqs())
    with pytest.raises(MemoryError, match="allocate: 2 gpu blocks needed, 1 of 3 free"):
        manager.allocate(group)
    assert state(manager, *group.get_seqs()) == before


def test_a_sequence_is_admitted_once() -> None:
    manager = manager_of(4)
    group = waiting(1)
    manager.allocate(group)
    with pytest.raises(ValueError, match=r"allocate: sequence 0 .* has blocks already"):
        manager.allocate(group)
    assert manager.get_num_free_gpu_blocks() == 3


# Appending.


def test_a_new_logical_block_takes_a_new_block() -> None:
    manager = manager_of(3)
    seq = running(manager, 1).get_seqs()[0]
    tables = []
    for _ in range(3):
        assert grown(manager, seq) is None
        tables.append(manager.get_block_table(seq))
    assert tables == [[2], [2, 1], [2, 1]]


def test_several_tokens_may_take_several_blocks() -> None:
    # vLLM 0.2.7 adds one block a call, whatever the tokens.
    manager = manager_of(4)
    seq = running(manager, 1).get_seqs()[0]
    grown(manager, seq, 5)
    assert manager.get_block_table(seq) == [3, 2, 1]


def test_appending_without_a_new_token_does_nothing() -> None:
    manager = manager_of(4)
    group = running(manager, 1)
    forked(manager, group, 1)
    before = state(manager, *group.get_seqs())
    assert manager.append_slot(group.get_seqs()[0]) is None
    assert state(manager, *group.get_seqs()) == before


def test_a_shared_block_is_copied_before_it_is_written() -> None:
    manager = manager_of(4)
    group = running(manager, 3)
    parent, child = group.get_seqs()[0], forked(manager, group, 1)
    assert grown(manager, child) == (2, 1)
    assert manager.get_block_table(parent) == [3, 2]
    assert manager.get_block_table(child) == [3, 1]
    assert ref_counts(manager) == [0, 1, 1, 2]


def test_the_last_holder_writes_without_a_copy() -> None:
    manager = manager_of(4)
    group = running(manager, 1)
    parent, child = group.get_seqs()[0], forked(manager, group, 1)
    assert grown(manager, child) == (3, 2)
    assert grown(manager, parent) is None
    assert manager.get_block_table(parent) == [3]


def test_full_shared_blocks_stay_shared() -> None:
    manager = manager_of(4)
    group = running(manager, 2)
    child = forked(manager, group, 1)
    assert grown(manager, child) is None
    assert manager.get_block_table(child) == [3, 2]
    assert ref_counts(manager) == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("num_tokens", "num_seqs", "needed"),
    [(1, 1, 0), (2, 1, 1), (1, 3, 2), (2, 3, 3), (3, 2, 1)],
)
def test_room_for_appending_is_counted_exactly(num_tokens: int, num_seqs: int, needed: int) -> None:
    # vLLM 0.2.7 wants one free block for every sequence.
    for free, fits in ((needed, True), (needed - 1, False)):
        if free < 0:
            continue
        manager = manager_of((num_tokens + 1) // 2 + free)
        group = running(manager, num_tokens, *range(num_seqs))
        for seq in group.get_seqs():
            seq.append_tokens([0])
        assert manager.can_append_slot(group) is fits
        if fits:
            for seq in group.get_seqs():
                manager.append_slot(seq)
            assert manager.get_num_free_gpu_blocks() == 0


def test_a_block_shared_with_another_group_counts() -> None:
    manager = manager_of(1)
    group = running(manager, 1)
    parent = group.get_seqs()[0]
    manager.fork(parent, parent.fork(1))
    parent.append_tokens([0])
    assert not manager.can_append_slot(group)


def test_a_refused_append_changes_nothing() -> None:
    manager = manager_of(1)
    group = running(manager, 1)
    child = forked(manager, group, 1)
    child.append_tokens([0, 0])
    before = state(manager, *group.get_seqs())
    with pytest.raises(MemoryError, match="append_slot: 2 gpu blocks needed, 0 of 1 free"):
        manager.append_slot(child)
    assert state(manager, *group.get_seqs()) == before


def test_a_finished_sequence_that_still_has_blocks_is_not_grown() -> None:
    manager = manager_of(2)
    group = running(manager, 1, 0)
    group.add(running(manager, 2, 1).get_seqs()[0])
    finished = group.get_seqs()[1]
    finished.append_tokens([0])
    assert not manager.can_append_slot(group)
    finished.status = SequenceStatus.FINISHED
    assert manager.can_append_slot(group)


def test_a_sequence_that_was_not_admitted_does_not_append() -> None:
    manager = manager_of(1)
    with pytest.raises(ValueError, match=r"^append_slot: .* has no blocks; it was not admitted"):
        manager.append_slot(Sequence(0, [1], 2))


def test_a_sequence_that_shrank_is_refused() -> None:
    manager = manager_of(4)
    running(manager, 3)
    with pytest.raises(ValueError, match="has 2 tokens and had 3"):
        manager.append_slot(Sequence(0, [1, 2], 2))


# Lookahead.


def test_lookahead_slots_are_there_from_admission_on() -> None:
    manager = manager_of(3)
    group = waiting(2)
    assert manager.can_allocate(group, 5) is NEVER
    assert manager.can_allocate(group, 4) is OK
    manager.allocate(group, 4)
    assert len(manager.get_block_table(group.get_seqs()[0])) == 3


def test_lookahead_slots_are_filled_before_new_ones_are_taken() -> None:
    manager = manager_of(3)
    group = running(manager, 1)
    seq = group.get_seqs()[0]
    seq.append_tokens([0])
    assert manager.can_append_slot(group, 4)
    manager.append_slot(seq, 4)
    assert not manager.can_append_slot(group, 5)
    for _ in range(4):
        assert grown(manager, seq) is None
    assert len(manager.get_block_table(seq)) == 3


def test_shared_lookahead_blocks_are_made_private_without_a_copy() -> None:
    manager = manager_of(4)
    group = running(manager, 2)
    parent = group.get_seqs()[0]
    manager.append_slot(parent, 2)
    child = forked(manager, group, 1)
    assert grown(manager, child) is None
    assert manager.get_block_table(parent) == [3, 2]
    assert manager.get_block_table(child) == [3, 1]


def test_only_the_first_block_written_is_copied() -> None:
    manager = manager_of(5)
    group = running(manager, 3)
    parent = group.get_seqs()[0]
    manager.append_slot(parent, 3)
    child = forked(manager, group, 1)
    assert manager.get_block_table(child) == [4, 3, 2]
    child.append_tokens([0])
    assert manager.append_slot(child, 2) == (3, 1)
    assert manager.get_block_table(child) == [4, 1, 0]


@pytest.mark.parametrize("slots", [-1, True, 1.0, None])
def test_lookahead_slots_are_a_count(slots: Any) -> None:
    manager = manager_of(4)
    with pytest.raises(ValueError, match="num_lookahead_slots must be an int of at least 0"):
        manager.can_allocate(waiting(1), slots)


# Forks and release.


def test_a_fork_shares_every_block_and_takes_none() -> None:
    manager = manager_of(2)
    group = running(manager, 3)
    child = forked(manager, group, 1)
    assert manager.get_block_table(child) == [1, 0]
    assert ref_counts(manager) == [2, 2]


def test_a_fork_needs_a_parent_with_blocks() -> None:
    manager = manager_of(2)
    parent = Sequence(0, [1], 2)
    with pytest.raises(ValueError, match=r"fork: sequence 0 .* has no blocks"):
        manager.fork(parent, parent.fork(1))


def test_a_child_has_no_blocks_of_its_own() -> None:
    # vLLM 0.2.7 forgets those that it had.
    manager = manager_of(2)
    group = running(manager, 1, 0, 1)
    with pytest.raises(ValueError, match=r"fork: sequence 1 .* has blocks already"):
        manager.fork(*group.get_seqs())
    assert ref_counts(manager) == [0, 2]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
def test_beams_finish_in_any_order(order: tuple[int, ...]) -> None:
    # tvm#17045.
    manager = manager_of(7)
    group = running(manager, 3)
    forked(manager, group, 1)
    forked(manager, group, 2)
    for seq in group.get_seqs():
        grown(manager, seq, 2)
    for i in order:
        manager.free(group.get_seqs()[i])
    assert manager.get_num_free_gpu_blocks() == 7
    assert ref_counts(manager) == [0] * 7


def test_a_second_release_does_nothing() -> None:
    # vllm#9142.
    manager = manager_of(2)
    group = running(manager, 1)
    child = forked(manager, group, 1)
    manager.free(child)
    manager.free(child)
    assert ref_counts(manager) == [0, 1]


def test_the_children_of_an_aborted_group_are_released() -> None:
    # vllm#14326.
    manager = manager_of(2)
    group = running(manager, 1)
    forked(manager, group, 1)
    manager.free_group(group)
    assert manager.get_num_free_gpu_blocks() == 2


def test_the_tail_is_reused_first() -> None:
    manager = manager_of(3)
    group = running(manager, 5)
    assert manager.get_block_table(group.get_seqs()[0]) == [2, 1, 0]
    manager.free_group(group)
    assert manager.gpu_allocator.free_order() == [0, 1, 2]


def test_a_reset_frees_everything_on_both_devices() -> None:
    manager = manager_of(4, 2)
    swapped = running(manager, 3)
    manager.swap_out(swapped)
    group = running(manager, 1, 1, 2)
    manager.reset()
    assert (manager.get_num_free_gpu_blocks(), manager.get_num_free_cpu_blocks()) == (4, 2)
    assert not any(map(manager.has_table, [*swapped.get_seqs(), *group.get_seqs()]))


@pytest.mark.parametrize("operation", ["get_block_table", "device_of"])
def test_a_sequence_without_blocks_has_no_table(operation: str) -> None:
    with pytest.raises(ValueError, match=f"{operation}: sequence 0 .* has no blocks"):
        getattr(manager_of(1), operation)(Sequence(0, [1], 2))


# The ring of a sliding window.


def test_a_long_prompt_goes_round_the_ring() -> None:
    manager = manager_of(2, sliding_window=4)
    group = waiting(7)
    assert manager.can_allocate(group) is OK
    manager.allocate(group)
    assert manager.get_block_table(group.get_seqs()[0]) == [1, 0, 1, 0]
    assert ref_counts(manager) == [1, 1]


def test_a_growing_sequence_goes_round_the_ring() -> None:
    manager = manager_of(2, sliding_window=4)
    seq = running(manager, 1).get_seqs()[0]
    for _ in range(5):
        assert grown(manager, seq) is None
    assert manager.get_block_table(seq) == [1, 0, 1]


def test_a_fork_in_the_ring_counts_each_block_once() -> None:
    # vllm#1556: once a slot, and never all back.
    manager = manager_of(2, sliding_window=4)
    group = running(manager, 7)
    forked(manager, group, 1)
    assert ref_counts(manager) == [2, 2]
    manager.free_group(group)
    assert manager.get_num_free_gpu_blocks() == 2


def test_a_shared_block_of_the_ring_is_copied_before_it_comes_round() -> None:
    # vllm#3347: the table kept the old block in its other slots, and lost its reference.
    manager = manager_of(4, sliding_window=4)
    group = running(manager, 4)
    parent, child = group.get_seqs()[0], forked(manager, group, 1)
    assert grown(manager, child) == (3, 1)
    assert manager.get_block_table(child) == [1, 2, 1]
    assert manager.get_block_table(parent) == [3, 2]
    assert ref_counts(manager) == [0, 1, 2, 1]
    manager.free_group(group)
    assert manager.get_num_free_gpu_blocks() == 4


def test_a_ring_of_single_tokens_replaces_without_a_copy() -> None:
    manager = BlockSpaceManager(1, 4, 0, 0, sliding_window=2)
    group = SequenceGroup("r", [Sequence(0, [1, 2], 1)])
    manager.allocate(group)
    group.get_seqs()[0].status = SequenceStatus.RUNNING
    child = forked(manager, group, 1)
    assert grown(manager, child) is None
    assert manager.get_block_table(child) == [1, 2, 1]


def test_room_in_the_ring_is_counted_exactly() -> None:
    manager = manager_of(3, sliding_window=4)
    group = running(manager, 4)
    forked(manager, group, 1)
    for seq in group.get_seqs():
        seq.append_tokens([0])
    assert manager.can_append_slot(group)
    assert [manager.append_slot(seq) for seq in group.get_seqs()] == [(2, 0), None]


@pytest.mark.parametrize(("num_tokens", "appended", "lookahead"), [(4, 2, 0), (3, 1, 1), (9, 2, 0)])
def test_two_tokens_at_once_are_refused_beyond_the_window(
    num_tokens: int, appended: int, lookahead: int
) -> None:
    manager = manager_of(4, sliding_window=4)
    group = running(manager, num_tokens)
    seq = group.get_seqs()[0]
    seq.append_tokens([0] * appended)
    before = state(manager, seq)
    calls: list[Callable[[], Any]] = [
        lambda: manager.can_append_slot(group, lookahead),
        lambda: manager.append_slot(seq, lookahead),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="at once beyond a sliding window of 4 tokens"):
            call()
    assert state(manager, seq) == before


def test_tokens_within_the_window_may_come_at_once() -> None:
    manager = manager_of(4, sliding_window=4)
    seq = running(manager, 1).get_seqs()[0]
    grown(manager, seq, 3)
    assert manager.get_block_table(seq) == [3, 2]


# Construction.


def test_a_manager_shows_its_sizes() -> None:
    manager = manager_of(4, 1, sliding_window=4)
    assert (manager.block_size, manager.sliding_window) == (2, 4)


@pytest.mark.parametrize(("watermark", "num_blocks"), [(0, 0), (0.29, 2), (0.3, 3), (1, 10)])
def test_the_watermark_is_whole_blocks_rounded_down(watermark: float, num_blocks: int) -> None:
    assert manager_of(10, watermark=watermark).watermark_blocks == num_blocks


@pytest.mark.parametrize("window", [0, -2, 3, True, 2.0])
def test_a_window_is_whole_blocks(window: Any) -> None:
    with pytest.raises(ValueError, match="sliding_window must be a positive multiple"):
        manager_of(4, sliding_window=window)


@pytest.mark.parametrize("watermark", [-0.1, 1.01, "much", float("nan"), None])
def test_the_watermark_is_a_share(watermark: Any) -> None:
    with pytest.raises(ValueError, match="watermark must be"):
        manager_of(4, watermark=watermark)


@pytest.mark.parametrize(
    ("sizes", "name"),
    [((0, 1, 1), "block_size"), ((1, 0, 1), "num_gpu_blocks"), ((1, 1, -1), "num_cpu_blocks")],
)
def test_sizes_are_counts(sizes: tuple[int, int, int], name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be an int of at least"):
        BlockSpaceManager(*sizes)


def test_the_device_of_a_sequence_is_told() -> None:
    manager = manager_of(2, 2)
    group = running(manager, 1)
    assert manager.device_of(group.get_seqs()[0]) is Device.GPU
    manager.swap_out(group)
    assert manager.device_of(group.get_seqs()[0]) is Device.CPU
