"""Manager bugs of references: taken, dropped and forgotten at the wrong place."""

from __future__ import annotations

from typing import Any

from poolproof.bugs.clean_manager import CleanManager, CleanSequence, Copies
from poolproof.bugs.specimen import ManagerSection
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.violation import Severity

__all__ = ["MANAGER_REFERENCE_BUGS"]

MANAGER_REFERENCE_BUGS = ManagerSection()
plant = MANAGER_REFERENCE_BUGS.plant

COUNTS = ("I1", "OWN")
UNGUARDED = ManagerProfile(misuse="undefined")
"""A pool that believes its caller: where one guards itself, these bugs raise."""


def _has_cache(profile: ManagerProfile) -> bool:
    return profile.has_hits


def _frees_at_once(profile: ManagerProfile) -> bool:
    return profile.frees == "at-once"


@plant(
    "A3-manager", "rejected drafts leave too many blocks, and a negative number is asked for",
    thread="vllm#52707", also=("vllm-ascend#15990",), invariants=COUNTS,
    severity=Severity.WRONG_DATA_OF_ANOTHER, verbs=("draft",), profile=UNGUARDED,
    is_bug_under=lambda p: p.misuse == "undefined",
)  # fmt: skip
class NegativeMissing(CleanManager):
    """The counter of the pool goes up by blocks that are not there."""

    def _num_missing(self, sequence: CleanSequence) -> int:
        return self._num_entries(sequence) - len(sequence.table)


@plant(
    "A7", "a finished sequence leaves the books, its blocks do not",
    thread="vmlx#68", invariants=COUNTS, severity=Severity.LEAK,
)  # fmt: skip
class FinishKeepsBlocks(CleanManager):
    """The table is dropped and nobody counts down."""

    def finish(self, seq_id: int) -> None:
        if seq_id in self.sequences and self.sequences[seq_id].loading:
            super().finish(seq_id)  # its transfer ends later, and asks for it
        else:
            self.sequences.pop(seq_id, None)


@plant(
    "A9", "a fork takes no references",
    thread="tvm#16666", invariants=(*COUNTS, "DATA", "I2"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, verbs=("fork",),
)  # fmt: skip
class ForkTakesNoReference(CleanManager):
    """Whoever of the two ends first frees what the other maps."""

    def _share(self, parent: CleanSequence, child: CleanSequence) -> None:
        child.table = parent.table[: -(-parent.num_computed // self.block_size)]


@plant(
    "A10", "the end of a parent recycles blocks that its children hold",
    thread="tvm#17045", invariants=COUNTS, severity=Severity.WRONG_DATA_OF_ANOTHER,
    verbs=("fork",), is_bug_under=_frees_at_once,
)  # fmt: skip
class ParentEndsFirst(CleanManager):
    """Only an end in another order than the reverse of the forks shows it."""

    def _give_back(self, sequence: CleanSequence) -> None:
        children = [s for s in self.sequences.values() if s.family == sequence.seq_id]
        if sequence.family == sequence.seq_id and len(children) > 1:
            for block in sequence.table[::-1]:
                self.pool.free([block] * self.pool.ref_count(block))
        else:
            super()._give_back(sequence)


@plant(
    "A13-manager", "the end of a sequence releases the index's block in place of its own duplicate",
    thread="TensorRT-LLM#12648", invariants=(*COUNTS, "CRASH"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, profile=UNGUARDED,
    is_bug_under=lambda p: p.duplicates == "kept" and _has_cache(p),
)  # fmt: skip
class ReleasesTheCanonical(CleanManager):
    """The block that was found under the key was held by somebody else."""

    def _give_back(self, sequence: CleanSequence) -> None:
        for entry in range(sequence.num_published):
            sequence.table[entry] = self._find(sequence, entry) or sequence.table[entry]
        super()._give_back(sequence)


@plant(
    "A17", "a transfer that ends lets go of the pin and frees nothing",
    thread="LMCache#1130", also=("LMCache#1156",), invariants=COUNTS, severity=Severity.LEAK,
    verbs=("load", "abort"),
)  # fmt: skip
class UnpinNeverFrees(CleanManager):
    """Two counters, and only the order in which the pin goes first frees the block."""

    def _end(self, sequence: CleanSequence) -> None:
        if sequence.ended:
            del self.sequences[sequence.seq_id]
        else:
            super()._end(sequence)


@plant(
    "A18", "whoever uses a hit keeps a reference for good",
    thread="LMCache#3884", invariants=COUNTS, severity=Severity.LEAK, is_bug_under=_has_cache,
)  # fmt: skip
class HitKeepsReference(CleanManager):
    """What was hit once can never be evicted."""

    def _take_hits(self, sequence: CleanSequence, hits: list[int]) -> None:
        super()._take_hits(sequence, hits)
        self._touch(hits)


@plant(
    "A19", "a lookup pins what it finds, and nobody unpins what is not used",
    thread="LMCache#1034", also=("vllm#35931",), invariants=COUNTS, severity=Severity.LEAK,
    verbs=("lookup_prefix",), is_bug_under=_has_cache,
)  # fmt: skip
class LookupPins(CleanManager):
    """Pinned blocks pile up while the server is idle."""

    def lookup_prefix(self, tokens: list[int], *, extra_keys: tuple[Any, ...] | None = None) -> int:
        found = self._hits(CleanSequence(-1, tokens, extra_keys))
        self._touch(found)
        return len(found) * self.block_size


@plant(
    "A23", "the preemption of a group frees a fork that has ended once more",
    thread="openvino.genai#4332", also=("model_server#4428",),
    invariants=COUNTS, severity=Severity.WRONG_DATA_OF_ANOTHER,
    verbs=("fork", "preempt"), profile=UNGUARDED,
    is_bug_under=lambda p: p.misuse == "undefined",
)  # fmt: skip
class PreemptFreesTheEnded(CleanManager):
    """The loop runs over all that the group ever had."""

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        super().__init__(num_blocks, block_size, **options)
        self.last_tables: dict[int, tuple[int, list[int]]] = {}

    def _end(self, sequence: CleanSequence) -> None:
        self.last_tables[sequence.seq_id] = (sequence.family, list(sequence.table))
        super()._end(sequence)

    def preempt(self, seq_id: int) -> None:
        super().preempt(seq_id)
        for family, table in self.last_tables.values():
            if family == self.sequences[seq_id].family:
                self._free(table)


@plant(
    "A26", "a deferred free keeps the row of the table, which changes before it is drained",
    thread="sglang#34067", invariants=(*COUNTS, "DATA", "I2"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, verbs=("preempt",),
    profile=ManagerProfile(frees="after-step", misuse="undefined"),
    is_bug_under=lambda p: p.frees == "after-step",
)  # fmt: skip
class DeferredFreeOfAView(CleanManager):
    """What a resumed sequence holds now is freed, what it held before is lost."""

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        super().__init__(num_blocks, block_size, **options)
        self.rows: dict[int, list[int]] = {}

    def _take_hits(self, sequence: CleanSequence, hits: list[int]) -> None:
        super()._take_hits(sequence, hits)
        row = self.rows.setdefault(sequence.seq_id, [])
        row[:] = sequence.table
        sequence.table = row

    def _release(self, sequence: CleanSequence) -> None:
        self.leaving.append(sequence.table)
        super()._release(sequence)

    def _give_back(self, sequence: CleanSequence) -> None:
        """The row is on the list."""

    def _drain(self) -> None:
        for row in self.leaving:
            self._free(row if self.release_order == "head-first" else row[::-1])
        self.leaving.clear()


@plant(
    "A28-manager", "a hit takes no reference on the last block that it found",
    thread="mini-sglang#52", invariants=(*COUNTS, "I2", "DATA"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, profile=UNGUARDED, is_bug_under=_has_cache,
)  # fmt: skip
class LastHitUnlocked(CleanManager):
    """The walk that locks starts at the parent."""

    def _take_hits(self, sequence: CleanSequence, hits: list[int]) -> None:
        sequence.table = list(hits)
        self._touch(hits[:-1])


@plant(
    "F6", "a second end of a sequence frees its blocks a second time",
    thread="vllm#9142", also=("vllm#25067 (H3)", "LMCache#3004 (A16)"),
    invariants=COUNTS, severity=Severity.WRONG_DATA_OF_ANOTHER, profile=UNGUARDED,
    is_bug_under=lambda p: p.misuse == "undefined" and p.finish_again == "ignored",
)  # fmt: skip
class EndedTwice(CleanManager):
    """Finish and abort both arrive, and each counts down."""

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        super().__init__(num_blocks, block_size, **options)
        self.last_tables: dict[int, list[int]] = {}

    def finish(self, seq_id: int) -> None:
        if seq_id in self.sequences:
            self.last_tables[seq_id] = list(self.sequences[seq_id].table)
        elif seq_id in self.last_tables:
            self._free(self.last_tables.pop(seq_id)[::-1])
        super().finish(seq_id)


@plant(
    "F4", "an end by the name of the group misses the forks",
    thread="vllm#14326", invariants=COUNTS, severity=Severity.LEAK, verbs=("fork",),
)  # fmt: skip
class ForksAreMissed(CleanManager):
    """The children's blocks stay with nobody."""

    def _end(self, sequence: CleanSequence) -> None:
        if sequence.family == sequence.seq_id or sequence.loading:
            super()._end(sequence)
        else:
            del self.sequences[sequence.seq_id]


@plant(
    "H7", "a tail that is cut off leaves the table and stays taken",
    thread="sglang#22862", invariants=COUNTS, severity=Severity.LEAK, verbs=("truncate",),
)  # fmt: skip
class TailNotFreed(CleanManager):
    """The end of the table is overwritten, not given back."""

    def _truncate(self, sequence: CleanSequence, num_tokens: int) -> Copies:
        kept = -(-num_tokens // self.block_size)
        del sequence.table[kept:]
        return super()._truncate(sequence, num_tokens)
