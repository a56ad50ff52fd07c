"""A manager of several cache groups over one pool, right and easy to break.

Each group is served by a part of its own (`CleanManager` for full attention,
`CleanWindowManager` for every other kind); here is what they must agree on: the length of a hit,
whether all of them fit, and that all hits are taken before anything is allocated.
"""
# ruff: noqa: SLF001 - the parts are this manager's own

from __future__ import annotations

from collections.abc import Callable
from math import lcm
from typing import Any, ClassVar

from poolproof.bugs.clean_manager import CleanManager
from poolproof.bugs.clean_manager_steps import Copies
from poolproof.bugs.clean_pool import CleanPool
from poolproof.bugs.clean_sequence import CleanSequence
from poolproof.bugs.clean_window import CleanWindowManager
from poolproof.contract.manager_profile import ManagerProfile

__all__ = ["CleanHybridManager"]

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
            part_class = self.full_class if kind.kind == "full" else self.window_class
            part = part_class(
                num_blocks, block_size, enable_caching=enable_caching, rules=self.rules,
                group=group, pool=self.pool,
            )  # fmt: skip
            self.parts.append(part)
            part.leaving = self.parts[0].leaving
        self.alignment = lcm(*(part.block_size for part in self.parts))

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
        for part in self.parts:
            part.loaded(seq_id)

    def append(self, seq_id: int, tokens: list[int]) -> Copies | str:
        return self._grow(seq_id, len(tokens), lambda part, s: part._append(s, list(tokens)))

    def schedule(self, seq_id: int, num_tokens: int) -> Copies | str:
        return self._grow(seq_id, num_tokens, lambda part, s: part._schedule(s, num_tokens))

    def draft(self, seq_id: int, tokens: list[int]) -> Copies | str:
        return self._grow(seq_id, len(tokens), lambda part, s: part._draft(s, tokens))

    def accept(self, seq_id: int, num_tokens: int) -> None:
        for part in self.parts:
            part.accept(seq_id, num_tokens)

    def step(self, batch: list[tuple[int, int]]) -> None:
        for seq_id, _ in batch:
            for part in self.parts:
                part._computed(part.sequences[seq_id])
        self.parts[0]._drain()

    def fork(self, seq_id: int, child_id: int) -> Copies | str:
        for part in self.parts:
            part.fork(seq_id, child_id)
        return []

    def truncate(self, seq_id: int, num_tokens: int) -> Copies | str:
        pairs = [(part, part.sequences[seq_id]) for part in self.parts]
        needed = sum(part._num_cut(sequence, num_tokens) for part, sequence in pairs)
        if needed > self.pool.num_free():
            return "later"
        return [copy for part, s in pairs for copy in part._truncate(s, num_tokens)]

    def preempt(self, seq_id: int) -> None:
        for part in self.parts:
            part.preempt(seq_id)

    def finish(self, seq_id: int) -> None:
        for part in self.parts:
            part.finish(seq_id)

    def abort(self, seq_id: int) -> None:
        self.finish(seq_id)

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
        for length in range(most - most % self.alignment, 0, -self.alignment):
            hits = [
                part._hits_of(sequence, length // part.block_size)
                for part, sequence in zip(self.parts, sequences, strict=True)
            ]
            found = [blocks for blocks in hits if blocks is not None]
            if len(found) == len(hits):
                return length, found
        return 0, [[] for _ in self.parts]

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
        for part, sequence in pairs:
            part._slide(sequence)
        needed = sum(part._new_blocks_for(s, s.num_scheduled + further) for part, s in pairs)
        if needed > self.pool.num_free():
            return "later"
        return [pair for part, sequence in pairs for pair in grow(part, sequence)]
