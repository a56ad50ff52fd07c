"""The prefix cache of a manager: which blocks get keys, merge, are shown as cached, are dropped.

`manager_admissions.py` judges what a sequence finds in it on admission.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from poolproof.contract.target import Capabilities
from poolproof.harness.every_invariant import EveryInvariant
from poolproof.harness.manager_facts import ManagerFacts
from poolproof.harness.manager_memory import ManagerMemory
from poolproof.harness.manager_tables import TableJudge
from poolproof.invariants.cached_usable import computed_block_is_cached
from poolproof.invariants.index_answers import cached_block_is_computed
from poolproof.reference.sequence_model import SequenceModel, SequenceState

__all__ = ["CacheJudge"]


class CacheJudge:
    """What is cached, in a target's own words (`is_cached`) and in the model's.

    `follows_drops` says whether the target may drop free cached blocks and shows it, so that the
    model must follow.
    """

    def __init__(
        self,
        target: Any,
        can: Capabilities,
        model: SequenceModel,
        tables: TableJudge,
        memory: ManagerMemory,
        *,
        facts: ManagerFacts,
        invariants: EveryInvariant,
    ) -> None:
        profile = model.profile
        self._model = model
        self._tables = tables
        self._memory = memory
        self._facts = facts
        self._report = invariants.report
        self._is_cached = target.is_cached if can.sees("is_cached") else _unseen
        self._merges = profile.tables == "merged"
        self._may_drop = profile.retention == "may-drop"
        self._by_content = profile.by_content
        self._compares = can.sees("is_cached") and profile.hits == "exact" and model.enable_caching
        self.follows_drops = self._compares and profile.retention == "may-drop"

    def publish(self, sequence: SequenceState) -> None:
        """Give full blocks their keys; if duplicates are merged, the table may follow."""
        self._model.publish(sequence)
        if self._merges and sequence.place == "device":
            self._merge(sequence)

    def _merge(self, sequence: SequenceState) -> None:
        """Let a table name another carrier of a full block's key from now on."""
        tables = self._tables.before_slides(sequence, self._tables.shown(sequence))
        self._tables.judge_merge(sequence, tables)
        if tables != sequence.tables:
            self._facts.add("a duplicate was merged")
            self._model.merge(sequence, tables)
            self._memory.has_changed = True

    def compare(self) -> None:
        """Reports a block that is shown as cached and has no key, or has one and is not shown."""
        if not self._compares:
            return
        is_cached, keys_of = self._is_cached, self._model.pool.keys
        # By their truth values: an answer of another type may compare as it likes.
        if list(map(bool, map(is_cached, keys_of))) == list(map(bool, keys_of.values())):
            return
        if self._by_content:
            self._compare_contents()
            return
        for block, keys in keys_of.items():
            if self._model.is_exclusive and self._model.pool.holders[block]:
                continue  # nobody finds it, whatever its key is
            known = {
                "is_cached": bool(is_cached(block)),
                "is_computed": bool(keys),
                "is_held": bool(self._model.pool.holders[block]),
            }
            self._report(computed_block_is_cached(block, **known))
            self._report(cached_block_is_computed(block, **known))

    def _compare_contents(self) -> None:
        """Reports a block that is shown as cached and is not full of the KV of one prefix.

        It may be shown before it is computed, if its holder's tokens fill it.
        """
        pool, profile = self._model.pool, self._model.profile
        if profile.keys != "block":
            return
        for block, keys in pool.keys.items():
            is_shown = bool(self._is_cached(block))
            if is_shown == bool(keys) or block in pool.doubtful:
                continue
            known = {"is_cached": is_shown, "is_held": bool(pool.holders[block])}
            if is_shown and not (self._memory.holds_whole_block(block) or self._fills(block)):
                self._report(cached_block_is_computed(block, is_computed=False, **known))
            if not is_shown and not pool.holders[block] and profile.declares("hits"):
                self._report(computed_block_is_cached(block, is_computed=True, **known))

    def _may_be_early(self, block: int) -> bool:
        return self._by_content and self._fills(block)

    def _fills(self, block: int) -> bool:
        """Whether the tokens of a sequence fill a block that it holds."""
        model = self._model
        holders = {*model.pool.holders[block]} & model.sequences.keys()
        if block == model.pool.null_block:
            holders = set(model.sequences)  # it stands in tables, and nobody counts who has it
        return any(
            block in table[: sequence.num_tokens // size]
            for sequence in map(model.sequences.__getitem__, holders)
            for table, size in zip(sequence.tables, model.block_sizes, strict=True)
        )

    def follow_drops(self, sequence: SequenceState | None = None) -> None:
        """The target has dropped free cached blocks; let the model follow.

        Either all of them, or those that the prefix of one sequence would find. Doubts end here.
        """
        model = self._model
        blocks: Iterable[int] = (*model.pool.free, *model.pool.doubtful)
        if sequence is not None:
            blocks = [
                block
                for group, size in enumerate(model.block_sizes)
                for entry in range(sequence.num_tokens // size)
                for block in model.pool.lookup(model.key(sequence, group, entry))
            ]
        pool, is_cached = model.pool, self._is_cached
        may_lack = [b for b in blocks if pool.keys[b] and (b in pool.free or b in pool.doubtful)]
        dropped = [b for b in may_lack if not is_cached(b)]
        # What its holder fills may be shown before it can be found.
        unsure = pool.doubtful.intersection(may_lack)
        pool.doubtful.difference_update([b for b in unsure if not self._may_be_early(b)])
        pool.forget_keys(dropped)

    def shows(self, sequence: SequenceState, cached: int) -> bool:
        """Whether some carrier of each key of a hit is shown as cached."""
        model = self._model
        return all(
            any(map(self._is_cached, model.found(model.key(sequence, group, entry))))
            for group in range(len(model.groups))
            for entry in model.hit_entries(group, cached)
        )

    def may_have_dropped(self, sequence: SequenceState, cached: int, expected: int) -> bool:
        """Whether something that was not found was free, and may just have been dropped."""
        model, is_cached = self._model, self._is_cached
        if not self._may_drop and not model.pool.doubtful:
            return False
        free = model.pool.free if self._may_drop else ()
        for group, size in enumerate(model.block_sizes):
            for entry in model.hit_entries(group, expected):
                carriers = model.found(model.key(sequence, group, entry))
                vanished = all(
                    b in model.pool.doubtful or (b in free and not is_cached(b)) for b in carriers
                )
                if vanished and entry >= cached // size:
                    return True
        return False


def _unseen(_: int) -> bool:
    """Replaces a missing `is_cached`: any free block may have been dropped."""
    return False
