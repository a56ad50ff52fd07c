"""Judges from which recurrent states the rows of a step start, and carries out what they leave.

The rules are those of `recurrent_states.py`. In a step all copies that come before are performed,
request after request; then every row starts, all at once; then every row leaves its states; then
the copies that come after are performed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from poolproof.contract.prefix_words import Prefix
from poolproof.contract.state_use import PARTS, Place, StateUse
from poolproof.contract.step_record import ComputedTokens
from poolproof.reference.content_names import Content, ContentNames
from poolproof.reference.recurrent_states import ZERO, StateMemory
from poolproof.reference.shadow_memory import Writer

__all__ = ["RowStates", "StateStarts", "WrongStart"]


@dataclass(frozen=True, slots=True)
class WrongStart:
    """A row starts from a state that is not its own prefix's.

    `place` is where it starts, None for zero; `part` names the part of the state, "" if the row
    treats all alike. `wanted` is None for zero, `found` None for what no prefix has, such as
    nothing; `is_zero` says that zero was found. `writer` and `written_in` are whose state it was.
    `races`: what is wrong is that the writer leaves it in this very step.
    """

    step: int
    reader: str
    group: int
    part: str
    position: int
    place: Place | None
    wanted: Prefix | None
    found: Prefix | None
    is_zero: bool
    writer: str | None
    written_in: int | None
    races: bool = False

    @property
    def block(self) -> int | None:
        """The block that it starts from, if it starts from any."""
        return None if self.place is None else self.place[0]

    def sentence(self) -> str:
        """The finding in words."""
        where = f"step {self.step}: request {self.reader} starts at position {self.position}"
        if self.place is None:
            return f"{where} (group {self.group}) from zero; wanted {self._wanted()}"
        block, at = self.place
        named = f"block {block}" + (f", {at} tokens in" if at else "")
        named = f"(group {self.group}, {named}{', ' * bool(self.part)}{self.part})"
        if self.races:
            return (
                f"{where} {named} from a state that request {self.writer} writes over in the same "
                f"step; wanted {self._wanted()}"
            )
        if self.is_zero:
            return f"{where} {named} from zero; wanted {self._wanted()}"
        if self.writer is None or self.found is None:
            return f"{where} {named} from what nobody has left there; wanted {self._wanted()}"
        whose = (
            f"from a state that request {self.writer} left"
            if self.found.group == self.group
            else f"from what request {self.writer} wrote in group {self.found.group}"
        )
        difference = "" if self.wanted is None else self.wanted.difference_from(self.found)
        return (
            f"{where} {named} {whose} in step {self.written_in}; wanted {self._wanted()}, found "
            f"that of <{self.found.words()}>" + (f": {difference}" if difference else "")
        )

    def _wanted(self) -> str:
        if self.wanted is None:
            return "zero, the state of the empty prefix"
        return f"that of <{self.wanted.words()}>"


@dataclass(frozen=True, slots=True)
class RowStates:
    """A row of a step: what it computes, and the names of its prefixes by group."""

    part: ComputedTokens
    contents: Sequence[Sequence[Content]]
    writer: Writer


class StateStarts:
    """Carries out the uses of states of one step after the other, over `memory`."""

    def __init__(self, memory: StateMemory, names: ContentNames, writers: Sequence[str]) -> None:
        self._memory = memory
        self._names = names
        self._writers = writers

    def begin(self, rows: Sequence[RowStates]) -> list[WrongStart]:
        """Copies that come before, then every row starts; what is wrong with it."""
        for row in rows:
            for use in row.part.states:
                for copy in use.before:
                    self._memory.copy(copy, use.parts)
        return self._judged(rows)

    def leave(self, rows: Sequence[RowStates]) -> list[WrongStart]:
        """Every row leaves its states; who would start from one of them, as it is written."""
        written: dict[tuple[str, int], Writer] = {}
        for row in rows:
            for use in row.part.states:
                self._leave(row, use, written)
        return self._races(rows, written)

    def finish(self, rows: Sequence[RowStates]) -> None:
        """Copies that come after."""
        for row in rows:
            for use in row.part.states:
                for copy in use.after:
                    self._memory.copy(copy, use.parts)

    def _judged(self, rows: Sequence[RowStates]) -> list[WrongStart]:
        found = []
        for row in rows:
            groups: set[int] = set()
            for use in row.part.states if row.part.is_read else ():
                wrong = self._wrong_start(row, use)
                if wrong is not None and use.group not in groups:
                    groups.add(use.group)
                    found.append(wrong)
        return found

    def _wrong_start(self, row: RowStates, use: StateUse) -> WrongStart | None:
        wanted = self._wanted(row, use)
        for part in use.parts:
            held, writer = (
                (ZERO, None) if use.starts is None else self._memory.found(use.starts, part)
            )
            if held != wanted:
                return self._wrong(row, use, part, (held, writer))
        return None

    @staticmethod
    def _wanted(row: RowStates, use: StateUse) -> Content:
        first = row.part.first
        return row.contents[use.group][first - 1] if first else ZERO

    def _leave(self, row: RowStates, use: StateUse, written: dict[tuple[str, int], Writer]) -> None:
        contents = row.contents[use.group]
        by_block: dict[int, dict[int, Content]] = {}
        for end, (block, at) in use.leaves:
            by_block.setdefault(block, {})[at] = contents[end - 1]
        for block, states in by_block.items():
            for part in use.parts:
                self._memory.leave(block, part, states, row.writer)
                written[part, block] = row.writer

    def _races(
        self, rows: Sequence[RowStates], written: dict[tuple[str, int], Writer]
    ) -> list[WrongStart]:
        """Who starts from a block that somebody else has left another state in."""
        found = []
        for row in rows:
            for use in row.part.states if row.part.is_read else ():
                if use.starts is None:
                    continue
                for part in use.parts:
                    by = written.get((part, use.starts[0]), row.writer)
                    held, _ = self._memory.found(use.starts, part)
                    if by != row.writer and held != self._wanted(row, use):
                        found.append(self._wrong(row, use, part, (held, by), races=True))
                        break
        return found

    def _wrong(
        self,
        row: RowStates,
        use: StateUse,
        part: str,
        held: tuple[Content | None, Writer | None],
        *,
        races: bool = False,
    ) -> WrongStart:
        wanted = self._wanted(row, use)
        found, writer = held
        prefix = self._names.prefix
        return WrongStart(
            step=row.writer.command_number,
            reader=row.part.request_id,
            group=use.group,
            part="" if use.parts == PARTS else part,
            position=row.part.first,
            place=use.starts,
            wanted=None if wanted == ZERO else prefix(wanted),
            found=None if found is None or found == ZERO else prefix(found),
            is_zero=found == ZERO,
            writer=None if writer is None else self._writers[writer.seq_id],
            written_in=None if writer is None else writer.command_number,
            races=races,
        )
