"""IDX: the prefix index and the blocks' own hashes agree, in both directions.

Every lookup answers with a block that was given that key and has not lost it; every block shows
the hash that it was given; what the profile says about duplicates holds. A stale entry is the
silent bug: somebody reads a recycled block (nano-vllm#163).
"""

from __future__ import annotations

from poolproof.contract.observation import PoolLedger, PoolObservation
from poolproof.contract.violation import Severity, Violation
from poolproof.invariants.wording import key_name

__all__ = ["index_matches_hashes"]


def index_matches_hashes(seen: PoolObservation, known: PoolLedger) -> Violation | None:
    """A violation of IDX in this state, or None."""
    return _lookups(seen, known) or _hashes(seen, known)


def _lookups(seen: PoolObservation, known: PoolLedger) -> Violation | None:
    for key, block in (seen.lookups or {}).items():
        carriers = known.carriers.get(key, ())
        if block is None and carriers:
            return Violation(
                "IDX",
                Severity.LOST_HIT,
                f"lookup of {key_name(key)} finds nothing, although block {carriers[0]} carries it",
                tuple(carriers),
            )
        if block is not None and block not in carriers:
            carried = known.keys[block][0] if known.keys.get(block) else None
            carries = key_name(carried, key)
            return Violation(
                "IDX",
                Severity.WRONG_DATA_OF_ANOTHER,
                f"lookup of {key_name(key, carried)} answers with block {block}, which carries "
                f"{carries}: "
                "its KV was computed for something else",
                (block,),
            )
    return None


def _hashes(seen: PoolObservation, known: PoolLedger) -> Violation | None:
    for block, shown in enumerate(seen.block_hashes or ()):
        keys = known.keys[block]
        expected = keys[0] if keys else None
        if shown == expected or block == known.null_block:
            continue
        if shown is None:
            return Violation(
                "IDX",
                Severity.LOST_HIT,
                f"block {block} shows no hash, although it was cached under {key_name(expected)}",
                (block,),
            )
        return Violation(
            "IDX",
            Severity.WRONG_DATA_OF_ANOTHER,
            f"block {block} shows {key_name(shown, expected)}, but must carry "
            f"{key_name(expected, shown)}",
            (block,),
        )
    return None
