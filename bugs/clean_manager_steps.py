"""The steps of the clean manager, each a small method that a specimen can replace.

Between the verbs of `clean_manager.py` and the pool: finding hits, judging whether something
fits, taking and sharing blocks, publishing keys, giving blocks back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from poolproof.bugs.clean_pool import CleanPool
from poolproof.bugs.clean_sequence import CleanSequence, block_content, extra_keys_within
from poolproof.contract.manager_profile import ManagerProfile

__all__ = ["Copies", "ManagerSteps"]

Copies = list[tuple[int, int]]


class ManagerSteps:
    """What a manager consists of; `group` is the cache group that it serves.

    Managers of several groups share one `pool` and one list of blocks that are `leaving`.
    """

    profile: ClassVar[dict[str, Any]] = {}
    pool_class: type[CleanPool] = CleanPool

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        enable_caching: bool = True,
        rules: ManagerProfile | None = None,
        group: int = 0,
        pool: CleanPool | None = None,
    ) -> None:
        self.rules = rules or ManagerProfile.from_mapping(self.profile)
        self.group = group
        self.kind = self.rules.groups[group]
        self.block_size = self.kind.block_size or block_size
        self.enable_caching = enable_caching and self.rules.publishes != "never"
        self.pool = pool or self.pool_class(
            num_blocks, enable_caching=self.enable_caching, rules=self.rules
        )
        self.num_usable = self.pool.num_free()
        self.sequences: dict[int, CleanSequence] = {}
        self.leaving: list[list[int]] = []
        self.digest: Callable[[bytes], bytes] = _sha256

    @classmethod
    def serves(cls, profile: ManagerProfile) -> bool:
        """Whether it is right under a profile."""
        is_full = len(profile.groups) == 1 and profile.groups[0].kind == "full"
        return is_full and cls._knows(profile)

    @staticmethod
    def _knows(profile: ManagerProfile) -> bool:
        """Whether the rows have values that the clean managers can follow."""
        if profile.publishes == "scheduled" and profile.same_step_hit == "forbidden":
            return False
        kinds = {group.kind for group in profile.groups}
        plain = profile.keyed == "full" and not profile.proof_blocks and "state" not in kinds
        return plain and profile.window_blocks == "freed"

    def _known_or_new(
        self, seq_id: int, tokens: list[int], extra_keys: tuple[Any, ...] | None
    ) -> CleanSequence:
        """A preempted sequence comes back under its own id, to its own family."""
        known = self.sequences.get(seq_id)
        sequence = CleanSequence(seq_id, list(tokens), extra_keys)
        sequence.family = seq_id if known is None else known.family
        return sequence

    # Admission.

    def _admit(self, sequence: CleanSequence, num_tokens: int | None) -> int | str:
        hits = self._hits(sequence)
        cached = len(hits) * self.block_size
        self._plan(sequence, cached, num_tokens)
        needed = self._num_entries(sequence) - len(hits)
        if not self._fits(needed, hits):
            return "never" if self._never_fits(sequence, num_tokens) else "later"
        self._take_hits(sequence, hits)
        self._enter(sequence)
        return cached

    def _plan(self, sequence: CleanSequence, cached: int, num_tokens: int | None) -> None:
        """What of a sequence is computed, and what the next step computes."""
        left = len(sequence.tokens) - cached
        sequence.num_computed = cached
        sequence.num_scheduled = min(num_tokens or left, left)

    def _enter(self, sequence: CleanSequence) -> None:
        """The hits are taken; further blocks follow."""
        sequence.num_published = len(sequence.table)
        sequence.num_offered = sequence.num_computed
        self._grow(sequence, sequence.num_computed)
        self.sequences[sequence.seq_id] = sequence
        self._publish_scheduled(sequence)

    def _hits(self, sequence: CleanSequence) -> list[int]:
        """Blocks of the longest cached prefix; one token at least is left to compute."""
        hits: list[int] = []
        for entry in range(self._most_cached(sequence) // self.block_size):
            block = self._find(sequence, entry)
            if block is None:
                break
            hits.append(block)
        return hits

    def _hits_of(self, sequence: CleanSequence, num_entries: int) -> list[int] | None:
        """The table entries of a cached prefix of that length, or None if it is not cached."""
        hits = [self._find(sequence, entry) for entry in range(num_entries)]
        found = [block for block in hits if block is not None]
        return found if len(found) == num_entries else None

    def _most_cached(self, sequence: CleanSequence) -> int:
        return len(sequence.tokens) - (self.rules.full_hit == "recompute-token")

    def _find(self, sequence: CleanSequence, entry: int) -> int | None:
        """A block that is cached under the key of an entry."""
        return self.pool.lookup(self._key(sequence, entry))

    def _key(self, sequence: CleanSequence, entry: int) -> bytes:
        while len(sequence.keys) <= entry:
            sequence.keys.append(self._block_key(sequence, len(sequence.keys)))
        return sequence.keys[entry]

    def _block_key(self, sequence: CleanSequence, entry: int) -> bytes:
        first = entry * self.block_size
        parent = sequence.keys[entry - 1] if entry else self._root_key()
        tokens = sequence.tokens[first : first + self.block_size]
        extra_keys = self._extra_keys(sequence.extra_keys or (), first, first + len(tokens))
        return self.digest(block_content(parent, tokens, extra_keys))

    def _root_key(self) -> bytes:
        """The parent of first blocks: one for each cache group."""
        return b"group %d" % self.group

    def _extra_keys(self, extra_keys: Sequence[Any], first: int, end: int) -> list[Any]:
        """What besides the tokens flows into the block from `first` to `end`."""
        return extra_keys_within(extra_keys, first, end)

    def _fits(self, needed: int, hits: list[int]) -> bool:
        """Hits that wait in the free queue leave it, too (vllm#11565)."""
        leaving = sum(self.pool.ref_count(block) == 0 for block in self._real(hits))
        return needed + leaving + self.rules.watermark_blocks <= self.pool.num_free()

    def _never_fits(self, sequence: CleanSequence, num_tokens: int | None) -> bool:
        if self.rules.never == "untold":
            return False
        self._plan(sequence, 0, num_tokens)
        return self._num_entries(sequence) + self.rules.watermark_blocks > self.num_usable

    def _take_hits(self, sequence: CleanSequence, hits: list[int]) -> None:
        self._touch(hits)
        sequence.table = list(hits)

    # Growth.

    def _append(self, sequence: CleanSequence, tokens: list[int]) -> Copies:
        first_new = len(sequence.tokens)
        sequence.is_sampling = len(tokens) == 1 and not sequence.num_scheduled
        sequence.tokens += tokens
        sequence.num_scheduled += len(tokens)
        copies = self._grow(sequence, first_new)
        self._publish_scheduled(sequence)
        return copies

    def _schedule(self, sequence: CleanSequence, num_tokens: int) -> Copies:
        first_new = sequence.num_computed + sequence.num_scheduled
        sequence.num_scheduled += num_tokens
        sequence.is_sampling = False
        copies = self._grow(sequence, first_new)
        self._publish_scheduled(sequence)
        return copies

    def _draft(self, sequence: CleanSequence, tokens: list[int]) -> Copies:
        sequence.drafts = list(tokens)
        return self._grow(sequence, len(sequence.tokens))

    def _computed(self, sequence: CleanSequence) -> None:
        """The forward pass over what was scheduled is done."""
        sequence.num_computed += sequence.num_scheduled
        sequence.num_scheduled = 0
        if not sequence.is_sampling:
            sequence.num_offered = sequence.num_computed
        sequence.is_sampling = False
        self._publish(sequence)

    def _truncate(self, sequence: CleanSequence, num_tokens: int) -> Copies:
        del sequence.tokens[num_tokens:]
        sequence.num_computed = min(sequence.num_computed, num_tokens)
        sequence.num_offered = min(sequence.num_offered, num_tokens)
        self._forget_keys(sequence, num_tokens // self.block_size)
        kept = -(-num_tokens // self.block_size)
        self._free(sequence.table[kept:][::-1])
        del sequence.table[kept:]
        return self._copy_on_write(sequence, num_tokens)

    def _num_cut(self, sequence: CleanSequence, num_tokens: int) -> int:
        """Whether a cut leaves a shared block partly filled, which is then copied: 0 or 1."""
        return int(num_tokens % self.block_size != 0 and self._is_shared(sequence, num_tokens))

    def _slide(self, sequence: CleanSequence) -> None:
        """Give back what no later token reads; full attention reads everything."""

    def _has_room(self, sequence: CleanSequence, further: int) -> bool:
        """Whether the blocks for so many further tokens are there."""
        needed = self._new_blocks_for(sequence, sequence.num_scheduled + further)
        return needed <= self.pool.num_free()

    def _num_entries(self, sequence: CleanSequence) -> int:
        """How many blocks the slots of a sequence need."""
        covered = sequence.num_computed + sequence.num_scheduled
        if self.rules.reserves == "sequence":
            covered = len(sequence.tokens)
        slots = covered + len(sequence.drafts) + self.rules.lookahead_tokens
        return -(-self._within_row(slots) // self.block_size)

    def _within_row(self, slots: int) -> int:
        """So many slots, as far as a row is wide."""
        return min(slots, self.rules.max_tokens or slots)

    def _new_blocks_for(self, sequence: CleanSequence, num_uncomputed: int) -> int:
        """Blocks that a growth takes, the one for a copy on write included."""
        slots = sequence.num_computed + num_uncomputed
        if self.rules.reserves == "sequence":
            slots = max(slots, len(sequence.tokens))
        slots += self.rules.lookahead_tokens
        needed = -(-self._within_row(slots) // self.block_size) - len(sequence.table)
        first_new = sequence.num_computed + sequence.num_scheduled
        return max(needed, 0) + self._is_shared(sequence, first_new)

    def _grow(self, sequence: CleanSequence, first_new: int) -> Copies:
        """Take what is missing, and a block of one's own where a shared one would be written."""
        copies = self._copy_on_write(sequence, first_new)
        sequence.table += self.pool.allocate(self._num_missing(sequence))
        return copies

    def _num_missing(self, sequence: CleanSequence) -> int:
        """Rejected drafts may have left more blocks than are needed (vllm#52707)."""
        return max(self._num_entries(sequence) - len(sequence.table), 0)

    def _is_shared(self, sequence: CleanSequence, position: int) -> bool:
        entry = position // self.block_size
        return entry < len(sequence.table) and self.pool.ref_count(sequence.table[entry]) > 1

    def _copy_on_write(self, sequence: CleanSequence, position: int) -> Copies:
        if not self._is_shared(sequence, position):
            return []
        entry = position // self.block_size
        shared = sequence.table[entry]
        (own,) = self.pool.allocate(1)
        sequence.table[entry] = own
        self.pool.free([shared])
        return [(shared, own)]

    def _share(self, parent: CleanSequence, child: CleanSequence) -> None:
        """The child shares what is computed; blocks beyond that stay with the parent alone."""
        computed = -(-parent.num_computed // self.block_size)
        child.table = parent.table[:computed]
        self._touch(child.table)

    # Publication.

    def _publish_scheduled(self, sequence: CleanSequence) -> None:
        if self.rules.publishes == "scheduled":
            covered = min(sequence.num_computed + sequence.num_scheduled, len(sequence.tokens))
            self._publish_up_to(sequence, covered)

    def _publish(self, sequence: CleanSequence) -> None:
        covered = min(sequence.num_computed, len(sequence.tokens))
        if self.rules.publishes == "prompts":
            covered = min(covered, sequence.num_offered)
        self._publish_up_to(sequence, covered)

    def _publish_up_to(self, sequence: CleanSequence, num_tokens: int) -> None:
        full = num_tokens // self.block_size
        if not self.enable_caching or sequence.loading:
            return
        for entry in range(sequence.num_published, full):
            self.pool.cache([sequence.table[entry]], [self._key(sequence, entry)])
        sequence.num_published = max(sequence.num_published, full)

    def _forget_keys(self, sequence: CleanSequence, full: int) -> None:
        """Blocks from entry `full` on may be written again: nobody may find them any more."""
        for block in self._real(sequence.table[full:]):
            if self.pool.ref_count(block) == 1:
                self.pool.evict([block])
        del sequence.keys[full:]
        sequence.num_published = min(sequence.num_published, full)

    # Giving back.

    def _end(self, sequence: CleanSequence) -> None:
        if sequence.loading:
            sequence.ended = True
            return
        is_settled = sequence.place == "device" and not sequence.num_scheduled
        if self.rules.publishes == "prompts" and is_settled and not sequence.is_aborted:
            sequence.num_offered = sequence.num_computed
            self._publish(sequence)
        self._release(sequence)
        del self.sequences[sequence.seq_id]

    def _release(self, sequence: CleanSequence) -> None:
        self._give_back(sequence)
        sequence.table = []
        sequence.num_published = sequence.num_computed = sequence.num_scheduled = 0
        sequence.drafts = []

    def _give_back(self, sequence: CleanSequence) -> None:
        """The tail of the chain goes first, so that it is evicted first, or as the profile says."""
        head_first = self.rules.release_order == "head-first"
        blocks = sequence.table[:] if head_first else sequence.table[::-1]
        if self.rules.frees == "after-step":
            self.leaving.append(blocks)
        else:
            self._free(blocks)

    def _drain(self) -> None:
        """After a step: what was given back before it is free now."""
        for blocks in self.leaving:
            self._free(blocks)
        self.leaving.clear()

    def _touch(self, blocks: Sequence[int]) -> None:
        self.pool.touch(self._real(blocks))

    def _free(self, blocks: Sequence[int]) -> None:
        self.pool.free(self._real(blocks))

    def _real(self, blocks: Sequence[int]) -> list[int]:
        """The entries of a table that are blocks and not the null block."""
        return [block for block in blocks if block != self.pool.null_block]


def _sha256(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
