"""Manager bugs of the index: when keys are published, what a recycled or reset block leaves."""

from __future__ import annotations

from poolproof.bugs.clean_manager import CleanManager
from poolproof.bugs.clean_sequence import CleanSequence
from poolproof.bugs.eviction_bugs import HeadOfChainFirst
from poolproof.bugs.manager_specimen import ManagerSection
from poolproof.bugs.prefix_index_bugs import (
    LastWriterWins,
    ResetKeepsHashes,
    RevivalLosesHash,
    StaleBlockHash,
    StaleIndexEntry,
)
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.violation import Severity

__all__ = ["MANAGER_INDEX_BUGS"]

MANAGER_INDEX_BUGS = ManagerSection()
plant = MANAGER_INDEX_BUGS.plant


def _has_cache(profile: ManagerProfile) -> bool:
    return profile.publishes != "never"


def _is_exact(profile: ManagerProfile) -> bool:
    return _has_cache(profile) and profile.hits == "exact" and profile.retention == "exact"


@plant(
    "D1-manager", "the index entry stays when its block is recycled",
    thread="nano-vllm#163", also=("nano-vllm#153", "vllm#4764 (D4)"),
    invariants=("DATA", "IDX", "I1", "OWN", "I2", "CRASH", "ADM"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, is_bug_under=_has_cache,
)  # fmt: skip
class StaleEntries(CleanManager):
    """A later prompt with the old prefix is given a block that somebody else writes."""

    pool_class = StaleIndexEntry


@plant(
    "D3-manager", "reviving a block resets its hash", thread="ATOM#902",
    invariants=("I4", "IDX", "CRASH"), severity=Severity.LOST_HIT, is_bug_under=_is_exact,
)  # fmt: skip
class RevivalForgets(CleanManager):
    """The second hit on a prefix misses."""

    pool_class = RevivalLosesHash


@plant(
    "D6-manager", "an evicted block keeps its own hash",
    thread="kvcached#362", also=("kvcached#363", "vllm#44237", "vllm#24084"),
    invariants=("IDX", "I4", "CRASH"), severity=Severity.WRONG_DATA_OF_ANOTHER,
    is_bug_under=_has_cache,
)  # fmt: skip
class HashStays(CleanManager):
    """The block is taken for cached, under a key that nobody finds."""

    pool_class = StaleBlockHash


@plant(
    "D8-manager", "the index has room for one block a hash",
    thread="nano-vllm#219", also=("nano-vllm#243", "kvcached#401 (D7)"), invariants=("I4", "ADM"),
    severity=Severity.FALSE_REFUSAL, is_bug_under=lambda p: _is_exact(p) and p.duplicates == "kept",
)  # fmt: skip
class OneBlockAHash(CleanManager):
    """Of two copies from one step the survivor cannot be found."""

    pool_class = LastWriterWins


@plant(
    "D13", "keys are published when blocks are taken, and KV is written later",
    thread="vllm#29387", also=("vllm#42359", "vllm#41838", "nano-vllm#208", "nano-vllm#209"),
    invariants=("IDX", "DATA"), severity=Severity.WRONG_DATA_OF_ANOTHER,
    is_bug_under=lambda p: p.publishes == "computed",
)  # fmt: skip
class PublishesTooEarly(CleanManager):
    """A second request of the same step is given a block that nobody has written."""

    def _publish_scheduled(self, sequence: CleanSequence) -> None:
        covered = min(sequence.num_computed + sequence.num_scheduled, len(sequence.tokens))
        self._publish_up_to(sequence, covered)


@plant(
    "D14", "an abort leaves a prefix in the index that was never computed",
    thread="text-generation-inference#2489", invariants=("IDX", "DATA"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, is_bug_under=_has_cache,
)  # fmt: skip
class AbortPublishes(CleanManager):
    """The end of a request caches its tokens, whatever became of them."""

    def _end(self, sequence: CleanSequence) -> None:
        covered = len(sequence.table) * self.block_size
        self._publish_up_to(sequence, min(len(sequence.tokens), covered))
        super()._end(sequence)


@plant(
    "D17-manager", "a duplicate is freed on publication, and the table still names it",
    thread="mini-sglang#142", invariants=("I1", "OWN", "CRASH"),
    severity=Severity.WRONG_DATA_OF_ANOTHER,
    is_bug_under=lambda p: _has_cache(p) and p.duplicates == "kept",
)  # fmt: skip
class DuplicateFreedByManager(CleanManager):
    """The running request reads a block that is handed out to the next one."""

    def _publish_up_to(self, sequence: CleanSequence, num_tokens: int) -> None:
        first = sequence.num_published
        super()._publish_up_to(sequence, num_tokens)
        for entry in range(first, sequence.num_published):
            if self._find(sequence, entry) not in (sequence.table[entry], None):
                self.pool.free([sequence.table[entry]])


@plant(
    "D22", "blocks that were loaded are never published",
    thread="ATOM#1725", invariants=("I4",), severity=Severity.LOST_HIT, verbs=("load",),
    is_bug_under=_is_exact,
)  # fmt: skip
class LoadedNotPublished(CleanManager):
    """The same prefix is loaded again and again."""

    def loaded(self, seq_id: int) -> None:
        sequence = self.sequences[seq_id]
        covered = sequence.num_computed + sequence.loading
        sequence.num_published = max(sequence.num_published, covered // self.block_size)
        super().loaded(seq_id)


@plant(
    "E1-manager", "a sequence gives its blocks back head first",
    thread="nano-vllm@59aa3ff", also=("llm-d-inference-sim#704",), invariants=("ORD",),
    severity=Severity.ORDER,
    is_bug_under=lambda p: p.eviction != "unspecified" and p.release_order == "tail-first",
)  # fmt: skip
class HeadGoesFirst(CleanManager):
    """One eviction takes the head of a prefix, and nothing behind it can be found."""

    def _give_back(self, sequence: CleanSequence) -> None:
        sequence.table.reverse()
        super()._give_back(sequence)


@plant(
    "E1-pool", "the pool queues what a sequence gives back in reverse",
    thread="nano-vllm@59aa3ff", invariants=("ORD",), severity=Severity.ORDER,
    is_bug_under=lambda p: p.eviction != "unspecified",
)  # fmt: skip
class PoolReverses(CleanManager):
    """The manager is right and the pool undoes it."""

    pool_class = HeadOfChainFirst


@plant(
    "J10-manager", "the cache is reset while sequences run",
    thread="vllm#12284", also=("NeMo-RL#4018",), invariants=("ATOM", "I4"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, verbs=("reset",),
)  # fmt: skip
class ResetsWhileRunning(CleanManager):
    """KV of the old weights stays in tables, and is published again under the new ones."""

    def reset(self) -> bool:
        self.pool.evict(list(range(self.pool.num_blocks)))
        return True


@plant(
    "J9-manager", "a reset forgets the index and not the blocks",
    thread="kvcached#363", invariants=("IDX", "CRASH"), severity=Severity.WRONG_DATA_OF_ANOTHER,
    verbs=("reset",), is_bug_under=_has_cache,
)  # fmt: skip
class ResetsHalf(CleanManager):
    """Blocks go on carrying keys that nobody finds."""

    pool_class = ResetKeepsHashes
