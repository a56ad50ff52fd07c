"""Bugs of what is cached: hashes and their index, its eviction, and the events that tell of it.

Entries outlive a block, or blocks have none; blocks are reused in another order than declared, or
more of them than needed; a mirror that replays the events believes something else than the index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poolproof.bugs.clean_pool import CleanPool
from poolproof.bugs.clean_queue import CleanQueue, Node
from poolproof.bugs.specimen import Section, caches_what_is_free
from poolproof.contract.content import Key
from poolproof.contract.profile import Profile
from poolproof.contract.violation import Severity

__all__ = ["PREFIX_INDEX_BUGS"]


PREFIX_INDEX_BUGS = Section()
plant = PREFIX_INDEX_BUGS.plant


def _keeps_duplicates(profile: Profile) -> bool:
    return profile.duplicates == "kept"


def _must_keep_content(profile: Profile) -> bool:
    return profile.retention == "exact"


@plant(
    "C1", "the index compares a digest of a few bits and never the whole hash",
    thread="vllm#12621", invariants=("IDX", "I4", "EVT"), severity=Severity.WRONG_DATA_OF_ANOTHER,
    is_bug_under=_keeps_duplicates,
)  # fmt: skip
class ShortDigest(CleanPool):
    """Different prefixes meet in one entry; nobody checks the content on a hit."""

    def lookup(self, block_hash: Key) -> int | None:
        return super().lookup(_few_bits(block_hash))

    def _index_insert(self, key: Key, block_id: int) -> None:
        super()._index_insert(_few_bits(key), block_id)

    def _index_remove(self, key: Key, block_id: int) -> None:
        super()._index_remove(_few_bits(key), block_id)


def _few_bits(key: Key) -> bytes:
    assert isinstance(key, bytes)
    return bytes([key[0] & 7])


@plant(
    "D1", "the index entry stays when its block is recycled",
    thread="nano-vllm#163", invariants=("IDX",), severity=Severity.WRONG_DATA_OF_ANOTHER,
)  # fmt: skip
class StaleIndexEntry(CleanPool):
    """A later request with the old prefix hits a block that somebody else writes."""

    def _index_remove(self, key: Key, block_id: int) -> None:
        pass


@plant(
    "D3", "reviving a block resets its hash",
    thread="ATOM#902", invariants=("IDX",), severity=Severity.LOST_HIT,
    is_bug_under=_must_keep_content,
)  # fmt: skip
class RevivalLosesHash(CleanPool):
    """A hit goes through the path of a new block, so the same prefix misses next time."""

    def _revive(self, block_id: int) -> None:
        super()._revive(block_id)
        self._drop_hash(block_id)


@plant(
    "D4", "an allocation takes a cached block and leaves hash and index as they were",
    thread="vllm#4764", invariants=("IDX",), severity=Severity.WRONG_DATA_OF_ANOTHER,
    is_bug_under=caches_what_is_free,
)  # fmt: skip
class RecycledWithItsHash(CleanPool):
    """A hit returns a block that is being written by its new owner."""

    def _recycle(self, block_id: int) -> None:
        pass


@plant(
    "D6", "an evicted block keeps its own hash",
    thread="kvcached#363", invariants=("IDX", "CRASH"), severity=Severity.LOST_HIT,
)  # fmt: skip
class StaleBlockHash(CleanPool):
    """The index is right, the block is not: caching it again looks like a repetition."""

    def _clear_hash(self, block_id: int) -> None:
        pass


@plant(
    "D7", "a second block with the same hash is skipped and ends without any",
    thread="kvcached#402", invariants=("IDX",), severity=Severity.LOST_HIT,
    is_bug_under=lambda profile: profile.duplicates != "first",
)  # fmt: skip
class DuplicateSkipped(CleanPool):
    """When the first block is evicted, its living twin cannot be found."""

    def _add_hash(self, block_id: int, key: Key) -> None:
        if key not in self.index:
            super()._add_hash(block_id, key)


@plant(
    "D8", "the index has room for one block a hash, the last writer wins",
    thread="nano-vllm#219", invariants=("IDX", "I4", "EVT"), severity=Severity.LOST_HIT,
    is_bug_under=_keeps_duplicates,
)  # fmt: skip
class LastWriterWins(CleanPool):
    """When the last writer is recycled, the surviving copies are unreachable."""

    def _index_insert(self, key: Key, block_id: int) -> None:
        self.index[key] = [block_id]

    def _index_remove(self, key: Key, block_id: int) -> None:
        if self.index.get(key) == [block_id]:
            del self.index[key]


@plant(
    "D11", "a block that is cached already enters the index once more",
    thread="vllm#14073", invariants=("IDX", "EVT"), severity=Severity.WRONG_DATA_OF_ANOTHER,
    is_bug_under=lambda profile: profile.recache == "replace" and profile.duplicates == "kept",
)  # fmt: skip
class CachedAgain(CleanPool):
    """An eviction removes one of its two entries, the other one points at a recycled block."""

    def _cache_one(self, block_id: int, key: Key) -> None:
        if self.hashes[block_id] == key:
            self._add_hash(block_id, key)
        super()._cache_one(block_id, key)


@plant(
    "D17", "a duplicate is merged by freeing the caller's block under its feet",
    thread="mini-sglang#142", invariants=("I1", "OWN"), severity=Severity.WRONG_DATA_OF_ANOTHER,
)  # fmt: skip
class DuplicateFreed(CleanPool):
    """The running request's table still points at the block that went back to the queue."""

    def _cache_one(self, block_id: int, key: Key) -> None:
        carrier = self.lookup(key)
        if carrier is None or carrier == block_id:
            super()._cache_one(block_id, key)
        else:
            self._queue_freed(self._release([block_id]))


@plant(
    "D21", "the null block is cached like any other",
    thread="vllm#34367", invariants=("I3", "IDX", "EVT"), severity=Severity.WRONG_DATA_OF_ANOTHER,
    profile=Profile(null_block=0, null_in_lists="ignored"),
    is_bug_under=lambda p: p.null_block is not None and p.null_in_lists == "ignored",
)  # fmt: skip
class NullBlockCached(CleanPool):
    """Every hit on that hash reads the null block."""

    def _may_be_hashed(self, block_id: int) -> bool:  # noqa: ARG002 - the bug
        return True


@plant(
    "J9", "reset clears the index and leaves the blocks' own hashes",
    thread="kvcached#363", invariants=("IDX", "CRASH"), severity=Severity.LOST_HIT,
    is_bug_under=caches_what_is_free,
)  # fmt: skip
class ResetKeepsHashes(CleanPool):
    """Caching such a block again looks like a repetition and is skipped."""

    def _clear_hashes(self) -> None:
        pass


@plant(
    "J9b", "reset clears the blocks' hashes and leaves the index",
    thread="kvcached#363", invariants=("IDX",), severity=Severity.WRONG_DATA_OF_ANOTHER,
    is_bug_under=caches_what_is_free,
)  # fmt: skip
class ResetKeepsIndex(CleanPool):
    """Hits go on after the reset, on KV of old weights."""

    def _clear_index(self) -> None:
        self._announce_cleared()


@plant(
    "J10", "reset goes ahead while blocks are held",
    thread="vllm#12284", invariants=("ATOM",), severity=Severity.WRONG_DATA_OF_ANOTHER,
)  # fmt: skip
class ResetWhileHeld(CleanPool):
    """Requests that still run publish KV of old weights into the fresh index."""

    def _is_idle(self) -> bool:
        return True


def _keeps_an_order(profile: Profile) -> bool:
    return profile.eviction != "unspecified"


@plant(
    "A15", "reset queues blocks that are queued already",
    thread="LMCache#993", invariants=("I1", "OWN", "LINK"),
    severity=Severity.WRONG_DATA_OF_ANOTHER,
    is_bug_under=caches_what_is_free,
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
    is_bug_under=lambda profile: profile.eviction in ("unhashed-first", "unhashed-lifo"),
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
    is_bug_under=lambda p: (
        caches_what_is_free(p) and p.eviction in ("lru", "unhashed-first", "unhashed-lifo")
    ),
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
    is_bug_under=lambda p: (
        p.eviction in ("unhashed-first", "unhashed-lifo") and p.duplicates != "kept"
    ),
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
    is_bug_under=lambda profile: (
        caches_what_is_free(profile) and profile.duplicates == "kept"
    ),
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


def _has_events(profile: Profile) -> bool:
    return profile.events != "none"


@plant(
    "J1", "removals are announced in the other currency: each copy for a set, the last for copies",
    thread="vllm#55092", invariants=("EVT",), severity=Severity.EVENTS,
    profile=Profile(events="per-hash"),
    is_bug_under=lambda p: p.events != "none" and p.duplicates != "first",
)  # fmt: skip
class RemovalInTheOtherCurrency(CleanPool):
    """A router forgets a prefix that is resident, or believes in one that is gone."""

    def _announce_removed(self, key: Key, *, is_last_copy: bool) -> None:
        if self.rules.events == "per-hash" or is_last_copy:
            self.events.append({"type": "removed", "hashes": [key], "group": 0})


@plant(
    "J5", "every lookup announces that all blocks were cleared",
    thread="tokenspeed#166", invariants=("EVT",), severity=Severity.EVENTS,
    profile=Profile(events="per-copy"), is_bug_under=_has_events,
)  # fmt: skip
class LookupAnnouncesClear(CleanPool):
    """The mirror is empty after the first lookup, the index is not."""

    def lookup(self, block_hash: Key) -> int | None:
        self._announce_cleared()
        return super().lookup(block_hash)


@plant(
    "J5b", "a reset is announced for a pool that refused it",
    thread="", invariants=("EVT",), severity=Severity.EVENTS,
    profile=Profile(events="per-copy"), is_bug_under=_has_events,
)  # fmt: skip
class RefusedResetAnnounced(CleanPool):
    """Listeners drop what is still there to be hit."""

    def reset(self) -> bool:
        self._announce_cleared()
        return super().reset()


@plant(
    "J3", "an event covers the skipped null blocks as well (there by its tokens, here by hashes)",
    thread="vllm#44451", invariants=("EVT",), severity=Severity.EVENTS,
    profile=Profile(null_block=0, null_in_lists="ignored", events="per-copy"),
    is_bug_under=lambda p: _has_events(p) and p.null_block is not None
    and p.null_in_lists == "ignored",
)  # fmt: skip
class SkippedBlocksAnnounced(CleanPool):
    """The mirror has an entry for a block that is in no index."""

    def cache(self, block_ids: list[int], hashes: list[Key]) -> None:
        super().cache(block_ids, hashes)
        for block_id, key in zip(block_ids, hashes, strict=False):
            if self.enable_caching and block_id == self.null_block:
                self._announce_stored(key, is_first_copy=key not in self.index)


@plant(
    "J6", "the eviction of some blocks is announced as a clear of all (there: of one tier of two)",
    thread="vllm#57296", invariants=("EVT",), severity=Severity.EVENTS,
    profile=Profile(events="per-copy"), is_bug_under=_has_events,
)  # fmt: skip
class PartAnnouncedAsAll(CleanPool):
    """What is still there is lost to the mirror."""

    def evict(self, block_ids: list[int]) -> None:
        super().evict(block_ids)
        if self.enable_caching:
            self._announce_cleared()
