"""Bugs that one invariant alone can see, or one check of an answer; made up so that each is needed.

Whoever finds such a bug with that check switched off has found one that is counted twice. Where a
real bug does the same it stands in the file of its kind. Of those of managers, two are real
mechanisms, seen through nothing but block tables; the others fill what the public bugs leave open.
"""

from __future__ import annotations

from typing import Any

from poolproof.bugs.clean_manager import CleanManager, CleanSequence, CleanSwappingManager
from poolproof.bugs.clean_pool import CleanPool
from poolproof.bugs.clean_queue import CleanQueue
from poolproof.bugs.manager_index_bugs import HeadGoesFirst
from poolproof.bugs.manager_reference_bugs import ForkTakesNoReference
from poolproof.bugs.oddities import MergingPool
from poolproof.bugs.specimen import ManagerSection, Section, caches_what_is_free
from poolproof.contract.content import Key
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import Profile
from poolproof.contract.violation import Severity

__all__ = ["LONE_BUGS", "LONE_MANAGER_BUGS"]


LONE_BUGS = Section()
plant = LONE_BUGS.plant


@plant(
    "L1", "the snapshot of the free list is renewed only when its length has changed",
    thread="", invariants=("I1",), severity=Severity.WRONG_DATA_OF_ANOTHER,
    profile=Profile(eviction="unspecified", duplicates="first", misuse="undefined"),
    is_bug_under=lambda p: (p.eviction, p.duplicates, p.misuse)
    == ("unspecified", "first", "undefined"),
)  # fmt: skip
class SnapshotByLength(MergingPool):
    """A merged duplicate gives back one block and takes another: as many are free, not the same."""

    free_neighbours = None  # type: ignore[assignment] # it shows no links

    def __init__(self, num_blocks: int, **options: Any) -> None:
        super().__init__(num_blocks, **options)
        self.snapshot: list[int] = []

    def free_order(self) -> list[int]:
        """A walk is dear; who only counts needs none."""
        if len(self.snapshot) != self.num_free():
            self.snapshot = super().free_order()
        return list(self.snapshot)


@plant(
    "L2", "allocate answers with ids that go on counting after those of another tier",
    thread="", invariants=("I2",), severity=Severity.CRASH,
    profile=Profile(eviction="unspecified"),
)  # fmt: skip
class IdsOfTheOtherTier(CleanPool):
    """The caller's tables point outside of this tier's memory."""

    def allocate(self, n: int) -> list[int]:
        return [self.num_blocks + block_id for block_id in super().allocate(n)]


@plant(
    "L3", "the null block is given a hash, without an entry in the index",
    thread="", invariants=("I3",), severity=Severity.WRONG_DATA_OF_ANOTHER,
    profile=Profile(null_block=0, null_in_lists="ignored"),
    is_bug_under=lambda p: p.null_block is not None and p.null_in_lists == "ignored",
)  # fmt: skip
class NullBlockLabelled(CleanPool):
    """What walks over the blocks' own hashes finds a prefix that was never computed."""

    def cache(self, block_ids: list[int], hashes: list[Key]) -> None:
        super().cache(block_ids, hashes)
        if self.enable_caching and self.null_block in block_ids:
            self.hashes[self.null_block] = hashes[block_ids.index(self.null_block)]


@plant(
    "L4", "the last free block is never given away",
    thread="", invariants=("ADM",), severity=Severity.FALSE_REFUSAL,
)  # fmt: skip
class RefusesTheLastBlock(CleanPool):
    """A comparison that is off by one."""

    def allocate(self, n: int) -> list[int]:
        if 0 < n == self.num_free():
            raise MemoryError("no free blocks")
        return super().allocate(n)


@plant(
    "L5", "a reset that is refused is reported as done",
    thread="", invariants=("ATOM",), severity=Severity.WRONG_DATA_OF_ANOTHER,
)  # fmt: skip
class RefusedResetReportedDone(CleanPool):
    """Whoever changed the weights goes on, and hits what the old ones computed."""

    def reset(self) -> bool:
        super().reset()
        return True


@plant(
    "L6", "misuse fails an assertion where a ValueError is promised",
    thread="", invariants=("MISUSE",), severity=Severity.CRASH,
    is_bug_under=lambda profile: profile.misuse == "raises",
)  # fmt: skip
class AssertsInsteadOfRaising(CleanPool):
    """Under `python -O` nothing would be left of it."""

    def _refuses(self, reason: str | None) -> bool:
        assert reason is None, reason
        return False


@plant(
    "L7", "every block that is held shows one reference",
    thread="", invariants=("OWN",), severity=Severity.WRONG_DATA_OF_ANOTHER,
)  # fmt: skip
class SharersNotShown(CleanPool):
    """Whoever decides by that count what may be overwritten takes a shared block for his own."""

    def ref_count(self, block_id: int) -> int:
        return min(super().ref_count(block_id), 1)


@plant(
    "L8", "nothing can be taken from a queue that is empty, not even nothing",
    thread="", invariants=("CRASH",), severity=Severity.CRASH, silent=False,
)  # fmt: skip
class EmptyPopRaises(CleanQueue):
    """A batch of no blocks is asked for when a step has nothing to allocate."""

    def popleft_n(self, count: int) -> list[int]:
        if not self.length:
            raise IndexError("pop from an empty queue")
        return super().popleft_n(count)


@plant(
    "L9", "what is given back is reused in reverse, by a pool that shows no order",
    thread="", invariants=("ORD",), severity=Severity.ORDER,
    is_bug_under=lambda profile: profile.eviction != "unspecified",
)  # fmt: skip
class OrderNotShown(CleanPool):
    """Only what is handed out tells."""

    free_order = None  # type: ignore[assignment] # it shows no order
    free_neighbours = None  # type: ignore[assignment] # and no links

    def _queue_freed(self, freed: list[int]) -> None:
        super()._queue_freed(freed[::-1])


@plant(
    "L10", "a batch is popped in order and answered in reverse",
    thread="", invariants=("ORD",), severity=Severity.ORDER,
)  # fmt: skip
class BatchAnsweredInReverse(CleanQueue):
    """The queue is as it must be; the tables of the caller are not."""

    def popleft_n(self, count: int) -> list[int]:
        return super().popleft_n(count)[::-1]


@plant(
    "L11", "an allocation that does not fit is answered with what there is",
    thread="", invariants=("ADM",), severity=Severity.WRONG_DATA_OF_ANOTHER,
)  # fmt: skip
class AnswersWithWhatThereIs(CleanPool):
    """The caller writes beyond a table that is shorter than he asked for."""

    def allocate(self, n: int) -> list[int]:
        return super().allocate(min(n, self.num_free()))


@plant(
    "L12", "misuse raises after the legal part of the call has been done",
    thread="", invariants=("MISUSE",), severity=Severity.WRONG_DATA_OF_ANOTHER,
    is_bug_under=lambda profile: profile.misuse == "raises",
)  # fmt: skip
class RaisesHalfWay(CleanPool):
    """Who repeats the call without the wrong entry frees the others a second time."""

    def free(self, block_ids: list[int]) -> None:
        legal = block_ids[:-1]
        if self._misuse_of_free(block_ids) and not self._misuse_of_free(legal):
            super().free(legal)
        super().free(block_ids)


@plant(
    "L13", "misuse is ignored where a ValueError is promised",
    thread="", invariants=("MISUSE",), severity=Severity.CRASH,
    is_bug_under=lambda profile: profile.misuse == "raises",
)  # fmt: skip
class IgnoresInsteadOfRaising(CleanPool):
    """Whoever relies on the exception goes on with blocks that he does not have."""

    def _refuses(self, reason: str | None) -> bool:
        return reason is not None


@plant(
    "L14", "misuse raises where it is promised to be ignored",
    thread="", invariants=("MISUSE",), severity=Severity.CRASH, profile=Profile(misuse="ignores"),
    is_bug_under=lambda profile: profile.misuse == "ignores",
)  # fmt: skip
class RaisesInsteadOfIgnoring(CleanPool):
    """A second end of a request takes the engine down."""

    def _refuses(self, reason: str | None) -> bool:
        if reason is not None:
            raise ValueError(reason)
        return False


LONE_MANAGER_BUGS = ManagerSection()
plant_in_manager = LONE_MANAGER_BUGS.plant

SWAPPING = ManagerProfile(host_blocks=5)
SWAPS = ("swap_out", "swap_in")


@plant_in_manager(
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


@plant_in_manager(
    "L21", "a sequence gives its blocks back head first, in a manager that shows no order",
    thread="", invariants=("ORD", "I4"), severity=Severity.ORDER,
    is_bug_under=lambda p: p.eviction != "unspecified" and p.release_order == "tail-first",
)  # fmt: skip
class UnseenHeadGoesFirst(HeadGoesFirst):
    """Only what comes into tables tells."""

    free_order = None  # type: ignore[assignment] # it shows no order


@plant_in_manager(
    "L22", "shared blocks are counted once for each sharer when a family is swapped",
    thread="", invariants=("ADM",), severity=Severity.FALSE_REFUSAL, profile=SWAPPING,
    verbs=(*SWAPS, "fork"), is_bug_under=lambda profile: profile.admission != "sound",
)  # fmt: skip
class SharersCountedOneByOne(CleanSwappingManager):
    """What fits stays where it is."""

    def _num_moving(self, family: list[CleanSequence]) -> int:
        return sum(len(sequence.table) for sequence in family)


@plant_in_manager(
    "L23", "what does not fit now is turned away for ever",
    thread="", invariants=("ADM",), severity=Severity.FALSE_REFUSAL,
    is_bug_under=lambda profile: profile.never == "told" and profile.admission != "sound",
)  # fmt: skip
class NeverInsteadOfLater(CleanManager):
    """The bound is what is free where it should be what there is."""

    def _never_fits(self, sequence: CleanSequence, num_tokens: int | None) -> bool:
        return self.rules.never == "told" or super()._never_fits(sequence, num_tokens)


@plant_in_manager(
    "L24", "an admission takes the blocks that the watermark keeps for growth",
    thread="", invariants=("ADM",), severity=Severity.STALL,
    profile=ManagerProfile(watermark_blocks=2),
    is_bug_under=lambda profile: profile.watermark_blocks > 0,
)  # fmt: skip
class WatermarkNotKept(CleanManager):
    """Everybody is admitted and nobody can go on."""

    def _fits(self, needed: int, hits: list[int]) -> bool:
        return super()._fits(needed - self.rules.watermark_blocks, hits)


@plant_in_manager(
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


@plant_in_manager(
    "L26", "a cached block that nobody holds is shown as not cached",
    thread="", invariants=("I4", "IDX"), severity=Severity.LOST_HIT,
    is_bug_under=lambda p: p.has_hits and p.hits == "exact" and caches_what_is_free(p),
)  # fmt: skip
class FreeBlocksShownAsGone(CleanManager):
    """A router sends the next request elsewhere, though it would hit here."""

    def is_cached(self, block_id: int) -> bool:
        return super().is_cached(block_id) and self.ref_count(block_id) > 0


@plant_in_manager(
    "L27", "every block that sequences hold shows one reference",
    thread="", invariants=("OWN",), severity=Severity.WRONG_DATA_OF_ANOTHER,
)  # fmt: skip
class SharersOfManagerNotShown(CleanManager):
    """A connector that asks whether a block is shared writes to what others read."""

    def ref_count(self, block_id: int) -> int:
        return min(super().ref_count(block_id), 1)


@plant_in_manager(
    "L28", "a sequence may grow only while a block stays free besides",
    thread="", invariants=("ADM",), severity=Severity.FALSE_REFUSAL,
    is_bug_under=lambda profile: profile.admission == "exact",
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


@plant_in_manager(
    "L29", "of two copies the one is hit whose hash the newer one took over",
    thread="", invariants=("IDX", "ADM", "DATA", "I4"), severity=Severity.WRONG_DATA_OF_ANOTHER,
    profile=ManagerProfile(duplicates="last"),
    is_bug_under=lambda p: p.has_hits and (p.duplicates, p.held_blocks) == ("last", "shared"),
)  # fmt: skip
class HitsTheOldCopy(CleanManager):
    """What it holds is right, as long as nobody who trusts the index recycles it."""

    pool_class = KeepsTheOldCopyInMind
