"""All invariants by code, what each says, and in which order a broken state is diagnosed.

A state that breaks several is named after the first. Predicates over answers are called by the
harness where the answer arrives.
"""

from __future__ import annotations

from collections.abc import Callable

from poolproof.contract.observation import (
    PoolLedger,
    PoolObservation,
    QueueLedger,
    QueueObservation,
)
from poolproof.contract.violation import Severity, Violation
from poolproof.invariants.cached_usable import cached_free_blocks_revivable
from poolproof.invariants.free_iff_unheld import free_iff_unheld
from poolproof.invariants.full_blocks import null_block_unhashed
from poolproof.invariants.index_answers import index_matches_hashes
from poolproof.invariants.ownership import counts_match_owners
from poolproof.invariants.queue_links import links_well_formed
from poolproof.invariants.reuse_order import eviction_order

__all__ = [
    "QUEUE_INVARIANTS",
    "STATEMENTS",
    "STATE_INVARIANTS",
    "WITHOUT_A_READ",
    "broken_in_queue",
    "broken_in_state",
    "seen_as_pool",
]

STATEMENTS = {
    "I1": "a block is in the free queue if and only if nobody holds it and it is not the null "
    "block",
    "I2": "block ids are stable: a held block is never handed out, renumbered or reused",
    "I3": "only full blocks are cached; the null block never carries a hash",
    "I4": "a cached block that nobody holds waits in the free queue, findable and intact",
    "OWN": "reference count = number of owners; counter = walked length = distinct ids",
    "LINK": "links are inverse, blocks outside the queue have none, the walk ends",
    "IDX": "the prefix index and the blocks' own hashes agree in both directions",
    "DATA": "nobody reads KV that was not computed for exactly its own prefix",
    "ORD": "free blocks are reused in the order that the profile declares",
    "ADM": "nothing fails after OK, nothing that fits is refused",
    "ATOM": "a refused operation leaves the state as it was, the queue's order included",
    "LEAK": "when every request has ended, every block is free",
    "EVT": "the event stream, replayed, gives the index",
    "PLAN": "a step computes tokens that are known, within the limits, in blocks that exist",
    "OUT": "each user is given what was sampled for the request, in order, once, and nothing after "
    "it has ended",
    "LIVE": "every request that fits ends, if its steps are answered and nobody else comes",
    "MISUSE": "what the profile promises about misuse holds",
    "CRASH": "legal calls return; nothing raises, exits, hangs or exceeds its limits",
}

WITHOUT_A_READ = {
    # A held block stands in the queue, and nobody was seen to be given it.
    "I1": Severity.BOOKKEEPING,
    # Two requests name one block, or a table names another: what each reads was its own.
    "I2": Severity.BOOKKEEPING,
    # The null block can be found, and nobody was seen to find it.
    "I3": Severity.BOOKKEEPING,
    # A count is wrong, and nothing was seen to follow from it.
    "OWN": Severity.BOOKKEEPING,
    # The index says more than it should, and who asked it read what is right.
    "IDX": Severity.BOOKKEEPING,
    # A table lacks slots that were granted: an answer that cannot be used, whoever writes first.
    "ADM": Severity.CRASH,
    # A refused command changed something that nobody was seen to read.
    "ATOM": Severity.BOOKKEEPING,
    # The counter says more than there is.
    "LEAK": Severity.BOOKKEEPING,
}
"""The severity at a manager where no wrong read was seen, for what may lead to one.

It does not say that the fault is harmless: few continuations were tried.
"""

STATE_INVARIANTS: dict[str, Callable[[PoolObservation, PoolLedger], Violation | None]] = {
    "I1": free_iff_unheld,
    "OWN": counts_match_owners,
    "I3": null_block_unhashed,
    "I4": cached_free_blocks_revivable,
    "IDX": index_matches_hashes,
    "LINK": links_well_formed,
    "ORD": eviction_order,
}
"""The predicates over states of a pool, in the order of diagnosis."""

QUEUE_INVARIANTS = ("OWN", "I1", "LINK", "ORD")
"""Those that speak of a free queue alone, in the order of diagnosis.

OWN comes first, because a queue has no owners but its counter and its walk: where these disagree,
who is inside cannot be said.
"""


def broken_in_state(seen: PoolObservation, known: PoolLedger) -> Violation | None:
    """The first invariant that is broken in this state, or None."""
    for invariant in STATE_INVARIANTS.values():
        violation = invariant(seen, known)
        if violation is not None:
            return violation
    return None


def broken_in_queue(seen: QueueObservation, known: QueueLedger) -> Violation | None:
    """The first invariant that a queue breaks in this state, or None."""
    pool, ledger = seen_as_pool(seen, known)
    for code in QUEUE_INVARIANTS:
        violation = STATE_INVARIANTS[code](pool, ledger)
        if violation is not None:
            return violation
    return None


def seen_as_pool(seen: QueueObservation, known: QueueLedger) -> tuple[PoolObservation, PoolLedger]:
    """A queue is seen as a pool in which the blocks outside the queue are held."""
    inside = set(known.free_order)
    pool = PoolObservation(
        seen.num_blocks, seen.num_free, seen.free_order, neighbours=seen.neighbours
    )
    ledger = PoolLedger(
        holders={b: () if b in inside else (0,) for b in range(seen.num_blocks)},
        keys={},
        carriers={},
        free_order=known.free_order,
    )
    return pool, ledger
