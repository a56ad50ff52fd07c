"""A manager in the shape of nano-vLLM's, without bugs: the base of the specimens that need it.

A deque of free blocks, a map from hash to one block (the last writer wins), the contents of each
block beside its hash, so that a hit is compared. Sequences are admitted whole and grow token by
token; there are no chunks, drafts, forks or transfers. Keys are published as the profile says:
when the tokens are scheduled, as the algorithm was first published, or once they are computed.
"""

from __future__ import annotations

import hashlib
from collections import deque
from typing import Any, ClassVar

from poolproof.bugs.clean_manager import CleanSequence, block_content, extra_keys_within
from poolproof.contract.manager_profile import ManagerProfile

__all__ = ["CleanNanoManager", "NanoBlock"]

Content = tuple[list[int], list[Any]]


class NanoBlock:
    """A block: its references, its hash and what was hashed, None where it is not cached."""

    def __init__(self) -> None:
        self.ref_count = 0
        self.forget()

    def forget(self) -> None:
        self.hash: bytes | None = None
        self.content: Content | None = None


class CleanNanoManager:
    """Sequences over `num_blocks` blocks of `block_size` tokens, under `rules`."""

    profile: ClassVar[dict[str, Any]] = {"duplicates": "last"}

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        enable_caching: bool = True,
        rules: ManagerProfile | None = None,
    ) -> None:
        self.rules = rules or ManagerProfile.from_mapping(self.profile)
        self.block_size = block_size
        self.enable_caching = enable_caching
        self.blocks = [NanoBlock() for _ in range(num_blocks)]
        self.block_of: dict[bytes, int] = {}
        self.free: deque[int] = deque(range(num_blocks))
        self.sequences: dict[int, CleanSequence] = {}

    @classmethod
    def serves(cls, profile: ManagerProfile) -> bool:
        """Whether it is right under a profile."""
        rows = profile.to_json()
        own = {"duplicates": "last", "eviction": "lru", "reserves": "scheduled", "frees": "at-once",
               "watermark_blocks": 0, "lookahead_tokens": 0, "proof_blocks": 0, "null_block": None,
               "release_order": "tail-first", "uncached_order": "same",
               "generation_tokens": 0}  # fmt: skip
        is_own = all(rows[row] == value for row, value in own.items())
        is_early = profile.publishes == "scheduled" and profile.same_step_hit == "allowed"
        is_own &= profile.publishes == "computed" or is_early
        is_own &= profile.retention != "while-held"
        is_own &= profile.held_blocks == "shared" and not profile.prior_sightings
        return is_own and len(profile.groups) == 1 and profile.groups[0].is_full

    def admit(
        self, seq_id: int, tokens: list[int], *, extra_keys: tuple[Any, ...] | None = None
    ) -> int | str:
        sequence = CleanSequence(seq_id, list(tokens), extra_keys)
        hits = self._hits(sequence)
        if not self._can_allocate(sequence, hits):
            return "never" if self._num_blocks(len(tokens)) > len(self.blocks) else "later"
        for block in hits:
            self._take_hit(block)
        sequence.table = list(hits)
        sequence.num_computed = sequence.num_published = len(hits) * self.block_size
        while len(sequence.table) < self._num_blocks(len(tokens)):
            sequence.table.append(self._allocate())
        self.sequences[seq_id] = sequence
        self._publish_scheduled(sequence)
        return sequence.num_computed

    def append(self, seq_id: int, tokens: list[int]) -> str | None:
        sequence = self.sequences[seq_id]
        if not self._can_append(sequence, len(tokens)):
            return "later"
        for token in tokens:
            sequence.tokens.append(token)
            self._may_append(sequence)
        self._publish_scheduled(sequence)
        return None

    def step(self, batch: list[tuple[int, int]], **told: Any) -> None:
        del told  # what is hashed is what is computed
        for seq_id, _ in batch:
            sequence = self.sequences[seq_id]
            sequence.num_computed = len(sequence.tokens)
            self._hash_blocks(sequence)

    def preempt(self, seq_id: int) -> None:
        self._deallocate(self.sequences.pop(seq_id))

    def finish(self, seq_id: int) -> None:
        sequence = self.sequences.pop(seq_id, None)
        if sequence is not None:
            self._deallocate(sequence)

    def abort(self, seq_id: int) -> None:
        self.finish(seq_id)

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:  # noqa: ARG002 - one group
        return self.sequences[seq_id].table

    def num_free(self) -> int:
        return len(self.free)

    def free_order(self) -> list[int]:
        return list(self.free)

    def ref_count(self, block_id: int) -> int:
        return self.blocks[block_id].ref_count

    # What follows are the steps that specimens replace.

    def _num_blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def _hits(self, sequence: CleanSequence) -> list[int]:
        """Cached blocks of the prefix, compared by their own content; one token may be left."""
        hits: list[int] = []
        key: bytes | None = None
        most = len(sequence.tokens) - (self.rules.full_hit == "recompute-token")
        for entry in range(most // self.block_size):
            content = self._content(sequence, entry)
            key = self._key(key, content)
            block = self.block_of.get(key)
            if block is None or self.blocks[block].content != content:
                break
            hits.append(block)
        return hits

    def _content(self, sequence: CleanSequence, entry: int) -> Content:
        first = entry * self.block_size
        end = first + self.block_size
        extra_keys = extra_keys_within(sequence.extra_keys or (), first, end)
        return sequence.tokens[first:end], extra_keys

    def _key(self, parent: bytes | None, content: Content) -> bytes:
        return hashlib.sha256(block_content(parent or b"", *content)).digest()

    def _can_allocate(self, sequence: CleanSequence, hits: list[int]) -> bool:
        """Hits in use cost nothing, those in the free queue a place there (ROCm/ATOM#902)."""
        in_use = sum(self.blocks[block].ref_count > 0 for block in hits)
        return self._num_blocks(len(sequence.tokens)) - in_use <= len(self.free)

    def _can_append(self, sequence: CleanSequence, count: int) -> bool:
        needed = self._num_blocks(len(sequence.tokens) + count) - len(sequence.table)
        return needed <= len(self.free)

    def _may_append(self, sequence: CleanSequence) -> None:
        """The token is there already: a length of one beyond whole blocks needs a new one."""
        if len(sequence.tokens) % self.block_size == 1 % self.block_size:
            sequence.table.append(self._allocate())

    def _take_hit(self, block: int) -> None:
        if not self.blocks[block].ref_count:
            self._revive(block)
        self.blocks[block].ref_count += 1

    def _revive(self, block: int) -> None:
        """A hit that nobody holds leaves the free queue and stays what it is."""
        self.free.remove(block)

    def _allocate(self) -> int:
        block = self.free.popleft()
        self._forget_entry(block)
        self.blocks[block].forget()
        self.blocks[block].ref_count = 1
        return block

    def _forget_entry(self, block: int) -> None:
        """A recycled block is found no more (nano-vllm#163)."""
        key = self.blocks[block].hash
        if key is not None and self.block_of.get(key) == block:
            del self.block_of[key]

    def _publish_scheduled(self, sequence: CleanSequence) -> None:
        if self.rules.publishes == "scheduled":
            self._hash_up_to(sequence, len(sequence.tokens))

    def _hash_blocks(self, sequence: CleanSequence) -> None:
        self._hash_up_to(sequence, sequence.num_computed)

    def _hash_up_to(self, sequence: CleanSequence, num_tokens: int) -> None:
        """Full blocks get their hash, behind that of the block before."""
        end = num_tokens // self.block_size if self.enable_caching else 0
        for entry in range(sequence.num_published // self.block_size, end):
            parent = self.blocks[sequence.table[entry - 1]].hash if entry else None
            content = self._content(sequence, entry)
            block = self.blocks[sequence.table[entry]]
            block.hash, block.content = self._key(parent, content), content
            self.block_of[block.hash] = sequence.table[entry]
        sequence.num_published = max(sequence.num_published, end * self.block_size)

    def _deallocate(self, sequence: CleanSequence) -> None:
        """Tail first, so that the tail is recycled first."""
        for block in reversed(sequence.table):
            self.blocks[block].ref_count -= 1
            if not self.blocks[block].ref_count:
                self.free.append(block)
