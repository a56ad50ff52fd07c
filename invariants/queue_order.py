"""The queue level: the invariants that speak of a free queue alone (OWN, LINK, ORD)."""

from __future__ import annotations

from poolproof.contract.observation import (
    PoolLedger,
    PoolObservation,
    QueueLedger,
    QueueObservation,
)
from poolproof.contract.violation import Violation
from poolproof.invariants.free_iff_unheld import free_iff_unheld
from poolproof.invariants.ownership import counts_match_owners
from poolproof.invariants.queue_links import links_well_formed
from poolproof.invariants.reuse_order import eviction_order

__all__ = ["broken_in_queue", "seen_as_pool"]


def broken_in_queue(seen: QueueObservation, known: QueueLedger) -> Violation | None:
    """The first invariant that a queue breaks in this state, or None."""
    pool, ledger = seen_as_pool(seen, known)
    return (
        counts_match_owners(pool, ledger)
        or free_iff_unheld(pool, ledger)
        or links_well_formed(pool, ledger)
        or eviction_order(pool, ledger)
    )


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
