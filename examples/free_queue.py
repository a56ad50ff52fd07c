"""A free queue on its own, the one structure of a block pool that is easy to get wrong.

A doubly linked list through the blocks: any block leaves it in constant time, from wherever it
stands. `next` and `previous` have one entry for each block and one for a sentinel, which stands
before the head and behind the tail.
"""

from __future__ import annotations


class Queue:
    """All blocks at first, in ascending order."""

    def __init__(self, num_blocks: int) -> None:
        self.sentinel = num_blocks
        self.length = 0
        self.next: list[int | None] = [None] * num_blocks + [num_blocks]
        self.previous: list[int | None] = [None] * num_blocks + [num_blocks]
        for block in range(num_blocks):
            self.append(block)

    def num_free(self) -> int:
        """The counter."""
        return self.length

    def popleft(self) -> int:
        """The head leaves."""
        head = self.next[self.sentinel]
        assert head is not None
        if head == self.sentinel:
            raise ValueError("the queue is empty")
        self.remove(head)
        return head

    def remove(self, block_id: int) -> None:
        """A block leaves from wherever it stands."""
        before, after = self.previous[block_id], self.next[block_id]
        if before is None or after is None:
            raise ValueError(f"block {block_id} is not in the queue")
        self.next[before], self.previous[after] = after, before
        self.next[block_id] = self.previous[block_id] = None
        self.length -= 1

    def append(self, block_id: int) -> None:
        """A block joins at the tail."""
        tail = self.previous[self.sentinel]
        assert tail is not None
        if self.next[block_id] is not None:
            raise ValueError(f"block {block_id} is in the queue already")
        self.next[tail] = self.previous[self.sentinel] = block_id
        self.previous[block_id], self.next[block_id] = tail, self.sentinel
        self.length += 1

    def free_order(self) -> list[int]:
        """The walk from the head; it ends even where the links have become a circle."""
        walk: list[int] = []
        block = self.next[self.sentinel]
        while block is not None and block != self.sentinel and len(walk) < self.sentinel + 1:
            walk.append(block)
            block = self.next[block]
        return walk

    def free_neighbours(self, block_id: int) -> tuple[int | None, int | None] | None:
        """Who stands before and behind the block; None for a block outside the queue."""
        before, after = self.previous[block_id], self.next[block_id]
        if before is None or after is None:
            return None
        return self._block(before), self._block(after)

    def _block(self, entry: int) -> int | None:
        return None if entry == self.sentinel else entry
