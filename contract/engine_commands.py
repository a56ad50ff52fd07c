"""The commands of the engine level: what users, the simulated worker and time do to an engine.

Requests are named by small numbers that the workload gives out and never uses again. A `PlanStep`
asks the engine for its next step; an `AnswerStep` is what the worker has computed for the oldest
step that was not answered yet. Everything that is left to chance stands in the command, so that a
trace is the whole history.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from poolproof.contract.commands import Command
from poolproof.contract.content import TokenChain

__all__ = [
    "STOP_TOKEN",
    "AnswerStep",
    "Arrive",
    "Cancel",
    "EngineCommand",
    "PlanStep",
    "Repeat",
    "RunStep",
    "Submit",
]

STOP_TOKEN = 0
"""A request ends where this token is sampled, and its user is given it; no prompt has it."""


@dataclass(frozen=True, slots=True)
class EngineCommand(Command):
    """Base of the commands that only an engine has."""


@dataclass(frozen=True, slots=True)
class Submit(EngineCommand):
    """A request comes: `chain` is its prompt, after `max_new_tokens` sampled tokens it has ended.

    Of two requests the one with the smaller `priority` goes first, where the policy has priorities.
    """

    verb: ClassVar[str] = "submit"
    request_id: int
    chain: TokenChain
    max_new_tokens: int
    priority: int


@dataclass(frozen=True, slots=True)
class Cancel(EngineCommand):
    """The user of a request has gone: it ends in whatever state it is."""

    verb: ClassVar[str] = "cancel"
    request_id: int


@dataclass(frozen=True, slots=True)
class StepCommand(EngineCommand):
    """Base of what plans or answers steps: one and the same operation of an engine."""

    @property
    def operation(self) -> str:
        return "step"


@dataclass(frozen=True, slots=True)
class PlanStep(StepCommand):
    """The engine decides what its next step computes."""

    verb: ClassVar[str] = "plan"


@dataclass(frozen=True, slots=True)
class AnswerStep(StepCommand):
    """The oldest step in flight is computed; its results reach the engine.

    Of the drafts of each request the first `num_accepted`, at most, are right; then comes the
    sampled `token`. For the next step each request that sampled is given `num_drafts` drafts.
    """

    verb: ClassVar[str] = "answer"
    token: int
    num_accepted: int
    num_drafts: int


@dataclass(frozen=True, slots=True)
class RunStep(StepCommand):
    """A step is planned and the oldest in flight is answered, with nothing in between."""

    verb: ClassVar[str] = "run"
    token: int
    num_accepted: int
    num_drafts: int

    @property
    def answer(self) -> AnswerStep:
        """What the worker answers."""
        return AnswerStep(self.token, self.num_accepted, self.num_drafts)


@dataclass(frozen=True, slots=True)
class Arrive(EngineCommand):
    """The transfer in flight with that place in the order of their beginning ends.

    With `is_lost` 1 it has failed, after its first `num_moved` blocks had been moved.
    """

    verb: ClassVar[str] = "arrive"
    place: int
    is_lost: int
    num_moved: int = 0


@dataclass(frozen=True, slots=True)
class Repeat(EngineCommand):
    """The engine is told again, in the same words, of a transfer that has ended.

    It is the one that ended so many before the last.
    """

    verb: ClassVar[str] = "repeat"
    before_last: int
