"""Manager bugs of windows and of several groups: what slides out, what is shared, what is hit."""

from __future__ import annotations

from poolproof.bugs.clean_groups import CleanHybridManager, CleanRingManager, CleanWindowManager
from poolproof.bugs.clean_manager import CleanManager, CleanSequence
from poolproof.bugs.prefix_index_bugs import StaleIndexEntry
from poolproof.bugs.specimen import ManagerSection, caches_what_is_free
from poolproof.contract.manager_profile import CacheGroup, ManagerProfile
from poolproof.contract.violation import Severity

__all__ = ["HYBRID", "MANAGER_WINDOW_BUGS", "RING", "WINDOW"]

MANAGER_WINDOW_BUGS = ManagerSection()
plant = MANAGER_WINDOW_BUGS.plant

SLIDING = CacheGroup("sliding", window=8)
WINDOW = ManagerProfile(null_block=0, groups=(SLIDING,))
RING = ManagerProfile(publishes="never", window_blocks="reused", eviction="lifo", groups=(SLIDING,))
HYBRID = ManagerProfile(null_block=0, groups=(CacheGroup(), SLIDING))


def _has_cache(profile: ManagerProfile) -> bool:
    return profile.has_hits


def _is_exact(profile: ManagerProfile) -> bool:
    return _has_cache(profile) and profile.hits == "exact"


def _has_sliding(profile: ManagerProfile) -> bool:
    return any(group.is_sliding for group in profile.groups)


@plant(
    "A8-manager", "a fork counts a block as often as it stands in the table, an end counts it once",
    thread="vllm#1556", also=("vllm#3347",), invariants=("OWN", "I1"), severity=Severity.LEAK,
    profile=RING, verbs=("fork",),
)  # fmt: skip
class ForkCountsEntries(CleanRingManager):
    """In a ring a block stands several times in one table, and its count never reaches 0."""

    def _share(self, parent: CleanSequence, child: CleanSequence) -> None:
        child.table = list(parent.table)
        for block in child.table:
            self.pool.touch([block])


@plant(
    "A8-append", "a copy on write in a ring leaves the earlier entries of the block as they were",
    thread="vllm#3347", invariants=("I2", "OWN", "I1", "DATA", "CRASH"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, profile=RING, verbs=("fork",),
)  # fmt: skip
class CopyLeavesOldEntries(CleanRingManager):
    """The reference is dropped, and an entry that names the block goes on being read."""

    def _own_copy(self, sequence: CleanSequence, shared: int) -> tuple[int, int]:
        (own,) = self.pool.allocate(1)
        last = len(sequence.table) - 1 - sequence.table[::-1].index(shared)
        sequence.table[last] = own
        self.pool.free([shared])
        return shared, own


@plant(
    "B7", "an admission needs room for the whole prompt where a ring would do",
    thread="vllm#40946", also=("vllm#39734", "vllm#39866", "vllm#40027"), invariants=("ADM",),
    severity=Severity.FALSE_REFUSAL, profile=RING,
    is_bug_under=lambda p: p.admission == "exact",
)  # fmt: skip
class AdmissionUncapped(CleanRingManager):
    """A long prompt waits for ever in an empty pool."""

    def _fits(self, needed: int, hits: list[int]) -> bool:
        return CleanManager._fits(self, needed, hits)  # noqa: SLF001 - the base's


@plant(
    "B3", "the null block is charged as a hit that leaves the free queue",
    thread="vllm#19031", invariants=("ADM",), severity=Severity.FALSE_REFUSAL, profile=WINDOW,
    is_bug_under=lambda p: _is_exact(p) and p.admission == "exact" and _has_sliding(p),
)  # fmt: skip
class NullCharged(CleanWindowManager):
    """A hit behind a window is refused although it fits."""

    def _fits(self, needed: int, hits: list[int]) -> bool:
        return super()._fits(needed + hits.count(self.pool.null_block or 0), hits)


@plant(
    "B6", "the check of an admission is capped by the window, what it takes is not",
    thread="vllm#17834", also=("vllm#11168", "vllm#40946 (B7)"), invariants=("CRASH", "ADM"),
    severity=Severity.CRASH, silent=False, profile=WINDOW, is_bug_under=_has_sliding,
)  # fmt: skip
class CheckCapped(CleanWindowManager):
    """A long prompt is accepted, and then there are no free blocks."""

    def _fits(self, needed: int, hits: list[int]) -> bool:
        return super()._fits(min(needed, -(-self.kind.window // self.block_size)), hits)


@plant(
    "B7-growth", "a growth is capped by the window, and the gap counts as held",
    thread="vllm#40027", also=("vllm#55800", "vllm#55818", "vllm#45856"), invariants=("CRASH",),
    severity=Severity.CRASH, silent=False, profile=WINDOW, is_bug_under=_has_sliding,
)  # fmt: skip
class GapCountsAsHeld(CleanWindowManager):
    """The entries of the null block are taken for blocks, and the need becomes 0 or less."""

    def _new_blocks_for(self, sequence: CleanSequence, num_uncomputed: int) -> int:
        most = -(-self.kind.window // self.block_size) + 1
        return min(super()._new_blocks_for(sequence, num_uncomputed), most - len(sequence.table))


@plant(
    "G3", "the block with the first token of the window is freed",
    thread="imp#967", invariants=("DATA", "I2", "ATOM"), severity=Severity.WRONG_DATA_OF_ANOTHER,
    profile=WINDOW, is_bug_under=_has_sliding,
)  # fmt: skip
class FreesTooEarly(CleanWindowManager):
    """Only a length that is no whole number of blocks shows it."""

    def _first_kept(self, sequence: CleanSequence) -> int:
        skipped = sequence.num_computed - self.kind.window + 1
        return max(0, -(-skipped // self.block_size))


@plant(
    "G3-hybrid", "beside full attention a window lets go of its first block too early",
    thread="imp#967", invariants=("DATA", "I2", "ATOM"), severity=Severity.WRONG_DATA_OF_ANOTHER,
    profile=HYBRID, is_bug_under=_has_sliding,
)  # fmt: skip
class HybridFreesTooEarly(CleanHybridManager):
    """The same slip where another group hides it."""

    window_class = FreesTooEarly


@plant(
    "D1-window", "behind a window, too, an index entry stays when its block is recycled",
    thread="nano-vllm#163", also=("vllm#4764 (D4)",),
    invariants=("DATA", "IDX", "I1", "OWN", "I2", "ADM", "I4"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, profile=WINDOW, is_bug_under=_has_cache,
)  # fmt: skip
class WindowStaleEntries(CleanWindowManager):
    """What is found is a block of somebody else, or one block twice."""

    pool_class = StaleIndexEntry


@plant(
    "D1-hybrid", "an index entry of one of several groups stays when its block is recycled",
    thread="nano-vllm#163", also=("vllm#4764 (D4)",),
    invariants=("DATA", "IDX", "I1", "OWN", "I2", "ADM", "I4"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, profile=HYBRID, is_bug_under=_has_cache,
)  # fmt: skip
class HybridStaleEntries(CleanHybridManager):
    """All groups find something, and one of them something else."""

    pool_class = StaleIndexEntry


@plant(
    "G5", "a hit asks for one block more than the window keeps",
    thread="vllm#53951", invariants=("I4", "ADM"), severity=Severity.FALSE_REFUSAL, profile=WINDOW,
    is_bug_under=lambda p: _is_exact(p) and _has_sliding(p),
)  # fmt: skip
class ReaderWantsMore(CleanWindowManager):
    """Once the window has slid, nothing is ever found again."""

    def _first_read_entry(self, num_entries: int) -> int:
        return max(0, super()._first_read_entry(num_entries) - 1)


@plant(
    "B21", "each group touches its hits and allocates before the next one does",
    thread="vllm#44409", also=("vllm#33775",),
    invariants=("I2", "I1", "OWN", "DATA", "IDX", "I4", "CRASH"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, profile=HYBRID,
    is_bug_under=lambda p: _has_cache(p) and caches_what_is_free(p),
)  # fmt: skip
class GroupByGroup(CleanHybridManager):
    """What one group allocates is what the next one was about to hit."""

    def _enter(self, sequences: list[CleanSequence], hits: list[list[int]]) -> None:
        for part, sequence, found in zip(self.parts, sequences, hits, strict=True):
            part._take_hits(sequence, found)  # noqa: SLF001 - parts are ours
            part._enter(sequence)  # noqa: SLF001 - parts are ours


@plant(
    "D19", "the last block of a hit is dropped again when a shorter one is tried",
    thread="vllm#39171", also=("vllm#33270", "vllm#51771"), invariants=("I4", "ADM"),
    severity=Severity.FALSE_REFUSAL, profile=HYBRID,
    is_bug_under=lambda p: _is_exact(p) and p.full_hit == "recompute-token",
)  # fmt: skip
class DropsAtEveryTry(CleanHybridManager):
    """The search for a length that suits all groups ends at 0."""

    def _longest_hit(self, sequences: list[CleanSequence]) -> tuple[int, list[list[int]]]:
        length, hits = super()._longest_hit(sequences)
        most = self.parts[0]._most_cached(sequences[0])  # noqa: SLF001 - parts are ours
        if length == most - most % self.alignment:
            return length, hits
        shorter = [CleanSequence(s.seq_id, s.tokens[:length], s.extra_keys) for s in sequences]
        return super()._longest_hit(shorter)


class TranslatedWindow(CleanWindowManager):
    """The blocks of a sequence are freed through a translation that remembers every block."""

    translation: dict[tuple[int, int], int]

    def _enter(self, sequence: CleanSequence) -> None:
        super()._enter(sequence)
        self._translate(sequence)

    def _slide(self, sequence: CleanSequence) -> None:
        self._translate(sequence)
        super()._slide(sequence)

    def _translate(self, sequence: CleanSequence) -> None:
        translation = self.__dict__.setdefault("translation", {})
        for entry, block in enumerate(sequence.table):
            if block != self.pool.null_block:
                translation[sequence.seq_id, entry] = block

    def _give_back(self, sequence: CleanSequence) -> None:
        self._translate(sequence)
        entries = range(len(sequence.table))
        sequence.table = [self.translation[sequence.seq_id, e] for e in entries
                          if (sequence.seq_id, e) in self.translation]  # fmt: skip
        super()._give_back(sequence)


@plant(
    "A31", "a translation between two groups outlives a block, which is freed through it",
    thread="sglang#27586", also=("sglang#25805",), invariants=("I1", "OWN", "CRASH"),
    severity=Severity.WRONG_DATA_OF_ANOTHER,
    profile=ManagerProfile(null_block=0, misuse="undefined", groups=(CacheGroup(), SLIDING)),
    is_bug_under=lambda p: p.misuse == "undefined" and _has_sliding(p) and p.frees == "at-once",
)  # fmt: skip
class StaleTranslation(CleanHybridManager):
    """A slot is freed that slid out long ago and is somebody else's now."""

    window_class = TranslatedWindow
