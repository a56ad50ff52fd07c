"""Bugs of hits that end inside a block: recurrent states under hashes finer than their blocks.

Each is the smallest change to `impl/kv_cache_inside.py`, in the layout `full+mamba-hash-2` of our
manager, where `impl-manager` itself holds. `thread` is where the cause was told, of this or of
another engine; empty for a slip that we made up. They are refused by the usual runs, and are no
part of the kill matrix: its managers know no states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from poolproof.impl.kv_cache_group import LaidOutGroup
from poolproof.impl.kv_cache_inside import InsideTables
from poolproof.impl.kv_cache_manager import KVCacheManager
from poolproof.impl.kv_cache_tables import Need, NewBlocks, RequestTables

__all__ = ["INSIDE_BLOCK_BUGS", "INSIDE_BLOCK_ODDITIES", "LAYOUT", "InsideBlockBug"]

LAYOUT = "full+mamba-hash-2"

PLENTY = 3
"""Free blocks with which one more is no matter."""


@dataclass(frozen=True, slots=True)
class InsideBlockBug:
    """One bug: the manager that has it, and the invariants that may name it first."""

    id: str
    title: str
    thread: str
    cls: type[KVCacheManager]
    invariants: tuple[str, ...]


INSIDE_BLOCK_BUGS: dict[str, InsideBlockBug] = {}
"""By their ids."""


def _manager_over(tables: type[InsideTables]) -> type[KVCacheManager]:
    """Our manager over other tables."""

    class Manager(KVCacheManager):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            if self._inside is not None:
                self._inside = self._tables = tables(self._layout, self.block_pool)

    Manager.__name__ = Manager.__qualname__ = tables.__name__
    return Manager


def plant(
    bug_id: str, title: str, *, thread: str = "", invariants: tuple[str, ...] = ("DATA",)
) -> Callable[[type[InsideTables]], type[InsideTables]]:
    """A decorator that enters a class of tables."""

    def enter(cls: type[InsideTables]) -> type[InsideTables]:
        assert bug_id not in INSIDE_BLOCK_BUGS, bug_id
        manager = _manager_over(cls)
        INSIDE_BLOCK_BUGS[bug_id] = InsideBlockBug(bug_id, title, thread, manager, invariants)
        return cls

    return enter


@plant("inside-1", "the copies of a hit are not ordered", thread="vllm#51766")
class CopiesForgotten(InsideTables):
    """The new block holds what whoever had it before has left."""

    def _admit(self, *arguments: Any, **named: Any) -> NewBlocks | None:
        before = len(self.copies)
        new = super()._admit(*arguments, **named)
        del self.copies[before:]
        return new


@plant("inside-2", "only the state is copied, not the attention beside it", thread="vllm#45477")
class OnlyTheStateIsCopied(InsideTables):
    """The tokens of the last block were computed, and their keys and values stay behind."""

    def _admit(self, *arguments: Any, **named: Any) -> NewBlocks | None:
        before = len(self.copies)
        new = super()._admit(*arguments, **named)
        del self.copies[before : before + (len(self.copies) - before) // 2]
        return new


@plant("inside-3", "only the attention is copied, not the state", thread="sglang#39115")
class OnlyAttentionIsCopied(InsideTables):
    """The request goes on from what stands in its new block."""

    def _admit(self, *arguments: Any, **named: Any) -> NewBlocks | None:
        before = len(self.copies)
        new = super()._admit(*arguments, **named)
        del self.copies[before + (len(self.copies) - before) // 2 :]
        return new


@plant("inside-4", "a state keeps its key while its request goes on in the block",
       thread="vllm-metal#584", invariants=("DATA", "IDX"))  # fmt: skip
class TheKeyStays(InsideTables):
    """Who hits it goes on from a later state."""

    def _save(self, held: RequestTables, *, is_computed: bool) -> None:
        """Nothing is kept elsewhere."""


@plant("inside-5", "the key moves, and the state does not", thread="LMCache#4984",
       invariants=("DATA", "IDX"))  # fmt: skip
class OnlyTheKeyMoves(InsideTables):
    """The block that the key leads to holds what stood there before."""

    def _save(self, held: RequestTables, *, is_computed: bool) -> None:
        before = len(self.copies)
        super()._save(held, is_computed=is_computed)
        del self.copies[before:]


@plant("inside-6", "a state or attention inside a block is found in the step that writes it",
       invariants=("DATA", "IDX"))  # fmt: skip
class FoundTooEarly(InsideTables):
    """Copies are carried out before the step, and read what is not there yet."""

    def keep(self, request_id: str, hashes: list[bytes], end: int) -> None:
        super().keep(request_id, hashes, end)
        self.unwritten.clear()


@plant("inside-7", "a longer state is taken for a shorter hit", thread="vllm#47861",
       invariants=("DATA", "IDX", "ADM"))  # fmt: skip
class AnyStateOfTheBlock(InsideTables):
    """That a beginning will do holds of attention, and of no state."""

    def _tail(self, group: LaidOutGroup, hashes: list[bytes], end: int) -> int | None:
        last = -(-end // self._size) * self._size
        ends = range(end, min(last, len(hashes) * self._step) + 1, self._step)
        found = (super(AnyStateOfTheBlock, self)._tail(group, hashes, each) for each in ends)
        return next((block for block in found if block is not None), None)


@plant("inside-8", "a growth is refused where the state to be kept finds no block",
       thread="vllm#52520", invariants=("ADM", "ATOM"))  # fmt: skip
class KeepingIsRequired(InsideTables):
    """The key could go instead: nobody has to find it."""

    def _grow(self, held: RequestTables, need: Need) -> NewBlocks | None:
        if held.kept and self.pool.num_free() < PLENTY:
            return None
        return super()._grow(held, need)


class SourceIsRoom(InsideTables):
    """What is copied from waits in the free queue, and may be taken for the copy itself.

    That is right where all of an answer is read before anything is written.
    """

    def _admit(
        self,
        request_id: str,
        hits: NewBlocks,
        hashes: list[bytes],
        need: Need,
        copied: NewBlocks = (),
    ) -> NewBlocks | None:
        entry = need.num_hit // self._size
        tails = [ids[entry] for ids in hits if ids[entry:]]
        whole = tuple(ids[:entry] for ids in hits)
        new = super(InsideTables, self)._admit(request_id, whole, hashes, need, copied)
        if new is not None:
            tables = self.requests[request_id].tables
            self.copies += [(tail, table[entry]) for tail, table in zip(tails, tables)]
        return new


class KeepsStatesOfAnswers(KVCacheManager):
    """A state inside a block is kept after generated tokens, too: it costs blocks, and is right."""

    def _keeps(self, end: int, num_tokens: int) -> bool:
        return super()._keeps(end, num_tokens + 1)


INSIDE_BLOCK_ODDITIES = (_manager_over(SourceIsRoom), KeepsStatesOfAnswers)
"""Correct managers that look alike: nobody may accuse them."""
