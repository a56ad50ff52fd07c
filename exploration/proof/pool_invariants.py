"""What must hold in every state of the abstract pool, and what follows from it.

The line of references and the line of free blocks are one-to-one with the blocks' owners and with
the queued blocks, so that counts are numbers of owners and of blocks, whatever the size.
"""

from __future__ import annotations

from poolproof.exploration.proof.logic import Logic, Term, Truth
from poolproof.exploration.proof.model import State

__all__ = ["CONSEQUENCES", "INVARIANTS", "PROFILE", "within_bounds"]


def one_policy(logic: Logic, s: State) -> Truth:
    """A profile has one value in each row."""
    return logic.holds_all(
        logic.negated(logic.holds_all(s.lifo, s.unhashed_first)),
        logic.negated(logic.holds_all(s.keep_first, s.keep_last)),
    )


def free_iff_unheld(logic: Logic, s: State) -> Truth:
    return logic.every(
        "Block",
        lambda b: logic.same(
            s.queued(b),
            logic.holds_all(logic.same(s.count(b), 0), logic.negated(s.null(b))),
        ),
    )


def null_unhashed(logic: Logic, s: State) -> Truth:
    return logic.every("Block", lambda b: logic.negated(logic.holds_all(s.null(b), s.hashed(b))))


def reference_stands_in_line(logic: Logic, s: State) -> Truth:
    return logic.every(
        "Reference",
        lambda r: logic.implies(
            s.live(r),
            logic.holds_all(
                s.place(r) >= 0,
                s.place(r) < s.count(s.on(r)),
                logic.same(s.holder(s.on(r), s.place(r)), r),
            ),
        ),
    )


def place_in_line_is_taken(logic: Logic, s: State) -> Truth:
    return logic.every(
        "Block Int",
        lambda b, i: logic.implies(
            logic.holds_all(i >= 0, i < s.count(b)),
            logic.holds_all(
                s.live(s.holder(b, i)),
                logic.same(s.on(s.holder(b, i)), b),
                logic.same(s.place(s.holder(b, i)), i),
            ),
        ),
    )


def counts_in_range(logic: Logic, s: State) -> Truth:
    return logic.every(
        "Block",
        lambda b: logic.holds_all(
            s.count(b) >= 0, logic.implies(s.null(b), logic.same(s.count(b), 0))
        ),
    )


def queued_block_has_a_place(logic: Logic, s: State) -> Truth:
    return logic.every(
        "Block",
        lambda b: logic.implies(
            s.queued(b),
            logic.holds_all(
                s.first <= s.index(b), s.index(b) < s.end, logic.same(s.at(s.index(b)), b)
            ),
        ),
    )


def place_has_a_queued_block(logic: Logic, s: State) -> Truth:
    return logic.every(
        "Int",
        lambda i: logic.implies(
            logic.holds_all(s.first <= i, i < s.end),
            logic.holds_all(s.queued(s.at(i)), logic.same(s.index(s.at(i)), i)),
        ),
    )


def counter(logic: Logic, s: State) -> Truth:
    return logic.holds_all(s.first <= s.end, logic.same(s.num_free, s.end - s.first))


def index_is_hashes(logic: Logic, s: State) -> Truth:
    return logic.every(
        "Hash Block",
        lambda h, b: logic.same(
            s.indexed(h, b), logic.holds_all(s.hashed(b), logic.same(s.hash(b), h))
        ),
    )


def one_carrier(logic: Logic, s: State) -> Truth:
    return logic.implies(
        logic.holds_any(s.keep_first, s.keep_last),
        logic.every(
            "Block Block",
            lambda a, b: logic.implies(
                logic.holds_all(s.hashed(a), s.hashed(b), logic.same(s.hash(a), s.hash(b))),
                logic.same(a, b),
            ),
        ),
    )


def order_of_joining(logic: Logic, s: State) -> Truth:
    """Nearer the head, joined earlier; what joined at the head counts as before everything."""
    return logic.every(
        "Block Block",
        lambda a, b: logic.implies(
            logic.holds_all(s.queued(a), s.queued(b), s.index(a) < s.index(b)),
            s.joined(a) < s.joined(b),
        ),
    )


def joined_before_now(logic: Logic, s: State) -> Truth:
    return logic.holds_all(
        s.clock >= 0,
        logic.every(
            "Block",
            lambda b: logic.implies(
                s.queued(b), logic.holds_all(0 - s.clock <= s.joined(b), s.joined(b) <= s.clock)
            ),
        ),
    )


def cached_free_is_usable(logic: Logic, s: State) -> Truth:
    return logic.every(
        "Block",
        lambda b: logic.implies(
            logic.holds_all(s.hashed(b), logic.same(s.count(b), 0)),
            logic.holds_all(
                s.queued(b), s.first <= s.index(b), s.index(b) < s.end, s.indexed(s.hash(b), b)
            ),
        ),
    )


def nobody_counts_as_an_owner(logic: Logic, s: State) -> Truth:
    return logic.every(
        "Block",
        lambda b: logic.implies(
            logic.every("Reference", lambda r: logic.negated(_holds(logic, s, r, b))),
            logic.holds_any(s.queued(b), s.null(b)),
        ),
    )


def _holds(logic: Logic, s: State, reference: Term, block: Term) -> Truth:
    return logic.holds_all(s.live(reference), logic.same(s.on(reference), block))


def within_bounds(logic: Logic, s: State, size: int) -> Truth:
    """Integers stay where a finite scope of `size` blocks looks."""
    return logic.holds_all(
        s.first >= 0,
        s.first <= size,
        s.end >= 0,
        s.end <= size,
        s.clock >= size,
        s.clock <= size + 1,
        logic.every("Block", lambda b: s.count(b) <= 2),
    )


PROFILE = {"profile": one_policy}

INVARIANTS = {
    "I1 free iff unheld": free_iff_unheld,
    "I3 null unhashed": null_unhashed,
    "OWN owner has a place": reference_stands_in_line,
    "OWN place has an owner": place_in_line_is_taken,
    "OWN count in range": counts_in_range,
    "OWN queued has a place": queued_block_has_a_place,
    "OWN place has a queued": place_has_a_queued_block,
    "OWN counter": counter,
    "IDX index = hashes": index_is_hashes,
    "IDX duplicates": one_carrier,
    "ORD order of joining": order_of_joining,
    "ORD joined before now": joined_before_now,
}

CONSEQUENCES = {
    "I4 cached and free is usable": cached_free_is_usable,
    "LEAK without owners, free": nobody_counts_as_an_owner,
}
