"""Bugs of a free queue on its own, seen at queue level: links, order, counter."""

from __future__ import annotations

from collections.abc import Sequence

from poolproof.bugs.clean_queue import CleanQueue, Node
from poolproof.bugs.reference_bugs import StaleLinks
from poolproof.bugs.specimen import Section
from poolproof.contract.violation import Severity

__all__ = ["QUEUE_BUGS"]

QUEUE_BUGS = Section()
plant = QUEUE_BUGS.plant


@plant(
    "Q1", "popping everything leaves the tail linked to a block that is gone",
    thread="", invariants=("LINK", "I1", "OWN", "CRASH"), severity=Severity.CRASH,
)  # fmt: skip
class TailLinkAfterPopOfAll(CleanQueue):
    """The head is joined to the tail in one direction only; the next append lands nowhere."""

    def popleft_n(self, count: int) -> list[int]:
        last = self.tail.previous
        emptied = count == self.length
        taken = super().popleft_n(count)
        if emptied:
            self.tail.previous = last
        return taken


@plant(
    "Q2", "append_n forgets the link back from the tail",
    thread="", invariants=("LINK", "I1", "OWN", "CRASH"), severity=Severity.CRASH,
)  # fmt: skip
class AppendWithoutBackLink(CleanQueue):
    """The next append joins in front of the blocks that the last one brought."""

    def append_n(self, block_ids: Sequence[int]) -> None:
        last = self.tail.previous
        super().append_n(block_ids)
        self.tail.previous = last


@plant(
    "Q3", "prepend_n puts the blocks at the head in reverse",
    thread="vllm#51482", invariants=("ORD",), severity=Severity.ORDER,
)  # fmt: skip
class PrependReversed(CleanQueue):
    """One prepend after the other in place of the whole list at once."""

    def prepend_n(self, block_ids: Sequence[int]) -> None:
        super().prepend_n(block_ids[::-1])


@plant(
    "Q4", "a removed block keeps its links",
    thread="vllm#33875", invariants=("LINK",), severity=Severity.CRASH,
)  # fmt: skip
class QueueWithStaleLinks(StaleLinks):
    """The same slip as A5, seen on the queue itself."""


@plant(
    "Q5", "a removal from the middle joins the neighbours in one direction",
    thread="", invariants=("LINK",), severity=Severity.CRASH,
)  # fmt: skip
class OneWayRemoval(CleanQueue):
    """Forwards the walk is right; the next removal behind the gap brings the block back."""

    def remove(self, block_id: int) -> None:
        after = self.nodes[block_id].next
        super().remove(block_id)
        if after is not None and after is not self.tail:
            after.previous = self.nodes[block_id]


@plant(
    "Q6", "popleft_n does not count down what it takes",
    thread="", invariants=("OWN",), severity=Severity.CRASH,
)  # fmt: skip
class BatchPopNotCounted(CleanQueue):
    """The counter promises blocks that are not there."""

    def popleft_n(self, count: int) -> list[int]:
        length = self.length
        taken = super().popleft_n(count)
        self.length = length
        return taken


@plant(
    "Q7", "a batch that joins the queue is counted as one block",
    thread="", invariants=("OWN",), severity=Severity.FALSE_REFUSAL,
)  # fmt: skip
class BatchCountedOnce(CleanQueue):
    """The counter falls behind the list, and what fits is refused."""

    def _insert_between(self, left: Node, block_ids: Sequence[int], right: Node) -> None:
        length = self.length
        super()._insert_between(left, block_ids, right)
        if length:
            self.length = min(self.length, length + 1)
