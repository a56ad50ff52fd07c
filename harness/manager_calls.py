"""What all manager commands share: a target, its model, its shadow memory, and how it is called.

The commands themselves are in `manager_admissions.py`, `manager_growth.py` and
`manager_endings.py`, each a layer on this; `manager_session.py` checks the state after a command.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.manager_target import MANAGER_METHODS, manager_capabilities_of
from poolproof.contract.target import Capabilities
from poolproof.contract.violation import Violation, ViolationError, raise_for
from poolproof.harness.manager_facts import ManagerFacts
from poolproof.harness.manager_memory import ManagerMemory
from poolproof.harness.manager_tables import TableReader
from poolproof.harness.target_call import crash
from poolproof.invariants.legal_calls import meaningless_answer
from poolproof.reference.sequence_model import SequenceModel, SequenceState

__all__ = ["ManagerCalls", "Pairs", "is_later"]

Pairs = list[tuple[int, int]]


def is_later(answer: Any) -> bool:
    """Whether a command was put off; an answer that compares in its own way is not asked."""
    return isinstance(answer, str) and answer == "later"


class ManagerCalls:
    """A manager, its model and its shadow memory.

    After a command `refused` tells whether it had to change nothing, and `answer` is what the
    target answered last.
    """

    def __init__(self, target: Any, model: SequenceModel) -> None:
        self.target = target
        self.model = model
        self.can: Capabilities = manager_capabilities_of(target)
        self.tables = TableReader(target, model, self.report)
        self.memory = ManagerMemory(target, model, self.can, self.report)
        self.facts = ManagerFacts()
        self.remarks: set[str] = set()
        self.refused = False
        self.answer: Any = None
        self._merges = model.profile.tables == "merged"
        self.takes_chunks = "schedule" in self.can.verbs
        self.apply: dict[type[Command], Callable[[Any], None]] = {}
        self._methods = {verb: getattr(target, MANAGER_METHODS[verb]) for verb in self.can.verbs}

    def report(self, violation: Violation | None) -> None:
        """What was found wrong, where the model could follow nevertheless: raises it.

        A session that looks for one invariant passes over the others here. None is nothing wrong.
        """
        raise_for(violation)

    def call(self, command: Command, *arguments: Any, **named: Any) -> Any:
        """Call the target with arguments that are legal. Raises ViolationError if it raises.

        A list that was passed, as the last argument, is emptied after the call, since it is the
        caller's.
        """
        try:
            answer = self._methods[command.verb](*arguments, **named)
        except (Exception, SystemExit) as error:
            raise ViolationError(crash(str(command), error)) from error
        given = arguments[-1] if arguments else None
        if type(given) is list and given is not answer:
            given.clear()
        self.answer = answer
        return answer

    def publish(self, sequence: SequenceState) -> None:
        """Full blocks get their keys; where duplicates are merged, the table may follow."""
        self.model.publish(sequence)
        if self._merges and sequence.place == "device":
            self._merge(sequence)

    def _merge(self, sequence: SequenceState) -> None:
        """A table may name another carrier of a full block's key from now on."""
        tables = self.tables.shown(sequence)
        self.tables.judge_merge(sequence, tables)
        if tables != sequence.tables:
            self.facts.add("a duplicate was merged")
            self.model.merge(sequence, tables)
            self.memory.has_changed = True

    def pairs(self, command: Command, answer: Any) -> Pairs:
        """The copies that an answer orders, as plain pairs. Raises ViolationError for others."""
        if answer is None:
            return []
        try:
            pairs = [(index(source), index(destination)) for source, destination in answer]
        except (TypeError, ValueError) as error:
            expected = 'a list of (source, destination) blocks, or "later"'
            raise ViolationError(meaningless_answer(command, answer, expected)) from error
        if type(answer) is list:
            answer.clear()  # it is ours, and nothing of the target may change with it
        return pairs
