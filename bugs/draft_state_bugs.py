"""Bugs of managers whose sequences have recurrent states behind drafts, and correct look-alikes.

Each is the smallest change to our own manager, in the layout `full+mamba+lookahead`, where it
holds. `thread` is where the cause was told, of this or of another engine; empty for a slip that we
made up. They are no part of the kill matrix: its managers know no states. Managers whose blocks for
drafts move along are in `tests/harness/test_manager_draft_states.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from poolproof.impl.kv_cache_manager import KVCacheManager
from poolproof.impl.kv_cache_tables import GroupTables, Need, NewBlocks

__all__ = ["DRAFT_STATE_BUGS", "DRAFT_STATE_ODDITIES", "LAYOUT", "DraftStateBug"]

LAYOUT = "full+mamba+lookahead"

STATE_BLOCKS = 3
"""Blocks for states behind drafts that each sequence of that layout has."""


@dataclass(frozen=True, slots=True)
class DraftStateBug:
    """One bug: the manager that has it, and the invariants that may name it first."""

    id: str
    title: str
    thread: str
    cls: type[KVCacheManager]
    invariants: tuple[str, ...]


DRAFT_STATE_BUGS: dict[str, DraftStateBug] = {}
"""By their ids."""


def _manager_over(tables: type[GroupTables]) -> type[KVCacheManager]:
    """Our manager over other tables, where it has several groups."""

    class Manager(KVCacheManager):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            if type(self._tables) is GroupTables:
                self._tables = tables(self._layout, self.block_pool)

    Manager.__name__ = Manager.__qualname__ = tables.__name__
    return Manager


def plant(
    bug_id: str, title: str, *, thread: str = "", invariants: tuple[str, ...] = ("DATA",)
) -> Callable[[type[GroupTables]], type[GroupTables]]:
    """A decorator that enters a class of tables."""

    def enter(cls: type[GroupTables]) -> type[GroupTables]:
        assert bug_id not in DRAFT_STATE_BUGS, bug_id
        manager = _manager_over(cls)
        DRAFT_STATE_BUGS[bug_id] = DraftStateBug(bug_id, title, thread, manager, invariants)
        return cls

    return enter


@plant("drafts-1", "a table of states has no blocks for drafts",
       thread="vllm#41884", invariants=("ADM",))  # fmt: skip
class NoBlocksForDrafts(GroupTables):
    """A lookup by accepted tokens goes past the end of the table."""

    def _missing_blocks(self, lengths: list[int], need: Need) -> list[int]:
        extra = [group.kind.num_extra_blocks for group in self.layout.groups]
        return super()._missing_blocks([a + b for a, b in zip(lengths, extra, strict=True)], need)


@plant("drafts-2", "groups of states take lookahead slots besides", invariants=("ADM",))
class StatesForTheHead(GroupTables):
    """Where blocks must end with steps, as in vLLM's cache mode "align", they no longer do."""

    def _missing_blocks(self, lengths: list[int], need: Need) -> list[int]:
        return super()._missing_blocks(lengths, replace(need, num_ahead=0))


@plant("drafts-3", "all sequences have the same blocks for states behind drafts",
       invariants=("I2", "DATA"))  # fmt: skip
class OneSetForAll(GroupTables):
    """Scratch that one sequence may use at a time, and a step computes several."""

    def _admit(self, request_id: str, *arguments: Any, **named: Any) -> NewBlocks | None:
        new = super()._admit(request_id, *arguments, **named)
        others = [held for other, held in self.requests.items() if other != request_id]
        if new is not None and others:
            for group in self.layout.groups:
                if group.is_state:
                    mine = self.requests[request_id].tables[group.index]
                    theirs = others[0].tables[group.index][-group.kind.num_extra_blocks :]
                    self.pool.touch(theirs)
                    self.pool.free(mine[-len(theirs) :])
                    mine[-len(theirs) :] = theirs
        return new


@plant("drafts-4", "drafts count as computed where old states go back, refused ones included",
       invariants=("I2", "DATA"))  # fmt: skip
class RefusedDraftsCount(GroupTables):
    """The block of the last computed position is gone, and with it the end of its block."""

    def _grow(self, held: Any, need: Need) -> NewBlocks | None:
        return super()._grow(held, replace(need, num_settled=need.num_settled + STATE_BLOCKS))


@plant("drafts-5", "the key of a block that drafts pass goes to the column behind it",
       thread="vllm#53912", invariants=("I4", "IDX", "DATA"))  # fmt: skip
class KeyOfTheColumn(GroupTables):
    """Where the state stood in the step, and not where it is copied to."""

    def publish(
        self, request_id: str, hashes: list[bytes], num_tokens: int, num_written: int
    ) -> None:
        held = self.requests[request_id]
        whole = held.tables
        held.tables = tuple(
            self._shifted(whole[group.index], group.kind.num_extra_blocks, num_tokens)
            if group.is_state
            else whole[group.index]
            for group in self.layout.groups
        )
        super().publish(request_id, hashes, num_tokens, num_written)
        held.tables = whole

    def _shifted(self, table: list[int], num_extra: int, num_tokens: int) -> list[int]:
        last = num_tokens // self.layout.alignment - 1
        is_passed = 0 <= last < len(table) - num_extra - 1
        return [*table[:last], table[last + 1], *table[last + 1 :]] if is_passed else table


@plant("drafts-6", "a state that the step still has to leave is found by others in it",
       invariants=("DATA", "IDX"))  # fmt: skip
class FoundInItsStep(GroupTables):
    """They start before it is left; with drafts it is copied even later."""

    def publish(
        self, request_id: str, hashes: list[bytes], num_tokens: int, num_written: int
    ) -> None:
        super().publish(request_id, hashes, num_tokens, num_written)
        self.unwritten.clear()


class LastBlocksFirst(GroupTables):
    """Which of the new blocks comes into which entry is the manager's own affair."""

    def _take(self, wanted: list[int]) -> tuple[list[int], ...]:
        return tuple(ids[::-1] for ids in super()._take(wanted))


DRAFT_STATE_ODDITIES = (_manager_over(LastBlocksFirst),)
"""Correct managers that look alike: nobody may accuse them."""
