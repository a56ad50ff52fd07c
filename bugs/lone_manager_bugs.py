"""Bugs of managers that one check alone can see, made up so that each check is needed.

Two of them are real mechanisms, seen through nothing but block tables; the others fill what the
public bugs leave open.
"""

from __future__ import annotations

from typing import Any

from poolproof.bugs.clean_manager import CleanManager
from poolproof.bugs.clean_pool import CleanPool
from poolproof.bugs.clean_sequence import CleanSequence
from poolproof.bugs.clean_swapping import CleanSwappingManager
from poolproof.bugs.manager_index_bugs import HeadGoesFirst
from poolproof.bugs.manager_reference_bugs import ForkTakesNoReference
from poolproof.bugs.manager_specimen import ManagerSection
from poolproof.contract.content import Key
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.violation import Severity

__all__ = ["LONE_MANAGER_BUGS"]

LONE_MANAGER_BUGS = ManagerSection()
plant = LONE_MANAGER_BUGS.plant

SWAPPING = ManagerProfile(host_blocks=5)
SWAPS = ("swap_out", "swap_in")


@plant(
    "L20", "a fork takes no references, in a manager that shows tables and nothing else",
    thread="", invariants=("I2", "DATA", "ADM", "IDX", "I4"),
    severity=Severity.WRONG_DATA_OF_ANOTHER,
    profile=ManagerProfile(misuse="undefined", eviction="unspecified"), verbs=("fork",),
    is_bug_under=lambda p: (p.misuse, p.eviction) == ("undefined", "unspecified"),
)  # fmt: skip
class UnseenForkWithoutReference(ForkTakesNoReference):
    """No count tells; a block comes into a table that stands in another."""

    num_free = None  # type: ignore[assignment] # it shows tables only
    free_order = None  # type: ignore[assignment] # the same
    ref_count = None  # type: ignore[assignment] # the same
    is_cached = None  # type: ignore[assignment] # the same


@plant(
    "L21", "a sequence gives its blocks back head first, in a manager that shows no order",
    thread="", invariants=("ORD", "I4"), severity=Severity.ORDER,
    is_bug_under=lambda p: p.eviction != "unspecified" and p.release_order == "tail-first",
)  # fmt: skip
class UnseenHeadGoesFirst(HeadGoesFirst):
    """Only what comes into tables tells."""

    free_order = None  # type: ignore[assignment] # it shows no order


@plant(
    "L22", "shared blocks are counted once for each sharer when a family is swapped",
    thread="", invariants=("ADM",), severity=Severity.FALSE_REFUSAL, profile=SWAPPING,
    verbs=(*SWAPS, "fork"),
)  # fmt: skip
class SharersCountedOneByOne(CleanSwappingManager):
    """What fits stays where it is."""

    def _num_moving(self, family: list[CleanSequence]) -> int:
        return sum(len(sequence.table) for sequence in family)


@plant(
    "L23", "what does not fit now is turned away for ever",
    thread="", invariants=("ADM",), severity=Severity.FALSE_REFUSAL,
    is_bug_under=lambda profile: profile.never == "told",
)  # fmt: skip
class NeverInsteadOfLater(CleanManager):
    """The bound is what is free where it should be what there is."""

    def _never_fits(self, sequence: CleanSequence, num_tokens: int | None) -> bool:
        return self.rules.never == "told" or super()._never_fits(sequence, num_tokens)


@plant(
    "L24", "an admission takes the blocks that the watermark keeps for growth",
    thread="", invariants=("ADM",), severity=Severity.STALL,
    profile=ManagerProfile(watermark_blocks=2),
    is_bug_under=lambda profile: profile.watermark_blocks > 0,
)  # fmt: skip
class WatermarkNotKept(CleanManager):
    """Everybody is admitted and nobody can go on."""

    def _fits(self, needed: int, hits: list[int]) -> bool:
        return super()._fits(needed - self.rules.watermark_blocks, hits)


@plant(
    "L25", "a sequence is swapped in to the blocks that it had before, whoever holds them now",
    thread="", invariants=("I2", "IDX", "DATA"), severity=Severity.WRONG_DATA_OF_ANOTHER,
    profile=SWAPPING, verbs=SWAPS,
)  # fmt: skip
class SwapsInToOldPlaces(CleanSwappingManager):
    """What was swapped in overwrites what the new owner has computed."""

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        super().__init__(num_blocks, block_size, **options)
        self.places: dict[int, list[int]] = {}

    def _moved_table(
        self, sequence: CleanSequence, target: CleanPool, moved: dict[int, int]
    ) -> list[int]:
        if target is self.host:
            self.places[sequence.seq_id] = list(sequence.table)
            return super()._moved_table(sequence, target, moved)
        places = self.places[sequence.seq_id]
        for block, place in zip(sequence.table, places, strict=True):
            if not target.ref_count(place):
                target.evict([place])
            target.touch([place])
            moved[block] = place
        return places


@plant(
    "L26", "a cached block that nobody holds is shown as not cached",
    thread="", invariants=("I4",), severity=Severity.LOST_HIT,
)  # fmt: skip
class FreeBlocksShownAsGone(CleanManager):
    """A router sends the next request elsewhere, though it would hit here."""

    def is_cached(self, block_id: int) -> bool:
        return super().is_cached(block_id) and self.ref_count(block_id) > 0


@plant(
    "L27", "every block that sequences hold shows one reference",
    thread="", invariants=("OWN",), severity=Severity.WRONG_DATA_OF_ANOTHER,
)  # fmt: skip
class SharersOfManagerNotShown(CleanManager):
    """A connector that asks whether a block is shared writes to what others read."""

    def ref_count(self, block_id: int) -> int:
        return min(super().ref_count(block_id), 1)


@plant(
    "L28", "a sequence may grow only while a block stays free besides",
    thread="", invariants=("ADM",), severity=Severity.FALSE_REFUSAL,
)  # fmt: skip
class GrowthKeepsABlock(CleanManager):
    """The last block serves nobody."""

    def _has_room(self, sequence: CleanSequence, further: int) -> bool:
        return self.pool.num_free() > 0 and super()._has_room(sequence, further)


class KeepsTheOldCopyInMind(CleanPool):
    """Answers with the copy that lost its hash to a newer one, until that block is recycled."""

    def __init__(self, num_blocks: int, **options: Any) -> None:
        super().__init__(num_blocks, **options)
        self.older: dict[Key, int] = {}

    def lookup(self, block_hash: Key) -> int | None:
        found = super().lookup(block_hash)
        return None if found is None else self.older.get(block_hash, found)

    def _cache_one(self, block_id: int, key: Key) -> None:
        for rival in self.index.get(key, ()):
            if rival != block_id:
                self.older[key] = rival
        super()._cache_one(block_id, key)

    def _recycle(self, block_id: int) -> None:
        super()._recycle(block_id)
        self.older = {key: block for key, block in self.older.items() if block != block_id}


@plant(
    "L29", "of two copies the one is hit whose hash the newer one took over",
    thread="", invariants=("IDX", "ADM"), severity=Severity.WRONG_DATA_OF_ANOTHER,
    profile=ManagerProfile(duplicates="last"),
    is_bug_under=lambda profile: profile.duplicates == "last",
)  # fmt: skip
class HitsTheOldCopy(CleanManager):
    """What it holds is right, as long as nobody who trusts the index recycles it."""

    pool_class = KeepsTheOldCopyInMind
