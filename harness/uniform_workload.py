"""The baseline that a workload is measured against: every legal command as likely as the others.

The same commands over the same pools, hashes and tokens as the tuned workloads, and the same
choices of what a command may be; only nothing is preferred. A verb is drawn uniformly, then its
arguments are, and what is not legal is drawn again. Nothing certifies with this: it answers how
much the tuning is worth (benchmarks/survival.py).
"""

from __future__ import annotations

from typing import Any

from poolproof.contract.commands import (
    Allocate,
    AppendN,
    Cache,
    Command,
    Evict,
    Free,
    PopLeftN,
    PrependN,
    Reset,
    Touch,
)
from poolproof.contract.content import Image, TokenChain
from poolproof.contract.manager_commands import (
    Abort,
    Admit,
    AppendTokens,
    Finish,
    LookupPrefix,
    Step,
)
from poolproof.harness.choices import Choices
from poolproof.harness.manager_prompts import ManagerPrompts
from poolproof.harness.manager_workload import MOST_SEQUENCES, ManagerWorkload
from poolproof.harness.pool_workload import PoolWorkload
from poolproof.harness.queue_workload import QueueWorkload
from poolproof.reference.manager_legality import as_told
from poolproof.reference.sequence_model import SequenceState

__all__ = [
    "UniformManagerWorkload",
    "UniformPoolWorkload",
    "UniformPrompts",
    "UniformQueueWorkload",
]

LONGEST_LIST = 3
"""Entries of the lists in pool commands, as many as the tuned workload gives."""


class UniformQueueWorkload(QueueWorkload):
    """Any number of blocks, any blocks, in any order."""

    def bias(self) -> None:
        """No verb dominates."""

    def popleft_n(self) -> Command:
        return PopLeftN(self.below(len(self.queue.order) + 1))

    def append_n(self) -> Command:
        return AppendN(self._any_outside())

    def prepend_n(self) -> Command:
        return PrependN(self._any_outside())

    def _any_outside(self) -> tuple[int, ...]:
        outside = self._outside()
        count = self.below(len(outside) + 1)
        return tuple(outside.pop(self.below(len(outside))) for _ in range(count))


class UniformPoolWorkload(PoolWorkload):
    """Any count up to one more than there are blocks, any legal blocks, any hashes."""

    def set_weights(self, weights: dict[str, int]) -> None:  # noqa: ARG002 -- all weigh the same
        """Each verb is as likely as the others."""
        self._urn = list(self.verbs.values())

    def bias(self) -> None:
        """No verb dominates."""

    def allocate(self) -> Command:
        return Allocate(self.below(self.pool.num_blocks + 2))

    def touch(self) -> Command | None:
        pool = self.pool
        touchable = [
            block
            for block in range(pool.num_blocks)
            if (pool.holders[block] or pool.keys[block]) and block != pool.null_block
        ]
        return Touch(self._with_null(self._some(touchable))) if touchable else None

    def free(self) -> Command | None:
        count = len(self.references)
        if not count:
            return None
        drawn = self._draw_references(min(count, self._length()))
        return Free(self._with_null(self._each_once(drawn)))

    def cache(self) -> Command | None:
        held = list(dict.fromkeys(self.references))
        if self.profile.recache == "forbidden":
            held = [block for block in held if not self.pool.keys[block]]
        if not held:
            return None
        ids = [held.pop(self.below(len(held))) for _ in range(min(len(held), self._length()))]
        blocks = self._with_null(ids) if self._caches_null else tuple(ids)
        return Cache(blocks, tuple(self.hashes[self.below(len(self.hashes))] for _ in blocks))

    def evict(self) -> Command:
        blocks = [b for b in range(self.pool.num_blocks) if b != self.pool.null_block]
        return Evict(tuple(dict.fromkeys(self._some(blocks))))

    def _length(self) -> int:
        return 1 + self.below(LONGEST_LIST)

    def _some(self, blocks: list[int]) -> list[int]:
        return [blocks[self.below(len(blocks))] for _ in range(self._length())]


class UniformPrompts(ManagerPrompts):
    """Prompts that have to do with nothing: any length, any tokens, any further keys."""

    def next(self) -> TokenChain:
        """One of all prompts that the tuned workload could come by."""
        below = self.below
        tokens = self.tokens(1 + below(6 * self.block_size + 2))
        kind = below(4)
        if kind == 1:
            return TokenChain(tokens, ("x", "01"[below(2)]))
        if kind == 2:
            return TokenChain(tokens, None, "xy"[below(2)])
        if kind == 3:
            offset = below(len(tokens))
            length = 1 + below(min(len(tokens) - offset, self.block_size))
            return TokenChain(tokens, images=(Image(f"{'pq'[below(2)]}{length}", offset, length),))
        return TokenChain(tokens)


class UniformManagerWorkload(ManagerWorkload):
    """Any sequence, any number of tokens, any prompt; nothing is asked for again on purpose."""

    def __init__(self, choices: Choices, model: Any, can: Any, num_symbols: int = 2) -> None:
        super().__init__(choices, model, can, num_symbols)
        self.prompts = UniformPrompts(choices, model.block_size, num_symbols)

    def set_weights(self, weights: dict[str, int]) -> None:  # noqa: ARG002 -- all weigh the same
        """Each verb is as likely as the others."""
        self._urn = self.verbs

    def bias(self) -> None:
        """No verb dominates."""

    def seek_collisions(self) -> None:
        """No prompts are preferred for that, either."""

    def _follow(self, scripts: tuple[tuple[str, ...], ...]) -> None:
        """Nothing follows from what was drawn."""

    def _rather_forked(self, found: list[SequenceState]) -> SequenceState | None:
        return self._one(found)

    def _rather_all(self, most: int) -> int:
        return 1 + self.below(most)

    def _to_load(self) -> TokenChain:
        return self.prompts.next()

    def lookup_prefix(self) -> Command:
        return LookupPrefix(self.prompts.next())

    def reset(self) -> Command:
        return Reset()

    def admit(self) -> Command | None:
        if len(self.model.sequences) >= MOST_SEQUENCES:
            return None
        chain = self.prompts.next()
        self.next_id += 1
        return Admit(self.next_id - 1, chain, self._chunk(len(chain.tokens)))

    def append_tokens(self) -> Command | None:
        sequence = self._one(list(self._sequences()))
        if sequence is None:
            return None
        tokens = self.prompts.tokens(1 + self.below(self.model.block_size))
        return as_told(self.model, AppendTokens(sequence.seq_id, tokens))

    def step(self) -> Command:
        return Step()

    def finish(self) -> Command | None:
        ids = [*sorted(self.model.ended_ids), *self.model.sequences]
        return Finish(ids[self.below(len(ids))]) if ids else None

    def abort(self) -> Command:
        ids = [*self.model.sequences, self.next_id + 1000]
        return Abort(ids[self.below(len(ids))])

    def _chunk(self, num_tokens: int) -> int:
        return self.below(num_tokens + 1) if self._chunks else 0
