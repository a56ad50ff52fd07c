"""What a check reports: which invariant broke, how bad it is, and the sentence a person reads.

Severities are listed worst first, the order of `--fail-on` and the certificate. The package
`invariants` says what each invariant demands.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from poolproof.contract.misuse import MisuseFailure
from poolproof.contract.outside import cut

__all__ = ["Severity", "Violation", "ViolationError", "raise_for"]

_MOST_OF_A_NAME = 300
_MOST_FRAMES = 20


class Severity(enum.Enum):
    """How much harm a violation does to the people behind the requests, worst first."""

    WRONG_DATA_OF_ANOTHER = "wrong-data-of-another"
    WRONG_DATA_OF_ONES_OWN = "wrong-data-of-ones-own"
    STALL = "stall"
    CRASH = "crash"
    LEAK = "leak"
    FALSE_REFUSAL = "false-refusal"
    LOST_HIT = "lost-hit"
    ORDER = "order"
    EVENTS = "events"
    OTHER_BITS = "other-bits"
    BOOKKEEPING = "bookkeeping"

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise, found after one command.

    `command_index` counts from 0 and names the command after which it was seen; `frames` are the
    target's own stack frames when it raised. `misuse` is there if that command was misuse.
    """

    invariant: str
    severity: Severity
    sentence: str
    blocks: tuple[int, ...] = ()
    command_index: int = -1
    frames: tuple[str, ...] = ()
    misuse: MisuseFailure | None = None

    def __post_init__(self) -> None:
        # Names, answers and messages of a target stand in both, and go from here into every file.
        object.__setattr__(self, "invariant", cut(self.invariant, _MOST_OF_A_NAME))
        object.__setattr__(self, "sentence", cut(self.sentence))
        frames = tuple(cut(frame, _MOST_OF_A_NAME) for frame in self.frames[:_MOST_FRAMES])
        object.__setattr__(self, "frames", frames)


class ViolationError(Exception):
    """Carries a violation from the check that saw it to the driver that reports it."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(f"{violation.invariant}: {violation.sentence}")
        self.violation = violation


def raise_for(violation: Violation | None) -> None:
    """Raises ViolationError for a violation, and does nothing for None."""
    if violation is not None:
        raise ViolationError(violation)
