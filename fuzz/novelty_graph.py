"""The states of a pool that a worker knows, and which moves lead to unknown ones.

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

from poolproof.exploration.orbit_space import OrbitSpace
from poolproof.fuzz.one_block import OneBlockRules
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
    `count`, and its number was asked for if it is not 0. Where all keys of the rules are numbered
    beforehand a place is its key; elsewhere places are numbered as they are met.
    """

    def __init__(
        self, rules: OneBlockRules, known: set[int], num_possible: int | None, source: random.Random
    ) -> None:
        self.rules = rules
        self._known = known
        self._num_possible = num_possible or 1 << 62
        self._bits = source.getrandbits
        self._space = OrbitSpace(rules.scope)
        self._patience = PATIENCE
        self._places: dict[int, int] = {}
        self._keys: list[int] = []
        num_places = rules.keys.num_keys or 0
        self._are_keys = num_places > 0
        self.number_of_place = array("Q", bytes(8 * num_places))
        self.is_known = bytearray(num_places)
        self.first = array("I", bytes(4 * num_places))
        self.count = array("H", bytes(2 * num_places))
        self.moves = array("H")
        self.next = array("I")
        self._fresh = array("H", bytes(2 * num_places))
        self._turn = array("H", bytes(2 * num_places))
        self._distance = bytearray(num_places)

    def at(self, state: bytes) -> int:
        """The place of a state."""
        return self._place(self.rules.key_of(state))

    def number(self, place: int) -> int:
        """The number of the state at a place."""
        number = self.number_of_place[place]
        if not number:
            state = self.rules.keys.state(place if self._are_keys else self._keys[place])
            number = self.number_of_place[place] = number_of(self._space.canonical(*state))
        return number

    def open(self, place: int) -> int:
        """Find out the moves of a place and where they lead; returns how many there are."""
        moves, keys = self.rules.moves(place if self._are_keys else self._keys[place])
        self.first[place] = len(self.moves)
        self.moves.extend(moves)
        self.next.extend(keys if self._are_keys else map(self._place, keys))
        count = len(moves)
        self.count[place] = self._fresh[place] = count
        self._turn[place] = self._bits(16) % count
        return count

    def _place(self, key: int) -> int:
        """The place of a key."""
        if self._are_keys:
            return key
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = len(self._keys)
            self._keys.append(key)
            for column in self._columns():
                column.append(0)
        return place

    def choose(self, place: int) -> int:
        """Which of the moves of an open place to take next."""
        first, count = self.first[place], self.count[place]
        fresh = self._fresh[place]
        if fresh:
            turn, is_known, known = self._turn[place], self.is_known, self._known
            numbers = self.number_of_place
            while fresh:
                fresh -= 1
                turn = (turn + 1) % count
                beyond = self.next[first + turn]
                if not is_known[beyond]:
                    if (numbers[beyond] or self.number(beyond)) not in known:
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
        if len(self._keys) > MOST_PLACES:
            self.rules.forget()
            self._places.clear()
            self._keys.clear()
            for column in (*self._columns(), self.moves, self.next):
                del column[:]

    def _columns(self) -> tuple[array[int] | bytearray, ...]:
        """All that has an entry for each place."""
        columns = (self.number_of_place, self.first, self.count, self._fresh, self._turn)
        return (*columns, self.is_known, self._distance)
