"""Bugs of hashes and of the prefix index: entries that outlive a block, blocks without entries."""

from __future__ import annotations

from poolproof.bugs.clean_pool import CleanPool
from poolproof.bugs.specimen import Section
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
)  # fmt: skip
class ResetKeepsHashes(CleanPool):
    """Caching such a block again looks like a repetition and is skipped."""

    def _clear_hashes(self) -> None:
        pass


@plant(
    "J9b", "reset clears the blocks' hashes and leaves the index",
    thread="kvcached#363", invariants=("IDX",), severity=Severity.WRONG_DATA_OF_ANOTHER,
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
