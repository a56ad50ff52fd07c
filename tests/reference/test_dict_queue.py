"""The free queue's operations against orders worked out by hand."""

import pytest

from poolproof.reference.dict_queue import DictQueue


def queue_without(num_blocks, *outside):
    queue = DictQueue(num_blocks)
    for block in outside:
        queue.remove(block)
    return queue


def test_all_blocks_stand_in_ascending_order_at_first():
    assert DictQueue(3).ledger().free_order == (0, 1, 2)


def test_popping_takes_the_head():
    queue = DictQueue(4)
    assert queue.popleft() == 0
    assert queue.popleft_n(2) == [1, 2]
    assert queue.popleft_n(0) == []
    assert queue.ledger().free_order == (3,)


def test_a_block_leaves_from_the_middle():
    assert queue_without(3, 1).ledger().free_order == (0, 2)


def test_blocks_join_at_the_tail_in_the_order_given():
    queue = queue_without(4, 0, 1, 2)
    queue.append(1)
    queue.append_n([2, 0])
    assert queue.ledger().free_order == (3, 1, 2, 0)


def test_blocks_join_at_the_head_so_that_the_first_given_is_first():
    queue = queue_without(4, 1, 2)
    queue.prepend_n([2, 1])
    assert queue.ledger().free_order == (2, 1, 0, 3)


def test_a_queued_block_cannot_join():
    with pytest.raises(AssertionError):
        DictQueue(2).append(1)
