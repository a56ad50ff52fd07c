"""Every operation in every state of a small free queue, each link read after it.

A state is an order of some of the blocks; nothing is reduced. Each is built in two ways, block by
block and with the batch forms where the target has them, because a queue is pointers and the same
order may hide different ones. `shortest.py` adds what this does not cover: all sequences of
operations up to a length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from math import factorial
from typing import Any

from poolproof.contract.commands import (
    Append,
    AppendN,
    Command,
    PopLeft,
    PopLeftN,
    PrependN,
    Remove,
)
from poolproof.contract.level import Level
from poolproof.contract.profile import Profile
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.exploration.watch import Watch
from poolproof.harness.queue_session import QueueSession
from poolproof.harness.target_call import constructing, crash

__all__ = ["QueueCheck", "num_queue_states", "queue_states"]


def queue_states(num_blocks: int) -> Iterator[tuple[int, ...]]:
    """Every order of some of the blocks, the shortest first."""
    for length in range(num_blocks + 1):
        yield from permutations(range(num_blocks), length)


def num_queue_states(num_blocks: int) -> int:
    """How many those are: the sum over k of N!/(N-k)!."""
    return sum(
        factorial(num_blocks) // factorial(num_blocks - length) for length in range(num_blocks + 1)
    )


class QueueCheck:
    """Checks states of queues of `num_blocks` blocks; `num_commands` counts the operations."""

    def __init__(
        self, name: str, make: Callable[[int, bool], Any], num_blocks: int, watch: Watch
    ) -> None:
        self.num_commands = 0
        self._make = make
        self._num_blocks = num_blocks
        self._watch = watch
        self._setup = Trace(name, Level.QUEUE, Profile(), num_blocks, True, ())

    def check(self, order: Sequence[int]) -> Trace | None:
        """Every operation in the state; the trace of the first that breaks something, or None."""
        for building in (self._one_by_one(order), self._in_batches(order)):
            for command in self._operations(order):
                failed = self._run((*building, command))
                if failed is not None:
                    return failed
                self.num_commands += 1
        return None

    def _run(self, commands: Sequence[Command]) -> Trace | None:
        self._watch.begin(self._setup)
        try:
            session = QueueSession(self._make(self._num_blocks, True), self._num_blocks)
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- a target may raise anything
            violation = crash(constructing("target", self._num_blocks), error)
            return self._trace((), violation)
        broken = session.first_look()
        if broken is not None:
            return self._trace((), broken)
        done: list[Command] = []
        for command in commands:
            if not session.is_defined(command):
                return None  # an operation that the target does not have
            done.append(command)
            self._watch.announce(command)
            broken = session.step(command)
            if broken is not None:
                return self._trace(done, broken)
        return None

    def _one_by_one(self, order: Sequence[int]) -> tuple[Command, ...]:
        if list(order) == sorted(order):
            # What is queued never left; the others were taken out of the middle.
            return tuple(Remove(b) for b in range(self._num_blocks) if b not in order)
        return (*[PopLeft()] * self._num_blocks, *map(Append, order))

    def _in_batches(self, order: Sequence[int]) -> tuple[Command, ...]:
        first = order[:1]
        return (PopLeftN(self._num_blocks), AppendN(tuple(order[1:])), PrependN(tuple(first)))

    def _operations(self, order: Sequence[int]) -> Iterator[Command]:
        """All that is legal, with every list of blocks that are not queued."""
        if order:
            yield PopLeft()
        yield from map(PopLeftN, range(len(order) + 1))
        yield from map(Remove, order)
        outside = [block for block in range(self._num_blocks) if block not in order]
        yield from map(Append, outside)
        for length in range(len(outside) + 1):
            for ids in permutations(outside, length):
                yield AppendN(ids)
                yield PrependN(ids)

    def _trace(self, commands: Sequence[Command], violation: Violation) -> Trace:
        return replace(self._setup, commands=tuple(commands), violation=violation)
