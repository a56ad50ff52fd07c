"""For every other value of a row of managers: a correct oddity, and what is refused under it.

`profile_rows.py` has the rows of single engines, with a story each. Here are those that the clean
managers follow by themselves, and the few that take a method more. `NAMED_OF_MANAGERS` are values
that have no example, each with its reason; `STRICTEST_OF_MANAGERS` those whose oddity nobody can
accuse under another value, since the others promise less.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import lcm
from typing import Any

from poolproof.bugs.clean_groups import CleanHybridManager, CleanRingManager, CleanWindowManager
from poolproof.bugs.clean_manager import CleanManager, CleanSequence, CleanSwappingManager
from poolproof.bugs.clean_pool import CleanPool
from poolproof.bugs.lone_bugs import (
    GrowthKeepsABlock,
    HitsTheOldCopy,
    NeverInsteadOfLater,
    SwapsInToOldPlaces,
    WatermarkNotKept,
)
from poolproof.bugs.manager_admission_bugs import (
    ExhaustionRaises,
    GrowsByTheWhole,
    LookaheadNotReserved,
    NothingLeftToCompute,
)
from poolproof.bugs.manager_index_bugs import (
    CachesDrafts,
    CachesPartialTail,
    HeadGoesFirst,
    NoAdapterInKey,
    OneBlockAHash,
    PoolReverses,
    PromptsOnly,
    PublishesTooEarly,
    ShortKeys,
    StaleEntries,
)
from poolproof.bugs.manager_lifecycle_bugs import UnknownEndRaises
from poolproof.bugs.manager_oddities import (
    ContentCheckedManager,
    EarlyShower,
    LatePublisher,
    MergingManager,
    QuietMerger,
    RegainingManager,
    RewritingManager,
    StepEndSlider,
)
from poolproof.bugs.manager_reference_bugs import (
    DeferredFreeOfAView,
    FinishKeepsBlocks,
    ParentEndsFirst,
)
from poolproof.bugs.manager_window_bugs import (
    ForkCountsEntries,
    FreesTooEarly,
    HybridFreesTooEarly,
)
from poolproof.bugs.profile_rows import STRICTEST, RowExample, stated

__all__ = ["NAMED_OF_MANAGERS", "PLAIN_MANAGER_ROWS", "STRICTEST_OF_MANAGERS"]


class SetsABlockAside(CleanManager):
    """Block 0 is never handed out, and nobody was told."""

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        super().__init__(num_blocks, block_size, **options)
        self.pool.queue.remove(0)


class HandsOutTheNullBlock(CleanManager):
    """The null block waits among the free ones."""

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        super().__init__(num_blocks, block_size, **options)
        null = self.pool.null_block
        if null is not None:
            self.pool.queue.append_n([null])


class TakesFromTheMiddle(CleanManager):
    """New blocks come from the middle of the queue."""

    class pool_class(CleanPool):  # noqa: N801 - the attribute that it replaces
        """Takes what stands in the middle."""

        def _take_from_queue(self, count: int) -> list[int]:
            order = self.free_order()
            if count > len(order):
                return super()._take_from_queue(count)  # which raises
            first = (len(order) - count) // 2
            for block_id in order[first : first + count]:
                self.queue.remove(block_id)
            return order[first : first + count]


class KeepsEveryCopy(CleanManager):
    """Each copy of a content carries the key, whatever the row says."""

    class pool_class(CleanPool):  # noqa: N801 - the attribute that it replaces
        """Adds a carrier."""

        def _cache_one(self, block_id: int, key: Any) -> None:
            if self.hashes[block_id] != key:
                self._drop_hash(block_id)
                self._add_hash(block_id, key)


class ForgetsNowAndThen(CleanManager):
    """Each third allocation makes the last of the free blocks forget its content."""

    class pool_class(CleanPool):  # noqa: N801 - the attribute that it replaces
        """Drops a key ahead of its turn."""

        num_calls = 0

        def allocate(self, n: int) -> list[int]:
            taken = super().allocate(n)
            self.num_calls += 1
            last = self.queue.free_order()[-1:]
            if self.num_calls % 3 == 0 and last:
                self._drop_hash(last[0])
            return taken


class PublishesThePrompt(CleanManager):
    """Of a prompt in chunks all keys are found when the first chunk is scheduled."""

    def _publish_scheduled(self, sequence: CleanSequence) -> None:
        covered = len(sequence.table) * self.block_size
        self._publish_up_to(sequence, min(len(sequence.tokens), covered))


class CachesNevertheless(CleanManager):
    """There is a prefix cache after all."""

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        super().__init__(num_blocks, block_size, **options)
        self.enable_caching = self.pool.enable_caching = bool(options.get("enable_caching", True))


class UsesHalfOfAHit(CleanManager):
    """The first half of what is found is used."""

    def _hits(self, sequence: CleanSequence) -> list[int]:
        hits = super()._hits(sequence)
        return hits[: len(hits) // 2]


class GrowsWithCaution(CleanManager):
    """A growth leaves a block free, an admission need not."""

    def _has_room(self, sequence: CleanSequence, further: int) -> bool:
        return self.pool.num_free() > 1 and super()._has_room(sequence, further)


class AdmitsWithCaution(CleanManager):
    """An admission leaves a block free, and no watermark says so."""

    def _fits(self, needed: int, hits: list[int]) -> bool:
        return super()._fits(needed + 1, hits)


class TurnsAway(CleanManager):
    """Whoever has to wait is turned away for ever."""

    def _never_fits(self, sequence: CleanSequence, num_tokens: int | None) -> bool:
        del sequence, num_tokens
        return True


class GivesBackById(CleanManager):
    """A sequence gives its blocks back in the order of their ids."""

    def _give_back(self, sequence: CleanSequence) -> None:
        sequence.table.sort()
        super()._give_back(sequence)


class GivesBackByIdUncached(CleanManager):
    """Without a cache a sequence gives its blocks back in the order of their ids."""

    def _give_back(self, sequence: CleanSequence) -> None:
        if not self.enable_caching:
            sequence.table.sort()
        super()._give_back(sequence)


class ReversedUncached(CleanManager):
    """Without a cache blocks go back the other way round than they should."""

    def _give_back(self, sequence: CleanSequence) -> None:
        if not self.enable_caching:
            sequence.table.reverse()
        super()._give_back(sequence)


class LastGroupFirstForOdd(CleanHybridManager):
    """Which group gives back first depends on the sequence."""

    def finish(self, seq_id: int) -> None:
        for part in self.parts[:: -1 if seq_id % 2 else 1]:
            part.finish(seq_id)


class LastGroupFirstAtTheEnd(CleanHybridManager):
    """The end of a sequence goes through the groups in reverse."""

    def finish(self, seq_id: int) -> None:
        for part in self.parts[::-1]:
            part.finish(seq_id)


class MergesWithoutReference(MergingManager):
    """The table names the block of somebody else, and nobody counts."""

    def _publish_up_to(self, sequence: CleanSequence, num_tokens: int) -> None:
        first = sequence.num_published
        CleanManager._publish_up_to(self, sequence, num_tokens)  # noqa: SLF001 - the base's
        for entry in range(first, sequence.num_published):
            own, carrier = sequence.table[entry], self._find(sequence, entry)
            if carrier not in (own, None):
                sequence.table[entry] = carrier or 0
                self.pool.free([own])


class NobodyShares(CleanManager):
    """What is held is computed again by each who wants it."""

    def _find(self, sequence: CleanSequence, entry: int) -> int | None:
        carriers = self.pool.index.get(self._key(sequence, entry), ())
        return next((block for block in carriers if not self.pool.ref_count(block)), None)


class ProvesItsHits(CleanManager):
    """What a drafting head needs of a hit is computed again: its last block (vLLM with EAGLE)."""

    def _hits(self, sequence: CleanSequence) -> list[int]:
        return super()._hits(sequence)[: -self.rules.proof_blocks]


class ProvesOneTooMany(CleanManager):
    """The last block is dropped twice, as where two layers of a search each drop one."""

    def _hits(self, sequence: CleanSequence) -> list[int]:
        return super()._hits(sequence)[: -self.rules.proof_blocks - 1]


class ReachesBeyondItsRow(CleanManager):
    """Slots are counted beyond the width of the row."""

    def _within_row(self, slots: int) -> int:
        return slots


class CountsItsRows(CleanManager):
    """Who would need a row more than there are has to wait."""

    def _fits(self, needed: int, hits: list[int]) -> bool:
        return self._num_rows() < self.rules.max_sequences and super()._fits(needed, hits)

    def _num_rows(self) -> int:
        return sum(sequence.place != "nowhere" for sequence in self.sequences.values())


class RowsOfThePreempted(CountsItsRows):
    """Who was preempted keeps the row, until nobody gets one."""

    def _num_rows(self) -> int:
        return len(self.sequences)


class WritesWhatOthersHold(RewritingManager):
    """Behind a hit the block of whoever has one is taken and written, whatever it holds."""

    def _find(self, sequence: CleanSequence, entry: int) -> int | None:
        found = super()._find(sequence, entry)
        others = [s.table[entry] for s in self.sequences.values() if len(s.table) > entry]
        return others[0] if found is None and entry and others else found


class RegainsWhatWasWritten(RegainingManager):
    """What was written to in between is found under its former key, too."""

    def _written(self, sequence: CleanSequence) -> None:
        """Nothing is noted."""


class SlidesOverWhatIsRead(StepEndSlider):
    """The end of a step gives back a block more than the next token can spare."""

    _first_kept = FreesTooEarly._first_kept  # noqa: SLF001 - the same slip


class PublishesTheUncomputedLate(LatePublisher):
    """The end of a request publishes all that it holds, computed or not."""

    def _release(self, sequence: CleanSequence) -> None:
        sequence.num_computed = min(len(sequence.tokens), len(sequence.table) * self.block_size)
        super()._release(sequence)


class ShowsBlocksOfNobody(EarlyShower):
    """What was full once is shown as cached for ever."""

    def is_cached(self, block_id: int) -> bool:
        return block_id in self.filled_by or super().is_cached(block_id)


class MergesSameTokens(QuietMerger):
    """Duplicates are told by their own tokens, whatever came before them."""

    def _block_key(self, sequence: CleanSequence, entry: int) -> bytes:
        own = sequence.tokens[entry * self.block_size : (entry + 1) * self.block_size]
        return self.digest(repr(own).encode())


class KeysWhatIsReachable(CleanWindowManager):
    """Of blocks of four beside blocks of eight, two at a time get their keys."""

    def _publish_up_to(self, sequence: CleanSequence, num_tokens: int) -> None:
        alignment = lcm(*(group.block_size or self.block_size for group in self.rules.groups))
        super()._publish_up_to(sequence, num_tokens - num_tokens % alignment)


class ReachableManager(CleanHybridManager):
    """A block gets its key once a hit over all groups can end behind it, as in vLLM."""

    window_class = KeysWhatIsReachable


EXACT: Mapping[str, Any] = {"index": "exact", "hits": "exact"}
WINDOW: Mapping[str, Any] = {"null_block": 0, "groups": "sliding:8"}
TWO_GROUPS: Mapping[str, Any] = {"null_block": 0, "groups": "full+sliding:8"}
MIXED_SIZES: Mapping[str, Any] = {**EXACT, "null_block": 0, "groups": "full:0:8+sliding:8:4"}
RING: Mapping[str, Any] = {"publishes": "never", "groups": "sliding:8"}
EARLY: Mapping[str, Any] = {"same_step_hit": "allowed"}
COUNTS = ("I1", "OWN", "I2", "CRASH")
FOUND = ("IDX", "DATA", "ADM", "I4")
ORDER = ("ORD",)
ROOM = ("ADM",)


example = partial(stated, rows=EXACT)

_CLEAN = CleanManager

PLAIN_MANAGER_ROWS: tuple[RowExample, ...] = (
    example("null_block", None, 0, _CLEAN, SetsABlockAside, ("I1", "OWN", "ADM")),
    example("null_block", 2, None, _CLEAN, HandsOutTheNullBlock, ("I1", "I2", "I3", "OWN", "ADM")),
    example("eviction", "lru", "lifo", _CLEAN, PoolReverses, ORDER),
    example("eviction", "unhashed-first", "lru", _CLEAN, PoolReverses, ORDER),
    example("eviction", "unhashed-lifo", "unhashed-first", _CLEAN, PoolReverses, ORDER),
    example("eviction", "lifo", "lru", _CLEAN, PoolReverses, ORDER),
    example("eviction", "unspecified", "lru", TakesFromTheMiddle, StaleEntries, (*FOUND, *COUNTS)),
    example("duplicates", "kept", "first", _CLEAN, OneBlockAHash, FOUND),
    example("duplicates", "first", "kept", _CLEAN, KeepsEveryCopy, FOUND),
    example("duplicates", "last", "kept", _CLEAN, HitsTheOldCopy, FOUND),
    example("retention", "exact", "while-held", _CLEAN, ForgetsNowAndThen, FOUND),
    example("retention", "may-drop", "exact", ForgetsNowAndThen, NoAdapterInKey, FOUND),
    example("same_step_hit", "forbidden", STRICTEST, _CLEAN, PublishesTooEarly, FOUND),
    example(
        "same_step_hit", "allowed", "forbidden", _CLEAN, PublishesThePrompt, FOUND,
        rows={**EXACT, "publishes": "scheduled"},
    ),
    example("publishes", "computed", "finish", _CLEAN, PublishesTooEarly, FOUND),
    example(
        "publishes", "scheduled", "computed", _CLEAN, PublishesThePrompt, FOUND,
        rows={**EXACT, **EARLY},
    ),
    example("publishes", "prompts", "computed", _CLEAN, PublishesTooEarly, FOUND),
    example("publishes", "never", "computed", _CLEAN, CachesNevertheless, FOUND),
    example("hits", "exact", STRICTEST, _CLEAN, PromptsOnly, FOUND, rows={"index": "exact"}),
    example(
        "hits", "sound", "exact", UsesHalfOfAHit, NoAdapterInKey, FOUND, rows={"index": "exact"},
    ),
    example("hits", "sound", "exact", LatePublisher, PublishesTheUncomputedLate, FOUND, rows={}),
    example("index", "exact", STRICTEST, _CLEAN, CachesPartialTail, FOUND, rows={"hits": "exact"}),
    example(
        "index", "content", "exact", RewritingManager, WritesWhatOthersHold, (*FOUND, "I2"), rows={}
    ),
    example("index", "content", "exact", RegainingManager, RegainsWhatWasWritten, FOUND, rows={}),
    example("index", "content", "exact", EarlyShower, ShowsBlocksOfNobody, FOUND, rows={}),
    example(
        "index", "content", "exact", QuietMerger, MergesSameTokens, (*FOUND, *COUNTS),
        rows={"duplicates": "first"},
    ),
    example(
        "index", "content", "exact", StepEndSlider, SlidesOverWhatIsRead,
        ("DATA", "I2", "ATOM", "I4"), rows=WINDOW,
    ),
    example("full_hit", "recompute-token", "allowed", _CLEAN, NothingLeftToCompute, ROOM),
    example("full_hit", "allowed", "recompute-token", _CLEAN, CachesPartialTail, FOUND),
    example("reserves", "scheduled", "sequence", _CLEAN, GrowsByTheWhole, ("ADM", "CRASH")),
    example("reserves", "sequence", "scheduled", _CLEAN, GrowsByTheWhole, ("ADM", "CRASH")),
    example("admission", "exact", STRICTEST, _CLEAN, GrowthKeepsABlock, ROOM),
    example("admission", "exact-at-admission", "exact", GrowsWithCaution, AdmitsWithCaution, ROOM),
    example(
        "admission", "sound", "exact-at-admission", AdmitsWithCaution, ExhaustionRaises, ("CRASH",)
    ),
    example("never", "told", STRICTEST, _CLEAN, NeverInsteadOfLater, ROOM),
    example("never", "untold", "told", _CLEAN, TurnsAway, ROOM),
    example("release_order", "tail-first", "head-first", _CLEAN, HeadGoesFirst, ORDER),
    example("release_order", "head-first", "tail-first", _CLEAN, HeadGoesFirst, ORDER),
    example("release_order", "unspecified", "tail-first", GivesBackById, FinishKeepsBlocks, COUNTS),
    example("uncached_order", "same", "head-first", _CLEAN, ReversedUncached, ORDER),
    example(
        "uncached_order", "tail-first", "same", _CLEAN, ReversedUncached, ORDER,
        rows={**EXACT, "release_order": "head-first"},
    ),
    example(
        "uncached_order", "unspecified", "same", GivesBackByIdUncached, FinishKeepsBlocks, COUNTS
    ),
    example(
        "group_order", "first-to-last", "last-to-first", CleanHybridManager,
        LastGroupFirstAtTheEnd, ORDER, rows=TWO_GROUPS,
    ),
    example(
        "group_order", "unspecified", "first-to-last", LastGroupFirstForOdd, HybridFreesTooEarly,
        ("DATA", "I2", "ATOM"), rows=TWO_GROUPS,
    ),
    example("frees", "at-once", "after-step", _CLEAN, ParentEndsFirst, COUNTS),
    example("frees", "after-step", "at-once", _CLEAN, DeferredFreeOfAView, COUNTS),
    example("finish_again", "ignored", STRICTEST, _CLEAN, UnknownEndRaises, ("CRASH",)),
    example("finish_again", "undefined", "ignored", UnknownEndRaises, FinishKeepsBlocks, COUNTS),
    example(
        "window_blocks", "freed", "reused", CleanWindowManager, FreesTooEarly,
        ("DATA", "I2", "ATOM"), rows=WINDOW,
    ),
    example(
        "window_blocks", "reused", "freed", CleanRingManager, ForkCountsEntries, COUNTS, rows=RING
    ),
    example("tables", "append-only", STRICTEST, _CLEAN, MergingManager, ("I2", "ADM")),
    example(
        "tables", "merged", "append-only", MergingManager, MergesWithoutReference,
        (*COUNTS, "DATA"), rows={**EXACT, "duplicates": "first"},
    ),
    example("held_blocks", "shared", "exclusive", _CLEAN, NobodyShares, FOUND),
    example(
        "keyed", "full", "reachable", CleanHybridManager, ReachableManager, FOUND, rows=MIXED_SIZES
    ),
    example(
        "keyed", "reachable", "full", ReachableManager, CleanHybridManager, FOUND, rows=MIXED_SIZES
    ),
    example(
        "collisions", "checked", STRICTEST, ContentCheckedManager, _CLEAN, FOUND, weak_hashes=4,
    ),
    example("collisions", "trusted", "checked", _CLEAN, ShortKeys, FOUND, weak_hashes=4),
    example("sampled", "with-append", STRICTEST, _CLEAN, CachesDrafts, FOUND),
    example("watermark_blocks", 2, 0, _CLEAN, WatermarkNotKept, ROOM),
    example("lookahead_tokens", 3, 0, _CLEAN, LookaheadNotReserved, ROOM),
    example("proof_blocks", 1, 0, ProvesItsHits, ProvesOneTooMany, FOUND),
    example("host_blocks", 6, 2, CleanSwappingManager, SwapsInToOldPlaces, (*FOUND, *COUNTS)),
    example(
        "max_tokens", 18, 0, _CLEAN, ReachesBeyondItsRow, ROOM,
        rows={**EXACT, "lookahead_tokens": 3},
    ),
    example("max_sequences", 2, 0, CountsItsRows, RowsOfThePreempted, ROOM),
    example(
        "groups", "sliding:8", "full", CleanWindowManager, FreesTooEarly, ("DATA", "I2", "ATOM"),
        rows={"null_block": 0},
    ),
)  # fmt: skip

STRICTEST_OF_MANAGERS: Mapping[str, str] = {
    "same_step_hit=forbidden": "`allowed` lets others read what a step computes, and asks none to",
    "hits=exact": "`sound` lets pass what finds less",
    "index=exact": "`content` lets pass what is found at other moments",
    "admission=exact": "the others let refusals pass",
    "never=told": "`untold` lets both answers pass",
    "finish_again=ignored": "under `undefined` nobody ends a sequence twice",
    "tables=append-only": "`merged` lets entries change, and asks nobody to",
    "collisions=checked": "`trusted` blames nobody for a collision",
    "sampled=with-append": "`with-step` tells more, and asks nobody to use it",
}
"""What holds under this value holds under the others as well."""

_OF_POOLS = "says how a pool is called, and a manager has its pool to itself"
_OF_STATES = "goes with recurrent states: bugs/{} has bugs and look-alikes of it in our own manager"
_OF_LAYOUTS = (
    "needs windows or states that are kept in part: layouts of impl-manager and vllm-manager hold "
    "under it, and tests/reference/test_recurrent_states.py has what breaks it"
)

NAMED_OF_MANAGERS: Mapping[str, str] = {
    "recache": _OF_POOLS,
    "null_in_lists": _OF_POOLS,
    "repeats_in_free": _OF_POOLS,
    "keys": _OF_POOLS,
    "events": _OF_POOLS,
    "misuse": _OF_POOLS,
    "hash_bytes": _OF_POOLS,
    "states": _OF_STATES.format("inside_block_bugs.py"),
    "hash_tokens": _OF_STATES.format("inside_block_bugs.py"),
    "state_blocks": _OF_STATES.format("draft_state_bugs.py"),
    "keyed=checkpoints": _OF_LAYOUTS,
    "checkpoint_tokens": _OF_LAYOUTS,
}
"""Rows and values without an example, by the reason."""
