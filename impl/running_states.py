"""Where the recurrent states of a request stand while it runs, and which of them a step leaves.

A key promises the state at the end of a block, so such a state is left in the block of the table
that the key will name, and nothing else is ever left there. Every other state, behind the last
token or behind a draft, stands in one of `num_scratch` further blocks at the end of the table. One
for each draft and one for the token before them are enough: a step starts from a state before it
writes any, so it may write over the one that it starts from. When the table grows, a block of
scratch becomes that of a position; the states in it stay where they are until the next step.

Which draft was right decides where the next step starts, and nothing has to be copied for it. A
worker that keeps the states of drafts in columns of the table itself has to copy: see vLLM's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class StateGroup:
    """A cache group of recurrent states: its place among the others and its layout."""

    index: int
    block_size: int
    num_scratch: int


@dataclass(slots=True)
class RunningStates:
    """The states of one run of a request, from its admission until it gives its blocks back.

    `num_computed` are the tokens that count as computed by the steps that were carried out. Of each
    group, `places` has the block of every state that the last one left, by how many tokens it has.
    """

    num_computed: int = 0
    places: list[dict[int, int]] = field(default_factory=list)

    @classmethod
    def after_hit(
        cls, num_cached: int, tables: Sequence[Sequence[int]], groups: Sequence[StateGroup]
    ) -> RunningStates:
        """Those of a request whose first tokens were found in the cache: whole blocks, or none."""
        if not num_cached:
            return cls(0, [{} for _ in groups])
        return cls(
            num_cached,
            [{num_cached: tables[g.index][num_cached // g.block_size - 1]} for g in groups],
        )

    def step(
        self,
        count: int,
        num_drafts: int,
        num_accepted: int,
        tables: Sequence[Sequence[int]],
        groups: Sequence[StateGroup],
        *,
        every_block: bool,
    ) -> list[dict[str, Any]]:
        """The next step computes `count` positions: where it starts, and what it leaves.

        The last `num_drafts` of them are drafts; it samples `num_accepted` tokens, 0 if none: one
        more than drafts that were right.
        """
        first, end = self.num_computed, self.num_computed + count
        known = end - num_drafts
        uses, places = [], []
        for group, before in zip(groups, self.places):
            size, table = group.block_size, tables[group.index]
            ends = list(range(known, end + 1))
            if every_block:
                ends = [*range(first + size - first % size, known, size), *ends]
            left = {until: self._block(group, table, until, known) for until in ends}
            uses.append(
                {
                    "group": group.index,
                    "starts": before[first] if first else None,
                    "leaves": list(left.items()),
                }
            )
            places.append(left)
        self.places = places
        self.num_computed = known + num_accepted - 1 if num_accepted else end
        return uses

    def _block(self, group: StateGroup, table: Sequence[int], until: int, known: int) -> int:
        """The block of the state after `until` tokens; all from the `known`-th on are drafts."""
        size = group.block_size
        if until % size == 0 or not group.num_scratch:
            return table[(until - 1) // size]
        return table[len(table) - group.num_scratch + until - known]
