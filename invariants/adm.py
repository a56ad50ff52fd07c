"""ADM: admission is exact in both directions; nothing fails after OK, nothing that fits is refused.

At pool level admission is the comparison with num_free(); the manager's formulas are checked at
manager level.
"""

from __future__ import annotations

from poolproof.contract.outside import shown
from poolproof.contract.violation import Severity, Violation
from poolproof.invariants.wording import number_of_blocks

__all__ = ["accepted_too_much", "refused_what_fits"]


def refused_what_fits(count: int, num_free: int, reason: str) -> Violation:
    """An allocation that had to succeed was refused."""
    return Violation(
        "ADM",
        Severity.FALSE_REFUSAL,
        f"allocate({count}) was refused ({reason}), although "
        f"{number_of_blocks(num_free, 'are')} free",
    )


def accepted_too_much(count: int, num_free: int, answer: object) -> Violation:
    """An allocation that had to be refused was answered."""
    return Violation(
        "ADM",
        Severity.WRONG_DATA_OF_ANOTHER,
        f"allocate({count}) must be refused, since only {number_of_blocks(num_free, 'are')} free, "
        f"but it answered {shown(answer)}",
    )
