"""Manager bugs of admission and growth: what is counted, what is taken, what a refusal leaves."""

from __future__ import annotations

from typing import Any

from poolproof.bugs.clean_manager import CleanManager, CleanSequence, Copies
from poolproof.bugs.specimen import ManagerSection, caches_what_is_free
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.violation import Severity

__all__ = ["MANAGER_ADMISSION_BUGS"]

MANAGER_ADMISSION_BUGS = ManagerSection()
plant = MANAGER_ADMISSION_BUGS.plant


def _has_cache(profile: ManagerProfile) -> bool:
    return profile.has_hits


def _is_exact(profile: ManagerProfile) -> bool:
    return profile.admission == "exact"


def _looks_ahead(profile: ManagerProfile) -> bool:
    return profile.lookahead_tokens > 0


@plant(
    "B1", "hits are touched before it is known whether the rest fits",
    thread="vllm#11565", invariants=("ATOM",), severity=Severity.LEAK, is_bug_under=_has_cache,
)  # fmt: skip
class TouchBeforeCheck(CleanManager):
    """A refused admission keeps the references that it took."""

    def _fits(self, needed: int, hits: list[int]) -> bool:
        self._touch(hits)
        fits = needed + self.rules.watermark_blocks <= self.pool.num_free()
        if fits:
            self._free(hits[::-1])
        return fits


@plant(
    "E8-manager", "the references of a refused admission are given back at the tail of the queue",
    thread="inference-sim#354", invariants=("ATOM",), severity=Severity.ORDER,
    is_bug_under=lambda p: (
        caches_what_is_free(p)
        and _has_cache(p)
        and p.eviction not in ("lifo", "unspecified")
        and p.release_order != "unspecified"
    ),
)  # fmt: skip
class UndoReordersQueue(CleanManager):
    """Counts are right again, the eviction order is not."""

    def _fits(self, needed: int, hits: list[int]) -> bool:
        fits = super()._fits(needed, hits)
        if not fits:
            self._touch(hits)
            self._free(hits)
        return fits


@plant(
    "B2", "hits that wait in the free queue are counted as free and as theirs",
    thread="vllm#11565", also=("ATOM#902 (B4)", "vllm#6849 (B9)"), invariants=("CRASH", "ADM"),
    severity=Severity.CRASH, silent=False,
    is_bug_under=lambda p: _has_cache(p) and caches_what_is_free(p),
)  # fmt: skip
class HitsCountedTwice(CleanManager):
    """Granted, and then there are too few blocks."""

    def _fits(self, needed: int, hits: list[int]) -> bool:
        del hits
        return needed + self.rules.watermark_blocks <= self.pool.num_free()


@plant(
    "B5", "an admission has to find room for the blocks that it shares, too",
    thread="nano-vllm@f64d821", invariants=("ADM",), severity=Severity.FALSE_REFUSAL,
    is_bug_under=lambda p: _has_cache(p) and _is_exact(p) and p.held_blocks == "shared",
)  # fmt: skip
class SharedBlocksCharged(CleanManager):
    """A prompt that is cached whole is refused in a nearly full pool."""

    def _fits(self, needed: int, hits: list[int]) -> bool:
        return needed + len(hits) + self.rules.watermark_blocks <= self.pool.num_free()


@plant(
    "B8", "a growth is granted without the lookahead that it takes",
    thread="vllm#8824", invariants=("CRASH",), severity=Severity.CRASH, silent=False,
    profile=ManagerProfile(lookahead_tokens=4), is_bug_under=_looks_ahead,
)  # fmt: skip
class LookaheadNotChecked(CleanManager):
    """The check knows of fewer slots than the allocation."""

    def _has_room(self, sequence: CleanSequence, further: int) -> bool:
        unseen = self.rules.lookahead_tokens
        needed = self._new_blocks_for(sequence, sequence.num_scheduled + further - unseen)
        return needed <= self.pool.num_free()


@plant(
    "B29", "an admission takes nothing for the lookahead that is asked for later",
    thread="vllm#57104", invariants=("ADM",), severity=Severity.WRONG_DATA_OF_ANOTHER,
    profile=ManagerProfile(lookahead_tokens=4), is_bug_under=_looks_ahead,
)  # fmt: skip
class LookaheadNotReserved(CleanManager):
    """Drafts are written beyond the table, or nobody gets on because all wait for a block."""

    def _num_entries(self, sequence: CleanSequence) -> int:
        slots = sequence.num_computed + sequence.num_scheduled + len(sequence.drafts)
        return -(-slots // self.block_size)


@plant(
    "B12", "a growth insists on needing more than is held",
    thread="vllm#43382", invariants=("CRASH",), severity=Severity.CRASH, silent=False,
    verbs=("draft",),
)  # fmt: skip
class NeverShrinks(CleanManager):
    """After rejected drafts the sequence holds a block more than it needs."""

    def _num_missing(self, sequence: CleanSequence) -> int:
        missing = self._num_entries(sequence) - len(sequence.table)
        assert missing >= 0, "fewer blocks are needed than held"
        return missing


@plant(
    "B13", "admission adds up tokens, allocation rounds each sequence up to blocks",
    thread="FreeToken#367", invariants=("CRASH", "ADM"), severity=Severity.CRASH, silent=False,
)  # fmt: skip
class SumsTokens(CleanManager):
    """Two prompts of two tokens are admitted into one free block of four."""

    def _fits(self, needed: int, hits: list[int]) -> bool:
        spare = sum(-len(s.tokens) % self.block_size for s in self.sequences.values())
        leaving = sum(self.pool.ref_count(block) == 0 for block in hits)
        return needed + leaving <= self.pool.num_free() + spare // self.block_size


@plant(
    "B16", "the rollback of a growth forgets what the sequence held before",
    thread="inference-sim#1061", also=("inference-sim#1068",), invariants=("ATOM",),
    severity=Severity.WRONG_DATA_OF_ANOTHER,
)  # fmt: skip
class RollbackForgetsAll(CleanManager):
    """The whole entry is deleted, its blocks belong to nobody."""

    def append(self, seq_id: int, tokens: list[int]) -> Copies | str:
        answer = super().append(seq_id, tokens)
        if answer == "later":
            self.sequences[seq_id].table = []
        return answer


@plant(
    "B18", "a growth takes all blocks that the sequence needs, not those that it lacks",
    thread="sparkinfer#135", also=("sparkinfer#146",), invariants=("ADM", "CRASH"),
    severity=Severity.CRASH,
)  # fmt: skip
class GrowsByTheWhole(CleanManager):
    """Twenty blocks are held where thirteen are needed."""

    def _num_missing(self, sequence: CleanSequence) -> int:
        return self._num_entries(sequence) if super()._num_missing(sequence) else 0


@plant(
    "B20", "what can never fit is told to wait, since the lookahead is not in the sizes",
    thread="TensorRT-LLM#16173", invariants=("ADM",), severity=Severity.STALL,
    profile=ManagerProfile(lookahead_tokens=4),
    is_bug_under=lambda p: _looks_ahead(p) and p.never == "told" and _is_exact(p),
)  # fmt: skip
class SizedWithoutLookahead(CleanManager):
    """Only a prompt that fills the pool to its last slot shows it."""

    def _never_fits(self, sequence: CleanSequence, num_tokens: int | None) -> bool:
        self._plan(sequence, 0, num_tokens)
        slots = self._num_entries(sequence) * self.block_size - self.rules.lookahead_tokens
        return slots // self.block_size + self.rules.watermark_blocks > self.num_usable


@plant(
    "B21-single", "new blocks are taken before the hits leave the free queue",
    thread="vllm#44409", invariants=("I2", "OWN", "I1", "DATA", "CRASH"),
    severity=Severity.WRONG_DATA_OF_ANOTHER,
    is_bug_under=lambda p: _has_cache(p) and caches_what_is_free(p),
)  # fmt: skip
class AllocatesBeforeTouch(CleanManager):
    """A hit is handed out as a fresh block of the same table."""

    def _admit(self, sequence: CleanSequence, num_tokens: int | None) -> int | str:
        hits = self._hits(sequence)
        self._plan(sequence, len(hits) * self.block_size, num_tokens)
        needed = self._num_entries(sequence) - len(hits)
        if not self._fits(needed, hits):
            return "never" if self._never_fits(sequence, num_tokens) else "later"
        fresh = self.pool.allocate(needed)
        self._take_hits(sequence, hits)
        sequence.table += fresh
        sequence.num_published = len(hits)
        self.sequences[sequence.seq_id] = sequence
        self._publish_scheduled(sequence)
        return sequence.num_computed


@plant(
    "B22", "the hits of a transfer are taken when it ends, not when they are found",
    thread="vllm#39702", also=("vllm#42289",), invariants=("I1", "OWN", "I2", "DATA"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, verbs=("load",), is_bug_under=_has_cache,
)  # fmt: skip
class HitsTakenLater(CleanManager):
    """In between another allocation evicts them."""

    def _take_hits(self, sequence: CleanSequence, hits: list[int]) -> None:
        if sequence.loading:
            sequence.table = list(hits)
        else:
            super()._take_hits(sequence, hits)


@plant(
    "B24", "growth in a full pool raises where it should be put off",
    thread="kvcached#453", also=("kvcached#301",), invariants=("CRASH",), severity=Severity.CRASH,
    silent=False,
)  # fmt: skip
class ExhaustionRaises(CleanManager):
    """Between the check and the claim the blocks have gone."""

    def _has_room(self, sequence: CleanSequence, further: int) -> bool:
        del sequence, further
        return True


@plant(
    "B25", "what was found for a request is remembered, also while it has to wait",
    thread="vllm#18957", invariants=("IDX", "I4", "DATA", "ADM", "ATOM", "I2", "CRASH"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, is_bug_under=_has_cache,
)  # fmt: skip
class RemembersHits(CleanManager):
    """The pool has changed when the request is asked for again."""

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        super().__init__(num_blocks, block_size, **options)
        self.found: dict[int, list[int]] = {}

    def _admit(self, sequence: CleanSequence, num_tokens: int | None) -> int | str:
        answer = super()._admit(sequence, num_tokens)
        if not isinstance(answer, str):
            self.found.pop(sequence.seq_id, None)
        return answer

    def _hits(self, sequence: CleanSequence) -> list[int]:
        if sequence.seq_id < 0:
            return super()._hits(sequence)
        if sequence.seq_id not in self.found:
            self.found[sequence.seq_id] = super()._hits(sequence)
        return self.found[sequence.seq_id]


@plant(
    "B26", "the tokens to compute are counted before the hits are known",
    thread="nano-vllm#210", also=("nano-vllm#211", "nano-vllm#233"), invariants=("ADM", "CRASH"),
    severity=Severity.LEAK, is_bug_under=_has_cache,
)  # fmt: skip
class SchedulesTooMuch(CleanManager):
    """More is scheduled than the sequence has."""

    def _plan(self, sequence: CleanSequence, cached: int, num_tokens: int | None) -> None:
        super()._plan(sequence, cached, num_tokens)
        sequence.num_scheduled = min(num_tokens or len(sequence.tokens), len(sequence.tokens))


@plant(
    "B27", "a prompt that is cached to its end leaves nothing to compute",
    thread="nano-vllm#144", also=("vllm#11186", "vllm#17999"), invariants=("ADM",),
    severity=Severity.STALL,
    is_bug_under=lambda p: _has_cache(p) and p.full_hit == "recompute-token",
)  # fmt: skip
class NothingLeftToCompute(CleanManager):
    """The lookup runs over all blocks of the prompt."""

    def _most_cached(self, sequence: CleanSequence) -> int:
        return len(sequence.tokens)
