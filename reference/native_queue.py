"""The specification of the free queue as a target: `DictQueue` behind the native contract.

Misuse is judged by `legality.py` and raises ValueError, or is ignored, as the profile says.
"""

from __future__ import annotations

from collections.abc import Sequence

from poolproof.contract.commands import (
    Append,
    AppendN,
    Command,
    PopLeft,
    PopLeftN,
    PrependN,
    Remove,
)
from poolproof.contract.observation import Neighbours
from poolproof.contract.profile import Profile
from poolproof.reference.dict_queue import DictQueue
from poolproof.reference.legality import queue_misuse_of

__all__ = ["NativeDictQueue"]


class NativeDictQueue:
    """A native queue target over the blocks 0..num_blocks-1, all queued at first."""

    def __init__(self, num_blocks: int, *, profile: Profile | None = None) -> None:
        self._profile = profile or Profile()
        self._model = DictQueue(num_blocks)
        self.profile = self._profile.to_json()

    def popleft(self) -> int | None:
        return None if self._misused(PopLeft()) else self._model.popleft()

    def popleft_n(self, count: int, /) -> list[int]:
        return [] if self._misused(PopLeftN(count)) else self._model.popleft_n(count)

    def remove(self, block_id: int, /) -> None:
        if not self._misused(Remove(block_id)):
            self._model.remove(block_id)

    def append(self, block_id: int, /) -> None:
        if not self._misused(Append(block_id)):
            self._model.append(block_id)

    def append_n(self, block_ids: Sequence[int], /) -> None:
        if not self._misused(AppendN(tuple(block_ids))):
            self._model.append_n(block_ids)

    def prepend_n(self, block_ids: Sequence[int], /) -> None:
        if not self._misused(PrependN(tuple(block_ids))):
            self._model.prepend_n(block_ids)

    def num_free(self) -> int:
        return len(self._model.order)

    def free_order(self) -> list[int]:
        return list(self._model.order)

    def free_neighbours(self, block_id: int, /) -> Neighbours:
        """The ids before and after in the queue; None for a block outside it."""
        if block_id not in self._model.order:
            return None
        order: list[int | None] = [None, *self._model.order, None]
        position = order.index(block_id)
        return order[position - 1], order[position + 1]

    def _misused(self, command: Command) -> bool:
        """Whether the call is misuse and to be ignored. Raises ValueError where misuse raises."""
        if self._profile.misuse == "undefined":
            return False
        reason = queue_misuse_of(self._model, command)
        if reason is not None and self._profile.misuse == "raises":
            raise ValueError(f"{command.verb}: {reason}")
        return reason is not None
