"""What each step of the abstract pool must do beside preserving the invariants.

These are the halves of I2, I4, ORD, IDX and ADM that speak of an answer or of two states.
"""

from __future__ import annotations

from collections.abc import Callable

from poolproof.exploration.proof.logic import Logic, Term, Truth
from poolproof.exploration.proof.model import Promise, State

__all__ = ["PROMISES"]


def references_stay(logic: Logic, s: State, t: State, *_parameters: Term) -> Truth:
    """Who holds a block before and after holds the same block."""
    return logic.every(
        "Reference",
        lambda r: logic.implies(
            logic.holds_all(s.live(r), t.live(r)), logic.same(t.on(r), s.on(r))
        ),
    )


def nobody_is_dispossessed(logic: Logic, s: State, t: State, *_parameters: Term) -> Truth:
    return logic.every("Reference", lambda r: logic.implies(s.live(r), t.live(r)))


def only_one_reference_ends(logic: Logic, s: State, t: State, block: Term) -> Truth:
    ended = s.holder(block, 0)
    return logic.every(
        "Reference",
        lambda r: logic.implies(
            s.live(r), logic.holds_any(t.live(r), logic.same(r, ended))
        ),
    )  # fmt: skip


def was_held_by_nobody(logic: Logic, s: State, t: State, reference: Term) -> Truth:
    block = t.on(reference)
    return logic.holds_all(
        logic.negated(s.null(block)),
        logic.every(
            "Reference",
            lambda r: logic.implies(s.live(r), logic.negated(logic.same(s.on(r), block))),
        ),
    )


def joined_first(logic: Logic, s: State, t: State, reference: Term) -> Truth:
    block = t.on(reference)
    return logic.every(
        "Block", lambda b: logic.implies(s.queued(b), s.joined(block) <= s.joined(b))
    )


def handed_out_clean(logic: Logic, s: State, t: State, reference: Term) -> Truth:
    block = t.on(reference)
    return logic.holds_all(logic.same(t.count(block), 1), logic.negated(t.hashed(block)))


def keeps_hashes(*excepted: str) -> Callable[..., Truth]:
    """Cached stays cached, but for the blocks that the step may take a hash from."""

    def statement(logic: Logic, s: State, t: State, *parameters: Term) -> Truth:
        def may_lose(b: Term) -> Truth:
            reasons = {
                "named": lambda: logic.same(b, parameters[0]),
                "handed out": lambda: logic.same(b, t.on(parameters[0])),
                "taken over": lambda: logic.holds_all(
                    s.keep_last, logic.same(s.hash(b), parameters[1])
                ),
            }
            return logic.holds_any(False, *(reasons[reason]() for reason in excepted))

        return logic.every(
            "Block",
            lambda b: logic.implies(
                s.hashed(b),
                logic.holds_any(
                    logic.holds_all(t.hashed(b), logic.same(t.hash(b), s.hash(b))), may_lose(b)
                ),
            ),
        )

    return statement


def order_stays(logic: Logic, s: State, t: State, *_parameters: Term) -> Truth:
    """Blocks that are queued before and after keep their order."""
    return logic.every(
        "Block Block",
        lambda a, b: logic.implies(
            logic.holds_all(
                s.queued(a), s.queued(b), t.queued(a), t.queued(b), s.index(a) < s.index(b)
            ),
            t.index(a) < t.index(b),
        ),
    )


def joins_where_the_profile_says(logic: Logic, s: State, t: State, block: Term) -> Truth:
    """The end of the queue, the head under `lifo`, the head for a block without hash."""
    to_head = logic.holds_any(
        s.lifo, logic.holds_all(s.unhashed_first, logic.negated(s.hashed(block)))
    )
    return logic.implies(
        t.queued(block),
        logic.every(
            "Block",
            lambda b: logic.implies(
                logic.holds_all(t.queued(b), logic.negated(logic.same(b, block))),
                logic.same(t.index(block) < t.index(b), to_head),
            ),
        ),
    )


def has_the_hash(logic: Logic, s: State, t: State, block: Term, block_hash: Term) -> Truth:
    return logic.holds_all(t.hashed(block), logic.same(t.hash(block), block_hash))


def ends_without_hash(logic: Logic, s: State, t: State, block: Term, *_rest: Term) -> Truth:
    return logic.negated(t.hashed(block))


def answer_is_usable(logic: Logic, s: State, t: State, block_hash: Term, block: Term) -> Truth:
    return logic.holds_all(
        s.hashed(block),
        logic.same(s.hash(block), block_hash),
        logic.negated(s.null(block)),
        logic.holds_any(s.count(block) > 0, s.queued(block)),
    )


def one_block_less(logic: Logic, s: State, t: State, *_parameters: Term) -> Truth:
    return logic.same(t.num_free, s.num_free - 1)


def all_hashes_gone(logic: Logic, s: State, t: State) -> Truth:
    return logic.every("Block", lambda b: logic.negated(t.hashed(b)))


def one_more_owner(logic: Logic, s: State, t: State, block: Term, *_rest: Term) -> Truth:
    return logic.same(t.count(block), s.count(block) + 1)


def one_owner_less(logic: Logic, s: State, t: State, block: Term) -> Truth:
    return logic.same(t.count(block), s.count(block) - 1)


_STAY = Promise("I2", "who holds a block goes on holding this block", references_stay)
_NOBODY = Promise("I2", "nobody loses a block", nobody_is_dispossessed)
_ORDER = Promise("ORD", "blocks that stay queued keep their order", order_stays)
_SHARED = (_STAY, _NOBODY, _ORDER)


def _cached(*excepted: str) -> Promise:
    return Promise("I4", "what is cached stays cached", keeps_hashes(*excepted))


PROMISES: dict[str, tuple[Promise, ...]] = {
    "allocate": (
        *_SHARED,
        _cached("handed out"),
        Promise("I2", "the block was held by nobody and is not null", was_held_by_nobody),
        Promise("ORD", "of the free blocks it joined first", joined_first),
        Promise("OWN", "it has one reference and no hash", handed_out_clean),
        Promise("ADM", "one block less is free, so n fit exactly if n are free", one_block_less),
    ),
    "touch": (*_SHARED, _cached(), Promise("OWN", "one owner more", one_more_owner)),
    "free": (
        _STAY,
        _ORDER,
        _cached(),
        Promise("I2", "one reference ends, and no other", only_one_reference_ends),
        Promise("OWN", "one owner less", one_owner_less),
        Promise("ORD", "a freed block joins where the profile says", joins_where_the_profile_says),
    ),
    "cache": (
        *_SHARED,
        _cached("named", "taken over"),
        Promise("IDX", "the block carries the hash", has_the_hash),
    ),
    "cache, first stays": (
        *_SHARED,
        _cached("named"),
        Promise("IDX", "the block ends without hash", ends_without_hash),
    ),
    "evict": (
        *_SHARED,
        _cached("named"),
        Promise("IDX", "the block ends without hash", ends_without_hash),
    ),
    "reset": (*_SHARED, Promise("IDX", "no hash is left", all_hashes_gone)),
    "lookup": (
        *_SHARED,
        _cached(),
        Promise("I4", "the answer carries the hash and can be touched", answer_is_usable),
    ),
    "null in a list": (*_SHARED, _cached()),
}
