"""One free queue under test and its reference: applies a command, then reads everything.

Up to 64 blocks, the whole walk and every link are compared after each command. In larger queues
only the blocks that a command named are, and everything at each 250th command and at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
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
from poolproof.contract.observation import QueueLedger, QueueObservation
from poolproof.contract.target import Capabilities, capabilities_of
from poolproof.contract.violation import Violation, ViolationError, raise_for
from poolproof.harness.reading import read_blocks, read_count, read_neighbours
from poolproof.harness.target_call import crash
from poolproof.invariants.catalogue import broken_in_queue
from poolproof.invariants.reuse_order import popped_from_head
from poolproof.invariants.stable_ids import keeps_answered_list
from poolproof.reference.dict_queue import DictQueue
from poolproof.reference.legality import queue_misuse_of

__all__ = ["QueueSession"]

SMALL_QUEUE = 64
"""Up to this many blocks everything is read after every command."""


class QueueSession:
    """A queue and its reference, in step. Only legal commands are driven."""

    def __init__(self, target: Any, num_blocks: int, *, full_every: int | None = None) -> None:
        self.target = target
        self.can: Capabilities = capabilities_of(target)
        self.reference = DictQueue(num_blocks)
        self.num_commands = 0
        self._full_every = full_every or (1 if num_blocks <= SMALL_QUEUE else 250)
        self._touched: Sequence[int] = ()
        self._kept: list[tuple[str, list[Any], list[Any]]] = []
        self.facts: set[str] = set()
        self._apply: dict[type[Command], Callable[[Any], None]] = {
            PopLeft: self._popleft,
            PopLeftN: self._popleft_n,
            Remove: self._remove,
            Append: self._append,
            AppendN: self._append_n,
            PrependN: self._prepend_n,
        }

    def step(self, command: Command) -> Violation | None:
        """Apply a legal command; return the violation that it shows, or None."""
        self.num_commands += 1
        try:
            self._apply[type(command)](command)
            self._compare_kept()
            violation = None
            if self.num_commands % self._full_every == 0 or not self._touched_pass():
                violation = self.diagnose()
        except ViolationError as found:
            violation = found.violation
        return violation and replace(violation, command_index=self.num_commands - 1)

    step_any = step

    def is_defined(self, command: Command) -> bool:
        """Whether the target has the verb and its preconditions hold."""
        return command.verb in self.can.verbs and queue_misuse_of(self.reference, command) is None

    def first_look(self) -> Violation | None:
        """Before any command: the fresh queue must be whole."""
        try:
            return self.diagnose()
        except ViolationError as found:
            return found.violation

    def end(self) -> Violation | None:
        """After the last command, read everything once more."""
        violation = self.first_look()
        return violation and replace(violation, command_index=self.num_commands - 1)

    def _own(self, answered: str, answer: Any) -> None:
        """The answer is ours: every other list is emptied, and the rest kept to be compared."""
        if type(answer) is list:
            if self.num_commands % 2:
                answer.clear()
            else:
                self._kept = [*self._kept[-3:], (answered, answer, list(answer))]

    def _compare_kept(self) -> None:
        """Raises ViolationError when a list that was answered has changed since."""
        for answered, answer, copy in self._kept:
            if answer != copy:
                raise_for(keeps_answered_list(answered, copy, answer))

    def _touched_pass(self) -> bool:
        """Whether the counter and the links of the blocks that were named are right."""
        if read_count(self.target.num_free) != len(self.reference.order):
            return False
        if not self.can.sees("free_neighbours"):
            return True
        return all(
            (read_neighbours(self.target.free_neighbours, block) is not None)
            == (block in self.reference.order)
            for block in dict.fromkeys(self._touched)
        )

    def diagnose(self) -> Violation | None:
        """Read the whole queue; return the first invariant that is broken, or None.

        Raises ViolationError for a queue that cannot be read.
        """
        return self._judge_state(self._observe(), self.reference.ledger())

    def _judge_state(self, seen: QueueObservation, known: QueueLedger) -> Violation | None:
        """The first invariant that is broken in the state that was read."""
        return broken_in_queue(seen, known)

    def _observe(self) -> QueueObservation:
        sees_links = self.can.sees("free_neighbours")
        links = [
            read_neighbours(self.target.free_neighbours, block)
            for block in range(self.reference.num_blocks if sees_links else 0)
        ]
        seen = QueueObservation(
            num_blocks=self.reference.num_blocks,
            num_free=read_count(self.target.num_free),
            free_order=read_blocks(self.target.free_order),
            neighbours=links if sees_links else None,
        )
        if seen.num_free == len(seen.free_order) == len(self.reference.order) == 0:
            self.facts.add("the queue was emptied")
        return seen

    def _call(self, command: Command, *arguments: Any) -> Any:
        try:
            return getattr(self.target, command.verb)(*arguments)
        except (Exception, SystemExit) as error:
            raise ViolationError(crash(str(command), error)) from error

    def _popleft(self, command: PopLeft) -> None:
        answer = self._call(command)
        expected = self.reference.popleft()
        raise_for(popped_from_head(command, answer, expected))
        self._touched = (expected,)

    def _popleft_n(self, command: PopLeftN) -> None:
        answer = self._call(command, command.count)
        expected = self.reference.popleft_n(command.count)
        raise_for(popped_from_head(command, answer, expected))
        self._own(str(command), answer)
        self._touched = expected
        if command.count > 1:
            self.facts.add("several blocks were popped at once")

    def _remove(self, command: Remove) -> None:
        order = self.reference.order
        middle = command.block_id not in (next(iter(order)), next(reversed(order)))
        self.facts.add("a block left the middle" if middle else "a block left an end")
        self._call(command, command.block_id)
        self.reference.remove(command.block_id)
        self._touched = (command.block_id,)

    def _append(self, command: Append) -> None:
        if not self.reference.order:
            self.facts.add("a block joined the empty queue")
        self._call(command, command.block_id)
        self.reference.append(command.block_id)
        self._touched = (command.block_id,)

    def _append_n(self, command: AppendN) -> None:
        self._joins(command.block_ids)
        self._call_with_list(command)
        self.reference.append_n(command.block_ids)

    def _prepend_n(self, command: PrependN) -> None:
        self._joins(command.block_ids)
        self._call_with_list(command)
        self.reference.prepend_n(command.block_ids)

    def _call_with_list(self, command: AppendN | PrependN) -> None:
        """The list is the caller's: it is emptied as soon as the call is over."""
        blocks = list(command.block_ids)
        self._call(command, blocks)
        blocks.clear()

    def _joins(self, block_ids: tuple[int, ...]) -> None:
        self._touched = block_ids
        if len(block_ids) > 1:
            self.facts.add("several blocks joined at once")
        if block_ids and not self.reference.order:
            self.facts.add("a block joined the empty queue")
