"""Managers of groups that do not read everything, and of several groups, right and easy to break.

`CleanWindowManager` serves sliding windows and attention in chunks: blocks that no later token
reads are freed, and the null block stands in their places. `CleanRingManager` serves a sliding
window in the way of vLLM V0: once the window is full the table goes round over the same blocks. It
has no prefix cache, and neither drafts nor truncation, for which it would need contents that the
ring has overwritten.

`CleanHybridManager` has several groups over one pool. Each group is served by a part of its own
(`CleanManager` for full attention, `CleanWindowManager` for every other kind); what they must
agree on is the length of a hit, whether all of them fit, and that all hits are taken before
anything is allocated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import lcm
from typing import Any, ClassVar

from poolproof.bugs.clean_manager import CleanManager, CleanSequence, Copies, Sampled
from poolproof.bugs.clean_pool import CleanPool
from poolproof.contract.manager_profile import ManagerProfile

__all__ = ["CleanHybridManager", "CleanRingManager", "CleanWindowManager"]


class CleanWindowManager(CleanManager):
    """What slides out of the window is freed; profiles with a null block only."""

    @classmethod
    def serves(cls, profile: ManagerProfile) -> bool:
        is_single = len(profile.groups) == 1 and not profile.groups[0].is_full
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
        is_single = len(profile.groups) == 1 and profile.groups[0].is_sliding
        is_ring &= not profile.generation_tokens
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


# ruff: noqa: SLF001 - the parts are this manager's own


Grow = Callable[[CleanManager, CleanSequence], Copies]


class CleanHybridManager:
    """Sequences with one table in each group of `rules`."""

    profile: ClassVar[dict[str, Any]] = {}
    pool_class: type[CleanPool] = CleanPool
    full_class: type[CleanManager] = CleanManager
    window_class: type[CleanWindowManager] = CleanWindowManager

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        enable_caching: bool = True,
        rules: ManagerProfile | None = None,
    ) -> None:
        self.rules = rules or ManagerProfile.from_mapping(self.profile)
        caching = enable_caching and self.rules.publishes != "never"
        self.pool = self.pool_class(num_blocks, enable_caching=caching, rules=self.rules)
        self.parts: list[CleanManager] = []
        for group, kind in enumerate(self.rules.groups):
            part_class = self.full_class if kind.is_full else self.window_class
            part = part_class(
                num_blocks, block_size, enable_caching=enable_caching, rules=self.rules,
                group=group, pool=self.pool,
            )  # fmt: skip
            self.parts.append(part)
            part.leaving = self.parts[0].leaving
        self.alignment = lcm(*(part.block_size for part in self.parts))
        reverses = self.rules.group_order == "last-to-first"
        self.giving_back = self.parts[::-1] if reverses else self.parts

    @classmethod
    def serves(cls, profile: ManagerProfile) -> bool:
        """Whether it is right under a profile."""
        is_known = profile.null_block is not None and CleanManager._knows(profile)
        return is_known and len(profile.groups) > 1

    # The contract.

    def admit(
        self,
        seq_id: int,
        tokens: list[int],
        *,
        extra_keys: tuple[Any, ...] | None = None,
        num_tokens: int | None = None,
    ) -> int | str:
        return self._admit(seq_id, tokens, extra_keys, num_tokens, loads=False)

    def load(
        self,
        seq_id: int,
        tokens: list[int],
        *,
        extra_keys: tuple[Any, ...] | None = None,
        num_tokens: int = 0,
    ) -> int | str:
        return self._admit(seq_id, tokens, extra_keys, num_tokens, loads=True)

    def loaded(self, seq_id: int) -> None:
        for part in self.giving_back:  # it may have ended meanwhile
            part.loaded(seq_id)

    def append(self, seq_id: int, tokens: list[int]) -> Copies | str:
        return self._grow(seq_id, len(tokens), lambda part, s: part._append(s, list(tokens)))

    def schedule(self, seq_id: int, num_tokens: int) -> Copies | str:
        return self._grow(seq_id, num_tokens, lambda part, s: part._schedule(s, num_tokens))

    def draft(self, seq_id: int, tokens: list[int]) -> Copies | str:
        return self._grow(seq_id, len(tokens), lambda part, s: part._draft(s, tokens))

    def accept(self, seq_id: int, num_tokens: int, *, sampled: int | None = None) -> None:
        for part in self.parts:
            part.accept(seq_id, num_tokens, sampled=sampled)

    def step(self, batch: list[tuple[int, int]], *, sampled: Sampled = ()) -> None:
        told = dict(sampled)
        for seq_id, _ in batch:
            for part in self.parts:
                sequence = part.sequences[seq_id]
                sequence.sampled = told.get(seq_id)
                part._computed(sequence)
        self.parts[0]._drain()

    def fork(self, seq_id: int, child_id: int) -> Copies | str:
        for part in self.parts:
            part.fork(seq_id, child_id)
        return []

    def truncate(self, seq_id: int, num_tokens: int) -> Copies | str:
        pairs = [(part, part.sequences[seq_id]) for part in self.giving_back]
        needed = sum(part._num_cut(sequence, num_tokens) for part, sequence in pairs)
        if needed > self.pool.num_free():
            return "later"
        return [copy for part, s in pairs for copy in part._truncate(s, num_tokens)]

    def preempt(self, seq_id: int) -> None:
        for part in self.giving_back:
            part.preempt(seq_id)

    def finish(self, seq_id: int) -> None:
        for part in self.giving_back:
            part.finish(seq_id)

    def abort(self, seq_id: int) -> None:
        for part in self.giving_back:
            part.abort(seq_id)

    def lookup_prefix(self, tokens: list[int], *, extra_keys: tuple[Any, ...] | None = None) -> int:
        sequences = [CleanSequence(-1, list(tokens), extra_keys) for _ in self.parts]
        return self._longest_hit(sequences)[0]

    def reset(self) -> bool:
        return self.pool.reset()

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:
        return self.parts[group].sequences[seq_id].table

    def num_free(self) -> int:
        return self.pool.num_free()

    def free_order(self) -> list[int]:
        return self.pool.free_order()

    def ref_count(self, block_id: int) -> int:
        return self.pool.ref_count(block_id)

    def is_cached(self, block_id: int) -> bool:
        return self.pool.block_hash(block_id) is not None

    # What follows are the steps that specimens replace.

    def _admit(
        self,
        seq_id: int,
        tokens: list[int],
        extra_keys: tuple[Any, ...] | None,
        num_tokens: int | None,
        *,
        loads: bool,
    ) -> int | str:
        sequences = [part._known_or_new(seq_id, tokens, extra_keys) for part in self.parts]
        cached, hits = self._longest_hit(sequences)
        pairs = list(zip(self.parts, sequences, strict=True))
        for part, sequence in pairs:
            part._plan(sequence, cached, num_tokens)
            sequence.loading = sequence.num_scheduled if loads else 0
        needed = sum(part._num_entries(s) for part, s in pairs) - sum(map(len, hits))
        if not self.parts[0]._fits(needed, [block for found in hits for block in found]):
            return "never" if self._never_fits(sequences, num_tokens) else "later"
        self._enter(sequences, hits)
        for sequence in sequences:
            sequence.num_scheduled -= sequence.loading
        return cached

    def _longest_hit(self, sequences: list[CleanSequence]) -> tuple[int, list[list[int]]]:
        """How many tokens every group has cached, and the tables of that length."""
        caching = self.parts[0].enable_caching
        most = self.parts[0]._most_cached(sequences[0]) if caching else 0
        for part, sequence in zip(self.parts, sequences, strict=True):
            # A part with full attention has nothing behind its first gap, which spares long prompts
            # the search for a length that it cannot have.
            if most and part.kind.is_full:
                most = min(most, part._num_found(sequence, most) * part.block_size)
        for length in range(most - most % self.alignment, 0, -self.alignment):
            hits = self._hits_at(sequences, length)
            if hits is not None:
                return length, hits
        return 0, [[] for _ in self.parts]

    def _hits_at(self, sequences: list[CleanSequence], length: int) -> list[list[int]] | None:
        """The tables of a prefix of that length, or None if some group has it not cached."""
        found = {}
        # Windows first: where one of their few blocks is missing, nobody walks over the rest.
        for number in sorted(range(len(self.parts)), key=lambda n: self.parts[n].kind.is_full):
            part = self.parts[number]
            hits = part._hits_of(sequences[number], length // part.block_size)
            if hits is None:
                return None
            found[number] = hits
        return [found[number] for number in range(len(self.parts))]

    def _never_fits(self, sequences: list[CleanSequence], num_tokens: int | None) -> bool:
        if self.rules.never == "untold":
            return False
        needed = self.rules.watermark_blocks
        for part, sequence in zip(self.parts, sequences, strict=True):
            part._plan(sequence, 0, num_tokens)
            needed += part._num_entries(sequence)
        return needed > self.parts[0].num_usable

    def _enter(self, sequences: list[CleanSequence], hits: list[list[int]]) -> None:
        """All hits leave the free queue before any group allocates (vllm#44409)."""
        for part, sequence, found in zip(self.parts, sequences, hits, strict=True):
            part._take_hits(sequence, found)
        for part, sequence in zip(self.parts, sequences, strict=True):
            part._enter(sequence)

    def _grow(self, seq_id: int, further: int, grow: Grow) -> Copies | str:
        """The groups grow together or not at all."""
        pairs = [(part, part.sequences[seq_id]) for part in self.parts]
        for part in self.giving_back:
            part._slide(part.sequences[seq_id])
        needed = sum(part._new_blocks_for(s, s.num_scheduled + further) for part, s in pairs)
        if needed > self.pool.num_free():
            return "later"
        return [pair for part, sequence in pairs for pair in grow(part, sequence)]
