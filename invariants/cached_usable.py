"""I4: cached is not unusable; a cached block that nobody holds waits in the free queue, intact.

From there an allocation evicts it or a touch revives it. A free block that was cached must
therefore still be queued, still carry its hash, and still be found. A manager must report
all of the prefix that is cached.
"""

from __future__ import annotations

from poolproof.contract.commands import Command
from poolproof.contract.observation import PoolLedger, PoolObservation
from poolproof.contract.violation import Severity, Violation
from poolproof.invariants.wording import key_name

__all__ = [
    "cached_free_blocks_revivable",
    "computed_block_is_cached",
    "reports_all_that_is_cached",
]


def cached_free_blocks_revivable(seen: PoolObservation, known: PoolLedger) -> Violation | None:
    """A violation of I4 in this state, or None."""
    queued = None if seen.free_order is None else set(seen.free_order)
    for block, keys in known.keys.items():
        if not keys or known.holders[block]:
            continue
        if queued is not None and block not in queued:
            return _unusable(
                block, Severity.LEAK,
                f"is cached under {key_name(keys[0])}, held by nobody, and not in the free queue: "
                "it can be neither evicted nor revived",
            )  # fmt: skip
        if seen.block_hashes is not None and seen.block_hashes[block] is None:
            return _unusable(
                block, Severity.LOST_HIT,
                f"was cached under {key_name(keys[0])} and is free, but its hash is gone although "
                "nobody evicted it",
            )  # fmt: skip
        for key in keys:
            if seen.lookups is not None and key in seen.lookups and seen.lookups[key] is None:
                return _unusable(
                    block, Severity.LOST_HIT,
                    f"is free and cached under {key_name(key)}, but lookup of that hash finds "
                    "nothing",
                )  # fmt: skip
    return None


def reports_all_that_is_cached(
    command: Command, reported: int, known: int, *, is_promised: bool = True
) -> Violation | None:
    """A violation of I4 in the number of tokens that are reported as cached, or None.

    Where it was not promised that everything is found, it is only bookkeeping.
    """
    if reported >= known:
        return None
    if not is_promised:
        return Violation(
            "I4",
            Severity.BOOKKEEPING,
            f"{command} reports {reported} tokens as cached, although the KV of {known} is there: "
            "the index says less than it could",
        )
    return Violation(
        "I4",
        Severity.LOST_HIT,
        f"{command} reports {reported} tokens as cached, although {known} are in the index and "
        "could be used",
    )


def computed_block_is_cached(
    block: int, *, is_cached: bool, is_computed: bool, is_held: bool
) -> Violation | None:
    """A violation of I4 in what `is_cached` says of a block, or None.

    It is computed if it is full of computed tokens that the index must find.
    """
    if is_cached or not is_computed:
        return None
    held = "" if is_held else ", which nobody holds,"
    return Violation(
        "I4",
        Severity.LOST_HIT,
        f"block {block}{held} is full of computed tokens and was not evicted, but "
        f"is_cached({block}) says that it cannot be found",
        (block,),
    )


def _unusable(block: int, severity: Severity, what: str) -> Violation:
    return Violation("I4", severity, f"block {block} {what}", (block,))
