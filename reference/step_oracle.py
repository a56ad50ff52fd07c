"""Watches an engine from outside: shadow KV memory that is fed by plain step records.

In a step the copies and loads come first, then all writes land, then every request reads what
attention needs for the positions computed now, through the table that the worker has; stores come
last. Each reader of a slot must find the KV of exactly its own prefix there; and no request may
overwrite in a step what another one writes there in the same step. The oracle does not judge hits,
capacity or order, and needs no cooperation from the engine's memory: tables, counts and tokens are
enough.

In groups of recurrent states every row must start from the state of exactly its own prefix
(`recurrent_states.py`). Which state a block holds is decided by workers, so a record says what each
row starts from and leaves. Rings over a window are not watched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from poolproof.contract.manager_profile import KINDS, CacheGroup
from poolproof.contract.outside import shown
from poolproof.contract.prefix_words import Prefix
from poolproof.contract.step_record import ComputedTokens, StepRecord
from poolproof.reference.content_names import Content, ContentNames
from poolproof.reference.recurrent_states import HeldStates, StateMemory
from poolproof.reference.shadow_memory import Held, Misread, ShadowMemory, Writer
from poolproof.reference.state_starts import RowStates, StateStarts, WrongStart

__all__ = ["Finding", "OracleCounts", "StepOracle", "WrongRead"]


@dataclass(frozen=True, slots=True)
class WrongRead:
    """A request read KV that is not its own prefix's: what it wanted, what it found, and whose.

    `wanted` and `found` are prefixes; `found`, `writer` and `written_in` are None where nobody has
    written. Positions, blocks and slots count from 0.
    """

    step: int
    reader: str
    group: int
    position: int
    block: int
    slot: int
    wanted: Prefix
    found: Prefix | None
    writer: str | None
    written_in: int | None

    def sentence(self) -> str:
        """The finding in words."""
        where = (
            f"step {self.step}: request {self.reader} reads at position {self.position} (group "
            f"{self.group}, block {self.block}, slot {self.slot})"
        )
        wanted = self.wanted.words()
        if self.writer is None or self.found is None:
            return f"{where} KV that nobody has computed; wanted that of <{wanted}>"
        difference = self.wanted.difference_from(self.found)
        return (
            f"{where} KV that was computed for request {self.writer} in step {self.written_in}; "
            f"wanted that of <{wanted}>, found that of <{self.found.words()}>"
            + (f": {difference}" if difference else "")
        )


Finding = WrongRead | WrongStart
"""What is wrong with a step: `sentence()` has it in words."""


@dataclass(slots=True)
class OracleCounts:
    """What the oracle has seen; `hits` are tokens taken as they stood at an admission."""

    steps: int = 0
    computed_tokens: int = 0
    admissions: int = 0
    resumes: int = 0
    admissions_with_hits: int = 0
    same_step_hits: int = 0


@dataclass(slots=True)
class _Request:
    """A request as the workers know it."""

    tables: list[list[int]]
    contents: list[list[Content]]


class StepOracle:
    """Shadow memory of `num_blocks` blocks for cache groups that have `block_sizes` tokens each.

    `names` may be shared by several oracles whose memories are to be compared. Raises ValueError
    for kinds of groups that are not watched.
    """

    def __init__(
        self,
        num_blocks: int,
        groups: Sequence[CacheGroup],
        block_sizes: Sequence[int],
        names: ContentNames | None = None,
    ) -> None:
        for group in groups:
            if group.kind not in KINDS:
                raise ValueError(f"groups of kind {group.kind!r} are not watched")
        self.counts = OracleCounts()
        numbered = list(zip(range(len(groups)), groups, block_sizes, strict=True))
        self._groups = [one for one in numbered if not one[1].is_state]
        self._state_groups = {number for number, kind, _ in numbered if kind.is_state}
        self._all_groups = range(len(numbered))
        self._memory = ShadowMemory(num_blocks, max(block_sizes))
        self._places: dict[int, tuple[Held, HeldStates]] = {}
        self._names = ContentNames() if names is None else names
        self._requests: dict[str, _Request] = {}
        self._numbers: dict[str, int] = {}
        self._writers: list[str] = []
        self._states = StateMemory(self._memory)
        self._starts = StateStarts(self._states, self._names, self._writers)
        self._told: set[tuple[str, int, Misread]] = set()

    def record(self, step: StepRecord) -> list[Finding]:
        """Follow one step; what was read wrongly in it, the first slot of each reader and group.

        What somebody goes on reading in later steps is not told again. Raises ValueError for a
        table that does not cover what is computed, and for a row that does not say what becomes of
        the states of a group.
        """
        self.counts.steps += 1
        for request_id in step.ended:
            self._requests.pop(request_id, None)
        for block in step.zeroes:
            self._states.zero(block)
        self._states.copy_blocks(step.copies)
        self._memory.copy(step.copies)
        self.load(step.loads)
        known = [(part, self._follow(part)) for part in step.computed]
        found: list[Finding] = []
        rows: list[RowStates] = []
        if self._state_groups:
            rows = [self._row(part, request, step.number) for part, request in known]
            found += self._starts.begin(rows)
        written_now: dict[int, int] = {}
        for part, request in known:
            self._write(part, request, step.number)
            for group, _, size in self._groups:
                entries = range(part.first // size, -(-(part.first + part.count) // size))
                for block in (request.tables[group][entry] for entry in entries):
                    written_now[block] = self._numbers[part.request_id]
        if self._state_groups:
            self._states.overwrite(written_now)
            found += self._starts.leave(rows)
        for part, request in known:
            if part.is_read:
                self._count(part, request, written_now)
                found += self._read(part, request, step.number)
        self._starts.finish(rows)
        self.store(step.stores)
        return found

    def _row(self, part: ComputedTokens, request: _Request, number: int) -> RowStates:
        lacking = self._state_groups.difference(use.group for use in part.states)
        if lacking:
            raise ValueError(
                f"request {part.request_id} says nothing of its states in group {min(lacking)}"
            )
        writer = Writer(self._numbers[part.request_id], number)
        return RowStates(part, request.contents, writer)

    def store(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Each place outside the device gets what its block holds now, given (block, place)."""
        for block, place in pairs:
            self._places[place] = self._memory.held(block), self._states.held(block)

    def load(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Each block gets what stands at its place, given (block, place); nothing, if unwritten."""
        for block, place in pairs:
            slots, states = self._places.get(place, (None, {}))
            self._memory.put(block, slots)
            self._states.put(block, states)

    def void(self) -> None:
        """Whatever was computed, here and elsewhere, counts as never written from now on."""
        self._memory.void()
        self._states.void()
        self._places.clear()

    def held(self, block: int) -> tuple[object, ...]:
        """What each slot of a block holds, None where nobody has written; then its states."""
        return (*self._memory.slots[block], *self._told_states(self._states.held(block)))

    def kept(self) -> dict[int, tuple[object, ...]]:
        """The same of each place outside the device that was stored to."""
        return {
            place: (*contents, *self._told_states(states))
            for place, ((contents, _), states) in self._places.items()
        }

    def _told_states(self, held: HeldStates) -> tuple[object, ...]:
        if not self._state_groups or held is None:
            return ()
        return tuple(
            (part, at, content)
            for part, states in sorted(held.items())
            for at, (content, _) in sorted(states.items())
        ) or ("no state",)

    def computed_of(self, request_id: str) -> tuple[tuple[Content, ...], ...]:
        """The prefixes of a request as its workers know them, by group; () if they know none."""
        request = self._requests.get(request_id)
        return () if request is None else tuple(map(tuple, request.contents))

    def _follow(self, part: ComputedTokens) -> _Request:
        """The table and the tokens of a request as they are told for this step."""
        request = self._requests.get(part.request_id)
        self._numbers.setdefault(part.request_id, len(self._writers))
        if self._numbers[part.request_id] == len(self._writers):
            self._writers.append(part.request_id)
        elif part.replaced:
            self.counts.resumes += 1
        if request is None or part.replaced:
            contents = [self._names.of_chain(part.chain, group) for group in self._all_groups]
            request = _Request([list(blocks) for blocks in part.blocks], contents)
            self._requests[part.request_id] = request
            self.counts.admissions += 1
            self.counts.admissions_with_hits += part.first > 0
            return request
        for table, blocks in zip(request.tables, part.blocks, strict=False):
            table.extend(blocks)
        self._extend(request, part)
        return request

    def _extend(self, request: _Request, part: ComputedTokens) -> None:
        """Further tokens; what came after `first` before (rejected drafts) is void."""
        chain = part.chain
        for group, contents in enumerate(request.contents):
            del contents[part.first :]
            parent = contents[-1] if contents else self._names.root(chain, group)
            tokens = chain.tokens[len(contents) :]
            contents.extend(self._names.extended(parent, chain, tokens, len(contents)))

    def _write(self, part: ComputedTokens, request: _Request, number: int) -> None:
        writer = Writer(self._numbers[part.request_id], number)
        self.counts.computed_tokens += part.count
        for group, kind, size in self._groups:
            self._require_blocks(part, group, kind, size, request.tables[group])
            contents = request.contents[group][part.first : part.first + part.count]
            self._memory.write(request.tables[group], size, part.first, contents, writer)

    def _require_blocks(
        self, part: ComputedTokens, group: int, kind: CacheGroup, size: int, table: list[int]
    ) -> None:
        """For all positions that are read, those computed now among them."""
        num_blocks = len(self._memory.slots)
        first, end = kind.first_read(part.first), part.first + part.count
        for entry in range(first // size, -(-end // size)):
            if entry >= len(table) or not 0 <= table[entry] < num_blocks:
                raise ValueError(
                    f"request {part.request_id} has no block in group {group} for position "
                    f"{max(first, entry * size)}: its table is {shown(table)} of {num_blocks} "
                    "blocks"
                )

    def _count(self, part: ComputedTokens, request: _Request, written_now: dict[int, int]) -> None:
        """A hit on what another request computes in this very step."""
        if not part.replaced:
            return
        mine = self._numbers[part.request_id]
        self.counts.same_step_hits += any(
            written_now.get(block, mine) != mine
            for group, _, size in self._groups
            for block in request.tables[group][: part.first // size]
        )

    def _read(self, part: ComputedTokens, request: _Request, number: int) -> list[WrongRead]:
        found = []
        for group, kind, size in self._groups:
            first, end = kind.first_read(part.first), part.first + part.count
            misread = self._memory.misread(
                request.tables[group], size, request.contents[group], first, end
            )
            if misread is not None and (part.request_id, group, misread) not in self._told:
                self._told.add((part.request_id, group, misread))
                found.append(self._wrong(part.request_id, group, misread, number))
        return found

    def _wrong(self, reader: str, group: int, misread: Misread, number: int) -> WrongRead:
        writer = misread.writer
        return WrongRead(
            step=number,
            reader=reader,
            group=group,
            position=misread.position,
            block=misread.block,
            slot=misread.slot,
            wanted=self._names.prefix(misread.wanted),
            found=None if misread.found is None else self._names.prefix(misread.found),
            writer=None if writer is None else self._writers[writer.seq_id],
            written_in=None if writer is None else writer.command_number,
        )
