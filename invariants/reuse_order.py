"""ORD: free blocks are reused in the order that the profile declares.

The order is a policy, not a matter of right and wrong: a target that breaks nothing but ORD is
tried under the other profiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.observation import PoolLedger, PoolObservation
from poolproof.contract.outside import shown
from poolproof.contract.prefix_words import listed
from poolproof.contract.violation import Severity, Violation
from poolproof.invariants.wording import sequence_name

__all__ = ["allocated_from_head", "entries_from_head", "eviction_order", "popped_from_head"]


def eviction_order(seen: PoolObservation, known: PoolLedger) -> Violation | None:
    """A violation of ORD in this state, or None."""
    if not known.ordered or seen.free_order is None:
        return None
    for position, (block, expected) in enumerate(
        zip(seen.free_order, known.free_order, strict=False)
    ):
        if block != expected:
            return Violation(
                "ORD",
                Severity.ORDER,
                f"place {position} of the free queue holds block {block}, the profile's order "
                f"puts block {expected} there (queue {listed(seen.free_order)}, expected "
                f"{listed(known.free_order)})",
                (block, expected),
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


def popped_from_head(command: Command, answer: Any, expected: Any) -> Violation | None:
    """A violation of ORD in what a queue popped, an id or a list of them, or None."""
    if isinstance(answer, tuple):
        answer = list(answer)
    if answer == expected and _are_ids(answer):
        return None
    return Violation(
        "ORD",
        Severity.ORDER,
        f"{command} answered {shown(answer)}, but the head of the queue is {shown(expected)}",
    )


def entries_from_head(
    seq_id: int, given: Sequence[int], head: Sequence[int], eviction: str
) -> Violation | None:
    """A violation of ORD in the blocks that came into a sequence's tables, or None.

    Which block goes to which entry says nothing about eviction.
    """
    if head == given or set(head) == set(given):
        return None
    return Violation(
        "ORD",
        Severity.ORDER,
        f"{sequence_name(seq_id)} was given the blocks {listed(given)}, but under {eviction} "
        f"the free queue begins with {listed(head)}",
        tuple(given),
    )


def _are_ids(answer: Any) -> bool:
    """Whether these are integers, and neither truth values nor what merely compares equal."""
    blocks = answer if isinstance(answer, list) else [answer]
    return all(
        type(block) is int or (hasattr(block, "__index__") and not isinstance(block, bool))
        for block in blocks
    )
