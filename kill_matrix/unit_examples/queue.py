"""Unit examples of a free queue."""

from __future__ import annotations

from typing import Any

from poolproof.kill_matrix.unit_examples.example import Book, Rules

__all__ = ["QUEUE_EXAMPLES"]

QUEUE_EXAMPLES = Book()
example = QUEUE_EXAMPLES.add


@example()
def blocks_come_in_ascending_order(queue: Any, _rules: Rules) -> None:
    """A fresh queue holds all blocks, the lowest id first."""
    assert [queue.popleft() for _ in range(4)] == [0, 1, 2, 3]


@example()
def the_counter_follows_single_operations(queue: Any, _rules: Rules) -> None:
    """Each pop is one less, each append one more."""
    num_blocks = queue.num_free()
    block = queue.popleft()
    assert queue.num_free() == num_blocks - 1
    queue.append(block)
    assert queue.num_free() == num_blocks


@example()
def an_appended_block_comes_last(queue: Any, _rules: Rules) -> None:
    """What joins at the tail is taken when everything before it is gone."""
    first = queue.popleft()
    queue.append(first)
    order = [queue.popleft() for _ in range(queue.num_free())]
    assert order[-1] == first


@example()
def a_block_is_removed_from_the_middle(queue: Any, _rules: Rules) -> None:
    """The others keep their order."""
    queue.remove(2)
    assert queue.free_order() == [0, 1, *range(3, queue.num_free() + 1)]


@example()
def head_and_tail_can_be_removed(queue: Any, _rules: Rules) -> None:
    """The ends are blocks like any other."""
    last = queue.num_free() - 1
    queue.remove(0)
    queue.remove(last)
    assert queue.free_order() == list(range(1, last))


@example("popleft_n")
def several_blocks_are_popped_at_once(queue: Any, _rules: Rules) -> None:
    """In the order in which single pops would take them."""
    assert queue.popleft_n(3) == [0, 1, 2]
    assert queue.free_order()[0] == 3


@example("popleft_n", "append_n")
def several_blocks_are_appended_at_once(queue: Any, _rules: Rules) -> None:
    """In the order given."""
    taken = queue.popleft_n(2)
    queue.append_n(taken)
    assert queue.free_order()[-2:] == taken


@example("prepend_n")
def a_prepended_block_comes_first(queue: Any, _rules: Rules) -> None:
    """What joins at the head is taken next."""
    queue.popleft()
    block = queue.popleft()
    queue.prepend_n([block])
    assert queue.popleft() == block


@example()
def an_emptied_queue_fills_again(queue: Any, _rules: Rules) -> None:
    """Nothing is lost on the way through an empty queue."""
    taken = [queue.popleft() for _ in range(queue.num_free())]
    assert queue.num_free() == 0
    for block in taken:
        queue.append(block)
    assert queue.free_order() == taken


@example()
def an_empty_queue_refuses(queue: Any, _rules: Rules) -> None:
    """There is nothing to take."""
    for _ in range(queue.num_free()):
        queue.popleft()
    try:
        queue.popleft()
    except (ValueError, MemoryError, IndexError):
        return
    raise AssertionError("an empty queue gave a block")
