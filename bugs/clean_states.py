"""Correct relatives of our engine that keep recurrent states in other ways.

Each is right, and no less so than the engine itself: `engine_state_oddities.py` has them, and
`engine_state_bugs.py` changes them. The rules are those of `reference/recurrent_states.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from poolproof.bugs.clean_engine import EarlyKeysEngine
from poolproof.impl.engine import Engine, EngineStep, LiveRequest, StepPart
from poolproof.impl.kv_cache_group import RecurrentState
from poolproof.impl.kv_cache_manager import KVCacheBlocks
from poolproof.impl.running_states import RunningStates, StateGroup

__all__ = [
    "AlignedRow",
    "AlignedStates",
    "AlignedStatesEngine",
    "EarlyStateKeysEngine",
    "RecomputingEngine",
    "SeparateLoadsEngine",
    "ShorterHitsEngine",
    "ZeroedSlabs",
    "ZeroedSlabsEngine",
]


@dataclass(slots=True)
class AlignedStates(RunningStates):
    """States in columns of the table, as vLLM's workers have them in its cache mode "align".

    A step writes into the block of its last position, its column: the temporal states behind drafts
    in the columns that follow, the window of all of them in the one block, which has room for it.
    What it starts from is copied there before, if the column is another one. After it the state at
    the end of a block that was passed by drafts is copied into the block of that end. Of each
    group, `columns` has the last column, -1 for none, and `accepted` which state in it counts.
    """

    columns: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)

    @classmethod
    def after_hit(
        cls, num_cached: int, tables: Sequence[Sequence[int]], groups: Sequence[StateGroup]
    ) -> AlignedStates:
        del tables
        columns = [num_cached // group.block_size - 1 for group in groups]
        return cls(num_cached, [], columns, [1] * len(groups))

    def step(
        self,
        count: int,
        num_drafts: int,
        num_accepted: int,
        tables: Sequence[Sequence[int]],
        groups: Sequence[StateGroup],
        *,
        every_block: bool,
    ) -> list[dict[str, Any]]:
        uses = []
        for number, group in enumerate(groups):
            row = AlignedRow(
                tables[group.index],
                group.block_size,
                self.num_computed,
                self.num_computed + count,
                num_drafts,
                num_accepted,
            )
            before = self._moved(number, row)
            temporal, window = self._started(number, row)
            left = self._left(row, every_block=every_block)
            after = self._finished(number, row)
            uses += [
                {
                    "group": group.index,
                    "part": part,
                    "starts": starts,
                    "leaves": [(end, place) for end, place in left[part].items()],
                    "before": before[part],
                    "after": after[part],
                }
                for part, starts in (("temporal", temporal), ("window", window))
            ]
        known = self.num_computed + count - num_drafts
        self.num_computed = known + num_accepted - 1 if num_accepted else known + num_drafts
        return uses

    def _moved(self, number: int, row: AlignedRow) -> dict[str, list[list[int]]]:
        """What the step starts from comes into its column."""
        before, table = self.columns[number], row.table
        skipped = self.accepted[number] - 1
        self.columns[number] = row.column
        if before in {-1, row.column}:
            return {"temporal": [], "window": []}
        self.accepted[number] = 1
        return {
            "temporal": [[table[before + skipped], table[row.column]]],
            "window": [[table[before], table[row.column], skipped]],
        }

    def _started(self, number: int, row: AlignedRow) -> tuple[Any, Any]:
        """Where the two parts of the state start."""
        if not row.first:
            return None, None
        skipped = self.accepted[number] - 1
        return row.table[row.column + skipped], [row.table[row.column], skipped]

    def _left(self, row: AlignedRow, *, every_block: bool) -> dict[str, dict[int, Any]]:
        """What the step leaves, by how many tokens the state has."""
        table, size = row.table, row.size
        temporal, window = dict[int, Any](), dict[int, Any]()
        if every_block:
            for end in range(row.first + size - row.first % size, row.known, size):
                temporal[end] = window[end] = table[end // size - 1]
        for ahead, end in enumerate(range(row.known, row.end + 1)):
            temporal[end] = table[row.column + ahead]
            window[end] = [table[row.column], ahead]
        return {"temporal": temporal, "window": window}

    def _finished(self, number: int, row: AlignedRow) -> dict[str, list[list[int]]]:
        """The state at the end of a block that was reached comes into the block of that end."""
        copies: dict[str, list[list[int]]] = {"temporal": [], "window": []}
        self.accepted[number] = max(1, row.num_accepted)
        aligned = (row.known + row.num_accepted - 1) // row.size * row.size
        if not row.num_accepted or aligned < row.known:
            return copies
        skipped, into = aligned - row.known, aligned // row.size - 1
        if into == row.column:
            self.accepted[number] = 1
        if into != row.column or skipped:
            table = row.table
            copies["temporal"] = [[table[row.column + skipped], table[into]]]
            copies["window"] = [[table[row.column], table[into], skipped]]
        return copies


@dataclass(frozen=True, slots=True)
class AlignedRow:
    """Positions `first` to `end` - 1 of a request, the last `num_drafts` drafts, in one group."""

    table: Sequence[int]
    size: int
    first: int
    end: int
    num_drafts: int
    num_accepted: int

    @property
    def known(self) -> int:
        """Up to where no position is a draft."""
        return self.end - self.num_drafts

    @property
    def column(self) -> int:
        """The entry of the last position."""
        return (self.end - 1) // self.size


class AlignedStatesEngine(Engine):
    """Our engine with states in columns of the table."""

    running_states_class = AlignedStates


@dataclass(slots=True)
class ZeroedSlabs(RunningStates):
    """A request starts from the block that it writes, position 0 included, which is zero then."""

    def step(
        self,
        count: int,
        num_drafts: int,
        num_accepted: int,
        tables: Sequence[Sequence[int]],
        groups: Sequence[StateGroup],
        *,
        every_block: bool,
    ) -> list[dict[str, Any]]:
        is_first = not self.num_computed
        uses = super(ZeroedSlabs, self).step(
            count, num_drafts, num_accepted, tables, groups, every_block=every_block
        )
        for use in uses if is_first else ():
            use["starts"] = use["leaves"][0][1]
        return uses


class ZeroedSlabsEngine(Engine):
    """The blocks of states of who comes in, or back, are zeroed in its first step."""

    running_states_class = ZeroedSlabs

    def plan(self) -> dict[str, Any]:
        plan = super().plan()
        begun = [part for part in plan["compute"] if not part["first"]]
        return {**plan, "zeroes": [block for part in begun for block in self._slabs(part)]}

    def _slabs(self, part: Mapping[str, Any]) -> list[int]:
        return [b for group in self._state_groups for b in part["blocks"][group.index] if b]


@dataclass(frozen=True, kw_only=True)
class _KeepsLastBoundary(RecurrentState):
    """The state at the end of the last whole block stays, whatever has been computed since."""

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        assert self.block_size is not None
        return max(0, num_computed_tokens - num_computed_tokens % self.block_size - 1)


class RecomputingEngine(Engine):
    """States stand by the table, and where a draft was refused they are computed again.

    What a step leaves is behind all of its drafts. So the request goes back to the end of the last
    block of states that is whole.
    """

    def __init__(self, num_blocks: int, block_size: int, **arguments: Any) -> None:
        groups = [
            _KeepsLastBoundary(block_size=group.block_size or block_size)
            if isinstance(group, RecurrentState)
            else group
            for group in arguments["groups"]
        ]
        super().__init__(num_blocks, block_size, **{**arguments, "groups": groups})

    def _require_places(self, *, is_told: bool) -> None:
        assert not is_told, "states stand by the table"

    def _settle(self, part: StepPart, sampled: list[int]) -> None:
        super()._settle(part, sampled)
        if part.samples and len(sampled) <= part.num_drafts:
            self._go_back(part.request)

    def _go_back(self, request: LiveRequest) -> None:
        size = max(group.block_size for group in self._state_groups)
        request.num_computed_tokens -= request.num_computed_tokens % size


class ShorterHitsEngine(Engine):
    """The last block of a hit is computed again; the state is looked for at the shorter length."""

    def _admit(self, step: EngineStep, request: LiveRequest) -> bool:
        found, size = self.manager.get_computed_blocks, self._hasher.block_size

        def shorter(asked: Any) -> tuple[KVCacheBlocks, int]:
            num_tokens = max(0, asked.num_tokens - size)
            hashes = asked.block_hashes[: num_tokens // size]
            return found(
                SimpleNamespace(
                    request_id=asked.request_id, num_tokens=num_tokens, block_hashes=hashes
                )
            )

        self.manager.get_computed_blocks = shorter  # type: ignore[method-assign,assignment]  # for one call
        try:
            return super()._admit(step, request)
        finally:
            del self.manager.get_computed_blocks  # the class has it


class EarlyStateKeysEngine(EarlyKeysEngine):
    """Keys are published when a step is planned; states are found from the next one on."""

    def plan(self) -> dict[str, Any]:
        self.manager.new_step_starts()
        return super().plan()


class SeparateLoadsEngine(Engine):
    """What was kept on the host of attention and of states comes with a transfer for each.

    A request goes on once all of them have ended, and only if all of them have come.
    """

    def __init__(self, num_blocks: int, block_size: int, **arguments: Any) -> None:
        super().__init__(num_blocks, block_size, **arguments)
        self._missing: dict[int, list[bool]] = {}

    def _bring(self, request: LiveRequest, entries: Sequence[tuple[int, int]], after: int) -> None:
        self._missing[request.number] = []
        states = {group.index for group in self._state_groups}
        for is_state in (False, True):
            mine = [entry for entry in entries if (entry[0] in states) == is_state]
            super()._bring(request, mine, after)

    def _loaded(self, request: LiveRequest, is_done: bool) -> None:
        ended = self._missing[request.number]
        ended.append(is_done)
        if request not in self._loading.values():
            del self._missing[request.number]
            super()._loaded(request, self._has_come(ended))

    def _has_come(self, ended: list[bool]) -> bool:
        """Whether all is there, given how the transfers have ended."""
        return all(ended)
