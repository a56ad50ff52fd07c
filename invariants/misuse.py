"""MISUSE: what the profile promises about misuse holds.

Under `raises` a ValueError and nothing changed; under `ignores` the whole call does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from poolproof.contract.commands import Command
from poolproof.contract.misuse import Misuse, MisuseFailure, MisuseOutcome
from poolproof.contract.violation import Severity, Violation

__all__ = ["answers_as_promised", "unchanged_by_misuse"]


def answers_as_promised(
    command: Command,
    misuse: Misuse,
    raised: str | None,
    *,
    is_value_error: bool,
    ignores: bool,
    left_behind: Callable[[], Violation | None],
) -> Violation | None:
    """A violation of MISUSE in what misuse `raised`, in words (None: nothing), or None.

    The profile `ignores` misuse, or it promises a ValueError. What a broken promise has
    `left_behind` in the state is asked only then, and quoted.
    """
    if ignores:
        return _did_not_ignore(command, misuse, raised, left_behind) if raised is not None else None
    if raised is None:
        return _did_not_raise(command, misuse, left_behind)
    if is_value_error:
        return None
    return _raised_wrong_type(command, misuse, raised, left_behind)


def unchanged_by_misuse(
    command: Command, misuse: Misuse, difference: Violation | None
) -> Violation | None:
    """A violation of MISUSE in what differs after misuse was answered as promised, or None."""
    return difference and replace(
        difference,
        invariant="MISUSE",
        sentence=f"{command} is misuse ({misuse}) and must change nothing: {difference.sentence}",
        misuse=MisuseFailure(misuse.kind, MisuseOutcome.CHANGED),
    )


def _did_not_raise(
    command: Command, misuse: Misuse, left_behind: Callable[[], Violation | None]
) -> Violation:
    return _broken(
        misuse,
        MisuseOutcome.ACCEPTED,
        f"{command} is misuse ({misuse}) and must raise a ValueError, but it went through",
        left_behind(),
    )


def _raised_wrong_type(
    command: Command, misuse: Misuse, raised: str, left_behind: Callable[[], Violation | None]
) -> Violation:
    return _broken(
        misuse,
        MisuseOutcome.RAISED,
        f"{command} is misuse ({misuse}) and must raise a ValueError, but it raised {raised}",
        left_behind(),
    )


def _did_not_ignore(
    command: Command, misuse: Misuse, raised: str, left_behind: Callable[[], Violation | None]
) -> Violation:
    return _broken(
        misuse,
        MisuseOutcome.RAISED,
        f"{command} is misuse ({misuse}) that the profile ignores, but it raised {raised}",
        left_behind(),
    )


def _broken(
    misuse: Misuse, outcome: MisuseOutcome, sentence: str, left_behind: Violation | None
) -> Violation:
    """As bad as what the call left behind; a wrong error that changed nothing is a crash.

    They are told apart because a known finding at one severity excuses no worse one.
    """
    if left_behind is None:
        severity = Severity.CRASH
    else:
        severity = left_behind.severity
        sentence = f"{sentence} and left this: {left_behind.sentence}"
    failure = MisuseFailure(misuse.kind, outcome)
    return Violation("MISUSE", severity, sentence, misuse=failure)
