"""A manager session for searches that replay prefixes, with a name for the state reached.

States are merged when model and shadow memory are the same up to a renaming of blocks and, where
pickle can write the target, its contents are, too. Otherwise the target is judged by what it
shows: a faulty one that remembers more than that can hide a failure from a search.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.violation import Violation
from poolproof.exploration.recorded_session import contents_of
from poolproof.harness.manager_session import ManagerSession
from poolproof.reference.content_names import ContentNames

__all__ = ["RecordedManager"]


class RecordedManager(ManagerSession):
    """A manager session whose states can be told apart; `names` are shared by a whole search."""

    def __init__(
        self,
        target: Any,
        profile: ManagerProfile,
        num_blocks: int,
        block_size: int,
        names: ContentNames,
        *,
        enable_caching: bool = True,
    ) -> None:
        super().__init__(target, profile, num_blocks, block_size, enable_caching=enable_caching)
        self.model.names = names
        self.replaying = False
        self.is_exact = False

    def look(self) -> Violation | None:
        """The violation of a manager without sequences, or None."""
        return self.end() if self.nobody_holds() else None

    def state(self) -> Hashable:
        """The same for two sessions that need not both be continued."""
        contents = contents_of(self.target)
        self.is_exact = contents is not None
        if contents is not None:
            return contents, self._shown({})
        return self._shown(self._blocks_in_order())

    def _shown(self, renamed: dict[int, int]) -> Hashable:
        """Model and memory; blocks under their new numbers, in which they are listed."""
        model, memory = self.model, self.memory.device

        def block(number: int) -> int:
            return renamed.get(number, number)

        sequences = tuple(
            (
                s.seq_id, s.chain, s.num_computed, s.num_scheduled, s.num_drafts,
                tuple(s.contents[0][s.num_tokens :]), s.drafts_computed, s.place, s.loading,
                s.ended, s.family, tuple(s.num_keyed), s.num_prompt, s.junction,
                tuple(tuple(map(block, table)) for table in s.tables),
            )
            for s in model.sequences.values()
        )  # fmt: skip
        blocks = sorted(
            (block(b), tuple(keys), tuple(memory.slots[b])) for b, keys in model.pool.keys.items()
        )
        free = tuple(map(block, model.pool.free))
        return sequences, tuple(blocks), free, bool(model.leaving), len(model.ended_ids) > 0

    def _blocks_in_order(self) -> dict[int, int]:
        """New numbers: blocks as they appear in the tables, then in the free queue."""
        tables = [b for s in self.model.sequences.values() for table in s.tables for b in table]
        order = dict.fromkeys([*tables, *self.model.pool.free, *self.model.pool.keys])
        null = self.model.pool.null_block
        fixed = [] if null is None else [null]
        return {b: n for n, b in enumerate(dict.fromkeys([*fixed, *order]))}

    def _check(self, command: Command) -> None:
        if not self.replaying:
            super()._check(command)
