"""The specification of the free queue: an ordered dictionary of block ids, head first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from poolproof.contract.observation import QueueLedger

__all__ = ["DictQueue"]


class DictQueue:
    """Every block once, in eviction order; all `num_blocks` are queued at first, ascending."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.order: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))

    def popleft(self) -> int:
        block_id, _ = self.order.popitem(last=False)
        return block_id

    def popleft_n(self, count: int) -> list[int]:
        return [self.popleft() for _ in range(count)]

    def remove(self, block_id: int) -> None:
        del self.order[block_id]

    def append(self, block_id: int) -> None:
        assert block_id not in self.order
        self.order[block_id] = None

    def append_n(self, block_ids: Sequence[int]) -> None:
        for block_id in block_ids:
            self.append(block_id)

    def prepend_n(self, block_ids: Sequence[int]) -> None:
        for block_id in reversed(block_ids):
            self.append(block_id)
            self.order.move_to_end(block_id, last=False)

    def ledger(self) -> QueueLedger:
        """What the invariants compare a queue with."""
        return QueueLedger(free_order=tuple(self.order))
