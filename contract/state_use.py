"""What a step does with the recurrent state of one request: where it starts, what it leaves.

Layers with a recurrent state keep no slot for each token but one state, which is overwritten: a
temporal part, and the window of a convolution over the last few tokens. A block holds the state
after some prefix; with drafts it may hold several, one behind each token. A place is such a state,
`(block, at)`: the one that comes `at` tokens behind the first that the block holds.

reference/recurrent_states.py says what must hold of it, docs/engines.md how an engine tells it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import index
from typing import Any

from poolproof.contract.outside import shown

__all__ = [
    "PARTS",
    "Place",
    "StateCopy",
    "StateUse",
    "StateUseError",
    "use_from",
    "uses_by_request",
]

PARTS = ("temporal", "window")
"""What a state has. A model without a convolution has them in step."""

Place = tuple[int, int]
"""A block, and how many tokens behind the first state in it the state comes."""


class StateUseError(ValueError):
    """A use of states of which no sense can be made; the message names the entry."""


@dataclass(frozen=True, slots=True)
class StateCopy:
    """Block `into` gets the states of block `source`, but for the first `skip` of them."""

    source: int
    into: int
    skip: int = 0


@dataclass(frozen=True, slots=True)
class StateUse:
    """What a step does with the states of one request in cache group `group`.

    The copies `before` are performed in order, before anything is computed. The step `starts` from
    the state at a place; None: from zero, the state of the empty prefix. It leaves states: of each
    pair in `leaves` the state after the tokens up to a position, the position itself not counted,
    at a place. Then the copies `after` are performed in order. `parts` are those of the state that
    this is about, where the worker treats them differently.
    """

    group: int
    starts: Place | None
    leaves: tuple[tuple[int, Place], ...] = ()
    before: tuple[StateCopy, ...] = ()
    after: tuple[StateCopy, ...] = ()
    parts: tuple[str, ...] = PARTS

    def shifted(self, num_positions: int) -> StateUse:
        """The same, where the positions are so many less."""
        if not num_positions:
            return self
        leaves = tuple((end - num_positions, place) for end, place in self.leaves)
        return StateUse(self.group, self.starts, leaves, self.before, self.after, self.parts)

    def reads(self) -> tuple[int, ...]:
        """The blocks that the step starts from, or copies before it."""
        starts = () if self.starts is None else (self.starts[0],)
        return (*starts, *(copy.source for copy in self.before))

    def blocks(self) -> tuple[int, ...]:
        """Every block that is named."""
        copies = (*self.before, *self.after)
        return (
            *(() if self.starts is None else (self.starts[0],)),
            *(block for _, (block, _) in self.leaves),
            *(block for copy in copies for block in (copy.source, copy.into)),
        )


def use_from(value: Any) -> StateUse:
    """The use that a mapping tells. Raises StateUseError.

    It has "group" and may have "starts", "leaves", "before", "after" and "part". A place is a block
    or `[block, at]`, a copy `[source, into]` or `[source, into, skip]`, and what is left
    `[end, place]`.
    """
    if isinstance(value, StateUse):
        return value
    known = {"group", "starts", "leaves", "before", "after", "part"}
    if not isinstance(value, Mapping) or "group" not in value or not set(value) <= known:
        raise StateUseError(
            f"the use {shown(value)} of a state must be a mapping with group; it may have "
            f"{', '.join(sorted(known))}"
        )
    part = value.get("part")
    if part is not None and part not in PARTS:
        raise StateUseError(f"the part of a state is one of {', '.join(PARTS)}, not {shown(part)}")
    starts = value.get("starts")
    try:
        return StateUse(
            index(value["group"]),
            None if starts is None else _place(starts),
            tuple((index(end), _place(place)) for end, place in value.get("leaves") or ()),
            tuple(map(_copy, value.get("before") or ())),
            tuple(map(_copy, value.get("after") or ())),
            PARTS if part is None else (part,),
        )
    except (TypeError, ValueError) as error:
        raise StateUseError(
            f"the use {shown(value)} of a state must have places (a block, or [block, at]), what "
            "it leaves as [end, place], and copies as [source, into] or [source, into, skip]"
        ) from error


def uses_by_request(value: Any) -> dict[int, tuple[StateUse, ...]]:
    """What `states` answered: the uses of each request of the step, or pairs of both.

    Raises StateUseError.
    """
    try:
        pairs = value.items() if isinstance(value, Mapping) else value
        return {index(number): tuple(map(use_from, uses or ())) for number, uses in pairs}
    except StateUseError:
        raise
    except (TypeError, ValueError) as error:
        raise StateUseError(
            f"states must answer a mapping of requests to lists of uses, not {shown(value)}"
        ) from error


def _place(value: Any) -> Place:
    if isinstance(value, list | tuple):
        block, at = value
        return index(block), index(at)
    return index(value), 0


def _copy(value: Any) -> StateCopy:
    return StateCopy(*map(index, value))
