"""How a manager under test is called, and how its answers are read.

The commands themselves are judged in `manager_admissions.py`, `manager_growth.py` and
`manager_endings.py`; `manager_session.py` checks the state after a command.
"""

from __future__ import annotations

from operator import index
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.manager_target import MANAGER_METHODS
from poolproof.contract.target import Capabilities
from poolproof.contract.violation import ViolationError
from poolproof.harness.target_call import crash
from poolproof.invariants.legal_calls import meaningless_answer

__all__ = ["HeadCopies", "ManagerCalls", "Pairs", "is_later"]

Pairs = list[tuple[int, int]]

HeadCopies = list[tuple[int, int, int]]
"""(source, destination, number of tokens): the head of one block is copied to that of another."""


def is_later(answer: Any) -> bool:
    """Whether a command was put off; an answer's own `__eq__` is not called."""
    return isinstance(answer, str) and answer == "later"


class ManagerCalls:
    """A manager's methods, by the verbs of the contract.

    `answer` is the target's last answer, `refused` whether a judge took it for a refusal, so that
    the command must change nothing.
    """

    def __init__(self, target: Any, can: Capabilities) -> None:
        self.refused = False
        self.answer: Any = None
        self._methods = {verb: getattr(target, MANAGER_METHODS[verb]) for verb in can.verbs}

    def call(self, command: Command, *arguments: Any, **named: Any) -> Any:
        """Call the target with arguments that are legal. Raises ViolationError if it raises.

        A list that was passed, as the last argument or by name, is emptied after the call, since it
        is the caller's.
        """
        try:
            answer = self._methods[command.verb](*arguments, **named)
        except (Exception, SystemExit) as error:
            raise ViolationError(crash(str(command), error)) from error
        for given in (*arguments[-1:], *named.values()):
            if type(given) is list and given is not answer:
                given.clear()
        self.answer = answer
        return answer

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

    def admission(self, command: Command, answer: Any, most_tokens: int) -> tuple[Any, HeadCopies]:
        """What an admission found, and the copies that it orders; contract 1 knows none.

        A copy is of at most `most_tokens`, the slots of a block. Raises ViolationError for an
        answer that is neither form.
        """
        if not isinstance(answer, tuple):
            return answer, []
        try:
            found, copies = answer
            heads = [(index(a), index(b), index(n)) for a, b, n in copies or ()]
            is_whole = all(0 <= count <= most_tokens for _, _, count in heads)
        except (TypeError, ValueError):
            is_whole = False
        if not is_whole:
            expected = (
                "(num_cached, copies), the copies a list of (source, destination, num_tokens) with "
                f"up to {most_tokens} tokens each"
            )
            raise ViolationError(meaningless_answer(command, answer, expected))
        if type(copies) is list:
            copies.clear()  # as in `pairs`
        return found, heads
