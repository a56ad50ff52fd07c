"""The fast oracle of the watch: shadow memory that looks only at what a step touches.

It says what `reference/step_oracle.py` says, which is its specification, without reading every
table in every step. For each slot it keeps a digest of the prefix whose KV is there, the request
that wrote it and the step. What a request reads is compared once, when a block enters its table;
after that its contents can only change by a write, a copy or a load, and each of those notes the
block for whoever else holds it. A noted entry is compared in the next step that computes its
holder, so a finding is always a read that took place.

Beyond the specification it follows consequences (what a reader of wrong KV computes is wrong, and
whoever reads that is told), blocks that are handed out or freed while somebody in the step uses
them, ids outside the pool, and slots of which nothing is known.

Memory: 24 bytes a slot of the pool, 8 a token of live requests, their tables, and an entry for each
block that is held. Groups that are None are not watched; those of recurrent states are followed by
`live_states.py`.
"""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from poolproof.contract.content import Image, TokenChain
from poolproof.contract.manager_profile import CacheGroup
from poolproof.contract.outside import shown
from poolproof.contract.state_use import StateUse
from poolproof.contract.step_record import ComputedTokens, StepRecord
from poolproof.watch.digests import NEVER, OTHER, UNKNOWN, Digests, extended
from poolproof.watch.findings import LiveFinding, request_name
from poolproof.watch.live_states import ZERO, LiveStates, StateRow, WrongState

__all__ = ["ComputedPart", "KnownRequest", "LiveCounts", "LiveMemory"]

_MOST_BLOCKS = 20
"""So many block ids are listed in a finding."""


@dataclass(slots=True)
class LiveCounts:
    """What was followed, as docs/live.md says under `counts`."""

    steps: int = 0
    computed_tokens: int = 0
    admissions: int = 0
    resumes: int = 0
    admissions_with_hits: int = 0
    checked_reads: int = 0
    skipped_reads: int = 0
    unknown_reads: int = 0
    writes: int = 0
    copies: int = 0
    frees: int = 0
    quiescent: int = 0


@dataclass(slots=True)
class ComputedPart:
    """What one step computes of one request, as `ComputedTokens` says it.

    `tokens` are those of the request as far as they are known, from position 0 on (the engine's own
    list, not a copy); `drafts` stand at the last positions, None for those that nobody knows.
    `root` is the digest of the empty prefix.
    """

    request_id: str
    root: int
    tokens: Sequence[int]
    images: Sequence[Image]
    first: int
    count: int
    drafts: Sequence[int | None]
    blocks: Sequence[Sequence[int]]
    replaced: bool


@dataclass(slots=True, eq=False)
class KnownRequest:
    """A request as its workers know it."""

    request_id: str
    name: int
    serial: int
    root: int
    images: Sequence[Image]
    tokens: Sequence[int]
    tables: list[list[int]]
    chain: array[int] = field(default_factory=lambda: array("q"))
    first: int = 0
    end: int = 0
    step: int = 0
    base: int = 0
    until: int = 0
    is_broken: bool = False
    is_plain: bool = False
    taint: int = 0
    mapped: set[tuple[int, int]] = field(default_factory=set)
    changed: set[tuple[int, int]] = field(default_factory=set)
    told: set[tuple[int, int, int]] = field(default_factory=set)


class LiveMemory:
    """Shadow memory of `num_blocks` blocks for cache groups with `block_sizes` tokens a block.

    `null_block` is the block that stands in tables for none, if there is one. Where `is_running`,
    what stands in memory at first is unknown. In a step: `begin`, `compute` for each request, and
    `end`, which gives the findings. `stride` is the budget's: one admission's reads in so many are
    compared.
    """

    def __init__(
        self,
        num_blocks: int,
        groups: Sequence[CacheGroup | None],
        block_sizes: Sequence[int],
        digests: Digests,
        *,
        null_block: int | None = None,
        is_running: bool = False,
    ) -> None:
        self.counts = LiveCounts()
        self.requests: dict[str, KnownRequest] = {}
        self.stride = 1
        self.num_found = 0
        self._num_blocks = num_blocks
        self._null = null_block
        self._digests = digests
        self._groups = [
            (number, group, size, digests.mask(number))
            for number, (group, size) in enumerate(zip(groups, block_sizes, strict=True))
            if group is not None and not group.is_state
        ]
        self._state_groups = [
            number for number, group in enumerate(groups) if group is not None and group.is_state
        ]
        masks = {number: digests.mask(number) for number in self._state_groups}
        self._states = LiveStates(masks, is_running=is_running) if masks else None
        self._state_rows: list[StateRow] = []
        self._by_number = {
            number: (group, size, mask) for number, group, size, mask in self._groups
        }
        self._simple = len(groups) == 1 and len(self._groups) == 1
        # A block of states may be as long as a request: only slots of KV count.
        self._room = room = max((size for *_, size, _ in self._groups), default=1)
        self._slots = array("q", [UNKNOWN if is_running else NEVER]) * (num_blocks * room)
        # For each slot who wrote it and in which step, side by side: one line of the processor's
        # cache for both.
        self._wrote = array("q", [0, 0]) * (num_blocks * room)
        self._holders: dict[int, dict[tuple[int, int, int], KnownRequest]] = {}
        self._tainted: dict[int, dict[int, int]] = {}
        self._serial = count(1)
        self._unknown = count(1)
        self._number = 0
        self._to_read: list[KnownRequest] = []
        self._fresh: list[tuple[KnownRequest, int, int, int]] = []
        self._freed: Sequence[int] = ()
        self._found: list[LiveFinding] = []

    # What a step tells.

    def begin(
        self,
        ended: Iterable[str] = (),
        copies: Sequence[tuple[int, int]] = (),
        freed: Sequence[int] = (),
    ) -> None:
        """A step begins. `freed` are blocks that were given back before it and nobody has taken."""
        self._number += 1
        self.counts.steps += 1
        for request_id in ended:
            self._forget(request_id)
        if copies:
            self._copy(copies)
        self._freed = freed
        self.counts.frees += len(freed)

    def zero(self, blocks: Iterable[int]) -> None:
        """All that stands in these blocks is zero when the next step begins."""
        for block in blocks:
            if 0 <= block < self._num_blocks:
                self._fill(block, NEVER)

    def compute(self, part: ComputedPart) -> KnownRequest:
        """A request is computed in this step: its table, its tokens, what it writes."""
        known = self.requests.get(part.request_id)
        if known is None or part.replaced:
            known = self._admit(part)
        else:
            if part.first > known.end:
                self._note_gap(known, part.first)
            known.first, known.tokens = part.first, part.tokens
            if part.blocks:
                self._map(known, part.blocks)
        known.end, known.step, known.until = part.first + part.count, self._number, 0
        self.counts.computed_tokens += part.count
        self._follow_tokens(known, part)
        if not known.is_broken:
            self._write(known)
            if known.changed or known.mapped:
                self._to_read.append(known)
            known.is_plain = not (
                known.changed or known.mapped or known.images or known.taint or known.is_broken
            )
        return known

    def follow_states(
        self,
        known: KnownRequest,
        uses: Sequence[StateUse],
        *,
        unknown: Sequence[int] = (),
        is_read: bool = True,
    ) -> None:
        """What this step does with the recurrent states of a request that is computed in it.

        Nothing is known of what stands in the blocks `unknown` after it.
        """
        if self._states is None or known.is_broken:
            return
        blocks = [*unknown, *(block for use in uses for block in use.blocks())]
        for block in blocks:
            if not 0 <= block < self._num_blocks:
                self._outside(known, self._state_groups[0], 0, block)
                return
        row = StateRow(known, known.chain, known.first, uses, unknown, is_read)
        self._state_rows.append(row)

    def decode(
        self,
        request_ids: Sequence[str],
        firsts: Sequence[int],
        added: Sequence[Sequence[Sequence[int]] | None],
        counts: Mapping[str, int],
        drafts: Container[str],
    ) -> list[int]:
        """`compute` for requests that go on by one token.

        That is most of most steps, so it is one loop. Gives the places in the lists of those that
        are no such, for `compute`.
        """
        if not self._simple or self._tainted:
            return list(range(len(request_ids)))
        others = []
        live, number = self.requests, self._number
        slots, wrote = self._slots, self._wrote
        for index, request_id in enumerate(request_ids):
            known = live.get(request_id)
            first = firsts[index]
            if (
                known is None
                or not known.is_plain
                or known.end != first
                or counts[request_id] != 1
                or request_id in drafts
                or first >= len(known.tokens)
                or (first >= known.until and not self._enter(known, first, added[index]))
            ):
                others.append(index)
                continue
            known.first = first
            known.end = first + 1
            known.step = number
            chain = known.chain
            digest = hash((chain[-1], known.tokens[first]))
            chain.append(digest)
            place = known.base + first
            slots[place] = digest
            place += place
            wrote[place] = known.name
            wrote[place + 1] = number
        done = len(request_ids) - len(others)
        self.counts.computed_tokens += done
        self.counts.writes += done
        return others

    def _enter(
        self, known: KnownRequest, first: int, added: Sequence[Sequence[int]] | None
    ) -> bool:
        """Map what is added, and remember where the block of position `first` is.

        False, with nothing done, where that is no plain case: nobody else may hold a block of it.
        """
        table, holders, null = known.tables[0], self._holders, self._null
        entry, blocks = first // self._room, (added[0] if added else ())
        if blocks and (
            len(set(blocks)) != len(blocks)
            or any(b in holders or b == null or not 0 <= b < self._num_blocks for b in blocks)
        ):
            return False
        if entry < len(table):
            block = table[entry]
            if len(holders.get(block, ())) != 1:
                return False
        elif entry < len(table) + len(blocks):
            block = blocks[entry - len(table)]
        else:
            return False
        if added and blocks:
            known.first = first
            self._map(known, added)
        known.base = (block - entry) * self._room
        known.until = (entry + 1) * self._room
        return True

    def end(self) -> list[LiveFinding]:
        """The step ends: what was wrong in it."""
        if self._states is not None:
            self._carry_out_states(self._states)
        if self._fresh:
            self._look_at_fresh()
        if self._freed:
            self._look_at_freed()
        while self._to_read:
            reader = self._to_read.pop()
            if reader.step == self._number and not reader.is_broken:
                self._read(reader)
        found, self._found = self._found, []
        return found

    def record(self, step: StepRecord) -> list[LiveFinding]:
        """Follow a plain record: the way in for engines that have no tap. Loads become unknown."""
        self.zero(step.zeroes)
        self.begin(step.ended, step.copies)
        for block, _ in step.loads:
            self._fill(block, UNKNOWN)
        for part in step.computed:
            known = self.compute(self._part_of(part))
            self.follow_states(known, part.states, is_read=part.is_read)
        return self.end()

    def load(self, group: int, table: Sequence[int], first: int, end: int) -> None:
        """A connector brings the KV of these positions of a table: they are unknown from now on."""
        if self._states is not None and group in self._state_groups:
            for block in table:
                self._states.forget(block)
        entry = self._by_number.get(group)
        if entry is None:
            return
        size = entry[1]
        for block, slot, number in _runs(table, size, first, min(end, len(table) * size)):
            if 0 <= block < self._num_blocks:
                place = block * self._room + slot
                self._slots[place : place + number] = array("q", [UNKNOWN]) * number
                self._tainted.pop(block, None)

    def adopt(self, part: ComputedPart) -> None:
        """A request that ran before the watch: all that is computed of it is unknown."""
        known = self._new(part)
        known.end = part.first
        self._map(known, part.blocks)
        known.mapped.clear()
        self._fresh.clear()

    def finding(self, invariant: str, sentence: str, **fields: object) -> LiveFinding:
        """The next finding, of this step."""
        self.num_found += 1
        return LiveFinding(
            self.num_found,
            invariant,
            self._number,
            f"step {self._number}: {sentence}",
            **fields,  # type: ignore[arg-type]  # the fields of LiveFinding
        )

    def digest_at(self, request_id: str, end: int) -> str | None:
        """The digest of a live request's first `end` tokens as it is written; None if unknown."""
        known = self.requests.get(request_id)
        if known is None or not 0 < end <= len(known.chain):
            return None
        return self._digests.shown(known.chain[end - 1])

    # Requests and their tables.

    def _new(self, part: ComputedPart) -> KnownRequest:
        known = KnownRequest(
            part.request_id,
            self._digests.name(part.request_id),
            next(self._serial),
            part.root,
            part.images,
            part.tokens,
            [[] for _ in part.blocks],
        )
        self.requests[part.request_id] = known
        return known

    def _admit(self, part: ComputedPart) -> KnownRequest:
        self.counts.admissions += 1
        self.counts.admissions_with_hits += part.first > 0
        self._forget(part.request_id)
        known = self._new(part)
        known.first = part.first
        self._map(known, part.blocks)
        if known.mapped and self.counts.admissions % self.stride:
            self.counts.skipped_reads += len(known.mapped)
            known.mapped.clear()
        return known

    def _map(self, known: KnownRequest, blocks: Sequence[Sequence[int]]) -> None:
        """Blocks come at the end of the tables; those with positions before `first` are read."""
        for group in self._state_groups:
            if group < len(blocks):
                known.tables[group].extend(blocks[group])
        for group, _, size, _ in self._groups:
            if group >= len(blocks) or not blocks[group]:
                continue
            table = known.tables[group]
            for block in blocks[group]:
                entry = len(table)
                table.append(block)
                if not 0 <= block < self._num_blocks:
                    self._outside(known, group, entry, block)
                    continue
                is_read = entry * size < known.first
                if is_read:
                    known.mapped.add((group, entry))
                if block == self._null:
                    continue
                holders = self._holders.get(block)
                if holders is None:
                    self._holders[block] = {(known.serial, group, entry): known}
                    continue
                if len(holders) == 1:
                    # Whoever was alone in it, and may be writing it (`_enter`), is not any more.
                    next(iter(holders.values())).until = 0
                holders[known.serial, group, entry] = known
                if not is_read:
                    self._fresh.append((known, group, entry, block))

    def _note_gap(self, known: KnownRequest, first: int) -> None:
        """It goes on behind positions that it has not computed: it reads them all the same."""
        for group, _, size, _ in self._groups:
            end = min(-(-first // size), len(known.tables[group]))
            known.changed.update((group, entry) for entry in range(known.end // size, end))

    def _outside(self, known: KnownRequest, group: int, entry: int, block: int) -> None:
        """It is followed no more, until a whole table comes for it."""
        if not known.is_broken:
            known.is_broken = True
            self._tell(
                "PLAN",
                f"request {request_name(known.name)} is given block {shown(block)} of a pool of "
                f"{self._num_blocks}, as entry {entry} of its table (group {group})",
                known,
                group=group,
                block=block if isinstance(block, int) else None,
            )

    def _forget(self, request_id: str) -> None:
        """The workers drop a request's table."""
        known = self.requests.pop(request_id, None)
        if known is None:
            return
        for group, *_ in self._groups:
            if group >= len(known.tables):
                continue
            for entry, block in enumerate(known.tables[group]):
                holders = self._holders.get(block)
                if holders is None:
                    continue
                holders.pop((known.serial, group, entry), None)
                if not holders:
                    del self._holders[block]

    # Tokens.

    def _follow_tokens(self, known: KnownRequest, part: ComputedPart) -> None:
        """The digests up to the end of what is computed; what came after `first` is void."""
        chain, first, end = known.chain, part.first, known.end
        if len(chain) > first:
            del chain[first:]
        tokens, start = part.tokens, len(chain)
        parent = chain[-1] if start else known.root
        if start + 1 == end and not part.drafts and not known.images and end <= len(tokens):
            chain.append(hash((parent, tokens[start])))
            return
        certain = min(end - len(part.drafts), len(tokens))
        items: list[object] = list(tokens[start:certain])
        items += part.drafts[: end - certain] if certain == end - len(part.drafts) else ()
        items += [None] * (end - start - len(items))
        for place, item in enumerate(items):
            if item is None or item == -1:
                # Drafts that were rejected, and what was sampled for nobody: equal to nothing.
                items[place] = ("unknown", next(self._unknown))
        if known.images:
            items = [
                _shown_at(known.images, start + place, item) for place, item in enumerate(items)
            ]
        chain.extend(extended(parent, items))

    def _part_of(self, part: ComputedTokens) -> ComputedPart:
        chain: TokenChain = part.chain
        return ComputedPart(
            part.request_id,
            self._digests.root(chain.lora, chain.salt),
            chain.tokens,
            chain.images,
            part.first,
            part.count,
            (),
            part.blocks,
            part.replaced,
        )

    # What is written.

    def _write(self, known: KnownRequest) -> None:
        first, end, room = known.first, known.end, self._room
        self.counts.writes += (end - first) * len(self._groups)
        for group, _, size, mask in self._groups:
            table = known.tables[group]
            entry = first // size
            if end - first == 1 and entry < len(table):
                # Decode: one slot, by far the most frequent.
                block = table[entry]
                place = block * room + first - entry * size
                digest = known.chain[first]
                self._slots[place] = digest ^ mask if mask else digest
                if self._states is not None:
                    self._states.wrote(block, known.name, group, self._number)
                self._wrote[2 * place] = known.name
                self._wrote[2 * place + 1] = self._number
                if len(self._holders.get(block, ())) > 1 or self._tainted or known.taint:
                    self._note_write(known, group, entry, block, first - entry * size, 1)
                continue
            if (end - 1) // size >= len(table):
                self._too_short(known, group, size, table)
                return
            digests = known.chain[first:end]
            if mask:
                digests = array("q", [digest ^ mask for digest in digests])
            done = 0
            for block, slot, number in _runs(table, size, first, end):
                place = block * room + slot
                self._slots[place : place + number] = digests[done : done + number]
                if self._states is not None:
                    self._states.wrote(block, known.name, group, self._number)
                by = array("q", [known.name, self._number])
                self._wrote[2 * place : 2 * (place + number)] = by * number
                if len(self._holders.get(block, ())) > 1 or self._tainted or known.taint:
                    self._note_write(known, group, (first + done) // size, block, slot, number)
                done += number

    def _too_short(self, known: KnownRequest, group: int, size: int, table: list[int]) -> None:
        known.is_broken = True
        self._tell(
            "PLAN",
            f"request {request_name(known.name)} computes up to position {known.end - 1} and has "
            f"{len(table)} blocks of {size} tokens (group {group})",
            known,
            group=group,
            position=len(table) * size,
        )

    def _note_write(  # noqa: PLR0917 -- a place, in the order of its parts
        self, known: KnownRequest, group: int, entry: int, block: int, slot: int, number: int
    ) -> None:
        """Whoever else holds the block looks at it again; a taint goes or comes."""
        tainted = self._tainted.get(block)
        if tainted is not None:
            for place in range(slot, slot + number):
                tainted.pop(place, None)
            if not tainted:
                del self._tainted[block]
        if known.taint:
            self._tainted.setdefault(block, {}).update(
                dict.fromkeys(range(slot, slot + number), known.taint)
            )
        self._note_change(block, (known.serial, group, entry))

    def _note_change(self, block: int, by: tuple[int, int, int] | None) -> None:
        for key, holder in self._holders.get(block, {}).items():
            if key != by:
                holder.changed.add(key[1:])
                holder.is_plain = False
                if holder.step == self._number:
                    self._to_read.append(holder)

    def _copy(self, copies: Sequence[tuple[int, int]]) -> None:
        """All at once: every source is read before any destination is written."""
        room, read = self._room, []
        for source, destination in copies:
            if not (0 <= source < self._num_blocks and 0 <= destination < self._num_blocks):
                self._tell(
                    "PLAN",
                    f"block {source} is copied to {destination} in a pool of {self._num_blocks}",
                )
                continue
            first = source * room
            read.append(
                (
                    destination,
                    self._slots[first : first + room],
                    self._wrote[2 * first : 2 * (first + room)],
                    dict(self._tainted.get(source, {})),
                )
            )
        if self._states is not None:
            right = (pair for pair in copies if all(0 <= b < self._num_blocks for b in pair))
            self._states.copy_blocks(right)
        for destination, contents, wrote, tainted in read:
            first = destination * room
            self._slots[first : first + room] = contents
            self._wrote[2 * first : 2 * (first + room)] = wrote
            self._tainted.pop(destination, None)
            if tainted:
                self._tainted[destination] = tainted
            self._note_change(destination, None)
        self.counts.copies += len(read)

    def _fill(self, block: int, digest: int) -> None:
        first = block * self._room
        self._slots[first : first + self._room] = array("q", [digest]) * self._room
        self._tainted.pop(block, None)
        self._note_change(block, None)
        if self._states is not None and digest == NEVER:
            self._states.zero(block)
        elif self._states is not None and digest == UNKNOWN:
            self._states.forget(block)

    # Recurrent states.

    def _carry_out_states(self, states: LiveStates) -> None:
        """What this step's rows do with states, in the order of the specification."""
        rows, self._state_rows = self._state_rows, []
        rows = [row for row in rows if not row.request.is_broken]
        for wrong in states.begin(rows):
            self._tell_state(wrong)
        for row in rows:
            for block in row.unknown:
                if not states.holds(block):
                    self._fill(block, UNKNOWN)
        for wrong in states.leave(rows, self._number):
            self._tell_state(wrong)
        states.finish(rows)
        for block in states.fresh:
            self._fill(block, OTHER)
        states.fresh.clear()
        self.counts.checked_reads += states.num_starts
        self.counts.unknown_reads += states.num_unknown
        states.num_starts = states.num_unknown = 0

    def _tell_state(self, wrong: WrongState) -> None:
        """A row starts from another prefix's state."""
        reader, held = wrong.row.request, wrong.held
        mask = self._digests.mask(wrong.group)
        is_written = held is not None and held.step > 0
        is_state = is_written and held is not None and held.digest != OTHER
        self._tell(
            "DATA",
            wrong.words(request_name(reader.name)),
            reader,
            group=wrong.group,
            block=wrong.block,
            position=wrong.row.first,
            wanted=None if wrong.wanted == ZERO else wrong.wanted ^ mask,
            found=held.digest ^ mask if held is not None and is_state else None,
            writer=held.writer if held is not None and is_written else None,
            written_in=held.step if held is not None and is_written else None,
            because_of=held.taint if held is not None and wrong.is_own else None,
        )
        self._taint(reader, self.num_found)

    # What is read.

    def _read(self, reader: KnownRequest) -> None:
        """Compare the entries that were noted, and tell the first wrong one of each group."""
        entries = reader.mapped | reader.changed
        reader.mapped.clear()
        reader.changed.clear()
        reader.is_plain = False
        self.counts.checked_reads += len(entries)
        wrong: set[int] = set()
        for group, entry in sorted(entries):
            if group in wrong:
                continue
            kind, size, mask = self._by_number[group]
            first = max(entry * size, kind.first_read(reader.first))
            end = min((entry + 1) * size, reader.end)
            if first >= end:
                continue
            block = reader.tables[group][entry]
            place = block * self._room + first - entry * size
            wanted = reader.chain[first:end]
            if mask:
                wanted = array("q", [digest ^ mask for digest in wanted])
            found = self._slots[place : place + end - first]
            if found != wanted and self._differs(reader, group, entry, first, wanted, found):
                wrong.add(group)
            elif self._tainted:
                self._read_taint(reader, group, entry, first, end)

    def _differs(  # noqa: PLR0917 -- a place, and what is compared there
        self,
        reader: KnownRequest,
        group: int,
        entry: int,
        first: int,
        wanted: Sequence[int],
        found: Sequence[int],
    ) -> bool:
        """Tell the first slot that is wrong; False where nothing is known to be."""
        size = self._by_number[group][1]
        block = reader.tables[group][entry]
        for offset, (right, there) in enumerate(zip(wanted, found)):
            if there in (right, UNKNOWN):
                continue
            position = first + offset
            if (group, position, there) in reader.told:
                return True  # Somebody goes on writing there: it is told once.
            reader.told.add((group, position, there))
            slot = position - entry * size
            place = block * self._room + slot
            is_written = there not in (NEVER, OTHER)
            writer, step = self._wrote[2 * place : 2 * place + 2]
            what = (
                f"that was computed for request {request_name(writer)} in step {step}"
                if is_written
                else "where a recurrent state stands"
                if there == OTHER
                else "that nobody has computed"
            )
            mask = self._by_number[group][2]
            self._tell(
                "DATA",
                f"request {request_name(reader.name)} reads at position {position} (group {group}, "
                f"block {block}, slot {slot}) KV {what}; it is not that of its own prefix",
                reader,
                group=group,
                block=block,
                slot=slot,
                position=position,
                wanted=right ^ mask,
                found=there ^ mask if is_written else None,
                writer=writer if is_written else None,
                written_in=step if is_written else None,
            )
            self._taint(reader, self.num_found)
            return True
        self.counts.unknown_reads += 1
        return False

    def _read_taint(
        self, reader: KnownRequest, group: int, entry: int, first: int, end: int
    ) -> None:
        """Tell what is right by its prefix and was computed from wrong KV, by somebody else."""
        block = reader.tables[group][entry]
        size = self._by_number[group][1]
        tainted = self._tainted.get(block)
        if reader.taint or not tainted:
            return
        for position in range(first, end):
            slot = position - entry * size
            number = tainted.get(slot)
            if number is None:
                continue
            place = block * self._room + slot
            writer, step = self._wrote[2 * place : 2 * place + 2]
            self._tell(
                "DATA",
                f"request {request_name(reader.name)} reads at position {position} (group {group}, "
                f"block {block}, slot {slot}) KV of its own prefix that request "
                f"{request_name(writer)} computed in step {step} from wrong KV "
                f"(finding {number})",
                reader,
                group=group,
                block=block,
                slot=slot,
                position=position,
                wanted=reader.chain[position],
                found=reader.chain[position],
                writer=writer,
                written_in=step,
                because_of=number,
            )
            self._taint(reader, self.num_found)
            return

    def _taint(self, reader: KnownRequest, number: int) -> None:
        """What it computes from now on, in this step too, is computed from wrong KV."""
        if reader.taint:
            return
        reader.taint = number
        reader.is_plain = False
        for group, _, size, _ in self._groups:
            done = reader.first
            for block, slot, length in _runs(reader.tables[group], size, reader.first, reader.end):
                self._note_write(reader, group, done // size, block, slot, length)
                done += length

    # Blocks that belong to somebody else.

    def _uses(self, holder: KnownRequest, group: int, entry: int) -> bool:
        """Whether a request that is computed in this step reads or writes an entry of its table."""
        if holder.step != self._number or holder.is_broken:
            return False
        kind, size, _ = self._by_number[group]
        return (entry + 1) * size > kind.first_read(holder.first) and entry * size < holder.end

    def _look_at_fresh(self) -> None:
        """Blocks that came to be written, and that somebody in this step writes as well.

        Whoever only reads one may have found it in this very step: that is judged by its contents.
        """
        told = set()
        for known, group, entry, block in self._fresh:
            if block in told or not self._uses(known, group, entry):
                continue
            mine = (known.serial, group, entry)
            for key, holder in self._holders.get(block, {}).items():
                is_written = (key[2] + 1) * self._by_number[key[1]][1] > holder.first
                if key != mine and is_written and self._uses(holder, key[1], key[2]):
                    told.add(block)
                    self._tell(
                        "I2",
                        f"block {block} is given to request {request_name(known.name)} to write "
                        f"(group {group}, entry {entry}) while request "
                        f"{request_name(holder.name)} writes it",
                        known,
                        group=group,
                        block=block,
                        writer=holder.name,
                    )
                    break
        self._fresh.clear()

    def _look_at_freed(self) -> None:
        """Blocks that anybody may be given, and that somebody in this step uses."""
        used: dict[KnownRequest, list[int]] = {}
        for block in self._freed:
            for key, holder in self._holders.get(block, {}).items():
                if self._uses(holder, key[1], key[2]):
                    used.setdefault(holder, []).append(block)
        self._freed = ()
        for holder, blocks in used.items():
            self._tell(
                "I2",
                f"request {request_name(holder.name)} uses {len(blocks)} blocks that are free: "
                f"{', '.join(map(str, blocks[:_MOST_BLOCKS]))}",
                holder,
                block=blocks[0],
                blocks=tuple(blocks[:_MOST_BLOCKS]),
            )

    def _tell(
        self, invariant: str, sentence: str, known: KnownRequest | None = None, **more: object
    ) -> None:
        if known is not None:
            more = {"reader": known.name, "request_id": known.request_id, **more}
        self._found.append(self.finding(invariant, sentence, **more))


def _runs(table: Sequence[int], size: int, first: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The (block, first slot, number of slots) that positions `first` to `end` - 1 stand in."""
    position = first
    while position < end:
        entry, slot = divmod(position, size)
        number = min(size - slot, end - position)
        yield table[entry], slot, number
        position += number


def _shown_at(images: Sequence[Image], position: int, token: object) -> object:
    """A token, with what images show at its position."""
    shows = [
        (image.identifier, position - image.offset)
        for image in images
        if image.offset <= position < image.offset + image.length
    ]
    return (token, *shows) if shows else token
