"""Bugs of reference counts: references taken, dropped and tested at the wrong place."""

from __future__ import annotations

from collections.abc import Sequence

from poolproof.bugs.clean_pool import CleanPool
from poolproof.bugs.specimen import Section
from poolproof.contract.profile import Profile
from poolproof.contract.violation import Severity

__all__ = ["REFERENCE_COUNT_BUGS"]

REFERENCE_COUNT_BUGS = Section()
plant = REFERENCE_COUNT_BUGS.plant


def _defines_misuse(profile: Profile) -> bool:
    return profile.misuse != "undefined"


@plant(
    "A1", "free counts down in one loop and queues in a second",
    thread="vllm#42571", invariants=("I1", "OWN"), severity=Severity.WRONG_DATA_OF_ANOTHER,
)  # fmt: skip
class TwoLoopFree(CleanPool):
    """A block that stands twice in the list has count 0 at both of its entries."""

    def _release(self, block_ids: Sequence[int]) -> list[int]:
        for block_id in block_ids:
            self.ref_counts[block_id] -= 1
        return [block_id for block_id in block_ids if self._joins_queue(block_id)]


@plant(
    "A6", "an allocated block starts with no reference",
    thread="MinivLLM#70", invariants=("I1", "OWN"), severity=Severity.LEAK,
)  # fmt: skip
class NoReferenceOnAllocate(CleanPool):
    """`free` takes the count to -1, which is never 0, and the block is lost."""

    def _take_first_reference(self, block_id: int) -> None:
        pass


@plant(
    "A8", "touch counts every entry, free counts every block once",
    thread="vllm#3347", invariants=("I1", "OWN"), severity=Severity.LEAK,
)  # fmt: skip
class FreeOverASet(CleanPool):
    """A table that names a block several times never gives all of its references back."""

    def _release(self, block_ids: Sequence[int]) -> list[int]:
        return super()._release(list(dict.fromkeys(block_ids)))


@plant(
    "A13", "free releases the block of the index in place of the caller's duplicate",
    thread="TensorRT-LLM#12648", invariants=("I1", "OWN"), severity=Severity.WRONG_DATA_OF_ANOTHER,
    is_bug_under=lambda profile: profile.duplicates == "kept",
)  # fmt: skip
class ReleasesTheCanonicalBlock(CleanPool):
    """Two blocks carry one hash; the reference is taken from the one that the index names."""

    def _release(self, block_ids: Sequence[int]) -> list[int]:
        keys = [self.hashes[block_id] for block_id in block_ids]
        return super()._release([
            block_id if key is None else self.index[key][0]
            for block_id, key in zip(block_ids, keys, strict=True)
        ])  # fmt: skip


@plant(
    "A16", "a release drops two references",
    thread="LMCache#3004", invariants=("I1", "OWN"), severity=Severity.WRONG_DATA_OF_ANOTHER,
)  # fmt: skip
class DoubleRelease(CleanPool):
    """The second drop has no floor: it frees a shared block, or leaves a count of -1."""

    def _release(self, block_ids: Sequence[int]) -> list[int]:
        return super()._release([b for b in block_ids for _ in range(2)])


@plant(
    "A21", "evicting an index entry frees the block that a live request holds",
    thread="atlas#373", invariants=("I1", "OWN"), severity=Severity.WRONG_DATA_OF_ANOTHER,
)  # fmt: skip
class EvictFreesHeldBlocks(CleanPool):
    """The count is forced to 0 in place of dropping the index's own reference."""

    def evict(self, block_ids: list[int]) -> None:
        super().evict(block_ids)
        held = [b for b in dict.fromkeys(block_ids) if self.ref_counts[b] > 0]
        for block_id in held:
            self.ref_counts[block_id] = 0
        self._queue_freed(held)


@plant(
    "A24", "one finish recycles the blocks in two places",
    thread="FastDeploy#3710", invariants=("I1", "OWN", "LINK"),
    severity=Severity.WRONG_DATA_OF_ANOTHER,
)  # fmt: skip
class RecycledTwice(CleanPool):
    """The same block joins the free queue again behind itself."""

    def _queue_freed(self, freed: list[int]) -> None:
        super()._queue_freed(freed)
        super()._queue_freed(freed)


@plant(
    "A25", "free accepts any id, and any number of times",
    thread="mllm#688", invariants=("MISUSE",), severity=Severity.WRONG_DATA_OF_ANOTHER,
    is_bug_under=_defines_misuse,
)  # fmt: skip
class NoValidationInFree(CleanPool):
    """A second free takes the count below 0, a negative id frees from the other end."""

    def _misuse_of_free(self, block_ids: list[int]) -> str | None:  # noqa: ARG002 - the bug
        return None


@plant(
    "A28", "a hit takes no reference on its last block",
    thread="mini-sglang#52", invariants=("I1", "OWN"), severity=Severity.WRONG_DATA_OF_ANOTHER,
)  # fmt: skip
class LastBlockNotTouched(CleanPool):
    """The walk from the matched node goes to its parent before it locks anything."""

    def touch(self, block_ids: list[int]) -> None:
        if not self._refuses(self._bad_ids(block_ids)):
            super().touch(block_ids[:-1])
