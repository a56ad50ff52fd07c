"""LEAK: when every request has ended, every block is free.

Live, reclaimable and lost blocks are told apart: a block that the prefix cache keeps is
reclaimable, not lost (kekzl/imp#1115 was retracted for mixing the two).
"""

from __future__ import annotations

from poolproof.contract.violation import Severity, Violation

__all__ = ["all_free_at_end"]


def all_free_at_end(num_free: int, usable: int, reclaimable: int) -> Violation | None:
    """A violation of LEAK once nobody holds anything, or None.

    `usable` is the number of blocks without the null block, `reclaimable` how many of the free
    ones carry a hash.
    """
    if num_free == usable:
        return None
    if num_free > usable:
        return Violation(
            "LEAK",
            # Sooner or later one of them is handed out twice.
            Severity.WRONG_DATA_OF_ANOTHER,
            f"every owner has ended, and num_free() says {num_free}, but there are only {usable} "
            "blocks: some count as free twice",
        )
    return Violation(
        "LEAK",
        Severity.LEAK,
        f"every owner has ended, but only {num_free} of {usable} blocks are free: 0 live, "
        f"{reclaimable} reclaimable by the prefix cache, {usable - num_free} lost",
    )
