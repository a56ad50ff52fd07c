"""Manager bugs of identity and index: what a key forgets, and when one is published or taken back.

Keys forget something that flows into the KV, or are published too early or too late; a recycled or
a reset block leaves one behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poolproof.bugs.clean_manager import CleanManager, CleanSequence, Copies
from poolproof.bugs.manager_oddities import ContentCheckedManager
from poolproof.bugs.prefix_index_bugs import (
    HeadOfChainFirst,
    LastWriterWins,
    ResetKeepsHashes,
    RevivalLosesHash,
    StaleBlockHash,
    StaleIndexEntry,
)
from poolproof.bugs.specimen import ManagerSection, caches_what_is_free
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.violation import Severity

__all__ = ["MANAGER_INDEX_BUGS"]


MANAGER_INDEX_BUGS = ManagerSection()
plant = MANAGER_INDEX_BUGS.plant

FOUND = ("DATA", "IDX", "ADM")
"""A wrong hit is seen by what would be read, by unexplained keys, or by room misjudged."""


def _has_cache(profile: ManagerProfile) -> bool:
    return profile.has_hits


@plant(
    "C1-manager", "keys are digests of four bits, and a hit is not compared",
    thread="vllm#12621", also=("vllm#15297", "vllm#29163"), invariants=(*FOUND, "I4"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, is_bug_under=_has_cache,
)  # fmt: skip
class ShortKeys(CleanManager):
    """Its own hash collides, so this is its own fault."""

    def _block_key(self, sequence: CleanSequence, entry: int) -> bytes:
        return bytes([super()._block_key(sequence, entry)[0] & 15])


@plant(
    "C1-trusted", "a hit is not compared: right as long as no two hashes are equal",
    thread="vllm#12621", also=("vllm#54727",), invariants=(*FOUND, "I4"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, profile=ManagerProfile(collisions="trusted"),
    weak_hashes=8, is_bug_under=_has_cache,
)  # fmt: skip
class TrustsHashes(CleanManager):
    """Not wrong under its profile; under weak hashes it is reported as collision-dependent."""


@plant(
    "C3", "a hit is compared by its own tokens, not by those before it",
    thread="openvino.genai#3722", invariants=(*FOUND, "I4"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, weak_hashes=4, is_bug_under=_has_cache,
)  # fmt: skip
class ComparesOneBlock(ContentCheckedManager):
    """Equal tokens behind different parents, and equal hashes."""

    def _number_of(self, parent: int, tokens: tuple[int, ...], extra_keys: tuple[Any, ...]) -> int:
        del parent
        return super()._number_of(-1, tokens, extra_keys)


@plant(
    "C4", "the adapter is not in the key",
    thread="vllm#3264", also=("vllm#3263", "vllm#8240 (C5)"), invariants=FOUND,
    severity=Severity.WRONG_DATA_OF_ANOTHER, is_bug_under=_has_cache,
)  # fmt: skip
class NoAdapterInKey(CleanManager):
    """One prompt under two adapters shares KV."""

    def _extra_keys(self, extra_keys: Sequence[Any], first: int, end: int) -> list[Any]:
        return [key for key in super()._extra_keys(extra_keys, first, end) if key[0] != "lora"]


@plant(
    "C6", "of an adapter only the name is in the key",
    thread="vllm#30931", also=("vllm#42495",), invariants=FOUND,
    severity=Severity.WRONG_DATA_OF_ANOTHER, is_bug_under=_has_cache,
)  # fmt: skip
class AdapterNameOnly(CleanManager):
    """An adapter that was loaded anew under its old name hits KV of the old weights."""

    def _extra_keys(self, extra_keys: Sequence[Any], first: int, end: int) -> list[Any]:
        keys = super()._extra_keys(extra_keys, first, end)
        return [(k, v[0], *place) if k == "lora" else (k, v, *place) for k, v, *place in keys]


@plant(
    "C7", "adapter and salt stand in the key as plain strings",
    thread="vllm#44701", also=("vllm#44706",), invariants=FOUND,
    severity=Severity.WRONG_DATA_OF_ANOTHER, is_bug_under=_has_cache,
)  # fmt: skip
class UntaggedKeys(CleanManager):
    """An adapter "x" and a salt "x" are the same."""

    def _extra_keys(self, extra_keys: Sequence[Any], first: int, end: int) -> list[Any]:
        keys = super()._extra_keys(extra_keys, first, end)
        plain = [v[0] if k == "lora" else v for k, v, *_ in keys if k != "image"]
        return [*plain, *(key for key in keys if key[0] == "image")]


@plant(
    "C9", "images are not in the key: their placeholders are all alike",
    thread="LMCache#690", also=("ATOM#1358", "TensorRT-LLM#12306"), invariants=FOUND,
    severity=Severity.WRONG_DATA_OF_ANOTHER, is_bug_under=_has_cache,
)  # fmt: skip
class NoImagesInKey(CleanManager):
    """Two images under one text, and the answer is about the first."""

    def _extra_keys(self, extra_keys: Sequence[Any], first: int, end: int) -> list[Any]:
        return [key for key in super()._extra_keys(extra_keys, first, end) if key[0] != "image"]


@plant(
    "C11", "an image is in the key, but not which positions it covers",
    thread="vllm#56655", also=("vllm#56656",), invariants=FOUND,
    severity=Severity.WRONG_DATA_OF_ANOTHER, is_bug_under=_has_cache,
)  # fmt: skip
class NoMaskInKey(CleanManager):
    """The same tokens with the same image elsewhere share KV."""

    def _extra_keys(self, extra_keys: Sequence[Any], first: int, end: int) -> list[Any]:
        return [(kind, value) for kind, value, *_ in super()._extra_keys(extra_keys, first, end)]


@plant(
    "C14", "tokens are replaced in place, their keys are not",
    thread="vllm#49377", also=("vllm#49449", "vllm#49619", "vllm#52806"), invariants=(*FOUND, "I4"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, verbs=("truncate",), is_bug_under=_has_cache,
)  # fmt: skip
class KeysSurviveTruncation(CleanManager):
    """What was computed for the new tokens is found under the key of the old ones."""

    def _forget_keys(self, sequence: CleanSequence, full: int) -> None:
        keys = list(sequence.keys)
        super()._forget_keys(sequence, full)
        sequence.keys = keys


@plant(
    "C15", "only prompts are hashed, nothing that was generated",
    thread="vllm#9972", invariants=("I4", "ADM"), severity=Severity.LOST_HIT,
    is_bug_under=lambda p: _has_cache(p) and p.hits == "exact",
)  # fmt: skip
class PromptsOnly(CleanManager):
    """A preempted sequence does not find its own blocks again."""

    def append(self, seq_id: int, tokens: list[int]) -> Copies | str:
        sequence = self.sequences[seq_id]
        sequence.num_published = max(sequence.num_published, 10**6)
        return super().append(seq_id, tokens)


@plant(
    "C17", "a block that is filled in part is cached like a full one",
    thread="atlas#1193", also=("vllm#5188", "sglang#35270 (D16)"), invariants=FOUND,
    severity=Severity.WRONG_DATA_OF_ANOTHER, is_bug_under=_has_cache,
)  # fmt: skip
class CachesPartialTail(CleanManager):
    """Its tokens may still change, and a second writer may come."""

    def _publish_up_to(self, sequence: CleanSequence, num_tokens: int) -> None:
        rounded_up = -(-num_tokens // self.block_size) * self.block_size
        super()._publish_up_to(sequence, rounded_up)


@plant(
    "D12", "rejected drafts are cached with the tokens",
    thread="vllm#18668", also=("vllm#19006",), invariants=(*FOUND, "I4"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, verbs=("draft",), is_bug_under=_has_cache,
)  # fmt: skip
class CachesDrafts(CleanManager):
    """The bound for caching is what was computed, drafts included."""

    def _publish(self, sequence: CleanSequence) -> None:
        tokens, sequence.tokens = sequence.tokens, [*sequence.tokens, *sequence.drafts]
        self._publish_up_to(sequence, min(sequence.num_computed + len(sequence.drafts),
                                          len(sequence.tokens)))  # fmt: skip
        sequence.tokens = tokens


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
    is_bug_under=lambda p: _has_cache(p) and p.publishes == "computed",
)  # fmt: skip
class PublishesTooEarly(CleanManager):
    """A second request of the same step is given a block that nobody has written."""

    def _publish_scheduled(self, sequence: CleanSequence) -> None:
        covered = min(sequence.num_computed + sequence.num_scheduled, len(sequence.tokens))
        self._publish_up_to(sequence, covered)


@plant(
    "D14", "an abort leaves a prefix in the index that was never computed",
    thread="text-generation-inference#2489", invariants=("IDX", "DATA"),
    severity=Severity.WRONG_DATA_OF_ANOTHER,
    is_bug_under=lambda p: _has_cache(p) and caches_what_is_free(p),
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
    is_bug_under=lambda p: "unspecified" not in (p.eviction, p.release_order),
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
        self.pool.evict([b for b in range(self.pool.num_blocks) if b != self.pool.null_block])
        return True


@plant(
    "J9-manager", "a reset forgets the index and not the blocks",
    thread="kvcached#363", invariants=("IDX", "CRASH"), severity=Severity.WRONG_DATA_OF_ANOTHER,
    verbs=("reset",),
    is_bug_under=lambda p: _has_cache(p) and caches_what_is_free(p),
)  # fmt: skip
class ResetsHalf(CleanManager):
    """Blocks go on carrying keys that nobody finds."""

    pool_class = ResetKeepsHashes
