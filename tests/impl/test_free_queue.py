"""The free queue: order, removal from the middle, and refusals that change nothing."""

import random

import pytest

from poolproof.impl.free_queue import UNLINKED, FreeQueue


def links(queue: FreeQueue) -> tuple[list[int], list[int], int]:
    return list(queue.next), list(queue.previous), queue.length


def assert_sound(queue: FreeQueue, order: list[int]) -> None:
    """The queue holds `order`, walked forwards, walked backwards and counted."""
    assert queue.free_order() == order
    assert queue.num_free() == len(order)
    backwards, block_id = [], queue.previous[queue.tail]
    while block_id != queue.head and len(backwards) <= queue.num_blocks:
        backwards.append(block_id)
        block_id = queue.previous[block_id]
    assert backwards == order[::-1]
    for block_id in range(queue.num_blocks):
        if block_id in order:
            at = order.index(block_id)
            before = order[at - 1] if at else None
            after = order[at + 1] if at + 1 < len(order) else None
            assert queue.free_neighbours(block_id) == (before, after)
        else:
            assert queue.free_neighbours(block_id) is None
            assert queue.next[block_id] == queue.previous[block_id] == UNLINKED


@pytest.mark.parametrize("num_blocks", [0, 1, 2, 7])
def test_a_new_queue_holds_all_ids_in_ascending_order(num_blocks: int) -> None:
    assert_sound(FreeQueue(num_blocks), list(range(num_blocks)))


@pytest.mark.parametrize("num_blocks", [-1, True, 2.0, None, "3"])
def test_a_size_that_is_no_count_is_refused(num_blocks: object) -> None:
    with pytest.raises(ValueError, match="num_blocks must be an int"):
        FreeQueue(num_blocks)


def test_popleft_takes_the_head_and_clears_its_links() -> None:
    queue = FreeQueue(3)
    assert queue.popleft() == 0
    assert_sound(queue, [1, 2])


def test_popleft_n_takes_blocks_in_queue_order() -> None:
    queue = FreeQueue(5)
    assert queue.popleft_n(0) == []
    assert queue.popleft_n(3) == [0, 1, 2]
    assert_sound(queue, [3, 4])
    assert queue.popleft_n(2) == [3, 4]
    assert_sound(queue, [])


def test_remove_works_at_the_head_in_the_middle_and_at_the_tail() -> None:
    queue = FreeQueue(5)
    for block_id, left in ((2, [0, 1, 3, 4]), (0, [1, 3, 4]), (4, [1, 3])):
        queue.remove(block_id)
        assert_sound(queue, left)


def test_the_only_block_can_be_removed_and_come_back() -> None:
    queue = FreeQueue(1)
    queue.remove(0)
    assert_sound(queue, [])
    queue.append(0)
    assert_sound(queue, [0])


def test_append_n_ends_with_the_last_given_at_the_tail() -> None:
    queue = FreeQueue(5)
    queue.popleft_n(4)
    queue.append_n([2, 0])
    queue.append_n([])
    queue.append(3)
    assert_sound(queue, [4, 2, 0, 3])


def test_prepend_n_puts_the_first_given_at_the_head() -> None:
    queue = FreeQueue(5)
    queue.popleft_n(4)
    queue.prepend_n([2, 0])
    queue.prepend_n([])
    queue.prepend_n(iter([3]))
    assert_sound(queue, [3, 2, 0, 4])


def test_an_empty_queue_can_be_filled_from_the_head() -> None:
    queue = FreeQueue(3)
    queue.popleft_n(3)
    queue.prepend_n([1, 2])
    assert_sound(queue, [1, 2])


@pytest.mark.parametrize(
    ("operation", "argument", "message"),
    [
        ("popleft_n", 3, "3 blocks asked for, 2 in the queue"),
        ("popleft_n", -1, "at least 0, not -1"),
        ("popleft_n", True, "at least 0, not True"),
        ("popleft_n", 1.0, "at least 0, not 1.0"),
        ("remove", 0, "block 0 is not in the queue"),
        ("remove", 4, "ids are ints from 0 to 3"),
        ("remove", -1, "ids are ints from 0 to 3"),
        ("remove", True, "True is not a block id"),
        ("append", 2, "block 2 is in the queue already"),
        ("append", 4, "4 is not a block id"),
        ("append", "0", "'0' is not a block id"),
        ("append_n", [0, 2], "block 2 is in the queue already"),
        ("append_n", [0, 0], "block 0 is given twice"),
        ("append_n", [0, -1], "-1 is not a block id"),
        ("append_n", [0, 4], "4 is not a block id"),
        ("append_n", None, "must be a list of block ids"),
        ("prepend_n", [0, 3], "block 3 is in the queue already"),
        ("prepend_n", [1, 0, 1], "block 1 is given twice"),
        ("prepend_n", [False], "False is not a block id"),
        ("free_neighbours", 4, "4 is not a block id"),
    ],
)
def test_misuse_is_told_and_changes_nothing(operation: str, argument: object, message: str) -> None:
    queue = FreeQueue(4)
    queue.popleft_n(2)
    before = links(queue)
    with pytest.raises(ValueError, match=f"^{operation}: .*{message}"):
        getattr(queue, operation)(argument)
    assert links(queue) == before


def test_popleft_of_an_empty_queue_is_refused_and_the_count_stays() -> None:
    queue = FreeQueue(0)
    with pytest.raises(ValueError, match="1 blocks asked for, 0 in the queue"):
        queue.popleft()
    assert queue.num_free() == 0


def test_the_walk_of_a_queue_tied_into_a_ring_ends() -> None:
    queue = FreeQueue(3)
    queue.next[2] = 0
    assert queue.free_order() == [0, 1, 2, 0]


@pytest.mark.parametrize("wild", [UNLINKED, 3, 4, 99])
def test_the_walk_of_a_queue_with_a_wild_link_ends(wild: int) -> None:
    queue = FreeQueue(3)
    queue.next[1] = wild
    assert queue.free_order() == [0, 1]


@pytest.mark.parametrize("half", ["next", "previous"])
def test_a_block_linked_on_one_side_only_is_not_said_to_be_outside(half: str) -> None:
    queue = FreeQueue(3)
    getattr(queue, half)[1] = UNLINKED
    assert queue.free_neighbours(1) in {(0, UNLINKED), (UNLINKED, 2)}


def test_two_sentinels_stand_beyond_the_ids_and_nothing_else() -> None:
    queue = FreeQueue(3)
    assert sorted([queue.head, queue.tail]) == [3, 4]
    assert len(queue.next) == len(queue.previous) == 5


@pytest.mark.parametrize("seed", range(4))
def test_random_operations_agree_with_a_list(seed: int) -> None:
    choose = random.Random(seed)
    queue, order = FreeQueue(8), list(range(8))
    for _ in range(300):
        out = [block_id for block_id in range(8) if block_id not in order]
        batch = choose.sample(out, choose.randint(0, len(out)))
        operation = choose.randrange(4)
        if operation == 0:
            n = choose.randint(0, len(order))
            assert queue.popleft_n(n) == order[:n]
            del order[:n]
        elif operation == 1 and order:
            block_id = choose.choice(order)
            queue.remove(block_id)
            order.remove(block_id)
        elif operation == 2:
            queue.append_n(batch)
            order += batch
        else:
            queue.prepend_n(batch)
            order = batch + order
        assert_sound(queue, order)
