"""Endings: preemption, swapping, the end of a sequence, and the reset of the cache."""

from __future__ import annotations

from dataclasses import dataclass

from poolproof.contract.commands import Command, Reset
from poolproof.contract.manager_commands import (
    Abort,
    Finish,
    Preempt,
    SwapIn,
    SwapOut,
)
from poolproof.harness.every_invariant import EveryInvariant
from poolproof.harness.manager_cache import CacheJudge
from poolproof.harness.manager_calls import ManagerCalls, is_later
from poolproof.harness.manager_facts import ManagerFacts
from poolproof.harness.manager_memory import ManagerMemory
from poolproof.harness.manager_tables import TableJudge
from poolproof.invariants.admission import put_off_only_if_full
from poolproof.invariants.refusals import reset_iff_nobody_holds
from poolproof.invariants.stable_ids import new_entries_were_free
from poolproof.reference.dict_pool import DictPool
from poolproof.reference.sequence_model import SequenceModel, SequenceState

__all__ = ["EndingJudge"]


@dataclass(slots=True, eq=False)
class EndingJudge:
    """Judges commands that take a sequence's blocks away, for a while or for good."""

    calls: ManagerCalls
    model: SequenceModel
    tables: TableJudge
    memory: ManagerMemory
    cache: CacheJudge
    facts: ManagerFacts
    invariants: EveryInvariant

    def preempt(self, command: Preempt) -> None:
        sequence = self.model.sequences[command.seq_id]
        self.calls.call(command, sequence.seq_id)
        self.model.preempt(sequence)
        self.memory.forget(sequence)
        self.facts.add("a sequence was preempted")

    def swap_out(self, command: SwapOut) -> None:
        model = self.model
        family = model.family_of(model.sequences[command.seq_id])
        answer = self.calls.call(command, command.seq_id)
        if is_later(answer):
            self._judge_swap_refusal(command, family, len(model.host.free), 0)
            return
        pairs = self.calls.pairs(command, answer)
        self.memory.swap_out(pairs)
        self._move(family, "host", model.host)
        self.facts.add("a sequence was swapped out")

    def swap_in(self, command: SwapIn) -> None:
        model = self.model
        family = model.family_of(model.sequences[command.seq_id])
        answer = self.calls.call(command, command.seq_id)
        if is_later(answer):
            spare = len(family) + model.profile.watermark_blocks
            self._judge_swap_refusal(command, family, len(model.pool.free), spare)
            return
        pairs = self.calls.pairs(command, answer)
        self.memory.swap_in(pairs)
        self._move(family, "device", model.pool)
        for sequence in family:
            self.cache.publish(sequence)
        self.facts.add("a sequence was swapped in")

    def _move(self, family: list[SequenceState], place: str, pool: DictPool) -> None:
        """Let the model follow a family to other blocks, which must have been free there."""
        for sequence in family:
            self.model.release(sequence)
            sequence.place = place
        tables = [self.tables.shown(sequence) for sequence in family]
        for sequence, its_tables in zip(family, tables, strict=True):
            blocks = {block for table in its_tables for block in table}
            new = [block for block in blocks if block != pool.null_block]
            holders_of = pool.holders.__getitem__
            self.invariants.report(
                new_entries_were_free(sequence.seq_id, new, pool.free, holders_of)
            )
        self.model.settle(family, tables, pool)

    def _judge_swap_refusal(
        self, command: Command, family: list[SequenceState], free: int, spare: int
    ) -> None:
        """An engine may keep a block for each sequence and the watermark in reserve."""
        self.calls.refused = True
        needed = len({block for s in family for table in s.tables for block in table})
        if self.model.profile.admission != "sound":
            self.invariants.report(put_off_only_if_full(command, needed, free, reserve=spare))

    def finish(self, command: Finish | Abort) -> None:
        sequence = self.model.sequences.get(command.seq_id)
        self.calls.call(command, command.seq_id)
        if sequence is None:
            self.facts.add("a sequence was ended a second time or before it was admitted")
            return
        if sequence.place == "nowhere":
            self.facts.add("a preempted sequence was ended")
        self.model.end(sequence, finished=isinstance(command, Finish))
        self.memory.forget_read(sequence)
        self.facts.add("a sequence ended")

    def reset(self, command: Reset) -> None:
        answer = self.calls.call(command)
        expected = self.model.reset()
        self.invariants.report(reset_iff_nobody_holds(answer, nobody_holds=expected))
        if expected and self.model.profile.by_content:
            self.memory.void()
        self.facts.add("the cache was reset" if expected else "a reset was refused")
