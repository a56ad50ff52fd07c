"""Misuse of an allocator: calls whose outcome only the profile's row `misuse` promises.

An accepted finding is compared by what was wrong and what came of it: naming a block that does not
exist is different misuse from naming one that nobody holds, though one command with one block can
show either; and a call that raises the wrong error does less harm than one that goes through.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["Misuse", "MisuseFailure", "MisuseKind", "MisuseOutcome"]


class MisuseKind(enum.Enum):
    """What is wrong with a call."""

    NEGATIVE_COUNT = "negative count"
    NEGATIVE_BLOCK = "negative block"
    BLOCK_BEYOND_THE_POOL = "block beyond the pool"
    NULL_BLOCK = "null block"
    BLOCK_NOT_HELD = "block not held"
    FREED_TOO_OFTEN = "freed more often than held"
    REPEATED_BLOCK = "repeated block"
    UNEQUAL_LISTS = "unequal lists"
    TOO_FEW_QUEUED = "too few blocks queued"
    BLOCK_NOT_QUEUED = "block not queued"
    BLOCK_QUEUED_ALREADY = "block queued already"
    NO_COMMAND_OF_A_QUEUE = "no command of a queue"


@dataclass(frozen=True, slots=True)
class Misuse:
    """Why a command is misuse in the state at hand: its kind, and the reason in words."""

    kind: MisuseKind
    words: str

    def __str__(self) -> str:
        return self.words


class MisuseOutcome(enum.Enum):
    """How a target broke the promise about misuse."""

    RAISED = "raised another error"
    ACCEPTED = "accepted"
    CHANGED = "changed the state"
    LOST = "did not return"


@dataclass(frozen=True, slots=True)
class MisuseFailure:
    """A broken promise about misuse. Its text stands in traces, certificates and known files."""

    kind: MisuseKind
    outcome: MisuseOutcome

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.outcome.value}"

    @classmethod
    def parse(cls, text: str) -> MisuseFailure:
        """The failure that `str` wrote. Raises ValueError."""
        kind, _, outcome = text.partition(": ")
        return cls(MisuseKind(kind), MisuseOutcome(outcome))
