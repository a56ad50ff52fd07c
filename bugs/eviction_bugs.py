"""Bugs of eviction: blocks reused in another order than declared, or more of them than needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poolproof.bugs.clean_pool import CleanPool
from poolproof.bugs.clean_queue import CleanQueue, Node
from poolproof.bugs.specimen import Section
from poolproof.contract.content import Key
from poolproof.contract.profile import Profile
from poolproof.contract.violation import Severity

__all__ = ["EVICTION_BUGS"]

EVICTION_BUGS = Section()
plant = EVICTION_BUGS.plant


def _keeps_an_order(profile: Profile) -> bool:
    return profile.eviction != "unspecified"


def _must_keep_content(profile: Profile) -> bool:
    return profile.retention == "exact"


@plant(
    "A15", "reset queues blocks that are queued already",
    thread="LMCache#993", invariants=("I1", "OWN", "LINK"),
    severity=Severity.WRONG_DATA_OF_ANOTHER,
)  # fmt: skip
class ResetQueuesAgain(CleanPool):
    """`clear` frees every entry of the index, also those that eviction order already holds."""

    def _clear_hashes(self) -> None:
        self.queue.append_n([b for b, key in enumerate(self.hashes) if key is not None])
        super()._clear_hashes()


@plant(
    "E1", "the blocks of a chain are freed head first",
    thread="nano-vllm@59aa3ff", invariants=("ORD",), severity=Severity.ORDER,
    is_bug_under=_keeps_an_order,
)  # fmt: skip
class HeadOfChainFirst(CleanPool):
    """One eviction takes the first block of a prefix and with it every hit behind it."""

    def _queue_freed(self, freed: list[int]) -> None:
        super()._queue_freed(freed[::-1])


@plant(
    "E3", "freed blocks join the tail where the last freed should be reused first",
    thread="vllm#51482", invariants=("ORD",), severity=Severity.ORDER,
    profile=Profile(eviction="lifo"), is_bug_under=lambda profile: profile.eviction == "lifo",
)  # fmt: skip
class FifoForLifo(CleanPool):
    """A faster path that was held to change nothing."""

    def _queue_freed(self, freed: list[int]) -> None:
        self.queue.append_n(freed)


@plant(
    "E4", "blocks without a hash wait behind cached ones",
    thread="vllm#42656", invariants=("ORD",), severity=Severity.ORDER,
    profile=Profile(eviction="unhashed-first"),
    is_bug_under=lambda profile: profile.eviction == "unhashed-first",
)  # fmt: skip
class AppendsAll(CleanPool):
    """Real entries of the cache are evicted while worthless blocks are free."""

    def _is_worth_keeping(self, block_id: int) -> bool:  # noqa: ARG002 - the bug
        return True


class OldPlaces(CleanQueue):
    """A block that returns is put in front of the neighbour that it left."""

    def __init__(self, num_blocks: int) -> None:
        self.successors: dict[int, Node | None] = {}
        super().__init__(num_blocks)

    def remove(self, block_id: int) -> None:
        self.successors[block_id] = self.nodes[block_id].next
        super().remove(block_id)

    def append_n(self, block_ids: Sequence[int]) -> None:
        for block_id in block_ids:
            place = self.successors.pop(block_id, None)
            if place is None or place.previous is None:
                place = self.tail
            assert place.previous is not None
            self._insert_between(place.previous, [block_id], place)


@plant(
    "E7", "a hit does not move a block: it goes back to its old place in the order",
    thread="FlexKV#195", invariants=("ORD",), severity=Severity.ORDER,
    is_bug_under=lambda profile: profile.eviction in ("lru", "unhashed-first"),
)  # fmt: skip
class HitDoesNotPromote(CleanPool):
    """What was used a moment ago is evicted as if it had not been."""

    queue_class = OldPlaces


@plant(
    "E10", "an allocation evicts every cached block that is free",
    thread="sglang#4987", invariants=("I4", "IDX"), severity=Severity.LOST_HIT,
    is_bug_under=_must_keep_content,
)  # fmt: skip
class EvictsEverything(CleanPool):
    """The loop never learns how much it has evicted."""

    def _take_from_queue(self, count: int) -> list[int]:
        taken = super()._take_from_queue(count)
        for block_id in self.queue.free_order() if count else ():
            self._drop_hash(block_id)
        return taken


@plant(
    "E13", "a duplicate without an index entry waits among the cached blocks",
    thread="TensorRT-LLM#11685", invariants=("ORD",), severity=Severity.ORDER,
    profile=Profile(eviction="unhashed-first", duplicates="first"),
    is_bug_under=lambda p: p.eviction == "unhashed-first" and p.duplicates != "kept",
)  # fmt: skip
class UselessBlocksKept(CleanPool):
    """Whoever was given to `cache` counts as cached, also the loser of two duplicates."""

    def __init__(self, num_blocks: int, **options: Any) -> None:
        super().__init__(num_blocks, **options)
        self.given: set[int] = set()

    def _cache_one(self, block_id: int, key: Key) -> None:
        self.given.add(block_id)
        super()._cache_one(block_id, key)

    def _recycle(self, block_id: int) -> None:
        self.given.discard(block_id)
        super()._recycle(block_id)

    def _is_worth_keeping(self, block_id: int) -> bool:
        return block_id in self.given


@plant(
    "E15", "an allocation evicts one block more than it takes",
    thread="sglang#32217", invariants=("I4", "IDX"), severity=Severity.LOST_HIT,
    is_bug_under=_must_keep_content,
)  # fmt: skip
class EvictsOneMore(CleanPool):
    """The estimate of what is needed is rounded up to a whole page."""

    def _take_from_queue(self, count: int) -> list[int]:
        taken = super()._take_from_queue(count)
        for block_id in self.queue.free_order()[:1] if count else ():
            self._drop_hash(block_id)
        return taken


@plant(
    "E11", "what can be evicted is counted up by keys and down by blocks",
    thread="sglang#10637", invariants=("OWN",), severity=Severity.FALSE_REFUSAL,
    is_bug_under=lambda profile: profile.duplicates == "kept",
)  # fmt: skip
class SizesFromDifferentFields(CleanPool):
    """The counter drifts away from the queue, by one at each duplicate that is freed."""

    def __init__(self, num_blocks: int, **options: Any) -> None:
        super().__init__(num_blocks, **options)
        self.drift = 0

    def _queue_freed(self, freed: list[int]) -> None:
        super()._queue_freed(freed)
        keys = [self.hashes[b] for b in freed if self.hashes[b] is not None]
        self.drift += len(keys) - len(set(keys))

    def num_free(self) -> int:
        return super().num_free() - self.drift
