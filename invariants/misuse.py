"""MISUSE: what the profile promises about misuse holds.

Under `raises` a ValueError and nothing changed; under `ignores` the whole call does nothing.
"""

from __future__ import annotations

from dataclasses import replace

from poolproof.contract.commands import Command
from poolproof.contract.misuse import Misuse, MisuseFailure, MisuseOutcome
from poolproof.contract.violation import Severity, Violation

__all__ = ["changed_by_misuse", "did_not_ignore", "did_not_raise", "raised_wrong_type"]


def did_not_raise(command: Command, misuse: Misuse, left_behind: Violation | None) -> Violation:
    """Misuse passed without the promised ValueError; what it left behind is quoted."""
    return _broken(
        misuse,
        MisuseOutcome.ACCEPTED,
        f"{command} is misuse ({misuse}) and must raise a ValueError, but it went through",
        left_behind,
    )


def raised_wrong_type(
    command: Command, misuse: Misuse, raised: str, left_behind: Violation | None = None
) -> Violation:
    """Misuse raised something else than the promised ValueError."""
    return _broken(
        misuse,
        MisuseOutcome.RAISED,
        f"{command} is misuse ({misuse}) and must raise a ValueError, but it raised {raised}",
        left_behind,
    )


def did_not_ignore(
    command: Command, misuse: Misuse, raised: str, left_behind: Violation | None = None
) -> Violation:
    """Misuse raised although the profile says that it is ignored."""
    return _broken(
        misuse,
        MisuseOutcome.RAISED,
        f"{command} is misuse ({misuse}) that the profile ignores, but it raised {raised}",
        left_behind,
    )


def changed_by_misuse(command: Command, misuse: Misuse, difference: Violation) -> Violation:
    """Misuse was answered as promised, but the state changed."""
    return replace(
        difference,
        invariant="MISUSE",
        sentence=f"{command} is misuse ({misuse}) and must change nothing: {difference.sentence}",
        misuse=MisuseFailure(misuse.kind, MisuseOutcome.CHANGED),
    )


def _broken(
    misuse: Misuse, outcome: MisuseOutcome, sentence: str, left_behind: Violation | None
) -> Violation:
    """As bad as what the call left behind: who accepts a wrong error accepts no wrong data."""
    if left_behind is None:
        severity = Severity.CRASH
    else:
        severity = left_behind.severity
        sentence = f"{sentence} and left this: {left_behind.sentence}"
    failure = MisuseFailure(misuse.kind, outcome)
    return Violation("MISUSE", severity, sentence, misuse=failure)
