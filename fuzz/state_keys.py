"""A number for each state of a pool whose block ids are erased, found by one addition.

A key is the number of the queue plus that of the held blocks, so that where a move leads is a sum
of two numbers that are known beforehand. Which states the moves reach is not known here.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import combinations_with_replacement, product
from math import comb

__all__ = ["StateKeys"]

_HELD_BITS = 32


class StateKeys:
    """Keys of states: `num_blocks` blocks, free ones by label and held ones by code.

    The queue is the labels of the free blocks, head first, each below `num_labels`; the held blocks
    are their codes, ascending, out of `codes`. Of `most` states or fewer the keys are all numbers
    below `num_keys`; of more, `num_keys` is None, and numbers are given out on demand.
    """

    def __init__(self, num_blocks: int, num_labels: int, codes: bytes, most: int) -> None:
        self._num_blocks = num_blocks
        self._queues: list[bytes] = []
        self._helds: list[bytes] = []
        self._number_of_queue: dict[bytes, int] = {}
        self._number_of_held: dict[bytes, int] = {}
        # How many ways there are to hold so many blocks.
        ways = [comb(held + len(codes) - 1, held) for held in range(num_blocks + 1)]
        count = sum(num_labels**free * ways[num_blocks - free] for free in range(num_blocks + 1))
        self.num_keys = count if count <= most else None
        if self.num_keys is not None:
            self._number_all(range(num_labels), codes, ways)

    def of(self, queue: bytes, held: bytes) -> int:
        """The key of a state."""
        return self.queue(queue) + self.held(held)

    def queue(self, queue: bytes) -> int:
        """The number of a queue."""
        number = self._number_of_queue.get(queue)
        if number is None:
            assert self.num_keys is None, f"{queue!r} is outside of the bounds"
            number = self._number_of_queue[queue] = len(self._queues) << _HELD_BITS
            self._queues.append(queue)
        return number

    def held(self, held: bytes) -> int:
        """The number of held blocks."""
        number = self._number_of_held.get(held)
        if number is None:
            assert self.num_keys is None, f"{held!r} is outside of the bounds"
            number = self._number_of_held[held] = len(self._helds)
            self._helds.append(held)
        return number

    def state(self, key: int) -> tuple[bytes, bytes]:
        """The queue and the held blocks behind a key."""
        if self.num_keys is None:
            return self._queues[key >> _HELD_BITS], self._helds[key & ((1 << _HELD_BITS) - 1)]
        place = bisect_right(self._begins, key) - 1
        queue = self._queues[place]
        first = self._first_held[self._num_blocks - len(queue)]
        return queue, self._helds[first + key - self._begins[place]]

    def clear(self) -> None:
        """Forget the numbers that were given out on demand: keys are given anew."""
        if self.num_keys is None:
            for numbered in (self._queues, self._helds):
                numbered.clear()
            for numbers in (self._number_of_queue, self._number_of_held):
                numbers.clear()

    def _number_all(self, labels: range, codes: bytes, ways: list[int]) -> None:
        """Number held blocks within their count, and queues so far apart that all of those fit."""
        self._first_held: list[int] = []
        for count in range(self._num_blocks + 1):
            self._first_held.append(len(self._helds))
            for number, held in enumerate(combinations_with_replacement(codes, count)):
                self._number_of_held[bytes(held)] = number
                self._helds.append(bytes(held))
        self._begins: list[int] = []
        begin = 0
        for length in range(self._num_blocks + 1):
            for queue in product(labels, repeat=length):
                self._number_of_queue[bytes(queue)] = begin
                self._queues.append(bytes(queue))
                self._begins.append(begin)
                begin += ways[self._num_blocks - length]
