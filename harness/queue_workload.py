"""The grammar of queue workloads: the next command, chosen from what is legal now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from poolproof.contract.commands import (
    Append,
    AppendN,
    Command,
    PopLeft,
    PopLeftN,
    PrependN,
    Remove,
)
from poolproof.contract.target import Capabilities
from poolproof.harness.choices import Choices
from poolproof.harness.production import MOST_SWEPT, size_near_a_border
from poolproof.reference.dict_queue import DictQueue

__all__ = ["ProductionQueueWorkload", "QueueWorkload", "required_queue_facts"]


def required_queue_facts(can: Capabilities) -> list[str]:
    """The facts that a queue campaign must reach."""
    facts = ["the queue was emptied", "a block left the middle", "a block left an end",
             "a block joined the empty queue"]  # fmt: skip
    if "popleft_n" in can.verbs:
        facts.append("several blocks were popped at once")
    if "append_n" in can.verbs or "prepend_n" in can.verbs:
        facts.append("several blocks joined at once")
    return facts


class QueueWorkload:
    """Chooses commands for one queue; `outside` are the blocks that are not queued."""

    def __init__(self, choices: Choices, queue: DictQueue, can: Capabilities) -> None:
        self.below = choices.below
        self.queue = queue
        self.can = can
        methods: dict[str, Callable[[], Command | None]] = {
            "popleft": self.popleft,
            "popleft_n": self.popleft_n,
            "remove": self.remove,
            "append": self.append,
            "append_n": self.append_n,
            "prepend_n": self.prepend_n,
        }
        self.verbs = {verb: method for verb, method in methods.items() if verb in can.verbs}
        self._urn = list(self.verbs.values())

    def bias(self) -> None:
        """Sometimes one verb dominates a run."""
        if self.below(3) == 0:
            self._urn += [self._urn[self.below(len(self.verbs))]] * 12

    def next(self) -> Command | None:
        """The next legal command; None if twenty draws found none."""
        for _ in range(20):
            command = self._urn[self.below(len(self._urn))]()
            if command is not None:
                return command
        return None

    def popleft(self) -> Command | None:
        return PopLeft() if self.queue.order else None

    def popleft_n(self) -> Command:
        """Up to three, sometimes all."""
        free = len(self.queue.order)
        return PopLeftN(free if self.below(4) == 0 else self.below(min(free, 3) + 1))

    def remove(self) -> Command | None:
        order = list(self.queue.order)
        return Remove(order[self.below(len(order))]) if order else None

    def append(self) -> Command | None:
        outside = self._outside()
        return Append(outside[self.below(len(outside))]) if outside else None

    def append_n(self) -> Command:
        return AppendN(self._some_outside())

    def prepend_n(self) -> Command:
        return PrependN(self._some_outside())

    def _outside(self) -> list[int]:
        return [b for b in range(self.queue.num_blocks) if b not in self.queue.order]

    def _some_outside(self) -> tuple[int, ...]:
        """Some blocks from outside in any order, sometimes none, sometimes all."""
        outside = self._outside()
        count = len(outside) if self.below(4) == 0 else self.below(min(len(outside), 3) + 1)
        return tuple(outside.pop(self.below(len(outside))) for _ in range(count))


class ProductionQueueWorkload(QueueWorkload):
    """The same commands with every count in turn, and lists of up to the whole queue.

    `_gone` are the blocks that are not queued, so that none has to be looked for.
    """

    def __init__(self, choices: Choices, queue: DictQueue, can: Capabilities) -> None:
        super().__init__(choices, queue, can)
        self._choices = choices
        self._gone: list[int] = []
        self._episode: Iterator[Command] = iter(())
        self._next_count = 1 + self.below(min(queue.num_blocks, MOST_SWEPT))

    def bias(self) -> None:
        """The queue is emptied and filled again first."""
        self._episode = self._all_of_it()

    def next(self) -> Command:
        """The next legal command."""
        while True:
            for command in self._episode:
                return command
            kind = self.below(32)
            self._episode = (
                self._all_of_it() if kind == 0
                else self._each_count() if kind < 8
                else self._one_by_one()
            )  # fmt: skip

    def _all_of_it(self) -> Iterator[Command]:
        yield from self._pop(len(self.queue.order))
        yield from self._join(len(self._gone))

    def _each_count(self) -> Iterator[Command]:
        """The next count, out and in again."""
        count = self._next_count
        self._next_count = 1 if count >= min(self.queue.num_blocks, MOST_SWEPT) else count + 1
        yield from self._join(max(0, count - len(self.queue.order)))
        yield from self._pop(count)
        yield from self._join(count)

    def _one_by_one(self) -> Iterator[Command]:
        """Single blocks from the head, the middle and the end, and back."""
        for _ in range(size_near_a_border(self._choices, 40)):
            block = self.below(self.queue.num_blocks)
            if block in self.queue.order:
                yield self._left(Remove(block), [block])
        yield from self._pop(self.below(4))
        yield from self._join(self.below(len(self._gone) + 1) if self.below(4) == 0 else 8)

    def _pop(self, count: int) -> Iterator[Command]:
        count = min(count, len(self.queue.order))
        heads = list(islice(self.queue.order, count))
        if "popleft_n" in self.can.verbs and self.below(4):
            yield self._left(PopLeftN(count), heads)
            return
        for block in heads:
            yield self._left(PopLeft(), [block])

    def _left(self, command: Command, blocks: list[int]) -> Command:
        self._gone += blocks
        return command

    def _join(self, count: int) -> Iterator[Command]:
        """Some blocks come back: in one call as a rule, in any order, rising or falling too."""
        blocks = [self._drawn() for _ in range(min(count, len(self._gone)))]
        order = self.below(8)
        if order < 2:
            blocks.sort(reverse=order == 1)
        lists: list[Callable[[tuple[int, ...]], Command]] = []
        lists += [AppendN] * ("append_n" in self.can.verbs)
        lists += [PrependN] * ("prepend_n" in self.can.verbs)
        if blocks and lists and self.below(4):
            yield lists[self.below(len(lists))](tuple(blocks))
            return
        for block in blocks:
            yield Append(block)

    def _drawn(self) -> int:
        place = self.below(len(self._gone))
        self._gone[place], self._gone[-1] = self._gone[-1], self._gone[place]
        return self._gone.pop()
