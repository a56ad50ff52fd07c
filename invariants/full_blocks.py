"""I3: only full blocks are cached, and the null block never carries a hash.

A pool cannot know whether a block was full and written when it was cached: that is the caller's
duty, checked at manager level by the shadow memory. What a pool alone can break is the null
block's half.
"""

from __future__ import annotations

from poolproof.contract.observation import PoolLedger, PoolObservation
from poolproof.contract.violation import Severity, Violation
from poolproof.invariants.wording import key_name

__all__ = ["null_block_unhashed"]


def null_block_unhashed(seen: PoolObservation, known: PoolLedger) -> Violation | None:
    """A violation of I3 in this state, or None."""
    null = known.null_block
    if null is None:
        return None
    if seen.block_hashes is not None and seen.block_hashes[null] is not None:
        return Violation(
            "I3",
            Severity.WRONG_DATA_OF_ANOTHER,
            f"the null block {null} carries {key_name(seen.block_hashes[null])}; "
            "every request that asks for that hash would read it",
            (null,),
        )
    for key, block in (seen.lookups or {}).items():
        if block == null:
            return Violation(
                "I3",
                Severity.WRONG_DATA_OF_ANOTHER,
                f"lookup of {key_name(key)} answers with the null block {null}",
                (null,),
            )
    return None
