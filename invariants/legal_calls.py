"""CRASH: legal calls return; nothing raises, exits, hangs or exceeds its limits.

What a call raises is worded by `harness/target_call.py`, and what ends its process by
`harness/lost_run.py`: they know whose stack frames those are. Here are answers that mean
nothing, and states that differ when they are read again.
"""

from __future__ import annotations

from poolproof.contract.outside import shown
from poolproof.contract.violation import Severity, Violation

__all__ = ["meaningless_answer", "reads_alike"]


def meaningless_answer(call: object, answer: object, expected: str) -> Violation:
    """The violation that a call, in words, did not answer in the form `expected`."""
    return Violation(
        "CRASH", Severity.CRASH, f"{call} answered {shown(answer)}; it must answer {expected}"
    )


def reads_alike(
    thing: str, again: Violation | None, *, after: object = None, may_change: bool = False
) -> Violation | None:
    """What is wrong in a state of which a first reading said that something is, or None.

    `again` is what the second reading found. If it found nothing, the two differ, which is a
    violation of CRASH unless the target `may_change` by itself. `after` is the last command.
    """
    if again is not None or may_change:
        return again
    when = "" if after is None else f"after {after}, "
    return Violation(
        "CRASH", Severity.CRASH, f"{when}two reads of the unchanged {thing} show different states"
    )
