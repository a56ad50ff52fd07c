"""The tapes that are kept, which of them is tried next, and which can go.

A tape is kept if its run visited a state that nothing before had visited. Distillation is the
greedy cover: few tapes, chosen one by one, that together visit all that the corpus visits.
The power schedule is HypoFuzz's estimate in integers: a tape is tried in proportion to what its
offspring found per try, so that exhausted tapes are left alone.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from poolproof.fuzz.messages import CorpusTape
from poolproof.fuzz.state_numbers import unpack

__all__ = ["TapeSchedule", "distilled"]


def distilled(corpus: Mapping[str, CorpusTape]) -> dict[str, CorpusTape]:
    """The tapes of a greedy cover, in the corpus's own order; of equals the shorter one."""
    left = {name: set(unpack(tape.states)) for name, tape in corpus.items()}
    kept = set()
    while left:
        best = max(left, key=lambda name: (len(left[name]), -corpus[name].num_steps, name))
        covered = left.pop(best)
        if not covered:
            break
        kept.add(best)
        for states in left.values():
            states.difference_update(covered)
    return {name: tape for name, tape in corpus.items() if name in kept}


class TapeSchedule:
    """One worker's tapes, with the results of trying each."""

    def __init__(self, most_tapes: int = 500) -> None:
        self._tapes: list[bytes] = []
        self._tried: list[int] = []
        self._found: list[int] = []
        self._most_tapes = most_tapes

    def __len__(self) -> int:
        return len(self._tapes)

    def add(self, tape: bytes) -> None:
        """Keep a tape; if there is no room, the one that has paid least makes way."""
        if len(self._tapes) >= self._most_tapes:
            worst = min(range(len(self._tapes)), key=self._energy)
            for column in (self._tapes, self._tried, self._found):
                del column[worst]
        self._tapes.append(tape)
        self._tried.append(0)
        self._found.append(1)

    def choose(self, source: random.Random) -> int:
        """The place of a tape, drawn by energy."""
        energies = [self._energy(place) for place in range(len(self._tapes))]
        return source.choices(range(len(energies)), energies)[0]

    def tape(self, place: int) -> bytes:
        return self._tapes[place]

    def tried(self, place: int, num_new_states: int) -> None:
        """Note that offspring of the tape at this place found so many new states."""
        self._tried[place] += 1
        self._found[place] += num_new_states

    def _energy(self, place: int) -> float:
        return self._found[place] / (1 + self._tried[place])
