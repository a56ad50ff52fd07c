"""Where a workload's decisions come from: one question, several sources of answers.

A workload asks for integers below a bound. The answers come from a seeded generator (fast random
search), a byte tape (campaigns, replay) or an enumeration (breadth-first search).
Hypothesis answers in `stateful_tests`, since only that package needs it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Protocol

__all__ = ["Choices", "EnumeratedChoices", "SeededChoices", "TapeChoices"]


class Choices(Protocol):
    """Answers questions with integers."""

    def below(self, bound: int) -> int:
        """An integer from 0 to `bound` - 1; `bound` is at least 1."""


class SeededChoices:
    """Answers from a seeded generator; the same seed gives the same answers everywhere.

    `randrange` costs ten times as much as these bits; the bias, below bound / 2**32, does not
    matter for choosing commands. A closure, because this is the hottest call of a campaign.
    """

    def __init__(self, seed: int | str) -> None:
        bits = random.Random(seed).getrandbits

        def below(bound: int) -> int:
            return bits(32) % bound

        self.below = below


class TapeChoices:
    """Answers from a byte string: two bytes per question, and zeros after its end."""

    def __init__(self, tape: bytes) -> None:
        self._tape = tape
        self._position = 0

    @property
    def exhausted(self) -> bool:
        """Whether every byte was used."""
        return self._position >= len(self._tape)

    def below(self, bound: int) -> int:
        assert bound >= 1
        pair = self._tape[self._position : self._position + 2]
        self._position += 2
        return int.from_bytes(pair.ljust(2, b"\0"), "big") % bound


class EnumeratedChoices:
    """Runs through all answers that a function can ask for, in lexicographic order.

    >>> choices = EnumeratedChoices()
    >>> [(choices.below(2), choices.below(2)) for _ in choices]
    [(0, 0), (0, 1), (1, 0), (1, 1)]
    """

    def __init__(self) -> None:
        self._answers: list[int] = []
        self._bounds: list[int] = []
        self._position = 0

    def __iter__(self) -> Iterator[None]:
        while True:
            self._position = 0
            yield None
            del self._answers[self._position :], self._bounds[self._position :]
            while self._answers and self._answers[-1] + 1 == self._bounds[-1]:
                self._answers.pop()
                self._bounds.pop()
            if not self._answers:
                return
            self._answers[-1] += 1

    def below(self, bound: int) -> int:
        assert bound >= 1
        if self._position == len(self._answers):
            self._answers.append(0)
            self._bounds.append(bound)
        assert self._bounds[self._position] == bound, "the function is not deterministic"
        self._position += 1
        return self._answers[self._position - 1]
