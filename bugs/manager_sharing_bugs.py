"""Manager bugs of forks and of swapping: missing copies, tables that lost their sharing."""

from __future__ import annotations

from typing import Any

from poolproof.bugs.clean_manager import CleanManager, CleanSequence, CleanSwappingManager, Copies
from poolproof.bugs.clean_pool import CleanPool
from poolproof.bugs.manager_oddities import ReportingManager
from poolproof.bugs.specimen import ManagerSection
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.violation import Severity

__all__ = ["MANAGER_SHARING_BUGS"]

MANAGER_SHARING_BUGS = ManagerSection()
plant = MANAGER_SHARING_BUGS.plant

SWAPPING = ManagerProfile(host_blocks=6)
SWAPS = ("swap_out", "swap_in")


@plant(
    "F1", "the partly filled tail of a fork is replaced and not copied",
    thread="xLLM#1984", invariants=("I2", "DATA"), severity=Severity.WRONG_DATA_OF_ANOTHER,
    verbs=("fork",),
)  # fmt: skip
class TailNotCopied(CleanManager):
    """The beam reads what was in the block before."""

    def _copy_on_write(self, sequence: CleanSequence, position: int) -> Copies:
        super()._copy_on_write(sequence, position)
        return []


@plant(
    "F1-stale", "a copy list is kept and ordered once more with the next one",
    thread="xLLM#1984", invariants=("DATA",), severity=Severity.WRONG_DATA_OF_ANOTHER,
    verbs=("fork",),
)  # fmt: skip
class OldCopiesAgain(CleanManager):
    """The stale pairs write over a block that has long been somebody else's."""

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        super().__init__(num_blocks, block_size, **options)
        self.copies: Copies = []

    def _copy_on_write(self, sequence: CleanSequence, position: int) -> Copies:
        self.copies += super()._copy_on_write(sequence, position)
        return list(self.copies)


@plant(
    "F2", "a shared, partly filled tail is written without a copy",
    thread="atlas#692", also=("nm-vllm#3",), invariants=("DATA", "I4"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, verbs=("fork",),
)  # fmt: skip
class SharedTailWritten(CleanManager):
    """Siblings overwrite each other."""

    def _is_shared(self, sequence: CleanSequence, position: int) -> bool:
        del sequence, position
        return False


@plant(
    "G1", "the worker is told of new blocks, never of a table that was rewritten",
    thread="vllm#42273", also=("vllm#42276",), invariants=("DATA", "I2"),
    severity=Severity.WRONG_DATA_OF_ANOTHER,
)  # fmt: skip
class ReportsNewBlocksOnly(ReportingManager):
    """After a copy on write or a cut the worker's table names blocks of others."""

    def _is_rewritten(self, reported: list[int], table: list[int]) -> bool:
        del reported, table
        return False


@plant(
    "D20", "a swap copies the blocks that were noted at admission",
    thread="LMCache#5001", invariants=("DATA", "I2", "OWN", "I1", "CRASH"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, profile=SWAPPING, verbs=SWAPS,
)  # fmt: skip
class SwapsNotedBlocks(CleanSwappingManager):
    """The list is only ever appended to, the table has changed since."""

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        super().__init__(num_blocks, block_size, **options)
        self.noted: dict[int, list[int]] = {}

    def _grow(self, sequence: CleanSequence, first_new: int) -> Copies:
        copies = super()._grow(sequence, first_new)
        noted = self.noted.setdefault(sequence.seq_id, [])
        noted += sequence.table[len(noted) :]
        return copies

    def _moved_table(
        self, sequence: CleanSequence, target: CleanPool, moved: dict[int, int]
    ) -> list[int]:
        table = sequence.table
        if target is self.host:
            sequence.table = self.noted.get(sequence.seq_id, table)[: len(table)]
        moved_table = super()._moved_table(sequence, target, moved)
        sequence.table = table
        return moved_table


@plant(
    "B8-swap", "a swap is granted for one sequence and moves its family",
    thread="vllm#8824", invariants=("CRASH",), severity=Severity.CRASH, silent=False,
    profile=ManagerProfile(host_blocks=3), verbs=(*SWAPS, "fork"),
)  # fmt: skip
class ChecksOneOfFamily(CleanSwappingManager):
    """The check does not see all that will be moved."""

    def _num_moving(self, family: list[CleanSequence]) -> int:
        return len(family[0].table)


@plant(
    "F-swap", "the host copy of a shared block is freed with the first of its sharers",
    thread="", invariants=("OWN", "DATA", "I2"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, profile=SWAPPING, verbs=(*SWAPS, "fork"),
)  # fmt: skip
class SharingLostOnHost(CleanSwappingManager):
    """The second sharer takes no reference where it goes."""

    def _moved_table(
        self, sequence: CleanSequence, target: CleanPool, moved: dict[int, int]
    ) -> list[int]:
        table = []
        for block in sequence.table:
            if block not in moved:
                (moved[block],) = target.allocate(1)
            table.append(moved[block])
        return table


@plant(
    "H5", "an abort reaches what runs and not what is swapped out",
    thread="mistral.rs#2044", also=("mistral.rs#1388",), invariants=("OWN",),
    severity=Severity.LEAK, profile=SWAPPING, verbs=(*SWAPS, "abort"),
)  # fmt: skip
class AbortMissesHost(CleanSwappingManager):
    """Host blocks of requests that are gone."""

    def _give_back(self, sequence: CleanSequence) -> None:
        if sequence.place != "host" or sequence.seq_id in self.moving:
            super()._give_back(sequence)

    moving: frozenset[int] = frozenset()

    def swap_in(self, seq_id: int) -> Copies | str:
        self.moving = frozenset(s.seq_id for s in self._family(seq_id))
        answer = super().swap_in(seq_id)
        self.moving = frozenset()
        return answer
