"""Managers of one group that does not read everything, right and easy to break.

`CleanWindowManager` serves sliding windows and attention in chunks: blocks that no later token
reads are freed, and the null block stands in their places. `CleanRingManager` serves a sliding
window in the way of vLLM V0: once the window is full the table goes round over the same blocks.
It has no prefix cache, and neither drafts nor truncation, for which it would need contents that
the ring has overwritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from poolproof.bugs.clean_manager import CleanManager
from poolproof.bugs.clean_manager_steps import Copies
from poolproof.bugs.clean_sequence import CleanSequence
from poolproof.contract.manager_profile import ManagerProfile

__all__ = ["CleanRingManager", "CleanWindowManager"]


class CleanWindowManager(CleanManager):
    """What slides out of the window is freed; profiles with a null block only."""

    @classmethod
    def serves(cls, profile: ManagerProfile) -> bool:
        is_single = len(profile.groups) == 1 and profile.groups[0].kind != "full"
        return is_single and profile.null_block is not None and cls._knows(profile)

    def _hits(self, sequence: CleanSequence) -> list[int]:
        """The table of the longest prefix of which everything is cached that will be read."""
        most = self._most_cached(sequence) // self.block_size if self.enable_caching else 0
        for num_entries in range(most, 0, -1):
            hits = self._hits_of(sequence, num_entries)
            if hits is not None:
                return hits
        return []

    def _hits_of(self, sequence: CleanSequence, num_entries: int) -> list[int] | None:
        null = self.pool.null_block
        assert null is not None
        first = self._first_read_entry(num_entries)
        hits = [null] * first
        for entry in range(first, num_entries):
            block = self._find(sequence, entry)
            if block is None:
                return None
            hits.append(block)
        return hits

    def _first_read_entry(self, num_entries: int) -> int:
        """The first entry that is read behind a prefix of so many whole blocks."""
        return self.kind.first_read(num_entries * self.block_size) // self.block_size

    def _first_kept(self, sequence: CleanSequence) -> int:
        """The first entry that the next token reads."""
        return self.kind.first_read(sequence.num_computed) // self.block_size

    def _slide(self, sequence: CleanSequence) -> None:
        null = self.pool.null_block
        assert null is not None
        first_kept = self._first_kept(sequence)
        gone = sequence.table[:first_kept]
        if any(block != null for block in gone):
            self._free(gone[::-1])
            sequence.table[:first_kept] = [null] * len(gone)


class CleanRingManager(CleanManager):
    """A table that goes round over the blocks of its window."""

    draft = accept = truncate = None  # type: ignore[assignment]  # verbs that it does not have

    @classmethod
    def serves(cls, profile: ManagerProfile) -> bool:
        is_ring = profile.window_blocks == "reused" and profile.publishes == "never"
        is_single = len(profile.groups) == 1 and profile.groups[0].kind == "sliding"
        return is_ring and is_single and cls._knows(replace(profile, window_blocks="freed"))

    @property
    def ring(self) -> int:
        """How many blocks hold a window."""
        return -(-self.kind.window // self.block_size)

    def _fits(self, needed: int, hits: list[int]) -> bool:
        return super()._fits(min(needed, self.ring), hits)

    def _never_fits(self, sequence: CleanSequence, num_tokens: int | None) -> bool:
        if self.rules.never == "untold":
            return False
        self._plan(sequence, 0, num_tokens)
        needed = min(self._num_entries(sequence), self.ring)
        return needed + self.rules.watermark_blocks > self.num_usable

    def _new_blocks_for(self, sequence: CleanSequence, num_uncomputed: int) -> int:
        slots = sequence.num_computed + num_uncomputed
        if self.rules.reserves == "sequence":
            slots = max(slots, len(sequence.tokens))
        entries = -(-self._within_row(slots + self.rules.lookahead_tokens) // self.block_size)
        new = max(min(entries, self.ring) - len(sequence.table), 0)
        first_new = sequence.num_computed + sequence.num_scheduled
        written = range(first_new // self.block_size, entries)
        return new + len(self._shared_among(sequence, written))

    def _shared_among(self, sequence: CleanSequence, entries: range) -> list[int]:
        """The blocks behind these entries, each once, that other sequences hold, too."""
        ring = sequence.table[: self.ring]
        blocks = dict.fromkeys(ring[e % self.ring] for e in entries if e % self.ring < len(ring))
        return [block for block in blocks if self.pool.ref_count(block) > 1]

    def _grow(self, sequence: CleanSequence, first_new: int) -> Copies:
        entries = self._num_entries(sequence)
        written = range(first_new // self.block_size, entries)
        copies = [self._own_copy(sequence, b) for b in self._shared_among(sequence, written)]
        table = sequence.table
        table += self.pool.allocate(max(min(entries, self.ring) - len(table), 0))
        while len(table) < entries:
            table.append(table[len(table) - self.ring])
        return copies

    def _own_copy(self, sequence: CleanSequence, shared: int) -> tuple[int, int]:
        """Every entry of the block goes over to the copy (vllm#3347)."""
        (own,) = self.pool.allocate(1)
        sequence.table = [own if block == shared else block for block in sequence.table]
        self.pool.free([shared])
        return shared, own

    def _touch(self, blocks: Sequence[int]) -> None:
        """One reference for a block, however often it stands in the table."""
        super()._touch(list(dict.fromkeys(blocks)))

    def _free(self, blocks: Sequence[int]) -> None:
        super()._free(list(dict.fromkeys(blocks)))
