"""A free queue without bugs, written to be read and to be broken: the base of queue specimens.

A doubly linked list of nodes between two sentinels, in the shape that engines publish. Every step
is a small method, so that a specimen replaces one of them. It believes its caller except where a
pop asks for more blocks than there are; it is not written for speed (`poolproof.impl` is).
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["CleanQueue", "Node"]


class Node:
    """A block's place in the queue; both links are None outside it."""

    __slots__ = ("block_id", "next", "previous")

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.previous: Node | None = None
        self.next: Node | None = None


class CleanQueue:
    """The blocks 0..num_blocks-1 in eviction order, all of them queued at first."""

    def __init__(self, num_blocks: int) -> None:
        self.nodes = [Node(block_id) for block_id in range(num_blocks)]
        self.head, self.tail = Node(-1), Node(-1)
        self.length = 0
        self._join(self.head, self.tail)
        CleanQueue.append_n(self, range(num_blocks))

    def popleft(self) -> int:
        """Take the block at the head. Raises ValueError when the queue is empty."""
        return self.popleft_n(1)[0]

    def popleft_n(self, count: int) -> list[int]:
        """Take `count` blocks from the head. Raises ValueError when there are fewer."""
        self._require(count)
        self.length -= count
        taken = []
        node = self.head.next
        for _ in range(count):
            assert node is not None
            taken.append(node.block_id)
            following = node.next
            self._forget_links(node)
            node = following
        assert node is not None
        self._join(self.head, node)
        return taken

    def remove(self, block_id: int) -> None:
        """Take a block out from wherever it stands. Raises ValueError when it is not queued."""
        node = self.nodes[block_id]
        if node.previous is None or node.next is None:
            raise ValueError(f"block {block_id} is not in the free queue")
        self._join(node.previous, node.next)
        self._forget_links(node)
        self.length -= 1

    def append(self, block_id: int) -> None:
        """Put a block at the tail."""
        self.append_n([block_id])

    def append_n(self, block_ids: Sequence[int]) -> None:
        """Put blocks at the tail, the last given last."""
        assert self.tail.previous is not None
        self._insert_between(self.tail.previous, block_ids, self.tail)

    def prepend_n(self, block_ids: Sequence[int]) -> None:
        """Put blocks at the head, the first given first."""
        assert self.head.next is not None
        self._insert_between(self.head, block_ids, self.head.next)

    def num_free(self) -> int:
        """How many blocks are queued, from the counter."""
        return self.length

    def free_order(self) -> list[int]:
        """The queued blocks from head to tail; the walk takes at most one link too many."""
        order: list[int] = []
        node = self.head.next
        while node is not None and node is not self.tail and len(order) <= len(self.nodes):
            order.append(node.block_id)
            node = node.next
        return order

    def holds(self, block_id: int) -> bool:
        """Whether a block is queued."""
        return self.nodes[block_id].next is not None

    def last(self) -> int | None:
        """The block at the tail, None if the queue is empty."""
        last = self.tail.previous
        return None if last is None or last is self.head else last.block_id

    def free_neighbours(self, block_id: int) -> tuple[int | None, int | None] | None:
        """The blocks before and after; None inside is an end, None a block without links."""
        node = self.nodes[block_id]
        if node.previous is None and node.next is None:
            return None
        return _shown(node.previous), _shown(node.next)

    def _require(self, count: int) -> None:
        if count > self.length:
            raise ValueError(f"{count} blocks asked for, {self.length} are free")

    def _insert_between(self, left: Node, block_ids: Sequence[int], right: Node) -> None:
        for block_id in block_ids:
            self._join(left, self.nodes[block_id])
            left = self.nodes[block_id]
        self._join(left, right)
        self.length += len(block_ids)

    def _join(self, left: Node, right: Node) -> None:
        left.next = right
        right.previous = left

    def _forget_links(self, node: Node) -> None:
        node.previous = node.next = None


def _shown(node: Node | None) -> int | None:
    return None if node is None or node.block_id < 0 else node.block_id
