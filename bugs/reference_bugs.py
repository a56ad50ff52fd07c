"""Bugs in who holds a block and what is in the free queue: references, links, counter.

References are taken, dropped and tested at the wrong place; the queue under a pool loses blocks,
gets some twice, or miscounts them. Those of a queue on its own are in `queue_bugs.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from poolproof.bugs.clean_pool import CleanPool
from poolproof.bugs.clean_queue import CleanQueue, Node
from poolproof.bugs.specimen import Section, caches_what_is_free, repeats_in_free
from poolproof.contract.profile import Profile
from poolproof.contract.violation import Severity

__all__ = ["REFERENCE_BUGS"]


REFERENCE_BUGS = Section()
plant = REFERENCE_BUGS.plant


def _defines_misuse(profile: Profile) -> bool:
    return profile.misuse != "undefined"


@plant(
    "A1", "free counts down in one loop and queues in a second",
    thread="vllm#42571", invariants=("I1", "OWN"), severity=Severity.WRONG_DATA_OF_ANOTHER,
    is_bug_under=repeats_in_free,
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
    is_bug_under=repeats_in_free,
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


def _null_in_lists(profile: Profile) -> bool:
    return profile.null_block is not None and profile.null_in_lists != "misuse"


@plant(
    "A3", "a negative count raises the number of free blocks",
    thread="vllm#52707", invariants=("MISUSE",), severity=Severity.CRASH,
    is_bug_under=_defines_misuse,
)  # fmt: skip
class NegativeCount(CleanPool):
    """Nothing refuses -1, and `length -= -1` counts a block that is not there."""

    def _misuse_of_allocate(self, count: int) -> str | None:  # noqa: ARG002 - the bug
        return None


class CounterBeforeCheck(CleanQueue):
    """The counter goes down before the check that raises."""

    def _require(self, count: int) -> None:
        self.length -= count
        if self.length < 0:
            raise ValueError(f"{count} blocks asked for, {self.length} left")
        self.length += count


@plant(
    "A4", "a refused allocation has already lowered the counter",
    thread="vllm#24228", invariants=("ATOM",), severity=Severity.FALSE_REFUSAL,
)  # fmt: skip
class PoolWithCounterBeforeCheck(CleanPool):
    """Counter and list disagree from the first refusal on."""

    queue_class = CounterBeforeCheck


class StaleLinks(CleanQueue):
    """A node that left keeps its neighbours, and a later removal through them tears the queue."""

    def _forget_links(self, node: Node) -> None:
        """The neighbours were joined, the node itself was not cleared."""


@plant(
    "A5", "a block that left the queue keeps its links",
    thread="vllm#33875", invariants=("LINK",), severity=Severity.CRASH,
)  # fmt: skip
class PoolWithStaleLinks(CleanPool):
    """Links to and from blocks that are held."""

    queue_class = StaleLinks


@plant(
    "A12", "touch leaves the block in the free queue",
    thread="TensorRT-LLM#12667", invariants=("I1",), severity=Severity.WRONG_DATA_OF_ANOTHER,
    is_bug_under=caches_what_is_free,
)  # fmt: skip
class TouchWithoutUnlink(CleanPool):
    """A block with an owner stays queued, and the next allocation hands it out again."""

    def _revive(self, block_id: int) -> None:
        pass


@plant(
    "A32", "a fast path of free lost the filter for the null block",
    thread="sglang#38269", invariants=("I1",), severity=Severity.WRONG_DATA_OF_ANOTHER,
    profile=Profile(null_block=0, null_in_lists="ignored"), is_bug_under=_null_in_lists,
)  # fmt: skip
class NullBlockFreed(CleanPool):
    """The null block joins the queue and is handed out as a page of its own."""

    def _joins_queue(self, block_id: int) -> bool:
        return not self.ref_counts[block_id]


@plant(
    "G7", "touch takes the null block out of a queue in which it does not stand",
    thread="vllm#18652", invariants=("CRASH",), severity=Severity.CRASH, silent=False,
    profile=Profile(null_block=0, null_in_lists="ignored"), is_bug_under=_null_in_lists,
)  # fmt: skip
class NullBlockTouched(CleanPool):
    """The null block's count is not maintained, so it looks free."""

    def _leaves_queue(self, block_id: int) -> bool:
        return not self.ref_counts[block_id]


@plant(
    "B14", "an allocation takes blocks before it knows that enough are there",
    thread="sglang#30892", invariants=("ATOM",), severity=Severity.LEAK,
)  # fmt: skip
class ConsumesThenChecks(CleanPool):
    """A refusal in the middle keeps what was taken so far."""

    def _take_from_queue(self, count: int) -> list[int]:
        return [self.queue.popleft() for _ in range(count)]


@plant(
    "E8", "the rollback of a refused allocation appends, the last block taken first",
    thread="inference-sim#354", invariants=("ATOM",), severity=Severity.ORDER,
    is_bug_under=lambda profile: profile.eviction != "unspecified",
)  # fmt: skip
class RollbackAppends(CleanPool):
    """Counts are right again, the eviction order is not."""

    def _take_from_queue(self, count: int) -> list[int]:
        taken: list[int] = []
        try:
            while len(taken) < count:
                taken.append(self.queue.popleft())
        except ValueError:
            self.queue.append_n(taken[::-1])
            raise
        return taken
