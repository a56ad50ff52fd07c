"""Calls of a manager by a caller that follows it: answers become plain values, or an error.

What is no answer at all (another type, a block that does not exist, an exception) is raised as
`AllocatorBrokeError`; whether an answer is right is not asked here.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.manager_target import MANAGER_METHODS, manager_capabilities_of
from poolproof.kernels.serving.engine import AllocatorBrokeError

__all__ = ["ManagerCalls", "Pairs"]

Pairs = list[tuple[int, int]]


class ManagerCalls:
    """A manager over `num_blocks` blocks; `commands` are those that it was given."""

    def __init__(self, manager: Any, num_blocks: int) -> None:
        self.manager = manager
        self.can = manager_capabilities_of(manager)
        self.commands: list[Command] = []
        self._num_blocks = num_blocks

    def call(self, command: Command, *arguments: Any, **named: Any) -> Any:
        self.commands.append(command)
        method = getattr(self.manager, MANAGER_METHODS[command.verb])
        return self.asked(method, str(command), *arguments, **named)

    def asked(self, method: Callable[..., Any], words: str, *arguments: Any, **named: Any) -> Any:
        try:
            return method(*arguments, **named)
        except Exception as error:
            raise AllocatorBrokeError(f"{words} raised {error!r}") from error

    def count(self, answer: Any, command: Command, most: int) -> int:
        try:
            cached = index(answer)
        except TypeError as error:
            raise AllocatorBrokeError(f"{command} answered {answer!r:.200}") from error
        if not 0 <= cached <= most:
            raise AllocatorBrokeError(f"{command} reports {cached} of {most} tokens as cached")
        return cached

    def blocks(self, answer: Any, words: str) -> list[int]:
        try:
            blocks = [index(block) for block in answer]
        except TypeError as error:
            raise AllocatorBrokeError(f"{words} answered {answer!r:.200}") from error
        if any(not 0 <= block < self._num_blocks for block in blocks):
            raise AllocatorBrokeError(f"{words} names no blocks: {blocks}")
        return blocks

    def pairs(
        self, answer: Any, command: Command, sources: int | None = None, into: int | None = None
    ) -> Pairs:
        """The copies that an answer orders; sources and destinations below these numbers."""
        most = self._num_blocks
        try:
            pairs = [(index(source), index(destination)) for source, destination in answer or ()]
        except (TypeError, ValueError) as error:
            raise AllocatorBrokeError(f"{command} answered {answer!r:.200}") from error
        limits = (most if sources is None else sources, most if into is None else into)
        for pair in pairs:
            if any(not 0 <= block < limit for block, limit in zip(pair, limits, strict=True)):
                raise AllocatorBrokeError(f"{command} orders the copies {pairs}")
        return pairs
