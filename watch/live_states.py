"""Which recurrent states stand in which blocks, as far as the watch is told, and who starts where.

`reference/state_starts.py` and `reference/recurrent_states.py` say what must hold; this says the
same with digests in place of prefixes, for what an engine tells of each row (`StateUse`). Beyond
the specification it knows blocks of which nothing is known, and follows consequences: a state that
was computed from wrong KV or from a wrong state.

Memory: an entry for each block that has held a state or, in a pool that holds states, KV.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from poolproof.contract.state_use import PARTS, StateCopy, StateUse
from poolproof.watch.digests import NEVER, OTHER, UNKNOWN
from poolproof.watch.findings import request_name

__all__ = ["ZERO", "HeldState", "LiveStates", "StateRow", "WrongState"]

ZERO = NEVER
"""The state of the empty prefix, and what stands in memory that nobody has written."""
_ANYWHERE = -1
"""How far behind the first state that one stands of which nothing is known: it may be any."""
_KV = "KV"
"""Stands for a part in blocks that hold KV, whose end is its cache group."""


class HeldState(NamedTuple):
    """A state in a block: of which prefix, of how many tokens, and who left it when.

    `taint` is the finding that it was computed from.
    """

    digest: int
    end: int = 0
    writer: int = 0
    step: int = 0
    taint: int = 0


_UNKNOWN = {(part, _ANYWHERE): HeldState(UNKNOWN) for part in PARTS}
_ZERO_STATE = HeldState(ZERO)
Held = dict[tuple[str, int], HeldState]


@dataclass(slots=True)
class StateRow:
    """What a step does with the states of one request, and which prefixes it is about.

    `chain` has the digests of the request's prefixes, `first` is where the step begins. Where it is
    not read nobody is accused. Of the blocks in `unknown` nothing is known after the step.
    """

    request: Any
    chain: Sequence[int]
    first: int
    uses: Sequence[StateUse]
    unknown: Iterable[int] = ()
    is_read: bool = True


class WrongState(NamedTuple):
    """A row that starts from a state that is not its own prefix's.

    `block` is where that state was found before it was copied, None for zero. `held` is None where
    nobody has left anything there that still counts. `is_own`: the prefix is right, and the state
    was computed from wrong data. `races`: the writer leaves it in this very step.
    """

    row: StateRow
    group: int
    part: str
    block: int | None
    held: HeldState | None
    wanted: int
    is_own: bool = False
    races: bool = False

    def words(self, reader: str) -> str:
        """The finding in words."""
        where = f"request {reader} starts at position {self.row.first} (group {self.group}"
        if self.block is not None:
            where += f", block {self.block}"
        where += f", {self.part})" if self.part else ")"
        held, end = self.held, "; it is not that of its own prefix"
        if held is None:
            return f"{where} from what nobody has left there{end}"
        if held.digest == ZERO:
            return f"{where} from zero{end}"
        writer = request_name(held.writer)
        if held.digest == OTHER:
            return (
                f"{where} from what request {writer} wrote in group {held.end} in step "
                f"{held.step}{end}"
            )
        left = (
            f"{where} from the state after {held.end} tokens that request {writer} left in step "
            f"{held.step}"
        )
        if self.races:
            return f"{left}, and that is written over in the same step{end}"
        if self.is_own:
            return f"{left}: that of its own prefix, from wrong KV (finding {held.taint})"
        return left + end


class LiveStates:
    """The states in the blocks of a pool. `masks` tells the contents of cache groups apart.

    Where `is_running`, what stands in memory at first is unknown. `fresh` are the blocks in which
    states have come to stand since somebody has emptied it.
    """

    def __init__(self, masks: Mapping[int, int], *, is_running: bool = False) -> None:
        self._masks = masks
        self._held: dict[int, Held] = {}
        self._first = _UNKNOWN if is_running else None
        self._origin: dict[tuple[str, int], int] = {}
        self._written: dict[int, HeldState] = {}
        self.num_starts = self.num_unknown = 0
        self.fresh: set[int] = set()

    # What befalls blocks beside the rows of a step.

    def wrote(self, block: int, writer: int, group: int, step: int) -> None:
        """KV is written into a block in this step: no state is left in it once rows have begun."""
        self._written[block] = HeldState(OTHER, group, writer, step)

    def holds(self, block: int) -> bool:
        """Whether a state was left in a block, or something unknown, and no KV since."""
        held = self._held.get(block)
        return held is not None and (_KV, 0) not in held

    def forget(self, block: int) -> None:
        """Nothing is known of a block from now on."""
        self._held[block] = dict(_UNKNOWN)

    def zero(self, block: int) -> None:
        """All that stands in a block is zero."""
        self._held[block] = {(part, 0): _ZERO_STATE for part in PARTS}

    def copy_blocks(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Whole blocks are copied, all at once, as KV is."""
        read = [(into, self._held.get(source)) for source, into in pairs]
        for into, held in read:
            if held is None:
                self._held.pop(into, None)
            else:
                self._held[into] = dict(held)

    # A step, in the order of its parts.

    def begin(self, rows: Sequence[StateRow]) -> list[WrongState]:
        """Copies that come before, then every row starts; what is wrong with it."""
        self._origin.clear()
        for row in rows:
            for use in row.uses:
                for copy in use.before:
                    self._copy(copy, use.parts)
                    for part in use.parts:
                        source = self._origin.get((part, copy.source), copy.source)
                        self._origin[part, copy.into] = source
        found = []
        for row in rows:
            groups: set[int] = set()
            for use in row.uses if row.is_read else ():
                wrong = None if use.group in groups else self._wrong_start(row, use)
                if wrong is not None:
                    groups.add(use.group)
                    found.append(wrong)
        for block, kv in self._written.items():
            self._held[block] = {(_KV, 0): kv}
        self._written.clear()
        return found

    def leave(self, rows: Sequence[StateRow], step: int) -> list[WrongState]:
        """Every row leaves its states; who would start from one of them, as it is written."""
        by: dict[tuple[str, int], StateRow] = {}
        for row in rows:
            for block in row.unknown:
                self.forget(block)
            for use in row.uses:
                self._leave(row, use, step)
                by.update(
                    ((part, block), row) for _, (block, _) in use.leaves for part in use.parts
                )
        return self._races(rows, by)

    def _leave(self, row: StateRow, use: StateUse, step: int) -> None:
        mask = self._masks.get(use.group, 0)
        name, taint = row.request.name, row.request.taint
        for block in {block for _, (block, _) in use.leaves}:
            self._empty(block, use.parts)
        for end, (block, at) in use.leaves:
            held = HeldState(row.chain[end - 1] ^ mask, end, name, step, taint)
            self._held[block].update(((part, at), held) for part in use.parts)

    def finish(self, rows: Sequence[StateRow]) -> None:
        """Copies that come after."""
        for row in rows:
            for use in row.uses:
                for copy in use.after:
                    self._copy(copy, use.parts)

    # One block, one row.

    def _empty(self, block: int, parts: Iterable[str]) -> None:
        """A block loses these parts, and KV."""
        held = self._held.get(block)
        if held is None or (_KV, 0) in held:
            self.fresh.add(block)
        gone = {_KV, *parts}
        self._held[block] = {k: one for k, one in (held or {}).items() if k[0] not in gone}

    def _copy(self, copy: StateCopy, parts: Iterable[str]) -> None:
        for part in parts:
            source = self._block(copy.source)
            if source is None:
                states: Held = {(part, 0): _ZERO_STATE}
            elif (part, _ANYWHERE) in source:
                states = {(part, _ANYWHERE): source[part, _ANYWHERE]}
            else:
                states = {
                    (part, at - copy.skip): held
                    for (of, at), held in source.items()
                    if of == part and at >= copy.skip
                }
                if (_KV, 0) in source:
                    states[part, 0] = source[_KV, 0]
            self._empty(copy.into, [part])
            self._held[copy.into].update(states)

    def _block(self, block: int) -> Held | None:
        return self._held.get(block, self._first)

    def _found(self, place: tuple[int, int], part: str) -> HeldState | None:
        """The state at a place, or the KV there; None where nobody has left any."""
        held = self._block(place[0])
        if held is None:
            return _ZERO_STATE
        for key in ((part, _ANYWHERE), (_KV, 0), (part, place[1])):
            if key in held:
                return held[key]
        return None

    def _wanted(self, row: StateRow, use: StateUse) -> int:
        if not row.first:
            return ZERO
        return row.chain[row.first - 1] ^ self._masks.get(use.group, 0)

    def _wrong_start(self, row: StateRow, use: StateUse) -> WrongState | None:
        wanted = self._wanted(row, use)
        self.num_starts += 1
        for part in use.parts:
            held = _ZERO_STATE if use.starts is None else self._found(use.starts, part)
            if held is not None and held.digest == UNKNOWN:
                self.num_unknown += 1
                return None
            if held is None or held.digest != wanted:
                return self._wrong(row, use, part, held)
            if held.taint and not row.request.taint:
                return self._wrong(row, use, part, held, is_own=True)
        return None

    def _races(
        self, rows: Sequence[StateRow], by: Mapping[tuple[str, int], StateRow]
    ) -> list[WrongState]:
        """Who starts from a block that somebody else has left another state in."""
        found = []
        for row in rows:
            for use in row.uses if row.is_read else ():
                if use.starts is None:
                    continue
                wanted = self._wanted(row, use)
                for part in use.parts:
                    other = by.get((part, use.starts[0]), row)
                    if other is row:
                        continue
                    held = self._found(use.starts, part)
                    if held is not None and held.digest not in (wanted, UNKNOWN):
                        found.append(self._wrong(row, use, part, held, races=True))
                        break
        return found

    def _wrong(
        self,
        row: StateRow,
        use: StateUse,
        part: str,
        held: HeldState | None,
        *,
        is_own: bool = False,
        races: bool = False,
    ) -> WrongState:
        block = None if use.starts is None else use.starts[0]
        return WrongState(
            row,
            use.group,
            "" if use.parts == PARTS else part,
            None if block is None else self._origin.get((part, block), block),
            held,
            self._wanted(row, use),
            is_own,
            races,
        )
