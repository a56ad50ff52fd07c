"""Manager bugs of the life cycle: aborts in odd states, transfers, preemption and resume."""

from __future__ import annotations

from typing import Any

from poolproof.bugs.clean_manager import CleanManager, CleanSequence
from poolproof.bugs.specimen import ManagerSection
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.violation import Severity

__all__ = ["MANAGER_LIFECYCLE_BUGS"]

MANAGER_LIFECYCLE_BUGS = ManagerSection()
plant = MANAGER_LIFECYCLE_BUGS.plant

COUNTS = ("I1", "OWN")


def _has_cache(profile: ManagerProfile) -> bool:
    return profile.has_hits


@plant(
    "H1", "an abort frees blocks that a transfer is still writing",
    thread="vllm#32255", also=("lmdeploy#4700 (A34)",), invariants=COUNTS,
    severity=Severity.WRONG_DATA_OF_ANOTHER, verbs=("load", "abort"),
)  # fmt: skip
class FreesDuringTransfer(CleanManager):
    """The next owner's data is overwritten."""

    def _end(self, sequence: CleanSequence) -> None:
        if sequence.loading:
            self._free(sequence.table[::-1])
            sequence.table, sequence.ended = [], True
        else:
            super()._end(sequence)


@plant(
    "H4", "the end of a sequence that was never admitted raises",
    thread="vllm#18829", invariants=("CRASH",), severity=Severity.CRASH, silent=False,
    is_bug_under=lambda p: p.finish_again == "ignored",
)  # fmt: skip
class UnknownEndRaises(CleanManager):
    """A client that goes away while its request waits takes the server down."""

    def finish(self, seq_id: int) -> None:
        self._end(self.sequences[seq_id])


@plant(
    "H9", "a resume adds to the old table in place of starting a new one",
    thread="LMCache#1969", also=("LMCache#2984",), invariants=("ADM", "I2", "DATA", "OWN", "IDX"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, verbs=("preempt",),
)  # fmt: skip
class ResumeExtends(CleanManager):
    """The first entries name blocks that were given back."""

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        super().__init__(num_blocks, block_size, **options)
        self.old_tables: dict[int, list[int]] = {}

    def preempt(self, seq_id: int) -> None:
        self.old_tables[seq_id] = list(self.sequences[seq_id].table)
        super().preempt(seq_id)

    def _enter(self, sequence: CleanSequence) -> None:
        super()._enter(sequence)
        sequence.table[:0] = self.old_tables.pop(sequence.seq_id, [])


@plant(
    "H10", "a load takes blocks for tokens that are cached already, and forgets them",
    thread="LMCache#2933", invariants=COUNTS, severity=Severity.LEAK, verbs=("load",),
    is_bug_under=_has_cache,
)  # fmt: skip
class LoadsTheCached(CleanManager):
    """The clean-up runs over what was loaded and no more."""

    def _enter(self, sequence: CleanSequence) -> None:
        num_hits = len(sequence.table)
        super()._enter(sequence)
        if sequence.loading:
            self.pool.allocate(min(num_hits, self.pool.num_free()))


@plant(
    "H12", "a resumed sequence inherits a length that is one too large",
    thread="sglang#27731", also=("sglang#28754",),
    invariants=("ADM", "IDX", "I4", "I1", "OWN", "DATA", "CRASH"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, verbs=("preempt",),
)  # fmt: skip
class InheritsOneMore(CleanManager):
    """A position counts as computed that is not, and a page is named twice later."""

    def _enter(self, sequence: CleanSequence) -> None:
        known = self.sequences.get(sequence.seq_id)
        super()._enter(sequence)
        if known is not None and sequence.num_scheduled:
            sequence.num_computed += 1
