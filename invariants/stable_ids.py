"""I2: block ids are stable; nothing that others do takes a held block away.

At pool level the one way to break it is to hand out a block that somebody holds, so the check
looks at the answer of an allocation. Renumbering and deduplication under a sequence show at
manager level.
"""

from __future__ import annotations

from collections.abc import Sequence

from poolproof.contract.observation import PoolLedger
from poolproof.contract.outside import shown
from poolproof.contract.violation import Severity, Violation
from poolproof.invariants.wording import owners

__all__ = ["hands_out_free_blocks"]


def hands_out_free_blocks(
    handed_out: Sequence[object], num_blocks: int, known: PoolLedger
) -> Violation | None:
    """A violation of I2 in the ids that an allocation answered with, or None.

    `known` is the ledger from before the allocation.
    """
    seen: set[int] = set()
    for block in handed_out:
        if not isinstance(block, int) or isinstance(block, bool) or not 0 <= block < num_blocks:
            return Violation(
                "I2",
                Severity.CRASH,
                f"allocate handed out {shown(block)}, which is no block (ids run from 0 to "
                f"{num_blocks - 1})",
            )
        if block == known.null_block:
            return Violation(
                "I2",
                Severity.WRONG_DATA_OF_ANOTHER,
                f"allocate handed out the null block {block}, which every table may point to",
                (block,),
            )
        if block in seen:
            return Violation(
                "I2",
                Severity.WRONG_DATA_OF_ONES_OWN,
                f"allocate handed out block {block} twice in one answer",
                (block,),
            )
        if known.holders[block]:
            return Violation(
                "I2",
                Severity.WRONG_DATA_OF_ANOTHER,
                f"allocate handed out block {block}, which is still held by "
                f"{owners(known, block)}: two owners now write to it",
                (block,),
            )
        seen.add(block)
    return None
