"""What a manager showed of itself after a command, as plain values that a trace file keeps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from poolproof.contract.outside import shown

__all__ = [
    "MOST_SHOWN_IDS",
    "Answer",
    "Held",
    "ShownState",
    "shown_from_json",
    "shown_to_json",
]

Answer = bool | int | str | tuple[tuple[int, int], ...] | None
"""What a method answered: block copies as pairs, anything else that is no plain value as text."""

MOST_SHOWN_IDS = 200_000
"""Block ids in all states of a trace together; more would make a file that nobody attaches."""


@dataclass(frozen=True, slots=True)
class Held:
    """The block tables of one sequence, one for each group; `place` is "device" or "host"."""

    seq_id: int
    place: str
    tables: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class ShownState:
    """The free queue, head first (None where it cannot be seen), the tables, and the answer."""

    free: tuple[int, ...] | None
    held: tuple[Held, ...]
    answer: Answer = None

    @property
    def num_ids(self) -> int:
        """How many block ids it has, in the free queue and in the tables."""
        tables = (table for held in self.held for table in held.tables)
        return len(self.free or ()) + sum(map(len, tables))


def shown_to_json(states: Sequence[ShownState]) -> list[dict[str, Any]]:
    """The states as plain JSON values; none if they are too many to keep."""
    if sum(state.num_ids for state in states) > MOST_SHOWN_IDS:
        return []
    return [
        {
            "free": None if state.free is None else list(state.free),
            "held": [[h.seq_id, h.place, [*map(list, h.tables)]] for h in state.held],
            "answer": list(map(list, state.answer))
            if isinstance(state.answer, tuple)
            else state.answer,
        }
        for state in states
    ]


def shown_from_json(value: Any) -> tuple[ShownState, ...]:
    """The states that `shown_to_json` wrote. Raises TypeError, LookupError or ValueError."""
    if not isinstance(value, list):
        raise TypeError("what the target showed is no list")
    return tuple(
        ShownState(
            free=None if state["free"] is None else _ids(state["free"]),
            held=tuple(
                Held(_id(seq_id), str(place), tuple(map(_ids, tables)))
                for seq_id, place, tables in state["held"]
            ),
            answer=_answer(state["answer"]),
        )
        for state in value
    )


def _ids(values: Iterable[Any]) -> tuple[int, ...]:
    return tuple(map(_id, values))


def _id(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{shown(value, 80)} is no id")
    return value


def _answer(value: Any) -> Answer:
    if isinstance(value, list):
        return tuple((_id(source), _id(destination)) for source, destination in value)
    if value is None or isinstance(value, bool | int | str):
        return value
    raise TypeError(f"{shown(value, 80)} is no answer")
