"""For every other value of a row of pools: a correct oddity, and what is refused under it.

`profile_rows.py` has the rows of single engines, with a story each. Here are those that the clean
pool follows by itself, and the few that take a method more. `NAMED_OF_POOLS` are rows that have no
example, each with its reason; `STRICTEST_OF_POOLS` values whose oddity nobody can accuse under
another, since the others promise less.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from poolproof.bugs.clean_pool import CleanPool, bad_ids
from poolproof.bugs.lone_bugs import (
    AssertsInsteadOfRaising,
    KeepsTheOldCopyInMind,
    OrderNotShown,
    RaisesInsteadOfIgnoring,
)
from poolproof.bugs.oddities import PreEvictingPool, WideRowsPool
from poolproof.bugs.prefix_index_bugs import (
    AppendsAll,
    DuplicateSkipped,
    EvictsOneMore,
    FifoForLifo,
    LastWriterWins,
    NullBlockCached,
    RecycledWithItsHash,
    RemovalInTheOtherCurrency,
    ShortDigest,
    StaleIndexEntry,
)
from poolproof.bugs.profile_rows import STRICTEST, RowExample, stated
from poolproof.bugs.reference_bugs import FreeOverASet
from poolproof.contract.content import Key

__all__ = ["NAMED_OF_POOLS", "PLAIN_POOL_ROWS", "STRICTEST_OF_POOLS"]


class PoolSetsABlockAside(CleanPool):
    """Block 0 is never handed out, and nobody was told."""

    def __init__(self, num_blocks: int, **options: Any) -> None:
        super().__init__(num_blocks, **options)
        self.queue.remove(0)


class PoolHandsOutTheNullBlock(CleanPool):
    """The null block waits among the free ones."""

    def __init__(self, num_blocks: int, **options: Any) -> None:
        super().__init__(num_blocks, **options)
        if self.null_block is not None:
            self.queue.append_n([self.null_block])


class PoolTakesFromTheMiddle(CleanPool):
    """New blocks come from the middle of the queue, which is shown as it is."""

    def _take_from_queue(self, count: int) -> list[int]:
        order = self.free_order()
        if count > len(order):
            return super()._take_from_queue(count)  # which raises
        first = (len(order) - count) // 2
        for block_id in order[first : first + count]:
            self.queue.remove(block_id)
        return order[first : first + count]


class KeepsBothHashes(CleanPool):
    """The hash that another one replaces is forgotten by the block, and not by the index."""

    def _cache_one(self, block_id: int, key: Key) -> None:
        former = self.hashes[block_id]
        super()._cache_one(block_id, key)
        if former not in (None, self.hashes[block_id]):
            self._index_insert(former, block_id)

    def _index_remove(self, key: Key, block_id: int) -> None:
        if block_id in self.index.get(key, ()):
            super()._index_remove(key, block_id)


class AssertsNoHash(CleanPool):
    """Whoever caches a block that has a hash trips an assertion, as in vLLM."""

    def _cache_one(self, block_id: int, key: Key) -> None:
        assert self.hashes[block_id] is None
        super()._cache_one(block_id, key)


class AssertsNoHashAnywhere(AssertsNoHash):
    """The assertion looks at the index as well: a second block of one content trips it."""

    def _cache_one(self, block_id: int, key: Key) -> None:
        assert key not in self.index
        super()._cache_one(block_id, key)


class NullBlockPasses(CleanPool):
    """Lists with the null block are taken without a word."""

    def _bad_ids(self, block_ids: list[int]) -> str | None:
        return bad_ids(block_ids, self.num_blocks, None)


class OverlooksWhatIsDropped(PreEvictingPool):
    """What is dropped ahead of time can still be found."""

    _index_remove = StaleIndexEntry._index_remove  # noqa: SLF001 - the same slip


class TellsNothingOfEvictions(CleanPool):
    """What is stored is told, and what is recycled is not."""

    def _announce_removed(self, key: Key, *, is_last_copy: bool) -> None:
        """Nobody learns of it."""


class LooksAtNothing(CleanPool):
    """No argument is looked at: what misuse does is whatever it does."""

    def _refuses(self, reason: str | None) -> bool:  # noqa: ARG002 - what is odd about it
        return False


class LooksAtNothingAndForgets(LooksAtNothing):
    """Nor is a reference counted that a repeated id takes."""

    def touch(self, block_ids: list[int]) -> None:
        super().touch(list(dict.fromkeys(block_ids)))


class KeepsEightBytes(CleanPool):
    """The index has room for eight bytes of a hash."""

    _lookup_hash = staticmethod(lambda key: key[:8])

    def lookup(self, block_hash: Key) -> int | None:
        return super().lookup(self._lookup_hash(block_hash))

    def cache(self, block_ids: list[int], hashes: list[Key]) -> None:
        super().cache(block_ids, [self._lookup_hash(key) for key in hashes])


_example = partial(stated, rows={})

_CLEAN = CleanPool
_ORDER = ("ORD",)
_FOUND = ("IDX", "I4")
_NULL: Mapping[str, Any] = {"null_block": 0}
_CARELESS: Mapping[str, Any] = {"misuse": "undefined"}

PLAIN_POOL_ROWS: tuple[RowExample, ...] = (
    _example("null_block", None, 0, _CLEAN, PoolSetsABlockAside, ("I1", "OWN", "ADM")),
    _example("null_block", 2, None, _CLEAN, PoolHandsOutTheNullBlock, ("I1", "I3", "OWN", "ADM")),
    _example("eviction", "lru", "lifo", _CLEAN, OrderNotShown, _ORDER),
    _example("eviction", "unhashed-first", "lru", _CLEAN, AppendsAll, _ORDER),
    _example("eviction", "lifo", "lru", _CLEAN, FifoForLifo, _ORDER),
    _example("eviction", "unspecified", "lru", PoolTakesFromTheMiddle, RecycledWithItsHash, _FOUND),
    _example("duplicates", "kept", "first", _CLEAN, LastWriterWins, _FOUND),
    _example("duplicates", "first", "kept", _CLEAN, KeepsTheOldCopyInMind, _FOUND),
    _example("duplicates", "last", "kept", _CLEAN, DuplicateSkipped, _FOUND),
    _example("recache", "replace", STRICTEST, _CLEAN, KeepsBothHashes, _FOUND),
    _example(
        "recache", "forbidden", "replace", AssertsNoHash, AssertsNoHashAnywhere, ("CRASH",),
    ),
    _example(
        "null_in_lists", "misuse", "ignored", _CLEAN, NullBlockPasses, ("MISUSE",), rows=_NULL,
    ),
    _example(
        "null_in_lists", "ignored", "misuse", _CLEAN, NullBlockCached, ("I3", *_FOUND), rows=_NULL
    ),
    _example("repeats_in_free", "allowed", STRICTEST, _CLEAN, FreeOverASet, ("I1", "OWN")),
    _example("retention", "exact", "while-held", _CLEAN, EvictsOneMore, _FOUND),
    _example("retention", "may-drop", "exact", PreEvictingPool, OverlooksWhatIsDropped, _FOUND),
    _example("events", "none", "per-copy", _CLEAN, StaleIndexEntry, _FOUND),
    _example("events", "per-copy", "per-hash", _CLEAN, TellsNothingOfEvictions, ("EVT",)),
    _example("events", "per-hash", "per-copy", _CLEAN, RemovalInTheOtherCurrency, ("EVT",)),
    _example("misuse", "raises", "ignores", _CLEAN, AssertsInsteadOfRaising, ("MISUSE",)),
    _example("misuse", "ignores", "raises", _CLEAN, RaisesInsteadOfIgnoring, ("MISUSE",)),
    _example(
        "misuse", "undefined", "raises", LooksAtNothing, LooksAtNothingAndForgets, ("I1", "OWN")
    ),
    _example("hash_bytes", "any", STRICTEST, _CLEAN, KeepsEightBytes, _FOUND),
    _example("hash_bytes", 32, 16, WideRowsPool, ShortDigest, _FOUND, rows=_CARELESS),
)  # fmt: skip

STRICTEST_OF_POOLS: Mapping[str, str] = {
    "recache=replace": "under `forbidden` no block that has a hash gets another",
    "repeats_in_free=allowed": "under `forbidden` no list names a block twice",
    "hash_bytes=any": "a pool that takes any hash takes those of one length",
}
"""What holds under this value holds under the others as well."""

NAMED_OF_POOLS: Mapping[str, str] = {
    "keys": "says which of the calls with chains there are, and a native pool has none: impl is "
    "driven with either value (tests/harness/test_chain_workload.py)",
    "same_step_hit": "says what a manager does within a step, and a pool has no steps",
}
"""Rows without an example, by the reason."""
