"""The three answers to "does it fit?"."""

from __future__ import annotations

from enum import Enum


class AllocStatus(Enum):
    """Now, later when others have left, or never. Only the first is true.

    NEVER is for the scheduler to give up: what waits for room that cannot come blocks all that
    wait behind it.
    """

    OK = "ok"
    LATER = "later"
    NEVER = "never"

    def __bool__(self) -> bool:
        return self is AllocStatus.OK
