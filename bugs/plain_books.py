"""What a block pool knows, as plain as can be: the base of oddities that are odd elsewhere.

LRU order, duplicates kept; it believes its caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from poolproof.contract.content import Key

__all__ = ["Books"]


@dataclass
class Books:
    """What a pool knows, as plain as can be; the queue head first."""

    queue: list[int]
    owners: dict[int, int]
    hashes: dict[int, Key] = field(default_factory=dict)

    def copy(self) -> Books:
        return Books(list(self.queue), dict(self.owners), dict(self.hashes))

    def allocate(self, n: int) -> list[int]:
        taken, self.queue = self.queue[:n], self.queue[n:]
        for block_id in taken:
            self.hashes.pop(block_id, None)
            self.owners[block_id] = 1
        return taken

    def touch(self, block_ids: Sequence[int]) -> None:
        for block_id in block_ids:
            if not self.owners[block_id]:
                self.queue.remove(block_id)
            self.owners[block_id] += 1

    def free(self, block_ids: Sequence[int]) -> None:
        for block_id in block_ids:
            self.owners[block_id] -= 1
            if not self.owners[block_id]:
                self.queue.append(block_id)

    def evict(self, block_ids: Sequence[int]) -> None:
        for block_id in block_ids:
            self.hashes.pop(block_id, None)
