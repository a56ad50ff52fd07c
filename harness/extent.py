"""How far runs went: the smallest and largest of each size that they really had.

A certificate derives from this what it does not cover. Nothing in here is planned or promised: it
is counted from the commands that were applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from poolproof.contract.commands import Allocate, Cache, Command, PopLeftN
from poolproof.contract.manager_commands import Admit, AppendTokens, Draft, Load
from poolproof.contract.trace import Trace

__all__ = ["Extent"]


class Extent:
    """The smallest and largest value of each dimension, such as "blocks" or "list".

    >>> tried = Extent({"blocks": (2, 12)})
    >>> tried.note("blocks", 4096)
    >>> dict(tried)
    {'blocks': (2, 4096)}
    """

    def __init__(self, ranges: Mapping[str, tuple[int, int]] | None = None) -> None:
        self._ranges = dict(ranges or {})

    def __iter__(self) -> Iterator[tuple[str, tuple[int, int]]]:
        return iter(self._ranges.items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Extent) and self._ranges == other._ranges

    __hash__ = None  # type: ignore[assignment]  # it grows

    def __repr__(self) -> str:
        return f"Extent({self._ranges})"

    def get(self, dimension: str) -> tuple[int, int] | None:
        """The smallest and the largest value, or None where the dimension was never met."""
        return self._ranges.get(dimension)

    def note(self, dimension: str, *values: int) -> None:
        """These values occurred."""
        if values:
            low, high = self._ranges.get(dimension, (values[0], values[0]))
            self._ranges[dimension] = min(low, *values), max(high, *values)

    def take_in(self, other: Iterable[tuple[str, tuple[int, int]]]) -> None:
        """What another extent reached is reached."""
        for dimension, (low, high) in other:
            self.note(dimension, low, high)

    @classmethod
    def of_run(cls, setup: Trace, commands: Iterable[Command]) -> Extent:
        """How far a run of queue or pool commands went, its references aside.

        Those depend on the state, and are noted by the session.
        """
        extent = cls({"blocks": (setup.num_blocks, setup.num_blocks)})
        lists = counts = 0
        hashes: set[object] = set()
        number = 0
        for command in commands:
            number += 1
            if isinstance(command, Allocate | PopLeftN):
                counts = max(counts, command.count)
                continue
            ids = getattr(command, "block_ids", None)
            if ids is not None and len(ids) > lists:
                lists = len(ids)
            if isinstance(command, Cache):
                hashes.update(command.hashes)
        extent.note("commands in a run", number)
        extent.note("blocks in one allocation", counts)
        extent.note("entries in one list", lists)
        if setup.level == "pool":
            extent.note("hashes", len(hashes))
            extent.note("bytes of a hash", *(len(key) for key in hashes if isinstance(key, bytes)))
        extent.note("commands between readings of events", setup.options.get("events_every", 1))
        return extent

    @classmethod
    def of_manager_run(cls, setup: Trace, commands: Iterable[Command]) -> Extent:
        """How far a run of manager commands went, its sequences and references aside."""
        extent = cls({"blocks": (setup.num_blocks, setup.num_blocks)})
        number = 0
        for command in commands:
            number += 1
            if isinstance(command, Admit | Load):
                tokens = command.chain.tokens
                extent.note("tokens in a prompt", len(tokens))
            elif isinstance(command, AppendTokens | Draft):
                tokens = command.tokens
            else:
                continue
            extent.note("token id", min(tokens), max(tokens))
        extent.note("commands in a run", number)
        return extent
