"""The harness plays the GPU: writes, copies and reads of shadow KV memory, in the order of a step.

In a forward pass all writes of the step land, then all sequences read: those of the batch read what
attention needs for the computed positions, the others what their next token will read. Reads and
writes go through the table that the worker has: if the target only reports changes, that is a copy
that the harness builds from the reports (vllm#42273).

It plays the worker, too, that moves recurrent states behind drafts: `reference/state_columns.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

from poolproof.contract.manager_profile import CacheGroup
from poolproof.contract.target import Capabilities
from poolproof.contract.violation import Violation, ViolationError, raise_for
from poolproof.harness.every_invariant import EveryInvariant
from poolproof.harness.manager_facts import END_AMONG_DRAFTS
from poolproof.harness.reading import read
from poolproof.invariants.kv_reads import copies_what_was_written, reads_own_prefix
from poolproof.invariants.legal_calls import meaningless_answer
from poolproof.invariants.stable_ids import copies_name_blocks, worker_table_suffices
from poolproof.reference.content_names import Content
from poolproof.reference.recurrent_states import has_state, states_left
from poolproof.reference.sequence_model import SequenceModel, SequenceState, Tables
from poolproof.reference.shadow_memory import Misread, ShadowMemory, Writer
from poolproof.reference.state_columns import (
    copied_to_own_entries,
    left_in_columns,
    own_entry,
)

__all__ = ["HitSearch", "ManagerMemory"]


def _any(_: int) -> bool:
    return True


class ManagerMemory:
    """Device and host memory of a manager under test; `command_number` is set before each step.

    Where it `finds_unwritten`, a hit may be on what a sequence of the same step is going to write.
    """

    def __init__(
        self,
        target: Any,
        model: SequenceModel,
        can: Capabilities,
        invariants: EveryInvariant,
    ) -> None:
        self._report = invariants.report
        self._model = model
        num_slots = max(model.block_sizes)
        self.device = ShadowMemory(model.pool.num_blocks, num_slots)
        self.host = ShadowMemory(model.host.num_blocks, num_slots)
        self.command_number = 0
        self.has_changed = False
        self._reports = can.sees("take_table_update")
        self._target = target
        self._worker_tables: dict[int, Tables] = {}
        self._waiting: set[int] = set()
        # For each sequence and group of full attention the table and how far it was read.
        self._verified: dict[tuple[int, int], tuple[list[int], int]] = {}
        # For each sequence and group of states where its last step left them, by their tokens.
        self._left: dict[tuple[int, int], dict[int, int]] = {}
        self._reuses = model.profile.window_blocks == "reused"
        self._has_state = has_state(model.groups)
        profile = model.profile
        self.finds_unwritten = profile.same_step_hit == "allowed" or (
            profile.by_content and not profile.declares("same_step_hit")
        )
        self._groups = [
            (group, kind, size)
            for group, (kind, size) in enumerate(zip(model.groups, model.block_sizes, strict=True))
        ]

    def forward(self, facts: set[str]) -> None:
        """The forward pass of everything scheduled. Reports a misread."""
        model = self._model
        if self._reports:
            self._take_reports()
        batch = [s for s in model.sequences.values() if s.num_scheduled]
        if self._has_state:
            for sequence in batch:
                self._read_states(sequence)
        for sequence in batch:
            self._write(sequence, sequence.num_scheduled + sequence.num_drafts)
        if len(batch) > 1:
            facts.add("a step computed several sequences")
        for sequence in model.sequences.values():
            if sequence.place == "device" and not sequence.ended:
                scheduled = sequence.num_scheduled
                self.read(sequence, scheduled and scheduled + sequence.num_drafts)
            else:
                self.forget_read(sequence)
        self.device.changed.clear()
        self._waiting.clear()

    def _read_states(self, sequence: SequenceState) -> None:
        """Read the states that a forward pass continues from."""
        tables = self._tables(sequence)
        for group, kind, _ in self._groups:
            if kind.is_state:
                self._report_state(sequence, group, tables[group], sequence.num_computed)

    def _report_state(
        self, sequence: SequenceState, group: int, table: Sequence[int], end: int
    ) -> None:
        """Read the state after `end` tokens, where the worker has left it. Reports a misread."""
        size = self._model.block_sizes[group]
        left = self._left.get((sequence.seq_id, group), {})
        block = table[left.get(end, own_entry(end, size))] if end else 0
        misread = self.device.misread_state(block, sequence.contents[group], end)
        if misread is not None:
            self._report(self._violation(sequence, misread))

    def read(self, sequence: SequenceState, num_computed_now: int = 0) -> None:
        """Read what a sequence's attention needs. Reports a misread.

        That is for the positions computed now, or, if there are none, for its next token: before
        the worker computes that one it learns what has changed, so the target's own table counts.
        If a table wraps around over a window, one step may have overwritten what it read.
        """
        first = sequence.num_computed
        tables = self._tables(sequence) if num_computed_now else sequence.tables
        end = first + num_computed_now
        for group, kind, size in self._groups:
            wanted = sequence.contents[group]
            if kind.is_full:
                misread = self._misread(sequence, group, tables[group], end)
            elif kind.is_state:
                # Each draft may come to be the last one that is right.
                tried = num_computed_now and self._model.profile.state_blocks
                drafts = sequence.num_drafts if tried else 0
                for until in range(end - drafts, end + 1):
                    self._report_state(sequence, group, tables[group], until)
                continue
            else:
                start = kind.first_read(first)
                if self._reuses and kind.is_sliding:
                    start = max(start, end - -(-kind.window // size) * size)
                misread = self.device.misread(tables[group], size, wanted, start, end)
            if misread is not None:
                self._report(self._violation(sequence, misread))

    def _misread(
        self, sequence: SequenceState, group: int, table: list[int], end: int
    ) -> Misread | None:
        """The first of the positions up to `end` that holds something else.

        Positions are read again only if the table differs or one of its blocks was written since,
        so that the cost of a step depends on what it changes and not on the length of all prompts.
        """
        size, place = self._model.block_sizes[group], (sequence.seq_id, group)
        before, count = self._verified.get(place, (table, 0))
        count = min(count, sequence.num_computed) // size
        if count and before is not table:
            before, known = before[:count], table[:count]
            count = count if before == known else 0
        if count and not self.device.changed.isdisjoint(table[:count]):
            count = 0
        wanted = sequence.contents[group]
        misread = self.device.misread(table, size, wanted, count * size, end)
        if misread is None:
            # Drafts may still be dropped, and others stand in their place then.
            self._verified[place] = table, min(end, sequence.num_tokens)
        else:
            self._verified.pop(place, None)
        return misread

    def forget_read(self, sequence: SequenceState) -> None:
        """The next read of the sequence begins at its first position."""
        for group in range(len(self._groups)):
            self._verified.pop((sequence.seq_id, group), None)

    def read_all(self) -> None:
        """Let every sequence on the device read what its next token needs.

        Needed only where memory has changed (`has_changed`) outside of a forward pass: tables are
        compared after every command. Sequences that hit what is written in this step wait.
        """
        self.has_changed = False
        for sequence in self._model.sequences.values():
            if sequence.place != "device" or sequence.ended or not sequence.num_computed:
                continue
            if sequence.seq_id not in self._waiting:
                self.read(sequence)

    def judge_hit(self, sequence: SequenceState, cached: int, tables: Tables) -> bool:
        """Whether the cached positions of a new table hold the right KV, or will after this step.

        Only what a sequence of this step is going to write may still be missing. Reports a misread.
        """
        is_right = True
        for group, kind, size in self._groups:
            wanted = sequence.contents[group]
            if kind.is_state:
                block = tables[group][own_entry(cached, size)]
                misread = self.device.misread_state(block, wanted, cached)
            else:
                first = kind.first_read(cached)
                misread = self.device.misread(tables[group], size, wanted, first, cached)
            if misread is not None:
                if not self._is_pending(group, misread):
                    is_right = False
                    self._report(self._violation(sequence, misread))
                self._waiting.add(sequence.seq_id)
        return is_right

    def is_waiting(self, sequence: SequenceState) -> bool:
        """Whether what the sequence found is only written in this step."""
        return sequence.seq_id in self._waiting

    def holds_hit(self, sequence: SequenceState, cached: int) -> bool:
        """Whether for each entry that a hit of `cached` tokens needs some block holds its KV."""
        return self.search(sequence).holds(cached)

    def search(
        self, sequence: SequenceState, *, is_usable: Callable[[int], bool] = _any
    ) -> HitSearch:
        """What asks for hits of one sequence at many lengths, of blocks that are usable."""
        return HitSearch(self, self._groups, sequence, is_usable)

    def will_be_left(self, group: int, state: Content) -> bool:
        """Whether this step leaves a state, which is found before it is written."""
        return self.finds_unwritten and any(
            state == sequence.contents[group][end - 1]
            for sequence in self._model.sequences.values()
            for end in states_left(self._model, sequence, group)
        )

    def num_revivable(self, sequence: SequenceState, cached: int) -> int:
        """How many entries of a hit a free block holds that has lost its key, as far as is known.

        If that one is taken in place of a carrier that is shared, a free block more is needed.
        """
        pool, slots, count = self._model.pool, self.device.slots, 0
        for group, kind, size in self._groups:
            entries = self._model.hit_entries(group, cached)
            keys = [self._model.key(sequence, group, entry) for entry in entries]
            kept = [key for key in keys if pool.free.keys().isdisjoint(pool.lookup(key))]
            if kept:
                last = 0 if kind.is_state else size - 1
                held_free = {slots[block][last] for block in pool.free}
                count += sum(key in held_free for key in kept)
        return count

    def holders_in(self, group: int, slot: int) -> dict[Content, list[int]]:
        """For each content the blocks that hold it in a slot, or will after this step."""
        holders: dict[Content, list[int]] = {}
        for block, slots in enumerate(self.device.slots):
            content = slots[slot]
            if content is not None:
                holders.setdefault(content, []).append(block)
        size = self._model.block_sizes[group]
        for sequence in self._model.sequences.values():
            first, table = sequence.num_computed, sequence.tables[group]
            end = min(first + sequence.num_scheduled, len(table) * size)
            for position in range(first + (slot - first) % size, end, size):
                content = sequence.contents[group][position]
                holders.setdefault(content, []).append(table[position // size])
        return holders

    def holds_entry(
        self, sequence: SequenceState, group: int, entry: int, block: int, end: int
    ) -> bool:
        """Whether a block holds what a sequence needs of an entry, as far as position `end` - 1.

        What a sequence of this step is going to write counts. At least one position is compared.
        """
        _, kind, size = self._groups[group]
        wanted, slots = sequence.contents[group], self.device.slots[block]
        first, end = entry * size, min((entry + 1) * size, end)
        if kind.is_state:
            return slots[0] == wanted[end - 1]
        return first < end and all(
            slots[position - first] == wanted[position]
            or self._will_hold(group, block, position - first, wanted[position])
            for position in range(first, end)
        )

    def holds_whole_block(self, block: int) -> bool:
        """Whether a block is full of the KV of one prefix, in blocks of some group's size."""
        parent = self._model.names.parent
        for _, kind, size in self._groups:
            slots = self.device.slots[block][: 1 if kind.is_state else size]
            pairs = pairwise(slots)
            if slots[0] is not None and all(b is not None and parent(b) == a for a, b in pairs):
                return True
        return False

    def void(self) -> None:
        """The cache was reset: what it held may not be found any more, whatever it was."""
        self.device.void()

    def forget(self, sequence: SequenceState) -> None:
        """Send the worker a whole new table when the sequence comes back."""
        self._worker_tables.pop(sequence.seq_id, None)
        self.forget_read(sequence)
        for group in range(len(self._groups)):
            self._left.pop((sequence.seq_id, group), None)

    def accept(self, sequence: SequenceState, num_tokens: int, facts: set[str]) -> None:
        """So many drafts were right: states at the ends of blocks come into their own entries."""
        first = sequence.num_computed + 1
        for group, kind, _ in self._groups:
            if kind.is_state and self._model.profile.state_blocks:
                reached = range(first, first + num_tokens)
                if self._copy_to_own_entries(sequence, group, reached):
                    facts.add(END_AMONG_DRAFTS)

    def _copy_to_own_entries(
        self, sequence: SequenceState, group: int, states: Iterable[int]
    ) -> bool:
        """Copy those states that end a block into its own entry; whether there was one.

        Memory counts as unchanged for everybody else: what a copy spoils shows when it is read.
        """
        table = self._tables(sequence)[group]
        left = self._left[sequence.seq_id, group]
        copied = copied_to_own_entries(states, self._model.block_sizes[group])
        for until, entry in copied.items():
            if table[entry] != self._model.pool.null_block:
                self.device.copy_state(table[left[until]], table[entry])
                left[until] = entry
        return bool(copied)

    def load(self, sequence: SequenceState) -> None:
        """Note that a transfer has written the positions of a loading sequence."""
        self.has_changed = True
        self._write(sequence, sequence.loading)

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy within the device. A source that nobody has written yet may move as well."""
        if pairs:
            _require_blocks(pairs, self.device, self.device)
            self.device.copy(pairs)
            self.has_changed = True

    def copy_heads(self, copies: Sequence[tuple[int, int, int]]) -> None:
        """Copy the first tokens of blocks within the device, as an admission has ordered."""
        pairs = [(source, destination) for source, destination, count in copies if count]
        _require_blocks(pairs, self.device, self.device)
        self._report(copies_what_was_written(pairs, self.device.slots))
        self.device.copy_heads(copies)
        self.has_changed = True

    def swap_out(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy from the device to the host, including blocks that only wait for tokens."""
        _require_blocks(pairs, self.device, self.host)
        self.host.copy(pairs, self.device)

    def swap_in(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy from the host to the device."""
        _require_blocks(pairs, self.host, self.device)
        self.device.copy(pairs, self.host)
        self.has_changed = True

    def _write(self, sequence: SequenceState, count: int) -> None:
        tables, first = self._tables(sequence), sequence.num_computed
        writer = Writer(sequence.seq_id, self.command_number)
        for group, kind, size in self._groups:
            contents = sequence.contents[group]
            if kind.is_state:
                self._write_states(sequence, group, first + count, writer)
            else:
                computed = contents[first : first + count]
                self.device.write(tables[group], size, first, computed, writer)

    def _write_states(self, sequence: SequenceState, group: int, end: int, writer: Writer) -> None:
        """A step up to `end` leaves its states; without blocks for drafts only the last of them."""
        profile = self._model.profile
        known = end - sequence.num_drafts if profile.state_blocks else end
        left = left_in_columns(
            sequence.num_computed,
            known,
            end,
            self._model.block_sizes[group],
            every_block=profile.states == "every-block",
        )
        table, contents = self._tables(sequence)[group], sequence.contents[group]
        for until, entry in left.items():
            self.device.write_state(table[entry], contents[until - 1], writer)
        self._left[sequence.seq_id, group] = left
        self._copy_to_own_entries(sequence, group, (known,))

    def _tables(self, sequence: SequenceState) -> Tables:
        """The tables that the worker has."""
        if not self._reports:
            return sequence.tables
        return self._worker_tables.get(sequence.seq_id, sequence.tables)

    def _take_reports(self) -> None:
        """What the target tells the worker before a step: whole tables, or what was added."""
        for sequence in self._model.sequences.values():
            if sequence.place != "device" or not sequence.num_scheduled:
                continue
            worker = self._worker_tables.setdefault(
                sequence.seq_id, [[] for _ in self._model.groups]
            )
            for group in range(len(worker)):
                update = read(self._target.take_table_update, sequence.seq_id, group)
                try:
                    replaced, blocks = update
                    added = list(map(int, blocks))
                    if replaced or added:
                        worker[group] = [*([] if replaced else worker[group]), *added]
                except (TypeError, ValueError) as error:
                    call = f"take_table_update({sequence.seq_id}, {group})"
                    expected = "(replaced, block ids)"
                    raise ViolationError(meaningless_answer(call, update, expected)) from error
                self._judge_worker_table(sequence, worker[group], group)

    def _judge_worker_table(self, sequence: SequenceState, table: list[int], group: int) -> None:
        raise_for(
            worker_table_suffices(
                sequence.seq_id,
                group,
                table,
                num_blocks=self._model.pool.num_blocks,
                needed=self._model.num_entries(sequence, group),
            )
        )

    def _is_pending(self, group: int, misread: Misread) -> bool:
        """Whether a sequence that is scheduled now will write what was missing."""
        return self._will_hold(group, misread.block, misread.slot, misread.wanted)

    def _will_hold(self, group: int, block: int, slot: int, content: Content) -> bool:
        """Whether a sequence that is scheduled now will write that content there."""
        _, kind, size = self._groups[group]
        if not self.finds_unwritten or kind.is_state:
            return False
        for sequence in self._model.sequences.values():
            if sequence.place != "device":
                continue
            table, first = sequence.tables[group], sequence.num_computed
            # While a sequence grows, its table may be shorter than what is scheduled.
            end = min(first + sequence.num_scheduled, len(table) * size)
            for position in range(first + (slot - first) % size, end, size):
                is_there = table[position // size] == block
                if is_there and sequence.contents[group][position] == content:
                    return True
        return False

    def _violation(self, sequence: SequenceState, misread: Misread) -> Violation | None:
        prefix, writer = self._model.names.prefix, misread.writer
        wanted = prefix(misread.wanted)
        kind = self._model.groups[wanted.group].kind
        return reads_own_prefix(
            sequence.seq_id,
            misread.position,
            misread.block,
            misread.slot,
            wanted=wanted,
            found=None if misread.found is None else prefix(misread.found),
            writer=None if writer is None else (writer.seq_id, writer.command_number),
            what="a state" if kind == "state" else "KV",
            group=wanted.group if len(self._groups) > 1 else None,
        )


class HitSearch:
    """Whether blocks hold the KV that hits of one sequence need, at one length after another.

    As long as the memory stays as it is. What was found once is not looked for again: each length
    of a prompt of 65,541 tokens may be asked for, and the time counts as the target's.
    """

    def __init__(
        self,
        memory: ManagerMemory,
        groups: Iterable[tuple[int, CacheGroup, int]],
        sequence: SequenceState,
        is_usable: Callable[[int], bool],
    ) -> None:
        self._memory, self._sequence, self._is_usable = memory, sequence, is_usable
        # Windows first: where one of their few blocks is missing, nobody walks over the rest.
        self._groups = sorted(groups, key=lambda numbered: numbered[1].is_full)
        self._holders: dict[tuple[int, int], dict[Content, list[int]]] = {}
        self._num_found = [0] * len(self._groups)

    def holds(self, cached: int) -> bool:
        """Whether for each entry that a hit of `cached` tokens needs some block holds its KV."""
        return all(self._holds_in(group, kind, size, cached) for group, kind, size in self._groups)

    def _holds_in(self, group: int, kind: CacheGroup, size: int, cached: int) -> bool:
        first = max(0, cached - 1) if kind.is_state else kind.first_read(cached)
        begin, num_whole = first // size, cached // size
        if kind.is_full:
            begin = min(self._num_found[group], num_whole)
        for entry in range(begin, -(-cached // size)):
            if not self._holds_entry(group, kind, size, entry, cached):
                return False
            if kind.is_full and entry < num_whole:
                self._num_found[group] = entry + 1
        return True

    def _holds_entry(
        self, group: int, kind: CacheGroup, size: int, entry: int, cached: int
    ) -> bool:
        memory, sequence = self._memory, self._sequence
        last = min((entry + 1) * size, cached) - 1
        slot = 0 if kind.is_state else last % size
        if (group, slot) not in self._holders:
            self._holders[group, slot] = memory.holders_in(group, slot)
        content = sequence.contents[group][last]
        blocks = filter(self._is_usable, self._holders[group, slot].get(content, ()))
        if any(memory.holds_entry(sequence, group, entry, b, cached) for b in blocks):
            return True
        return kind.is_state and memory.will_be_left(group, content)


def _require_blocks(
    pairs: Sequence[tuple[int, int]], source: ShadowMemory, target: ShadowMemory
) -> None:
    raise_for(copies_name_blocks(pairs, len(source.slots), len(target.slots)))
