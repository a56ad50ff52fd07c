"""Every command that is worth trying next on a free queue: the grammar of exhaustive search.

Blocks outside the queue with the same history are tried once; the order of commands is fixed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from poolproof.contract.commands import (
    Append,
    AppendN,
    Command,
    PopLeft,
    PopLeftN,
    PrependN,
    Remove,
)
from poolproof.exploration.recorded_session import RecordedQueue

__all__ = ["QueueGrammar"]


class QueueGrammar:
    """The commands to try in a state, for given bounds on counts and lists."""

    def __init__(self, *, max_count: int, max_list: int) -> None:
        self.max_count = max_count
        self.max_list = max_list

    def commands(self, session: RecordedQueue) -> Iterator[Command]:
        """All commands that are legal in the session's state, in a fixed order."""
        return filter(session.is_defined, self._candidates(session))

    def _candidates(self, session: RecordedQueue) -> Iterator[Command]:
        order = session.reference.order
        yield PopLeft()
        yield from map(PopLeftN, range(self.max_count + 1))
        yield from map(Remove, order)
        lists = list(self._lists_outside(session))
        yield from (Append(*ids) for ids in lists if len(ids) == 1)
        yield from map(AppendN, lists)
        yield from map(PrependN, lists)

    def _lists_outside(self, session: RecordedQueue) -> Iterator[tuple[int, ...]]:
        history, order = session.history, session.reference.order
        outside = [block for block in history if block not in order]
        for length in range(self.max_list + 1):
            seen = set()
            for ids in permutations(outside, length):
                shape = tuple(history[block] for block in ids)
                if shape not in seen:
                    seen.add(shape)
                    yield ids
