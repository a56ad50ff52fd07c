"""The grammar of queue workloads: the next command, chosen from what is legal now."""

from __future__ import annotations

from collections.abc import Callable

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
from poolproof.reference.dict_queue import DictQueue

__all__ = ["QueueWorkload", "required_queue_facts"]


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
