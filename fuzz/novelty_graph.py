"""The states of a pool that a worker knows, and which move leads on to one that nobody knows.

A step takes a move to an unknown state where there is one beside it. Elsewhere it follows estimates
of how far the nearest such place is, each corrected by its neighbours whenever it is used: Korf's
real-time search (LRTA*, "Real-time heuristic search", 1990), which needs no look further ahead
than one move. Once nothing is unknown, or nothing new was met for long, each state takes its moves
in turn, so that all get their share.

Columns of numbers, and not an object for each state: a hundred thousand objects, met at random,
cost more time in the processor's cache than all that is computed here.
"""

from __future__ import annotations

import random
from array import array

from poolproof.explore.orbit_space import OrbitSpace
from poolproof.fuzz.one_block import Rules
from poolproof.fuzz.state_numbers import number_of

__all__ = ["NoveltyGraph"]

MOST_PLACES = 400_000
"""Some 150 MB; a larger scope's graph is forgotten and built anew, what is known stays known."""

PATIENCE = 4_000
"""After so many steps without a new state the search rests for as many."""

_FARTHEST = 255


class NoveltyGraph:
    """The part of the state space that one worker has seen; a place is a state in it.

    `known` are the numbers of states, `num_possible` how many there can be. `is_known`,
    `number_of_place`, `first` and `count` have an entry for each place: the moves of an open place
    stand in `moves` from `first` on, and where they lead in `next`. A place is open if it has a
    `count`.
    """

    def __init__(
        self, rules: Rules, known: set[int], num_possible: int | None, source: random.Random
    ) -> None:
        self.rules = rules
        self._known = known
        self._num_possible = num_possible or 1 << 62
        self._bits = source.getrandbits
        self._space = OrbitSpace(rules.scope)
        self._patience = PATIENCE
        self._places: dict[bytes, int] = {}
        self._states: list[bytes] = []
        self.number_of_place = array("Q")
        self.is_known = bytearray()
        self.first = array("L")
        self.count = array("H")
        self.moves = array("H")
        self.next = array("L")
        self._fresh = array("H")
        self._turn = array("H")
        self._distance = bytearray()

    def at(self, state: bytes) -> int:
        """The place of a state."""
        place = self._places.get(state)
        if place is None:
            queue = state.rstrip(self.rules.codes)
            place = self._places[state] = len(self._states)
            self._states.append(state)
            number = number_of(self._space.canonical(queue, state[len(queue) :]))
            self.number_of_place.append(number)
            for column in (self.first, self.count, self._fresh, self._turn):
                column.append(0)
            self.is_known.append(0)
            self._distance.append(0)
        return place

    def open(self, place: int) -> int:
        """Find out the moves of a place and where they lead; returns how many there are."""
        moves, successors = self.rules.moves(self._states[place])
        self.first[place] = len(self.moves)
        self.moves.extend(moves)
        places, at = self._places, self.at
        self.next.extend(
            [at(state) if (beyond := places.get(state)) is None else beyond for state in successors]
        )
        count = len(moves)
        self.count[place] = self._fresh[place] = count
        self._turn[place] = self._bits(16) % count
        return count

    def choose(self, place: int) -> int:
        """Which of the moves of an open place to take next."""
        first, count = self.first[place], self.count[place]
        fresh = self._fresh[place]
        if fresh:
            turn, is_known, known = self._turn[place], self.is_known, self._known
            while fresh:
                fresh -= 1
                turn = (turn + 1) % count
                beyond = self.next[first + turn]
                if not is_known[beyond]:
                    if self.number_of_place[beyond] not in known:
                        self._fresh[place], self._turn[place] = fresh, turn
                        self._patience = PATIENCE
                        return turn
                    is_known[beyond] = 1
            self._fresh[place] = 0
        self._patience -= 1
        if self._patience > 0 and len(self._known) < self._num_possible:
            beyond_all = self.next[first : first + count]
            distances = bytes(map(self._distance.__getitem__, beyond_all))
            nearest = min(distances)
            self._distance[place] = min(nearest + 1, _FARTHEST)
            return distances.index(nearest)
        if self._patience < -PATIENCE:
            self._patience = PATIENCE
        self._turn[place] = turn = (self._turn[place] + 1) % count
        return turn

    @property
    def is_complete(self) -> bool:
        """Whether every state that there can be is known."""
        return len(self._known) >= self._num_possible

    def tidy(self) -> None:
        """Between two runs: forget a graph that has grown too large."""
        if len(self._states) > MOST_PLACES:
            self._places.clear()
            self._states.clear()
            for column in (self.number_of_place, self.first, self.moves, self.next):
                del column[:]
            for column in (self.count, self._fresh, self._turn):
                del column[:]
            self.is_known.clear()
            self._distance.clear()
