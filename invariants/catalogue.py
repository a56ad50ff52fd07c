"""All invariants by name, in the order in which a broken state is diagnosed, and what each says."""

from __future__ import annotations

from collections.abc import Callable

from poolproof.contract.observation import PoolLedger, PoolObservation
from poolproof.contract.violation import Violation
from poolproof.invariants.cached_usable import cached_free_blocks_revivable
from poolproof.invariants.free_iff_unheld import free_iff_unheld
from poolproof.invariants.full_blocks import null_block_unhashed
from poolproof.invariants.idx import index_matches_hashes
from poolproof.invariants.ownership import counts_match_owners
from poolproof.invariants.queue_links import links_well_formed
from poolproof.invariants.reuse_order import eviction_order

__all__ = ["STATEMENTS", "STATE_INVARIANTS", "broken_in_state"]

STATE_INVARIANTS: tuple[Callable[[PoolObservation, PoolLedger], Violation | None], ...] = (
    free_iff_unheld,
    counts_match_owners,
    null_block_unhashed,
    cached_free_blocks_revivable,
    index_matches_hashes,
    links_well_formed,
    eviction_order,
)

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
    "MISUSE": "what the profile promises about misuse holds",
    "CRASH": "legal calls return; nothing raises, exits, hangs or exceeds its limits",
}


def broken_in_state(seen: PoolObservation, known: PoolLedger) -> Violation | None:
    """The first invariant that is broken in this state, or None."""
    for invariant in STATE_INVARIANTS:
        violation = invariant(seen, known)
        if violation is not None:
            return violation
    return None
