"""OWN: a block's reference count is the number of its owners, and the counter counts the queue.

Owners are compared block by block, never as a sum over blocks: a sum stays balanced while a block
has two owners (sglang#27731). Free, held and null blocks partition the ids; the counter, the length
of the walk and the number of distinct ids in it are equal.
"""

from __future__ import annotations

from collections import Counter

from poolproof.contract.observation import PoolLedger, PoolObservation
from poolproof.contract.outside import shown
from poolproof.contract.violation import Severity, Violation
from poolproof.invariants.wording import number_of_blocks, owners

__all__ = ["counts_match_owners", "host_counter_matches", "usage_is_share_held"]


def counts_match_owners(seen: PoolObservation, known: PoolLedger) -> Violation | None:
    """A violation of OWN in this state, or None."""
    return (
        _reference_counts(seen, known)
        or _walk_without_repeats(seen)
        or _counter(seen, known)
    )  # fmt: skip


def host_counter_matches(num_free: int, expected: int) -> Violation | None:
    """A violation of OWN in the number of free blocks in host memory, or None."""
    if num_free == expected:
        return None
    return Violation(
        "OWN",
        Severity.LEAK if num_free < expected else Severity.WRONG_DATA_OF_ANOTHER,
        f"num_free_host() says {num_free}, but {number_of_blocks(expected, 'are')} free in host "
        "memory (held by nobody)",
    )


def usage_is_share_held(answer: object, expected: float) -> Violation | None:
    """A violation of OWN in the share of held blocks that `usage` answers, or None."""
    if isinstance(answer, float | int) and abs(answer - expected) <= 1e-9:
        return None
    return Violation(
        "OWN",
        Severity.FALSE_REFUSAL,
        f"usage() answered {shown(answer)}, but the share of held blocks is {expected}",
    )


def _reference_counts(seen: PoolObservation, known: PoolLedger) -> Violation | None:
    if seen.ref_counts is None:
        return None
    for block, count in enumerate(seen.ref_counts):
        expected = len(known.holders[block])
        if block != known.null_block and count != expected:
            return Violation(
                "OWN",
                Severity.WRONG_DATA_OF_ANOTHER if count < expected else Severity.LEAK,
                f"block {block} shows a reference count of {count}, but has {expected} "
                f"owner{'s' * (expected != 1)} ({owners(known, block)})",
                (block,),
            )
    return None


def _walk_without_repeats(seen: PoolObservation) -> Violation | None:
    repeated = [b for b, times in Counter(seen.free_order or ()).items() if times > 1]
    if repeated:
        return Violation(
            "OWN",
            Severity.WRONG_DATA_OF_ANOTHER,
            f"block {repeated[0]} stands in the free queue more than once: it will be handed "
            "out twice",
            tuple(repeated),
        )
    strangers = [b for b in seen.free_order or () if not 0 <= b < seen.num_blocks]
    if strangers:
        return Violation(
            "OWN",
            Severity.CRASH,
            f"the free queue holds {strangers[0]}, which is no block of this pool",
        )
    return None


def _counter(seen: PoolObservation, known: PoolLedger) -> Violation | None:
    walked = None if seen.free_order is None else len(seen.free_order)
    expected = len(known.free_order)
    if seen.num_free == expected and walked in (None, expected):
        return None
    walk = "" if walked is None else f", a walk of the free queue meets {walked}"
    return Violation(
        "OWN",
        _severity_of_counts(seen.num_free, walked, expected),
        f"num_free() says {seen.num_free}{walk}, but {number_of_blocks(expected, 'are')} free "
        "(held by nobody)",
    )


def _severity_of_counts(num_free: int, walked: int | None, expected: int) -> Severity:
    if num_free > expected or (walked or 0) > expected:
        # Sooner or later a block that is held is handed out.
        return Severity.WRONG_DATA_OF_ANOTHER
    if walked == expected:
        # The blocks are all in the queue, and the counter alone turns requests away.
        return Severity.FALSE_REFUSAL
    # Nobody holds them and nobody can have them: capacity that is gone for good.
    return Severity.LEAK
