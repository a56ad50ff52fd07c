"""ORD: free blocks are reused in the order that the profile declares.

The order is a policy, not a matter of right and wrong: a target that breaks nothing but ORD is
tried under the other profiles.
"""

from __future__ import annotations

from collections.abc import Sequence

from poolproof.contract.observation import PoolLedger, PoolObservation
from poolproof.contract.prefix_words import listed
from poolproof.contract.violation import Severity, Violation

__all__ = ["allocated_from_head", "eviction_order"]


def eviction_order(seen: PoolObservation, known: PoolLedger) -> Violation | None:
    """A violation of ORD in this state, or None."""
    if not known.ordered or seen.free_order is None:
        return None
    for position, (shown, expected) in enumerate(
        zip(seen.free_order, known.free_order, strict=False)
    ):
        if shown != expected:
            return Violation(
                "ORD",
                Severity.ORDER,
                f"place {position} of the free queue holds block {shown}, the profile's order "
                f"puts block {expected} there (queue {listed(seen.free_order)}, expected "
                f"{listed(known.free_order)})",
                (shown, expected),
            )
    return None


def allocated_from_head(
    handed_out: Sequence[int], expected: Sequence[int], eviction: str
) -> Violation | None:
    """A violation of ORD in the ids that an allocation answered with, or None."""
    if list(handed_out) == list(expected):
        return None
    pairs = zip(handed_out, expected, strict=False)
    place = next((place for place, (given, right) in enumerate(pairs) if given != right), 0)
    where = f" (they differ from place {place} on)" if place else ""
    return Violation(
        "ORD",
        Severity.ORDER,
        f"allocate handed out {listed(handed_out)}; the head of the free queue under "
        f"eviction={eviction} is {listed(expected)}{where}",
        tuple(handed_out),
    )
