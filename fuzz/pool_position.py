"""Where a pool's run is: which block plays which part in the erased state, and moves as commands.

A move keeps the position up to date by itself; after any other command it is read again from the
reference. Of several blocks of one kind a move takes that with the lowest id: other choices are
left to the common grammar.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from poolproof.contract.commands import Allocate, Cache, Command, Evict, Free, Reset, Touch
from poolproof.contract.content import Key
from poolproof.fuzz.one_block import (
    ALLOCATE,
    CACHE,
    EVICT_FREE,
    EVICT_HELD,
    RESET,
    REVIVE,
    TOUCH,
    OneBlockRules,
)
from poolproof.reference.dict_pool import DictPool

__all__ = ["PoolPosition"]

_ALLOCATE, _RESET = Allocate(1), Reset()
_OUTSIDE = -1_000
"""The kind of the null block, which plays no part."""


class PoolPosition:
    """The free blocks in order, and for each block its kind.

    A held block's kind is its code; a free one's is its label less `radix`, so below zero.
    """

    def __init__(self, pool: DictPool, rules: OneBlockRules, hashes: Sequence[Key]) -> None:
        self._pool = pool
        self._rules = rules
        self._radix = rules.radix
        self._label_of = {key: number for number, key in enumerate(hashes, 1)}
        self._order: list[int] = []
        self._kinds: list[int] = []
        self._blocks = [b for b in range(pool.num_blocks) if b != pool.null_block]
        self._allocate, self._reset = _ALLOCATE, _RESET
        self._touch, self._free, self._evict, self._cache = _commands(
            pool.num_blocks, tuple(hashes)
        )

    def read(self) -> bytes | None:
        """The state of the reference; None outside of the bounds."""
        pool, radix, label_of = self._pool, self._radix, self._label_of
        beyond = radix * (self._rules.scope.max_references + 1)
        kinds = [_OUTSIDE] * pool.num_blocks
        for block in self._blocks:
            keys = pool.keys[block]
            label = label_of.get(keys[0], -1) if keys else 0
            kind = len(pool.holders[block]) * radix + label
            if label < 0 or len(keys) > 1 or kind >= beyond:
                return None
            kinds[block] = kind if kind >= radix else kind - radix
        self._kinds = kinds
        self._order = order = list(pool.free)
        labels = [kinds[block] + radix for block in order]
        return bytes(labels + sorted([kind for kind in kinds if kind >= radix]))

    def over_referenced(self) -> int:
        """A block that has more references than any other."""
        return max(self._blocks, key=lambda block: len(self._pool.holders[block]))

    def take(self, move: int) -> Command:
        """The command that makes this move, in its short form; the position is where it leads."""
        kinds, radix = self._kinds, self._radix
        kind, where, label = move & 7, move >> 3 & 255, move >> 11
        if kind > RESET:
            block = kinds.index(where)
            if kind == CACHE:
                kinds[block] = where - where % radix + label
                return self._cache[block][label - 1]
            if kind == TOUCH:
                kinds[block] = where + radix
                return self._touch[block]
            if kind == EVICT_HELD:
                kinds[block] = where - where % radix
                return self._evict[block]
            kinds[block] = where - radix
            if where < 2 * radix:
                self._join(block, where - radix)
            return self._free[block]
        if kind == ALLOCATE:
            kinds[self._order.pop(0)] = radix
            return self._allocate
        if kind == REVIVE:
            block = self._order.pop(where)
            kinds[block] = radix + label
            return self._touch[block]
        if kind == EVICT_FREE:
            block = self._order[where]
            kinds[block] = -radix
            return self._evict[block]
        for block in self._order:
            kinds[block] = -radix
        return self._reset

    def _join(self, block: int, label: int) -> None:
        self._kinds[block] = label - self._radix
        self._order.insert(0 if self._rules.joins_head(label) else len(self._order), block)


@lru_cache(maxsize=256)
def _commands(
    num_blocks: int, hashes: tuple[Key, ...]
) -> tuple[list[Touch], list[Free], list[Evict], list[list[Cache]]]:
    """The commands of one block, by block: making one costs more than taking a move."""
    blocks = range(num_blocks)
    return (
        [Touch((block,)) for block in blocks],
        [Free((block,)) for block in blocks],
        [Evict((block,)) for block in blocks],
        [[Cache((block,), (key,)) for key in hashes] for block in blocks],
    )
