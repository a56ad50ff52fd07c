"""Bugs of the free queue under a pool: who stands in it, its links, its counter, its refusals."""

from __future__ import annotations

from poolproof.bugs.clean_pool import CleanPool
from poolproof.bugs.clean_queue import CleanQueue, Node
from poolproof.bugs.specimen import Section
from poolproof.contract.profile import Profile
from poolproof.contract.violation import Severity

__all__ = ["FREE_QUEUE_BUGS"]

FREE_QUEUE_BUGS = Section()
plant = FREE_QUEUE_BUGS.plant


def _defines_misuse(profile: Profile) -> bool:
    return profile.misuse != "undefined"


def _null_in_lists(profile: Profile) -> bool:
    return profile.null_block is not None and profile.null_in_lists == "ignored"


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
