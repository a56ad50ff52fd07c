"""Choices that are written on a tape as they are made, wherever they come from.

A tape holds two bytes for each answer, as `TapeChoices` reads them, so that what any strategy
drove is replayed by the tape alone. Answers come from the beginning of another tape as far as it
goes, and then from a seeded generator. They are kept in memory that another process can read: of a
worker that died, this is what is left.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

__all__ = ["MOST_ANSWERS", "AnswerCells", "RecordedChoices", "answers_of", "new_cells", "tape_of"]

MOST_ANSWERS = 16_384
"""More than any run of a campaign asks for; a run that comes here gets zeros."""

AnswerCells = memoryview
"""`MOST_ANSWERS` + 1 cells of 16 bits; the first counts the others that are in use."""


def new_cells() -> AnswerCells:
    """Cells in memory of their own."""
    return memoryview(bytearray(2 * (MOST_ANSWERS + 1))).cast("H")


def answers_of(tape: bytes) -> tuple[int, ...]:
    """The answers on a tape; half an answer at its end does not count."""
    count = len(tape) // 2
    return struct.unpack(f">{count}H", tape[: 2 * count])


def tape_of(answers: Sequence[int]) -> bytes:
    """The tape that holds these answers."""
    return struct.pack(f">{len(answers)}H", *answers)


class RecordedChoices:
    """Answers from `given`, then from `source`, each written into `cells`.

    Without a `source` the choices are over when `given` is, and zeros from there on. `record`
    writes an answer that somebody else has chosen. Closures, as in `SeededChoices`, because these
    are the hottest calls of a campaign.
    """

    def __init__(
        self, cells: AnswerCells, source: random.Random | None, given: Sequence[int] = ()
    ) -> None:
        bits = _zeros if source is None else source.getrandbits
        given = given[:MOST_ANSWERS]
        last = len(given)
        place = cells[0] = 0

        def below(bound: int) -> int:
            nonlocal place
            if place < last:
                answer = given[place] % bound
            elif place < MOST_ANSWERS:
                answer = bits(16) % bound
            else:
                return 0
            place += 1
            cells[place] = answer
            cells[0] = place
            return answer

        def record(answer: int) -> None:
            nonlocal place
            if place < MOST_ANSWERS:
                place += 1
                cells[place] = answer
                cells[0] = place

        def is_given() -> bool:
            return place < last

        def is_over() -> bool:
            return (source is None and place >= last) or place >= MOST_ANSWERS

        self.below = below
        self.record = record
        self.is_given = is_given
        self.is_over = is_over
        self._cells = cells

    def tape(self) -> bytes:
        """The tape so far."""
        return tape_of(self._cells[1 : 1 + self._cells[0]])

    @property
    def num_answers(self) -> int:
        """How many answers the tape holds so far."""
        return int(self._cells[0])


def _zeros(_: int) -> int:
    return 0
