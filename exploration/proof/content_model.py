"""DATA over the abstract pool: an index hit implies the same chain, and nobody reads other KV.

A chain is a prefix with all that its KV depends on; `name_of` is the hash of a chain. To the pool's
fields come the chain that a block's KV was computed for (`kv`), whether the block is full, and for
each reference whether its owner has something to read there (`reads`) and which chain it wants. The
pool's invariants are used here and proved in `pool_model.py`: every step here is a step there, with
more guards.

Assumed: hashes of different chains differ; owners keep the rules that stand in the guards (a block
is cached only when it is full and under the hash of what was written; a block is written to only by
its single owner and only while it carries no hash). Not here: the order of writes and reads within
one step, partial keys, several cache groups, what a kernel really writes.
"""

from __future__ import annotations

from poolproof.exploration.proof.logic import Logic, Term, Truth
from poolproof.exploration.proof.model import Action, Changes, Model, Promise, State
from poolproof.exploration.proof.pool_invariants import INVARIANTS, PROFILE, within_bounds
from poolproof.exploration.proof.pool_model import POOL

__all__ = ["CONTENT"]

_FIELDS = {
    "name_of": "Chain Hash",
    "chain_of": "Hash Chain",
    "kv": "Block Chain",
    "full": "Block Bool",
    "reads": "Reference Bool",
    "wants": "Reference Chain",
}


def _no_collisions(logic: Logic, s: State) -> Truth:
    return logic.every("Chain", lambda c: logic.same(s.chain_of(s.name_of(c)), c))


def _own_content(logic: Logic, s: State) -> Truth:
    return logic.every(
        "Reference",
        lambda r: logic.implies(
            logic.holds_all(s.live(r), s.reads(r)), logic.same(s.kv(s.on(r)), s.wants(r))
        ),
    )


def _cached_is_full(logic: Logic, s: State) -> Truth:
    return logic.every("Block", lambda b: logic.implies(s.hashed(b), s.full(b)))


def _cached_is_named(logic: Logic, s: State) -> Truth:
    return logic.every(
        "Block", lambda b: logic.implies(s.hashed(b), logic.same(s.hash(b), s.name_of(s.kv(b))))
    )


def initial(logic: Logic, s: State) -> Truth:
    return POOL.initial(logic, s)


def _set(logic: Logic, old: Term, key: Term, value: Term) -> Term:
    return lambda x: logic.choose(logic.same(x, key), value, old(x))


def allocate(logic: Logic, s: State, reference: Term) -> Changes:
    """A recycled block has old KV in it, which its owner does not read."""
    return {
        **POOL.action("allocate").effect(logic, s, reference),
        "full": _set(logic, s.full, s.at(s.first), False),
        "reads": _set(logic, s.reads, reference, False),
    }


def may_hit(logic: Logic, s: State, chain: Term, block: Term, reference: Term) -> Truth:
    return logic.holds_all(
        s.indexed(s.name_of(chain), block),
        POOL.action("touch").guard(logic, s, block, reference),
    )


def hit(logic: Logic, s: State, chain: Term, block: Term, reference: Term) -> Changes:
    """`lookup` answered with the block for this chain, and it is touched."""
    return {
        **POOL.action("touch").effect(logic, s, block, reference),
        "reads": _set(logic, s.reads, reference, True),
        "wants": _set(logic, s.wants, reference, chain),
    }


def may_share(logic: Logic, s: State, parent: Term, reference: Term) -> Truth:
    return logic.holds_all(
        s.live(parent), POOL.action("touch").guard(logic, s, s.on(parent), reference)
    )


def share(logic: Logic, s: State, parent: Term, reference: Term) -> Changes:
    """A fork: one more owner, who wants what the parent wants."""
    return {
        **POOL.action("touch").effect(logic, s, s.on(parent), reference),
        "reads": _set(logic, s.reads, reference, s.reads(parent)),
        "wants": _set(logic, s.wants, reference, s.wants(parent)),
    }


def may_write(logic: Logic, s: State, reference: Term, chain: Term, full: Term) -> Truth:
    block = s.on(reference)
    return logic.holds_all(
        s.live(reference), logic.same(s.count(block), 1), logic.negated(s.hashed(block))
    )


def write(logic: Logic, s: State, reference: Term, chain: Term, full: Term) -> Changes:
    """The owner writes: its block now holds the KV of this chain, up to its end or not."""
    block = s.on(reference)
    return {
        "kv": _set(logic, s.kv, block, chain),
        "full": _set(logic, s.full, block, full),
        "reads": _set(logic, s.reads, reference, True),
        "wants": _set(logic, s.wants, reference, chain),
    }


def may_cache(logic: Logic, s: State, block: Term) -> Truth:
    return logic.holds_all(
        s.full(block), POOL.action("cache").guard(logic, s, block, s.name_of(s.kv(block)))
    )


def cache(logic: Logic, s: State, block: Term) -> Changes:
    """Under the hash of what was written."""
    return POOL.action("cache").effect(logic, s, block, s.name_of(s.kv(block)))


def _same_chain(
    logic: Logic, s: State, t: State, chain: Term, block: Term, reference: Term
) -> Truth:
    return logic.holds_all(logic.same(s.kv(block), chain), s.full(block))


def _only_ones_own(logic: Logic, s: State, t: State, reference: Term, *_rest: Term) -> Truth:
    return logic.every(
        "Reference",
        lambda r: logic.implies(
            logic.holds_all(s.live(r), logic.negated(logic.same(r, reference))),
            logic.same(t.kv(s.on(r)), s.kv(s.on(r))),
        ),
    )


def _as_in_the_pool(name: str) -> Action:
    """A step that neither writes nor reads. Its promises are proved with the pool."""
    action = POOL.action(name)
    return Action(name, action.parameters, action.guard, action.effect)


_OWN = Promise("DATA", "nobody else's block is written to", _only_ones_own)
_UNCHANGED = ("free", "cache, first stays", "evict", "reset")

CONTENT = Model(
    name="content",
    title="KV contents over the pool",
    fields={**POOL.fields, **_FIELDS},
    rigid={**PROFILE, "hashes of different chains differ": _no_collisions},
    given=INVARIANTS,
    invariants={
        "DATA own content": _own_content,
        "I3 cached is full": _cached_is_full,
        "IDX cached is named": _cached_is_named,
    },
    initial=initial,
    bounds=within_bounds,
    actions=(
        Action("allocate", {"reference": "Reference"}, POOL.action("allocate").guard, allocate),
        Action(
            "hit", {"chain": "Chain", "block": "Block", "reference": "Reference"}, may_hit, hit,
            (Promise("DATA", "an index hit implies the same chain", _same_chain),),
        ),
        Action("share", {"parent": "Reference", "reference": "Reference"}, may_share, share),
        Action(
            "write", {"reference": "Reference", "chain": "Chain", "full": "Bool"}, may_write, write,
            (_OWN,),
        ),
        Action("cache", {"block": "Block"}, may_cache, cache),
        *(_as_in_the_pool(name) for name in _UNCHANGED),
    ),
)  # fmt: skip
