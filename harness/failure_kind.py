"""Which failures count as the same one while a trace is minimised or replaced by a shorter one.

The invariant decides; misuse of one verb is another promise than misuse of another.
"""

from __future__ import annotations

from collections.abc import Sequence

from poolproof.contract.commands import Command
from poolproof.contract.violation import Violation

__all__ = ["failure_kind"]


def failure_kind(violation: Violation, commands: Sequence[Command]) -> str:
    """The kind of a failure after `commands`, such as "IDX" or "MISUSE free"."""
    if violation.invariant == "MISUSE" and commands:
        return f"MISUSE {commands[-1].verb}"
    return violation.invariant
