"""Growth: further tokens, chunks, drafts, the forward pass, forks and truncation.

This file judges whether a refusal is right (ADM), `manager_tables.py` the changed tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.manager_commands import (
    Accept,
    AppendTokens,
    Draft,
    Fork,
    Schedule,
    Step,
    Truncate,
)
from poolproof.harness.every_invariant import EveryInvariant
from poolproof.harness.manager_cache import CacheJudge
from poolproof.harness.manager_calls import ManagerCalls, is_later
from poolproof.harness.manager_facts import ManagerFacts
from poolproof.harness.manager_memory import ManagerMemory
from poolproof.harness.manager_tables import TableJudge
from poolproof.invariants.admission import put_off_only_if_full
from poolproof.invariants.stable_ids import new_entries_were_free
from poolproof.reference.sequence_model import SequenceModel, SequenceState

__all__ = ["GrowthJudge"]


@dataclass(slots=True, eq=False)
class GrowthJudge:
    """Judges commands that change what a sequence consists of, and the step that computes it."""

    calls: ManagerCalls
    model: SequenceModel
    tables: TableJudge
    memory: ManagerMemory
    cache: CacheJudge
    facts: ManagerFacts
    invariants: EveryInvariant

    def step(self, command: Step) -> None:
        batch = [
            (s.seq_id, s.num_scheduled + s.num_drafts)
            for s in self.model.sequences.values()
            if s.num_scheduled
        ]
        sampled = self.model.sampled_by_step()
        told = {"sampled": list(sampled.items())} if self._tells else {}
        self.calls.call(command, batch, **told)
        self.memory.forward(self.facts)
        for sequence in self.model.sequences.values():
            if sequence.num_scheduled:
                self.model.computed(sequence)
                sequence.told = sampled.get(sequence.seq_id)
                self.cache.publish(sequence)
        self.tables.follow_slides()
        self.model.drain()

    @property
    def _tells(self) -> bool:
        """Whether the manager is told at once what a step samples."""
        return self.model.profile.sampled == "with-step"

    def append(self, command: AppendTokens) -> None:
        sequence = self.model.sequences[command.seq_id]
        before = sequence.chain
        is_sampling = len(command.tokens) == 1 and not sequence.num_scheduled
        self.model.append(sequence, command.tokens)
        sequence.num_scheduled += len(command.tokens)
        first = len(before.tokens)
        if self._grow(command, sequence, first, sequence.seq_id, list(command.tokens)):
            sequence.is_sampling = is_sampling
            sequence.told = None
            self.facts.add("a sequence grew")
            return
        sequence.num_scheduled -= len(command.tokens)
        sequence.chain, sequence.num_tokens = before, len(before.tokens)
        self.model.drop_drafts(sequence)

    def schedule(self, command: Schedule) -> None:
        sequence = self.model.sequences[command.seq_id]
        first = sequence.num_computed + sequence.num_scheduled
        sequence.num_scheduled += command.num_tokens
        if self._grow(command, sequence, first, sequence.seq_id, command.num_tokens):
            sequence.is_sampling = False
            self.facts.add("a prompt was computed in chunks")
        else:
            sequence.num_scheduled -= command.num_tokens

    def draft(self, command: Draft) -> None:
        sequence = self.model.sequences[command.seq_id]
        first = sequence.num_tokens
        self.model.draft(sequence, command.tokens)
        if not self._grow(command, sequence, first, sequence.seq_id, list(command.tokens)):
            self.model.drop_drafts(sequence)

    def _grow(
        self, command: Command, sequence: SequenceState, first_new: int, *arguments: Any
    ) -> bool:
        """Ask for slots from position `first_new` on; False if the target rightly put it off."""
        model = self.model
        answer = self.calls.call(command, *arguments)
        if is_later(answer):
            self.calls.refused = True
            self.facts.add("a growth was refused")
            needed = model.num_new_entries(sequence)
            needed += model.num_copied_on_write(sequence, first_new)
            room = len(model.pool.free) + len(model.sliding_out(sequence))
            if model.profile.admission == "exact":
                self.invariants.report(put_off_only_if_full(command, needed, room))
            self._follow_window(sequence)
            return False
        pairs = self.calls.pairs(command, answer)
        tables = self.tables.shown(sequence)
        alike = self.tables.judge_growth(command, sequence, tables, pairs)
        self._note_window(sequence, tables)
        model.follow(sequence, tables, alike)
        model.will_write(sequence, first_new)
        self.memory.copy(pairs)
        if len(pairs) > self._keep(sequence, pairs):
            self.facts.add("a block was copied on write")
        self.cache.publish(sequence)
        return True

    def _keep(self, sequence: SequenceState, pairs: Sequence[tuple[int, int]]) -> int:
        """Follow copies into blocks that stand in no table of the sequence, and count them.

        So a state inside a block is kept under its key, in a free block, before the sequence goes
        on from it.
        """
        if not self.model.profile.hash_tokens:
            return 0
        pool = self.model.pool
        held = {block for table in sequence.tables for block in table}
        kept = [into for _, into in pairs if into not in held]
        if kept:
            self.invariants.report(
                new_entries_were_free(
                    sequence.seq_id, kept, pool.free, pool.holders.__getitem__, ()
                )
            )
            free = [block for block in dict.fromkeys(kept) if block in pool.free]
            pool.command_number = sequence.seq_id
            pool.allocate(len(free), free)
            pool.release(free, sequence.seq_id)
            self.facts.add("a state was kept before its sequence went on")
        return len(kept)

    def _follow_window(self, sequence: SequenceState) -> None:
        """A refused growth may have released what slid out of the window, and nothing else."""
        model, null = self.model, self.model.pool.null_block
        if null is None:
            return
        tables = self.tables.shown(sequence)
        for group, (table, shown) in enumerate(zip(sequence.tables, tables, strict=True)):
            unread = model.groups[group].first_read(sequence.num_computed)
            first = unread // model.block_sizes[group]
            if shown[first:] != table[first:] or not {*shown[:first]} <= {null, *table[:first]}:
                return  # `unchanged` names it
        model.follow(sequence, tables)

    def _note_window(self, sequence: SequenceState, tables: list[list[int]]) -> None:
        null = self.model.pool.null_block
        if null is not None and any(
            null in shown and null not in table
            for table, shown in zip(sequence.tables, tables, strict=True)
        ):
            self.facts.add("a block slid out of the window")

    def accept(self, command: Accept) -> None:
        sequence = self.model.sequences[command.seq_id]
        contents = sequence.contents[0]
        drafted = contents[sequence.num_tokens : sequence.num_tokens + command.num_tokens]
        tokens = [self.model.names.last_token(content) for content in drafted]
        if command.num_tokens < sequence.num_drafts:
            self.facts.add("drafts were rejected")
        sampled = self.model.sampled(sequence, command.num_tokens) if self._tells else None
        told = {"sampled": sampled} if self._tells else {}
        self.calls.call(command, sequence.seq_id, command.num_tokens, **told)
        self.memory.accept(sequence, command.num_tokens, self.facts)
        self.model.accept(sequence, tokens)
        sequence.told = sampled
        tables = self._unmerged(sequence, self.tables.shown(sequence))
        alike = self.tables.judge_growth(command, sequence, tables, shrinks=True)
        self.model.follow(sequence, tables, alike)
        if self.model.profile.publishes != "scheduled":
            self.cache.publish(sequence)

    def _unmerged(self, sequence: SequenceState, shown: list[list[int]]) -> list[list[int]]:
        """The tables before their duplicates were merged, which is judged on publication."""
        if self.model.profile.tables != "merged":
            return shown
        pairs = zip(sequence.tables, shown, strict=True)
        return [[*old[: len(now)], *now[len(old) :]] for old, now in pairs]

    def truncate(self, command: Truncate) -> None:
        sequence = self.model.sequences[command.seq_id]
        answer = self.calls.call(command, sequence.seq_id, command.num_tokens)
        if is_later(answer):
            self.calls.refused = True
            free = len(self.model.pool.free)
            needed = self.model.num_cut(sequence, command.num_tokens)
            if self.model.profile.admission == "exact":
                self.invariants.report(put_off_only_if_full(command, needed, free))
            return
        pairs = self.calls.pairs(command, answer)
        tables = self.tables.shown(sequence)
        self.model.truncate(sequence, command.num_tokens)
        alike = self.tables.judge_growth(command, sequence, tables, pairs, shrinks=True)
        self.model.follow(sequence, tables, alike)
        self.memory.copy(pairs)
        self.facts.add("a tail was cut off")

    def fork(self, command: Fork) -> None:
        parent = self.model.sequences[command.seq_id]
        child = self.model.new_sequence(command.child_id, parent.chain)
        answer = self.calls.call(command, parent.seq_id, child.seq_id)
        if is_later(answer):
            self.calls.refused = True
            needed, free = self.model.num_forked(parent), len(self.model.pool.free)
            is_right = self.model.profile.admission == "sound" or self.model.has_no_row()
            if not is_right:
                self.invariants.report(put_off_only_if_full(command, needed, free))
            return
        pairs = self.calls.pairs(command, answer)
        self.model.share(parent, child)
        tables = self.tables.shown(child)
        alike = self.tables.judge_growth(command, child, tables, pairs, shrinks=True)
        self.model.follow(child, tables, alike)
        self.memory.copy(pairs)
        if pairs:
            self.facts.add("a block was copied on write")
        self.facts.add("a sequence was forked")
