"""I1: a block is in the free queue if and only if nobody holds it and it is not the null block.

Both directions are checked, against the owners known from outside and against the reference
counts that the pool itself shows. Needs a pool that shows its free order.
"""

from __future__ import annotations

from poolproof.contract.observation import PoolLedger, PoolObservation
from poolproof.contract.violation import Severity, Violation
from poolproof.invariants.wording import block_list, owners

__all__ = ["free_iff_unheld"]


def free_iff_unheld(seen: PoolObservation, known: PoolLedger) -> Violation | None:
    """A violation of I1 in this state, or None."""
    if seen.free_order is None:
        return None
    queued = set(seen.free_order)
    held_and_queued = [b for b in sorted(queued) if known.holders.get(b)]
    if held_and_queued:
        block = held_and_queued[0]
        return Violation(
            "I1",
            Severity.WRONG_DATA_OF_ANOTHER,
            f"block {block} stands in the free queue although it is held by "
            f"{owners(known, block)}; the next allocation can hand it to somebody else",
            tuple(held_and_queued),
        )
    if known.null_block in queued:
        return Violation(
            "I1",
            Severity.WRONG_DATA_OF_ANOTHER,
            f"the null block {known.null_block} stands in the free queue; "
            "it must never be handed out",
            (known.null_block,) if known.null_block is not None else (),
        )
    lost = [
        b for b in range(seen.num_blocks)
        if b != known.null_block and not known.holders[b] and b not in queued
    ]  # fmt: skip
    if lost:
        return Violation(
            "I1",
            Severity.LEAK,
            f"{block_list(lost)} held by nobody and not in the free queue: lost for ever",
            tuple(lost),
        )
    return _own_counts_disagree(seen, known, queued)


def _own_counts_disagree(
    seen: PoolObservation, known: PoolLedger, queued: set[int]
) -> Violation | None:
    """The pool's own counts against its own queue, with no help from outside."""
    if seen.ref_counts is None:
        return None
    for block, count in enumerate(seen.ref_counts):
        if block != known.null_block and (count == 0) != (block in queued):
            where = "in" if block in queued else "not in"
            return Violation(
                "I1",
                Severity.WRONG_DATA_OF_ANOTHER if block in queued else Severity.LEAK,
                f"block {block} shows a reference count of {count} and is {where} the free queue",
                (block,),
            )
    return None
