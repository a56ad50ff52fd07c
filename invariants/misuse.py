"""MISUSE: what the profile promises about misuse holds.

Under `raises` a ValueError and nothing changed; under `ignores` the whole call does nothing.
"""

from __future__ import annotations

from dataclasses import replace

from poolproof.contract.commands import Command
from poolproof.contract.violation import Severity, Violation

__all__ = ["changed_by_misuse", "did_not_ignore", "did_not_raise", "raised_wrong_type"]


def did_not_raise(command: Command, reason: str, left_behind: Violation | None) -> Violation:
    """Misuse passed without the promised ValueError; what it left behind is quoted."""
    damage = f" and left this: {left_behind.sentence}" if left_behind else ""
    return Violation(
        "MISUSE",
        left_behind.severity if left_behind else Severity.CRASH,
        f"{command} is misuse ({reason}) and must raise a ValueError, but it went through{damage}",
    )


def raised_wrong_type(command: Command, reason: str, raised: str) -> Violation:
    """Misuse raised something else than the promised ValueError."""
    return Violation(
        "MISUSE",
        Severity.CRASH,
        f"{command} is misuse ({reason}) and must raise a ValueError, but it raised {raised}",
    )


def did_not_ignore(command: Command, reason: str, raised: str) -> Violation:
    """Misuse raised although the profile says that it is ignored."""
    return Violation(
        "MISUSE",
        Severity.CRASH,
        f"{command} is misuse ({reason}) that the profile ignores, but it raised {raised}",
    )


def changed_by_misuse(command: Command, reason: str, difference: Violation) -> Violation:
    """Misuse was answered as promised, but the state changed."""
    return replace(
        difference,
        invariant="MISUSE",
        sentence=f"{command} is misuse ({reason}) and must change nothing: {difference.sentence}",
    )
