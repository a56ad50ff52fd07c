"""Where a worker keeps the states behind drafts: in the columns of a manager's tables.

A manager is told of no state and moves none. In each group of states it gives a sequence
`state_blocks` entries beyond those of its positions, and the worker does the rest, as vLLM's does
in its cache mode "align". That is an assumption about the worker, and this file is all of it.

* A step computes positions `first` to `end` - 1, of which those from `known` on are drafts. Its
  *column* is the entry of its last position. The state after the `known` tokens comes into the
  column, the one behind the n-th draft n entries further on. Without drafts that is the entry of
  the last token. A state at the end of a block before `known` comes into the entry of its block,
  where a step can leave it at all (`states`).
* Once it is known which drafts were right, the state at the end of each block that was reached is
  copied from its column into the entry of its block, whose key promises it. Nothing has to be known
  for the state after the `known` tokens: it is copied with the step.
* The next step starts from the state behind the last draft that was right, wherever that stands.

From there, what a manager has to see to: each state has a block, and it is the sequence's own; the
block of the last computed position and all behind it stay until the next step is over; and a block
has a key only if the state that the key promises will be in its own entry when somebody hits it.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["copied_to_own_entries", "left_in_columns", "own_entry"]


def own_entry(end: int, size: int) -> int:
    """The entry of the block in which the last of `end` tokens lies."""
    return (end - 1) // size


def left_in_columns(
    first: int, known: int, end: int, size: int, *, every_block: bool
) -> dict[int, int]:
    """Which states a step leaves, by how many tokens they have, and in which entries."""
    left = {}
    if every_block:
        for until in range(first + size - first % size, known, size):
            left[until] = own_entry(until, size)
    for ahead in range(end - known + 1):
        left[known + ahead] = own_entry(end, size) + ahead
    return left


def copied_to_own_entries(states: Iterable[int], size: int) -> dict[int, int]:
    """Of states that count now, by their tokens, those that are copied, and into which entries."""
    return {until: own_entry(until, size) for until in states if until % size == 0}
