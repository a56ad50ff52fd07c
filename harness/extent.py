"""How far runs went: the smallest and largest of each size that they really had.

A certificate derives from this what it does not cover. Nothing here is planned or promised: it is
counted from the commands that were applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from poolproof.contract.commands import (
    Allocate,
    Cache,
    CacheChain,
    CachePartial,
    Command,
    PopLeftN,
)
from poolproof.contract.engine_commands import Submit
from poolproof.contract.level import Level
from poolproof.contract.manager_commands import Admit, AppendTokens, Draft, Load
from poolproof.contract.trace import Trace

__all__ = ["Extent", "beyond_small"]


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
        """The smallest and the largest value, or None if the dimension never occurred."""
        return self._ranges.get(dimension)

    def note(self, dimension: str, *values: int) -> None:
        """Note that these values occurred."""
        if values:
            low, high = self._ranges.get(dimension, (values[0], values[0]))
            self._ranges[dimension] = min(low, *values), max(high, *values)

    def take_in(self, other: Iterable[tuple[str, tuple[int, int]]]) -> None:
        """Count as reached what another extent reached."""
        for dimension, (low, high) in other:
            self.note(dimension, low, high)

    @classmethod
    def of_run(cls, setup: Trace, commands: Iterable[Command]) -> Extent:
        """How far a run went, except for its references and sequences.

        Those depend on the state, and are noted by the session.
        """
        if setup.level.has_layouts:
            return cls._of_manager_run(setup, commands)
        extent = cls({"blocks": (setup.num_blocks, setup.num_blocks)})
        lists = counts = 0
        hashes: set[object] = set()
        number = 0
        for command in commands:
            number += 1
            if isinstance(command, Allocate | PopLeftN):
                # A request for more than there is gets nothing.
                counts = max(counts, min(command.count, setup.num_blocks))
                continue
            ids = getattr(command, "block_ids", None)
            if ids is not None and len(ids) > lists:
                lists = len(ids)
            if isinstance(command, Cache):
                hashes.update(command.hashes)
            elif isinstance(command, CacheChain | CachePartial):
                extent.note("tokens in a prompt", len(command.chain.tokens))
        extent.note("commands in a run", number)
        extent.note("blocks in one allocation", counts)
        extent.note("entries in one list", lists)
        if setup.level is Level.POOL:
            extent.note("hashes", len(hashes))
            extent.note("bytes of a hash", *(len(key) for key in hashes if isinstance(key, bytes)))
        extent.note("commands between readings of events", setup.options.get("events_every", 1))
        return extent

    @classmethod
    def _of_manager_run(cls, setup: Trace, commands: Iterable[Command]) -> Extent:
        extent = cls({"blocks": (setup.num_blocks, setup.num_blocks)})
        extent.note("tokens of a block", int(setup.options["block_size"]))
        number = 0
        lengths: set[int] = set()
        ids: set[int] = set()
        for command in commands:
            number += 1
            if isinstance(command, Admit | Load | Submit):
                tokens = command.chain.tokens
                lengths.add(len(tokens))
            elif isinstance(command, AppendTokens | Draft):
                tokens = command.tokens
            else:
                continue
            ids.update(tokens)
        extent.note("tokens in a prompt", *lengths)
        extent.note("token id", *ids)
        extent.note("commands in a run", number)
        return extent


_SMALL = {
    "blocks": 13,
    "commands in a run": 300,
    "blocks in one allocation": 14,
    "entries in one list": 13,
    "hashes": 6,
    "commands between readings of events": 1,
    "tokens of a block": 4,
    "tokens in a prompt": 64,
    "token id": 64,
}
"""How far the usual small runs go, about: a minimal trace beyond needs the size that it has."""


def beyond_small(extent: Extent) -> dict[str, int]:
    """The largest of each size that is beyond the usual small runs."""
    return {name: high for name, (_, high) in extent if high > _SMALL.get(name, high)}
