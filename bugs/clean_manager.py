"""A manager without bugs, written to be read and to be broken: the base of manager specimens.

It speaks the native manager contract over a `CleanPool`, with one cache group of full attention:
admission with prefix reuse, growth, chunks, drafts, forks with copy on write, truncation,
preemption and resume, transfers that complete later. The steps that specimens replace are in
`clean_manager_steps.py`; swapping, windows and several groups are in `clean_swapping.py`,
`clean_window.py` and `clean_hybrid.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from poolproof.bugs.clean_manager_steps import Copies, ManagerSteps
from poolproof.bugs.clean_sequence import CleanSequence

__all__ = ["CleanManager"]


class CleanManager(ManagerSteps):
    """Sequences over `num_blocks` blocks of `block_size` tokens, under `rules`."""

    def admit(
        self,
        seq_id: int,
        tokens: list[int],
        *,
        extra_keys: tuple[Any, ...] | None = None,
        num_tokens: int | None = None,
    ) -> int | str:
        sequence = self._known_or_new(seq_id, tokens, extra_keys)
        return self._admit(sequence, num_tokens)

    def load(
        self,
        seq_id: int,
        tokens: list[int],
        *,
        extra_keys: tuple[Any, ...] | None = None,
        num_tokens: int = 0,
    ) -> int | str:
        """Like `admit`; the `num_tokens` behind the cached ones are written from elsewhere."""
        sequence = self._known_or_new(seq_id, tokens, extra_keys)
        sequence.loading = num_tokens
        answer = self._admit(sequence, num_tokens)
        sequence.loading, sequence.num_scheduled = sequence.num_scheduled, 0
        return answer

    def loaded(self, seq_id: int) -> None:
        sequence = self.sequences[seq_id]
        sequence.num_computed += sequence.loading
        sequence.num_offered = sequence.num_computed
        sequence.loading = 0
        if sequence.ended:
            self._end(sequence)
        else:
            self._publish(sequence)

    def append(self, seq_id: int, tokens: list[int]) -> Copies | str:
        sequence = self.sequences[seq_id]
        self._slide(sequence)
        if not self._has_room(sequence, len(tokens)):
            return "later"
        return self._append(sequence, tokens)

    def schedule(self, seq_id: int, num_tokens: int) -> Copies | str:
        sequence = self.sequences[seq_id]
        self._slide(sequence)
        if not self._has_room(sequence, num_tokens):
            return "later"
        return self._schedule(sequence, num_tokens)

    def draft(self, seq_id: int, tokens: list[int]) -> Copies | str:
        sequence = self.sequences[seq_id]
        self._slide(sequence)
        if not self._has_room(sequence, len(tokens)):
            return "later"
        return self._draft(sequence, tokens)

    def accept(self, seq_id: int, num_tokens: int) -> None:
        """The first drafts are tokens now; blocks that were taken for the others stay."""
        sequence = self.sequences[seq_id]
        accepted, sequence.drafts = sequence.drafts[:num_tokens], []
        sequence.tokens += accepted
        sequence.num_computed += len(accepted)
        if self.rules.publishes != "scheduled":
            self._publish(sequence)

    def step(self, batch: list[tuple[int, int]]) -> None:
        for seq_id, _ in batch:
            self._computed(self.sequences[seq_id])
        self._drain()

    def fork(self, seq_id: int, child_id: int) -> Copies | str:
        parent = self.sequences[seq_id]
        child = CleanSequence(child_id, list(parent.tokens), parent.extra_keys)
        child.num_computed, child.num_published = parent.num_computed, parent.num_published
        child.num_offered = parent.num_offered
        child.keys, child.family = list(parent.keys), parent.family
        self._share(parent, child)
        self.sequences[child_id] = child
        return []

    def truncate(self, seq_id: int, num_tokens: int) -> Copies | str:
        """Keep the blocks; what is cached beyond the tokens that stay loses its key."""
        sequence = self.sequences[seq_id]
        if self._num_cut(sequence, num_tokens) > self.pool.num_free():
            return "later"
        return self._truncate(sequence, num_tokens)

    def preempt(self, seq_id: int) -> None:
        sequence = self.sequences[seq_id]
        self._release(sequence)
        sequence.place = "nowhere"

    def finish(self, seq_id: int) -> None:
        sequence = self.sequences.get(seq_id)
        if sequence is not None:
            self._end(sequence)

    def abort(self, seq_id: int) -> None:
        if seq_id in self.sequences:
            self.sequences[seq_id].is_aborted = True
        self.finish(seq_id)

    def lookup_prefix(self, tokens: list[int], *, extra_keys: tuple[Any, ...] | None = None) -> int:
        sequence = CleanSequence(-1, tokens, extra_keys)
        return len(self._hits(sequence)) * self.block_size

    def reset(self) -> bool:
        return self.pool.reset()

    def use_hash(self, digest: Callable[[bytes], bytes]) -> None:
        """Hash keys with another function from now on; called before anything else."""
        self.digest = digest

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:  # noqa: ARG002 - one group
        return self.sequences[seq_id].table

    def num_free(self) -> int:
        return self.pool.num_free()

    def free_order(self) -> list[int]:
        return self.pool.free_order()

    def ref_count(self, block_id: int) -> int:
        return self.pool.ref_count(block_id)

    def is_cached(self, block_id: int) -> bool:
        return self.pool.block_hash(block_id) is not None
