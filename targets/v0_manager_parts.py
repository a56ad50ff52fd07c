"""The classes that go with a block space manager in vLLM V0's shape, and its allocators.

A manager asks its groups for sequences of a status, so it works with the `SequenceStatus` that its
own module imports and with the `Sequence` and `SequenceGroup` beside that. For a class whose
module names none of them there are Poolproof's own.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from poolproof.impl import sequence_group

__all__ = ["V0Allocator", "V0Parts", "v0_parts"]


@dataclass(frozen=True)
class V0Parts:
    """What a manager of this shape takes.

    With `one_slot_a_call`, `append_slot` makes room for one token; without, for all new ones.
    """

    new_sequence: Callable[[int, list[int]], Any]
    new_group: Callable[[Sequence[Any]], Any]
    append_token: Callable[[Any, int], None]
    waiting: Any
    running: Any
    swapped: Any
    finished: Any
    one_slot_a_call: bool


def v0_parts(manager_class: type, block_size: int) -> V0Parts:
    """The parts of one manager class, for blocks of `block_size` tokens."""
    classes = _classes_of(manager_class)
    status = classes.SequenceStatus
    finished = getattr(status, "FINISHED", None) or getattr(status, "FINISHED_STOPPED", None)
    is_published = "prompt" in inspect.signature(classes.Sequence).parameters

    def new_sequence(seq_id: int, tokens: list[int]) -> Any:
        if is_published:
            return classes.Sequence(seq_id, "", tokens, block_size)
        return classes.Sequence(seq_id, tokens, block_size)

    def new_group(sequences: Sequence[Any]) -> Any:
        name = str(sequences[0].seq_id)
        if is_published:
            params = classes.SamplingParams(n=1, best_of=1)
            return classes.SequenceGroup(name, list(sequences), params, 0.0)
        return classes.SequenceGroup(name, sequences)

    def append_token(sequence: Any, token: int) -> None:
        if is_published:
            sequence.append_token_id(token, {token: 0.0})
        else:
            sequence.append_tokens([token])

    return V0Parts(
        new_sequence, new_group, append_token,
        status.WAITING, status.RUNNING, status.SWAPPED, finished, is_published,
    )  # fmt: skip


def _classes_of(manager_class: type) -> ModuleType:
    """The module that has the sequence classes of a manager."""
    for base in manager_class.__mro__:
        status = getattr(sys.modules.get(base.__module__), "SequenceStatus", None)
        if status is not None:
            return sys.modules[status.__module__]
    return sequence_group


class V0Allocator:
    """What a device's allocator lets be seen, by block number.

    Published ones have a stack `free_blocks`, whose last block is the next; ours answer
    `free_order` and `ref_count`. Built while every block is free. With `mirrored`, numbers are
    counted from the other end: the first block that is handed out is then 0.
    """

    def __init__(self, allocator: Any, num_blocks: int, *, mirrored: bool) -> None:
        self._allocator = allocator
        self._last = num_blocks - 1
        self._mirrored = mirrored
        stack = getattr(allocator, "free_blocks", None)
        self._blocks = {block.block_number: block for block in stack or ()}

    @property
    def is_seen(self) -> bool:
        """Whether counts and free blocks can be read."""
        return bool(self._blocks) or hasattr(self._allocator, "free_order")

    def shown(self, block_number: int) -> int:
        """Our number for one of the engine's, and the other way round."""
        return self._last - block_number if self._mirrored else block_number

    def free_order(self) -> list[int]:
        """The free blocks, the next one first."""
        if self._blocks:
            numbers = [block.block_number for block in reversed(self._allocator.free_blocks)]
        else:
            numbers = self._allocator.free_order()
        return [self.shown(number) for number in numbers]

    def ref_count(self, block_id: int) -> int:
        """How many references a block has."""
        number = self.shown(block_id)
        if self._blocks:
            count: int = self._blocks[number].ref_count
        else:
            count = self._allocator.ref_count(number)
        return count
