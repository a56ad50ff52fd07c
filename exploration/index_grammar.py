"""Every command that is worth trying next on an index: the grammar of exhaustive search.

Blocks that no command has named yet are alike, so that the first of them stands for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from poolproof.contract.commands import Command
from poolproof.contract.index_commands import Clear, Contains, Get, IndexKey, Insert, Pop
from poolproof.exploration.recorded_session import RecordedIndex

__all__ = ["IndexGrammar"]


class IndexGrammar:
    """The commands to try in a state, over the given keys."""

    def __init__(self, keys: Sequence[IndexKey]) -> None:
        self.keys = keys

    def commands(self, session: RecordedIndex) -> Iterator[Command]:
        """All commands that are legal in the session's state, in a fixed order."""
        return filter(session.is_defined, self._candidates(session))

    def _candidates(self, session: RecordedIndex) -> Iterator[Command]:
        named = session.named_blocks
        new = [block for block in range(session.num_blocks) if block not in named][:1]
        blocks = [*sorted(named), *new]
        for key in self.keys:
            yield from (Insert(key, block) for block in blocks)
            yield from (Pop(key, block) for block in blocks)
            yield Get(key)
            yield from (Contains(key, block) for block in blocks)
        yield Clear()
