"""The abstract pool: every verb of the contract on one block, for all profiles at once.

A profile is a few constants of the state, so one proof covers all of its combinations: `lifo` and
`unhashed_first` (neither: lru), `keep_first` and `keep_last` (neither: duplicates are kept),
`recache_forbidden`, and which blocks are null. The references of a block stand in a line, oldest
first, as in the specification; the free queue is a segment of a line, `first` to `end`. `joined`
is a ghost: when a block joined the queue, negative for the head.

What must hold in every state is in `pool_invariants.py`. The promises are what each step must do
beside: the halves of I2, I4, ORD, IDX and ADM that speak of an answer or of two states.

Not here: lists of blocks (the order of one `unhashed-first` batch is `prepend_n` of the queue's
model), partial keys, `may-drop`, and the counting behind the answer of `reset`.
"""

from __future__ import annotations

from collections.abc import Callable

from poolproof.exploration.proof.logic import Logic, Term, Truth
from poolproof.exploration.proof.model import Action, Changes, Model, Promise, State
from poolproof.exploration.proof.pool_invariants import (
    CONSEQUENCES,
    INVARIANTS,
    PROFILE,
    within_bounds,
)

__all__ = ["POOL"]


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


FIELDS = {
    "lifo": "Bool",
    "unhashed_first": "Bool",
    "keep_first": "Bool",
    "keep_last": "Bool",
    "recache_forbidden": "Bool",
    "null": "Block Bool",
    "count": "Block Int",
    "holder": "Block Int Reference",
    "live": "Reference Bool",
    "on": "Reference Block",
    "place": "Reference Int",
    "queued": "Block Bool",
    "first": "Int",
    "end": "Int",
    "at": "Int Block",
    "index": "Block Int",
    "num_free": "Int",
    "hashed": "Block Bool",
    "hash": "Block Hash",
    "indexed": "Hash Block Bool",
    "joined": "Block Int",
    "clock": "Int",
}


def initial(logic: Logic, s: State) -> Truth:
    """All blocks but the null ones are queued in the order of their ids; nothing is cached."""
    in_line = logic.every(
        "Int",
        lambda i: logic.implies(
            logic.holds_all(s.first <= i, i < s.end),
            logic.holds_all(logic.same(s.index(s.at(i)), i), logic.negated(s.null(s.at(i)))),
        ),
    )
    blocks = logic.every(
        "Block",
        lambda b: logic.holds_all(
            logic.same(s.count(b), 0),
            logic.negated(s.hashed(b)),
            logic.same(s.queued(b), logic.negated(s.null(b))),
            logic.same(s.joined(b), s.index(b)),
            logic.implies(
                logic.negated(s.null(b)),
                logic.holds_all(
                    s.first <= s.index(b), s.index(b) < s.end, logic.same(s.at(s.index(b)), b)
                ),
            ),
        ),
    )
    return logic.holds_all(
        logic.same(s.first, 0),
        s.end >= 0,
        logic.same(s.num_free, s.end),
        logic.same(s.clock, s.end),
        in_line,
        blocks,
        logic.every("Reference", lambda r: logic.negated(s.live(r))),
        logic.every("Hash Block", lambda h, b: logic.negated(s.indexed(h, b))),
    )


def new_reference(logic: Logic, s: State, block: Term, reference: Term) -> Changes:
    """The reference joins the end of the block's line."""
    last = s.count(block)
    return {
        "count": lambda b: logic.choose(logic.same(b, block), s.count(b) + 1, s.count(b)),
        "holder": lambda b, i: logic.choose(
            logic.holds_all(logic.same(b, block), logic.same(i, last)), reference, s.holder(b, i)
        ),
        "live": lambda r: logic.holds_any(s.live(r), logic.same(r, reference)),
        "on": lambda r: logic.choose(logic.same(r, reference), block, s.on(r)),
        "place": lambda r: logic.choose(logic.same(r, reference), last, s.place(r)),
    }


def without_hash(logic: Logic, s: State, block: Term) -> Changes:
    """The block loses its hash and its index entry."""
    return {
        "hashed": lambda b: logic.holds_all(s.hashed(b), logic.negated(logic.same(b, block))),
        "indexed": lambda h, b: logic.holds_all(
            s.indexed(h, b), logic.negated(logic.same(b, block))
        ),
    }


def may_allocate(logic: Logic, s: State, reference: Term) -> Truth:
    return logic.holds_all(logic.negated(s.live(reference)), s.num_free > 0)


def allocate(logic: Logic, s: State, reference: Term) -> Changes:
    """The block at the head of the queue, with one reference and no hash."""
    block = s.at(s.first)
    return {
        **new_reference(logic, s, block, reference),
        **without_hash(logic, s, block),
        "queued": lambda b: logic.holds_all(s.queued(b), logic.negated(logic.same(b, block))),
        "first": s.first + 1,
        "num_free": s.num_free - 1,
    }


def may_touch(logic: Logic, s: State, block: Term, reference: Term) -> Truth:
    return logic.holds_all(
        logic.negated(s.live(reference)),
        logic.negated(s.null(block)),
        logic.holds_any(s.count(block) > 0, s.hashed(block)),
    )


def touch(logic: Logic, s: State, block: Term, reference: Term) -> Changes:
    """One more reference; a free block leaves the queue, those behind it move up."""
    free, gone = s.queued(block), s.index(block)
    one = logic.choose(free, 1, 0)
    return {
        **new_reference(logic, s, block, reference),
        "queued": lambda b: logic.holds_all(s.queued(b), logic.negated(logic.same(b, block))),
        "at": lambda i: logic.choose(
            logic.holds_all(free, i >= gone), s.at(i + 1), s.at(i)
        ),
        "index": lambda b: logic.choose(
            logic.holds_all(free, s.index(b) > gone), s.index(b) - 1, s.index(b)
        ),
        "end": s.end - one,
        "num_free": s.num_free - one,
    }  # fmt: skip


def may_free(logic: Logic, s: State, block: Term) -> Truth:
    return logic.holds_all(s.count(block) > 0, logic.negated(s.null(block)))


def free(logic: Logic, s: State, block: Term) -> Changes:
    """The oldest reference goes; with the last one the block joins the queue and keeps its hash."""
    reference = s.holder(block, 0)
    freed = logic.same(s.count(block), 1)
    to_head = logic.holds_any(
        s.lifo, logic.holds_all(s.unhashed_first, logic.negated(s.hashed(block)))
    )
    place = logic.choose(to_head, s.first - 1, s.end)

    def joins(b: Term) -> Truth:
        return logic.holds_all(freed, logic.same(b, block))

    return {
        "count": lambda b: logic.choose(logic.same(b, block), s.count(b) - 1, s.count(b)),
        "holder": lambda b, i: logic.choose(
            logic.same(b, block), s.holder(b, i + 1), s.holder(b, i)
        ),
        "live": lambda r: logic.holds_all(s.live(r), logic.negated(logic.same(r, reference))),
        "place": lambda r: logic.choose(logic.same(s.on(r), block), s.place(r) - 1, s.place(r)),
        "queued": lambda b: logic.holds_any(s.queued(b), joins(b)),
        "at": lambda i: logic.choose(
            logic.holds_all(freed, logic.same(i, place)), block, s.at(i)
        ),
        "index": lambda b: logic.choose(joins(b), place, s.index(b)),
        "first": logic.choose(logic.holds_all(freed, to_head), s.first - 1, s.first),
        "end": logic.choose(logic.holds_all(freed, logic.negated(to_head)), s.end + 1, s.end),
        "num_free": logic.choose(freed, s.num_free + 1, s.num_free),
        "joined": lambda b: logic.choose(
            joins(b), logic.choose(to_head, 0 - s.clock - 1, s.clock + 1), s.joined(b)
        ),
        "clock": s.clock + 1,
    }  # fmt: skip


def _cacheable(logic: Logic, s: State, block: Term) -> Truth:
    return logic.holds_all(
        s.count(block) > 0,
        logic.negated(s.null(block)),
        logic.negated(logic.holds_all(s.recache_forbidden, s.hashed(block))),
    )


def _has_hash(logic: Logic, s: State, block: Term, block_hash: Term) -> Truth:
    return logic.holds_all(s.hashed(block), logic.same(s.hash(block), block_hash))


def may_cache(logic: Logic, s: State, block: Term, block_hash: Term) -> Truth:
    """With `keep_first`: nobody else carries the hash."""
    alone = logic.every(
        "Block", lambda b: logic.implies(s.indexed(block_hash, b), logic.same(b, block))
    )
    return logic.holds_all(
        _cacheable(logic, s, block), logic.holds_any(logic.negated(s.keep_first), alone)
    )


def cache(logic: Logic, s: State, block: Term, block_hash: Term) -> Changes:
    """The block takes the hash in the place of its own; with `keep_last` others lose it."""
    new = logic.negated(_has_hash(logic, s, block, block_hash))
    loses = logic.holds_all(new, s.keep_last)
    return {
        "hashed": lambda b: logic.choose(
            logic.same(b, block),
            True,
            logic.holds_all(
                s.hashed(b),
                logic.negated(logic.holds_all(loses, logic.same(s.hash(b), block_hash))),
            ),
        ),
        "hash": lambda b: logic.choose(logic.same(b, block), block_hash, s.hash(b)),
        "indexed": lambda h, b: logic.choose(
            logic.same(b, block),
            logic.same(h, block_hash),
            logic.holds_all(
                s.indexed(h, b), logic.negated(logic.holds_all(loses, logic.same(h, block_hash)))
            ),
        ),
    }


def may_lose_cache(logic: Logic, s: State, block: Term, block_hash: Term, other: Term) -> Truth:
    return logic.holds_all(
        _cacheable(logic, s, block),
        s.keep_first,
        s.indexed(block_hash, other),
        logic.negated(logic.same(other, block)),
    )


def lose_cache(logic: Logic, s: State, block: Term, block_hash: Term, other: Term) -> Changes:
    """`cache` of a hash that an earlier block keeps: this one ends without any hash."""
    return without_hash(logic, s, block)


def always(logic: Logic, s: State, *_parameters: Term) -> Truth:
    return True


def may_reset(logic: Logic, s: State) -> Truth:
    return logic.every("Block", lambda b: logic.same(s.count(b), 0))


def reset(logic: Logic, s: State) -> Changes:
    return {"hashed": lambda b: False, "indexed": lambda h, b: False}


def may_answer(logic: Logic, s: State, block_hash: Term, block: Term) -> Truth:
    return s.indexed(block_hash, block)


def nothing(logic: Logic, s: State, *_parameters: Term) -> Changes:
    return {}


def is_null(logic: Logic, s: State, block: Term) -> Truth:
    return s.null(block)


_STEPS: tuple[tuple[str, dict[str, str], Callable[..., Truth], Callable[..., Changes]], ...] = (
    ("allocate", {"reference": "Reference"}, may_allocate, allocate),
    ("touch", {"block": "Block", "reference": "Reference"}, may_touch, touch),
    ("free", {"block": "Block"}, may_free, free),
    ("cache", {"block": "Block", "block_hash": "Hash"}, may_cache, cache),
    (
        "cache, first stays",
        {"block": "Block", "block_hash": "Hash", "other": "Block"},
        may_lose_cache,
        lose_cache,
    ),
    ("evict", {"block": "Block"}, always, without_hash),
    ("reset", {}, may_reset, reset),
    ("lookup", {"block_hash": "Hash", "block": "Block"}, may_answer, nothing),
    ("null in a list", {"block": "Block"}, is_null, nothing),
)

POOL = Model(
    name="pool",
    title="block pool, one block a step, every profile",
    fields=FIELDS,
    rigid=PROFILE,
    invariants=INVARIANTS,
    initial=initial,
    consequences=CONSEQUENCES,
    bounds=within_bounds,
    actions=tuple(
        Action(name, parameters, guard, effect, PROMISES.get(name, ()))
        for name, parameters, guard, effect in _STEPS
    ),
)
