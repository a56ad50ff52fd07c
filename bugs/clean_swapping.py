"""A manager that swaps families of forked sequences to host memory and back; sharing is kept."""

from __future__ import annotations

from typing import Any

from poolproof.bugs.clean_manager import CleanManager
from poolproof.bugs.clean_manager_steps import Copies
from poolproof.bugs.clean_pool import CleanPool
from poolproof.bugs.clean_sequence import CleanSequence
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import Profile

__all__ = ["CleanSwappingManager"]


class CleanSwappingManager(CleanManager):
    """Sequences that were forked from one another move together, each shared block once."""

    @classmethod
    def serves(cls, profile: ManagerProfile) -> bool:
        return super().serves(profile) and profile.host_blocks > 0

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        super().__init__(num_blocks, block_size, **options)
        guard = Profile(misuse="undefined")
        self.host = CleanPool(self.rules.host_blocks, enable_caching=False, rules=guard)

    def swap_out(self, seq_id: int) -> Copies | str:
        return self._move(self._family(seq_id), self.host, "host")

    def swap_in(self, seq_id: int) -> Copies | str:
        family = self._family(seq_id)
        copies = self._move(family, self.pool, "device")
        if copies != "later":
            for sequence in family:
                self._publish(sequence)
        return copies

    def num_free_host(self) -> int:
        return self.host.num_free()

    def _family(self, seq_id: int) -> list[CleanSequence]:
        family = self.sequences[seq_id].family
        return [s for s in self.sequences.values() if s.family == family]

    def _move(self, family: list[CleanSequence], target: CleanPool, place: str) -> Copies | str:
        """Give each sequence a table in the other memory; the copies from old to new blocks."""
        if self._num_moving(family) > target.num_free():
            return "later"
        moved: dict[int, int] = {}
        for sequence in family:
            table = self._moved_table(sequence, target, moved)
            self._give_back(sequence)
            sequence.table, sequence.place = table, place
            sequence.num_published = 0
        return list(moved.items())

    def _num_moving(self, family: list[CleanSequence]) -> int:
        """How many blocks the family takes where it goes."""
        return len({block for sequence in family for block in sequence.table})

    def _moved_table(
        self, sequence: CleanSequence, target: CleanPool, moved: dict[int, int]
    ) -> list[int]:
        """The table in the other memory; a block that moved already is shared there, too."""
        table = []
        for block in sequence.table:
            if block in moved:
                target.touch([moved[block]])
            else:
                (moved[block],) = target.allocate(1)
            table.append(moved[block])
        return table

    def _give_back(self, sequence: CleanSequence) -> None:
        if sequence.place == "host":
            self.host.free(sequence.table[::-1])
        else:
            super()._give_back(sequence)
