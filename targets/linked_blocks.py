"""Reads a free queue that is linked through its blocks, between two sentinels.

A corrupted queue can be a ring, so a walk follows at most one link more than there are blocks;
what it met is returned and the checks say what is wrong with it. Nothing is changed here.
"""

from __future__ import annotations

from typing import Any

from poolproof.contract.observation import Neighbours

__all__ = ["NO_BLOCK", "LinkedBlocks"]

NO_BLOCK = -1
"""Stands where a link is missing or leads to the wrong sentinel, so that it looks broken."""


class LinkedBlocks:
    """The links of `blocks`, whose queue has the sentinels `head` and `tail`."""

    def __init__(self, head: Any, tail: Any, blocks: Any, num_blocks: int) -> None:
        self._head = head
        self._tail = tail
        self._blocks = blocks
        self._num_blocks = num_blocks

    @classmethod
    def find(cls, queue: Any, blocks: Any, num_blocks: int) -> LinkedBlocks | None:
        """The links of a queue under their published names; None where they have others."""
        head = getattr(queue, "fake_free_list_head", None)
        tail = getattr(queue, "fake_free_list_tail", None)
        for linked in (head, tail, blocks[0]):
            if not hasattr(linked, "prev_free_block") or not hasattr(linked, "next_free_block"):
                return None
        return cls(head, tail, blocks, num_blocks)

    def free_order(self) -> list[int]:
        """The ids that a walk from the head meets, at most one more than there are blocks."""
        tail = self._tail
        order: list[int] = []
        block = self._head.next_free_block
        for _ in range(self._num_blocks + 1):
            if block is tail or block is None:
                break
            order.append(block.block_id)
            block = block.next_free_block
        return order

    def free_neighbours(self, block_id: int) -> Neighbours:
        """The ids before and after; None inside for the queue's own ends.

        None where both links are absent. `NO_BLOCK` where one alone is, or leads astray.
        """
        block = self._blocks[block_id]
        before, after = block.prev_free_block, block.next_free_block
        if before is None and after is None:
            return None
        return (
            None if before is self._head else _id_of(before, self._tail),
            None if after is self._tail else _id_of(after, self._head),
        )


def _id_of(block: Any, wrong_end: Any) -> int:
    if block is None or block is wrong_end:
        return NO_BLOCK
    block_id: int = block.block_id
    return block_id
