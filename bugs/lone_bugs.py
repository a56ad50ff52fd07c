"""Bugs that one invariant alone can see, or one check of an answer, made up so that each is needed.

Whoever finds such a bug with that check switched off has found one that is counted twice. Where a
real bug does the same it stands in the file of its kind; those of managers are in
`lone_manager_bugs.py`.
"""

from __future__ import annotations

from typing import Any

from poolproof.bugs.clean_pool import CleanPool
from poolproof.bugs.clean_queue import CleanQueue
from poolproof.bugs.oddities import MergingPool
from poolproof.bugs.specimen import Section
from poolproof.contract.content import Key
from poolproof.contract.profile import Profile
from poolproof.contract.violation import Severity

__all__ = ["LONE_BUGS"]

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
