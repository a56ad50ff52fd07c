"""The loops over links and counts, and the checks of ids."""

import copy
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolproof.impl import block_loops
from poolproof.impl.block_loops import BlockLoops, are_bytes, numbers
from poolproof.impl.free_queue import FreeQueue

NUM_BLOCKS = 6


class Pool:
    """What a pool gives to its loops: six blocks, the even ones with a key."""

    def __init__(self, *held):
        self.queue = FreeQueue(NUM_BLOCKS)
        self.counts = numbers(NUM_BLOCKS, 0)
        self.keys = [b"k" if block % 2 == 0 else None for block in range(NUM_BLOCKS)]
        for block in held:
            self.counts[block] += 1
            if self.counts[block] == 1:
                self.queue.unlink(block)
        self.loops = BlockLoops(
            NUM_BLOCKS, self.queue.next, self.queue.previous, self.counts, self.keys
        )

    def free(self):
        """The free blocks in queue order, by the links in both directions."""
        forward, block = [], self.queue.next[self.queue.head]
        while block != self.queue.tail:
            forward.append(block)
            block = self.queue.next[block]
        backward, block = [], self.queue.previous[self.queue.tail]
        while block != self.queue.head:
            backward.append(block)
            block = self.queue.previous[block]
        assert backward == forward[::-1]
        return forward


def test_blocks_are_taken_from_the_head_with_one_reference_each():
    pool = Pool(0)
    assert pool.loops.take(2) == [1, 2]
    assert list(pool.counts) == [1, 1, 1, 0, 0, 0]
    assert pool.free() == [3, 4, 5]


def test_all_blocks_can_be_taken():
    pool = Pool()
    assert pool.loops.take(NUM_BLOCKS) == list(range(NUM_BLOCKS))
    assert pool.free() == []


def test_a_held_block_leaves_the_queue_once():
    pool = Pool(5)
    assert pool.loops.hold([2, 5, 2]) == 1
    assert list(pool.counts) == [0, 0, 2, 0, 0, 2]
    assert pool.free() == [0, 1, 3, 4]


def test_a_block_joins_the_tail_where_its_last_reference_goes():
    pool = Pool(1, 3, 3, 4)
    assert pool.loops.release([3, 4, 1, 3], None) == 3
    assert pool.free() == [0, 2, 5, 4, 1, 3]


def test_blocks_without_a_key_are_left_to_the_caller():
    pool, to_head = Pool(1, 2, 3, 4), []
    assert pool.loops.release([1, 2, 3, 4], to_head) == 2
    assert to_head == [1, 3]
    assert pool.free() == [0, 5, 2, 4]


@given(st.lists(st.integers(0, NUM_BLOCKS - 1)), st.lists(st.integers(-1, NUM_BLOCKS)))
def test_ids_are_held_once_each(held, asked):
    pool = Pool(*held)
    right = len(set(asked)) == len(asked) and set(asked) <= set(held)
    assert pool.loops.are_held_once(asked) == right
    without_keys = right and all(block % 2 for block in asked)
    assert pool.loops.are_held_once(asked, unkeyed=True) == without_keys


@given(st.lists(st.integers(0, NUM_BLOCKS - 1)), st.lists(st.integers(-1, NUM_BLOCKS)))
def test_ids_have_content_where_they_are_held_or_have_a_key(held, asked):
    right = all(block in held or block in {0, 2, 4} for block in asked)
    assert Pool(*held).loops.have_content(asked) == right


@pytest.mark.parametrize("entry", [True, 1.0, "1", None, b"1"])
def test_what_is_no_int_is_no_id(entry):
    pool = Pool(1)
    assert not pool.loops.are_held_once([entry])
    assert not pool.loops.have_content([entry])


def test_a_derived_class_of_bytes_is_not_taken_for_bytes():
    assert are_bytes([b"", b"a"])
    assert not are_bytes([b"a", type("Odd", (bytes,), {})(b"b")])
    assert not are_bytes([b"a", "a"])


def test_a_copy_goes_on_from_where_it_was_copied():
    pool = Pool(0)
    twin = copy.deepcopy(pool)
    assert twin.loops.take(5) == [1, 2, 3, 4, 5]
    assert pool.free() == [1, 2, 3, 4, 5]
    assert twin.free() == []


@pytest.mark.parametrize(("compiled", "kind"), [(False, list), (True, array)])
def test_numbers_stand_in_what_the_loops_are_quickest_over(monkeypatch, compiled, kind):
    monkeypatch.setattr(block_loops, "COMPILED", compiled)
    made = numbers(3, -1)
    assert (type(made), list(made)) == (kind, [-1, -1, -1])
