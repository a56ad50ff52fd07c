"""Reads block tables from a manager and judges every change of them against the model.

A change that the model does not allow is reported as a violation (I2, ADM, ORD, IDX); the model
follows those that it allows. `manager_memory.py` compares KV contents.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.violation import Violation, ViolationError, raise_for
from poolproof.harness.every_invariant import EveryInvariant
from poolproof.harness.manager_facts import ManagerFacts
from poolproof.harness.manager_memory import ManagerMemory
from poolproof.harness.reading import read, read_blocks
from poolproof.invariants.admission import covers_its_tokens, holds_no_more_than_needed
from poolproof.invariants.index_answers import hit_carries_key
from poolproof.invariants.reuse_order import entries_from_head
from poolproof.invariants.stable_ids import (
    copied_elsewhere,
    hit_was_free,
    new_entries_were_free,
    no_plain_id,
    still_read,
    table_names_blocks,
    table_stays,
)
from poolproof.invariants.wording import sequence_name
from poolproof.reference.sequence_model import SequenceModel, SequenceState, Tables

__all__ = ["TableJudge"]

NewEntry = tuple[int, int, int]
"""A group, the number of an entry of its table, and the block that it names."""

_INTEGERS = frozenset({int})


class TableJudge:
    """The tables that a target shows, compared with those that the model knows."""

    def __init__(
        self,
        target: Any,
        model: SequenceModel,
        memory: ManagerMemory,
        facts: ManagerFacts,
        invariants: EveryInvariant,
    ) -> None:
        self._report = invariants.report
        self._memory = memory
        self._facts = facts
        self._block_table = target.block_table
        self._model = model
        self._groups = range(len(model.groups))
        self._single = len(model.groups) == 1
        self._sorts_by_keys = model.profile.reuses_unhashed_first
        self._reuses = model.profile.window_blocks == "reused"
        self._null = model.pool.null_block
        profile = model.profile
        self._slides_any_time = profile.by_content and self._null is not None and not self._reuses
        self._shares = profile.by_content and model.enable_caching and not self._reuses
        self._merges = self._shares and profile.may_merge
        self._is_exact = model.profile.admission != "sound"

    @property
    def may_change(self) -> bool:
        """Whether the target may change tables by itself: windows slide, duplicates are merged."""
        return self._slides_any_time or self._merges

    def shown(self, sequence: SequenceState) -> Tables:
        """The tables of a sequence, as plain lists of ours. Raises ViolationError for others."""
        seq_id = sequence.seq_id
        pool = self._model.host if sequence.place == "host" else self._model.pool
        tables = []
        for group in self._groups:
            arguments = (seq_id,) if self._single else (seq_id, group)
            answer = read(self._block_table, *arguments)
            table = (
                list(answer)
                if type(answer) is list and _INTEGERS.issuperset(map(type, answer))
                else self._as_blocks(seq_id, answer)
            )
            raise_for(table_names_blocks(seq_id, table, pool.num_blocks))
            tables.append(table)
        return tables

    @staticmethod
    def _as_blocks(seq_id: int, answer: Any) -> list[int]:
        """An answer of another type, as a plain list. Raises ViolationError for what is none."""

        def block_table() -> Any:
            return answer

        block_table.__name__ = f"block_table({sequence_name(seq_id)})"
        blocks = read_blocks(block_table)
        wrong = next((item for item in answer if isinstance(item, bool)), None)
        if wrong is not None:
            raise ViolationError(no_plain_id(block_table.__name__, str(wrong), "a truth value"))
        return blocks

    def all_unchanged(self, command: Command, *, refused: bool = False) -> None:
        """Raises ViolationError if the table of a sequence is not what the model knows.

        Of a command that was `refused` its caller says so.
        """
        for sequence in self._model.sequences.values():
            if sequence.place == "nowhere" or sequence.ended:
                continue
            if not self._is_unchanged(sequence):
                shown = self.shown(sequence)
                if self._follows(sequence, shown):
                    continue
                for group, (table, now) in enumerate(zip(sequence.tables, shown, strict=True)):
                    if now != table:
                        why = self._let_go(sequence, group, now)
                        why = why or ("" if refused else f"{command} may not change it")
                        self._report(self._changed(sequence, group, now, why))
                # Where that is passed over, the worker reads through what is shown all the same.
                sequence.tables = shown

    def _is_unchanged(self, sequence: SequenceState) -> bool:
        """Whether lists equal to the known tables are shown; others are read with care."""
        seq_id, block_table = sequence.seq_id, self._block_table
        try:
            if self._single:
                return _are_equal(block_table(seq_id), sequence.tables[0])
            return all(
                _are_equal(block_table(seq_id, group), table)
                for group, table in enumerate(sequence.tables)
            )
        except (Exception, SystemExit):
            return False

    def follow_slides(self) -> None:
        """Lets the model follow windows that slid by themselves, at the end of a step say."""
        if not (self._slides_any_time and self._model.has_windows):
            return
        slid: list[tuple[SequenceState, Tables]] = []
        for sequence in self._model.sequences.values():
            if sequence.place == "device" and not sequence.ended:
                shown = self.shown(sequence)
                if shown != sequence.tables and self._has_only_slid(sequence, shown):
                    slid.append((sequence, shown))
        if len(slid) > 1 or (slid and self._model.leaving):
            self._model.pool.ordered = False  # nobody saw which of them gave back first
        for sequence, shown in slid:
            self._follows(sequence, shown)

    def _follows(self, sequence: SequenceState, shown: Tables) -> bool:
        """Follow changed tables that are read as before, and tell whether that is so.

        What slid out of the window is not read any more, and a duplicate holds the same.
        """
        merged: set[int] = set()
        for group, (old, new) in enumerate(zip(sequence.tables, shown, strict=True)):
            if len(old) != len(new):
                return False
            for entry, (was, now) in enumerate(zip(old, new, strict=True)):
                if was == now or self._is_slid(sequence, group, entry, now):
                    continue
                if not self._is_merged_rightly(sequence, group, entry, now):
                    return False
                merged.add(now)
        if self._null is not None and any(self._null in table for table in shown):
            self._facts.add("a block slid out of the window")
        if merged:
            self._facts.add("a duplicate was merged")
            self._memory.has_changed = True
            self._model.merge(sequence, self._only_merged(sequence, shown))
        self._model.follow(sequence, shown)
        return True

    def _only_merged(self, sequence: SequenceState, shown: Tables) -> Tables:
        """The tables as they were, but for the duplicates that were merged."""
        pairs = zip(sequence.tables, shown, strict=True)
        return [
            [was if now == self._null else now for was, now in zip(old, new, strict=True)]
            for old, new in pairs
        ]

    def before_slides(self, sequence: SequenceState, shown: Tables) -> Tables:
        """The tables that are shown, but for what slid out of a window, which stays for now.

        A target that merges duplicates when it publishes may let a window slide with them; that
        is followed once the step is over.
        """
        if not (self._slides_any_time and self._model.has_windows):
            return shown
        pairs = zip(sequence.tables, shown, strict=True)
        return [
            [
                old[entry]
                if entry < len(old) and self._is_slid(sequence, group, entry, now)
                else now
                for entry, now in enumerate(new)
            ]
            for group, (old, new) in enumerate(pairs)
        ]

    def _has_only_slid(self, sequence: SequenceState, shown: Tables) -> bool:
        return all(
            len(old) == len(new)
            and all(
                was == now or self._is_slid(sequence, group, entry, now)
                for entry, (was, now) in enumerate(zip(old, new, strict=True))
            )
            for group, (old, new) in enumerate(zip(sequence.tables, shown, strict=True))
        )

    def _is_slid(self, sequence: SequenceState, group: int, entry: int, now: int) -> bool:
        """Whether the null block stands where the sequence reads nothing any more."""
        first = self._model.groups[group].first_read(sequence.num_computed)
        is_unread = entry < first // self._model.block_sizes[group]
        return self._slides_any_time and now == self._null and is_unread

    def _is_merged_rightly(self, sequence: SequenceState, group: int, entry: int, now: int) -> bool:
        """Whether another block took the place of a full one and holds just the same.

        What is not computed yet is written there with the content that it has.
        """
        if not self._merges or now == self._null or now in sequence.tables[group]:
            return False
        if not self.has_room_in(now):
            return False
        end = (entry + 1) * self._model.block_sizes[group]
        is_full = end <= sequence.num_tokens
        return is_full and self._memory.holds_entry(sequence, group, entry, now, end)

    def has_room_in(self, block: int) -> bool:
        """Whether one more sequence may hold a block, which is not so where they are exclusive."""
        return not (self._model.is_exclusive and self._model.users(block))

    def _alike(
        self, sequence: SequenceState, new: Sequence[NewEntry], hits: Collection[int]
    ) -> set[int]:
        """New blocks that hold what the sequence is going to write there: nobody sees a change.

        Either others hold them, or they are cached and free, and are taken as they are; a whole
        block may have kept a key that the model has dropped.
        """
        if not self._shares:
            return set()
        pool, sizes, full = self._model.pool, self._model.block_sizes, sequence.num_tokens
        blocks = [block for _, _, block in new]
        alike = {
            block
            for group, entry, block in new
            if (pool.holders[block] or pool.keys[block] or (entry + 1) * sizes[group] <= full)
            and block not in hits
            and self.has_room_in(block)
            and blocks.count(block) == 1
            and self._memory.holds_entry(sequence, group, entry, block, full)
        }
        if self._sorts_by_keys:
            # Whether they kept their keys shows where they go once they are free, and not before.
            pool.doubtful.update(b for b in alike if b in pool.free and pool.keys[b])
        return alike

    def _is_fresh(
        self,
        sequence: SequenceState,
        blocks: Sequence[int],
        hits: Collection[int],
        given_back: Collection[int],
    ) -> bool:
        """Whether new blocks are what any allocation may give, in whichever entries."""
        free = self._model.pool.free
        if given_back:
            return all(block in free or block in given_back for block in blocks)
        if not all(block in free for block in blocks):
            return False
        return self._out_of_order(sequence, blocks, hits) is None

    def judge_admission(
        self,
        command: Command,
        sequence: SequenceState,
        cached: int,
        tables: Tables,
        num_shared: Sequence[int],
    ) -> set[int]:
        """The tables of a sequence that was admitted with `cached` tokens; lengths, then blocks.

        In each group `num_shared` entries are hits, and the others new blocks. Returns those new
        ones that others may see, since they hold what will be written to them.
        """
        model = self._model
        self._judge_lengths(command, sequence, tables, [0] * len(tables))
        hits: set[int] = set()
        new: list[NewEntry] = []
        for group, table in enumerate(tables):
            end = num_shared[group]
            needed = model.hit_entries(group, cached)
            for entry in range(end):
                block = table[entry]
                if block == self._null and entry not in needed:
                    continue
                if block == self._null or block in hits:  # neither carries this key
                    self._report(hit_carries_key(sequence.seq_id, block, entry, ()))
                hits.add(block)
                if model.is_exclusive:
                    users = model.users(block)
                    self._report(hit_was_free(sequence.seq_id, block, entry, users))
            new += self._distinct(group, end, table[end:])
        return self._judge_new(sequence, new, hits)

    def judge_hits(
        self, sequence: SequenceState, cached: int, tables: Tables, num_shared: Sequence[int]
    ) -> None:
        """The blocks of the cached prefix carry its keys."""
        model = self._model
        for group, table in enumerate(tables):
            for entry in range(num_shared[group]):
                block = table[entry]
                if block == self._null and entry not in model.hit_entries(group, cached):
                    continue
                carriers = model.pool.lookup(model.key(sequence, group, entry))
                self._report(hit_carries_key(sequence.seq_id, block, entry, carriers))

    def judge_growth(
        self,
        command: Command,
        sequence: SequenceState,
        tables: Tables,
        copies: Sequence[tuple[int, int]] = (),
        *,
        shrinks: bool = False,
    ) -> set[int]:
        """The tables of an admitted sequence after it has changed.

        What was there stays, but for blocks that slid out of the window, destinations of copies,
        and, where it `shrinks`, the tail. Returns the new blocks that it rightly shares.
        """
        model = self._model
        old_tables = sequence.tables
        self._judge_lengths(command, sequence, tables, [*map(len, old_tables)])
        if tables == old_tables:
            return set()
        copied = set(copies)
        new: list[NewEntry] = []
        merged: set[int] = set()
        for group, (old, shown) in enumerate(zip(sequence.tables, tables, strict=True)):
            if shown[: len(old)] == old:
                new += self._distinct(group, len(old), shown[len(old) :])
                continue
            size = model.block_sizes[group]
            if len(shown) < len(old) and not shrinks:
                why = f"{command} may not shorten it"
                self._report(self._changed(sequence, group, shown, why))
            unread = model.groups[group].first_read(sequence.num_computed) // size
            moved = self._moved_along(sequence, group, shown)
            for entry, (was, now) in enumerate(zip(old, shown, strict=False)):
                if was == now or (now == self._null and (entry < unread or was in moved)):
                    continue
                holds_nothing = entry * size >= sequence.num_computed + sequence.loading
                if (was, now) not in copied and not holds_nothing:
                    if self._is_merged_rightly(sequence, group, entry, now):
                        merged.add(now)
                        continue
                    why = self._let_go(sequence, group, shown)
                    why = why or copied_elsewhere(entry, was, now, copies)
                    self._report(self._changed(sequence, group, shown, why))
                new.append((group, entry, now))
            added = self._distinct(group, len(old), shown[len(old) :])
            new += [one for one in added if one[2] not in moved]
        if self._reuses:
            held = {block for table in sequence.tables for block in table}
            first = {block: (group, entry, block) for group, entry, block in reversed(new)}
            new = [first[b] for b in dict.fromkeys(b for _, _, b in new) if b not in held]
        if not new:
            return merged
        return merged | self._judge_new(sequence, new, merged, self._given_back(sequence, tables))

    def _moved_along(self, sequence: SequenceState, group: int, shown: Sequence[int]) -> set[int]:
        """Blocks for states behind drafts that stand further on, in the same table, than before.

        They move where a step passes their entries, in which it leaves no state: null blocks stand
        there then.
        """
        rows, old = self._model.profile, sequence.tables[group]
        kind, size = self._model.groups[group], self._model.block_sizes[group]
        if not (kind.is_state and rows.state_blocks and rows.states == "step-end"):
            return set()
        added = shown[len(old) :]
        return {
            was
            for entry, (was, now) in enumerate(zip(old, shown, strict=False))
            if now == self._null and entry * size >= sequence.num_computed and added.count(was) == 1
        }

    def judge_merge(self, sequence: SequenceState, tables: Tables) -> None:
        """Every entry that changed names a carrier of the key that its block has."""
        model = self._model
        for group, (old, shown) in enumerate(zip(sequence.tables, tables, strict=True)):
            if len(old) != len(shown):
                why = "merging duplicates may not change its length"
                self._report(self._changed(sequence, group, shown, why))
            for entry, (was, now) in enumerate(zip(old, shown, strict=True)):
                if was == now:
                    continue
                if self._is_merged_rightly(sequence, group, entry, now):
                    continue
                if entry >= sequence.num_keyed[group]:
                    why = f"entry {entry} has no key yet, so block {was} is nobody's duplicate"
                    self._report(self._changed(sequence, group, shown, why))
                carriers = model.found(model.key(sequence, group, entry))
                self._report(hit_carries_key(sequence.seq_id, now, entry, carriers))

    def _changed(
        self, sequence: SequenceState, group: int, shown: Sequence[int], why: str
    ) -> Violation | None:
        named = None if self._single else group
        return table_stays(sequence.seq_id, sequence.tables[group], shown, why, named)

    def _let_go(self, sequence: SequenceState, group: int, shown: Sequence[int]) -> str:
        """What is wrong if the first change is a null block where positions are still read."""
        table = sequence.tables[group]
        for entry, (was, now) in enumerate(zip(table, shown, strict=False)):
            if was != now:
                first = self._model.groups[group].first_read(sequence.num_computed)
                is_read = entry >= first // self._model.block_sizes[group]
                return still_read(entry, was, first) if now == self._null and is_read else ""
        return ""

    def _given_back(self, sequence: SequenceState, tables: Tables) -> list[int]:
        """What the sequence alone held and lost by this command: its tail, or behind a window."""
        tails = [
            block
            for old, shown in zip(sequence.tables, tables, strict=True)
            for block in old[len(shown) :]
            if self._model.pool.holders[block] == [sequence.seq_id]
        ]
        return tails + self._model.sliding_out(sequence)

    def _distinct(self, group: int, first: int, blocks: Sequence[int]) -> list[NewEntry]:
        """New entries from `first` on, no null blocks; a ring may name a block several times."""
        null = self._null
        real = [(group, entry, b) for entry, b in enumerate(blocks, first) if b != null]
        if not self._reuses:
            return real
        return [entry for entry in real if entry[2] not in blocks[: entry[1] - first]]

    def _judge_lengths(
        self, command: Command, sequence: SequenceState, tables: Tables, least: Sequence[int]
    ) -> None:
        for group, table in enumerate(tables):
            needed, length = self._model.num_entries(sequence, group), len(table)
            if length == needed:
                continue
            self._report(covers_its_tokens(command, sequence.seq_id, length, needed))
            if length > least[group] and self._is_exact:
                self._report(holds_no_more_than_needed(command, sequence.seq_id, length, needed))

    def _judge_new(
        self,
        sequence: SequenceState,
        entries: Sequence[NewEntry],
        hits: Collection[int],
        given_back: Sequence[int] = (),
    ) -> set[int]:
        """Each new block was free, is there once, and came from the head of the queue.

        Blocks that the same command gave back count as free; where they stand is not judged.
        Returns those that need not be free, because nobody sees what is written to them.
        """
        pool = self._model.pool
        blocks = [block for _, _, block in entries]
        if self._slides_any_time and not all(block in pool.free for block in blocks):
            self.follow_slides()
        is_fresh = self._is_fresh(sequence, blocks, hits, given_back)
        is_distinct = len({*hits, *blocks}) == len(hits) + len(blocks)
        if is_fresh and is_distinct and not given_back:
            return set()
        shared = set() if is_fresh else self._alike(sequence, entries, hits)
        new = [block for block in blocks if block not in shared]
        hits = {*hits, *shared} if shared else hits
        free: Any = {*pool.free, *given_back} if given_back else pool.free
        holders_of = pool.holders.__getitem__
        self._report(new_entries_were_free(sequence.seq_id, new, free, holders_of, hits))
        if new and free is pool.free:
            self._report(self._out_of_order(sequence, new, hits))
        return shared

    def _out_of_order(
        self, sequence: SequenceState, new: Sequence[int], hits: Collection[int]
    ) -> Violation | None:
        """New blocks are at the head of the queue, once the hits have left it, if that is known."""
        pool = self._model.pool
        if not pool.ordered:
            return None
        left = (block for block in pool.free if block not in hits) if hits else pool.free
        head = list(islice(left, len(new)))
        return entries_from_head(sequence.seq_id, new, head, self._model.profile.eviction)


def _are_equal(shown: Any, table: list[int]) -> bool:
    """Whether a plain list of plain integers equals the table.

    Anything that is not a list, or holds anything else, is read carefully: it may equal everything.
    """
    return type(shown) is list and shown == table and _INTEGERS.issuperset(map(type, shown))
