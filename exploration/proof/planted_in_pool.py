"""Bugs in the steps of the abstract pool; most of them were real, in some engine."""

from __future__ import annotations

from collections.abc import Callable

from poolproof.exploration.proof.logic import Logic, Term, Truth
from poolproof.exploration.proof.model import Changes, State
from poolproof.exploration.proof.planted import Planted

__all__ = ["POOL_BUGS"]

Effect = Callable[..., Changes]
Alter = Callable[[Effect], Effect]


def without(*fields: str) -> Alter:
    """The effect forgets to change these fields."""

    def alter(effect: Effect) -> Effect:
        def forgetful(logic: Logic, s: State, *parameters: Term) -> Changes:
            changes = effect(logic, s, *parameters)
            return {name: value for name, value in changes.items() if name not in fields}

        return forgetful

    return alter


def but(more: Effect) -> Alter:
    """The effect, with the changes of another one in the place of its own."""

    def alter(effect: Effect) -> Effect:
        def changed(logic: Logic, s: State, *parameters: Term) -> Changes:
            right = effect(logic, s, *parameters)
            return {**right, **more(logic, s, *parameters)}

        return changed

    return alter


def instead(wrong: Effect) -> Alter:
    """Another effect."""
    return lambda effect: wrong


def _dropped(logic: Logic, s: State, block: Term) -> Changes:
    return {
        "hashed": lambda b: logic.holds_all(s.hashed(b), logic.negated(logic.same(b, block))),
        "indexed": lambda h, b: logic.holds_all(
            s.indexed(h, b), logic.negated(logic.same(b, block))
        ),
    }


def _whole_bucket(logic: Logic, s: State, _reference: Term) -> Changes:
    block = s.at(s.first)

    def gone(h: Term) -> Truth:
        return logic.holds_all(s.hashed(block), logic.same(h, s.hash(block)))

    return {
        "hashed": lambda b: logic.holds_all(
            s.hashed(b), logic.negated(logic.same(b, block)), logic.negated(gone(s.hash(b)))
        ),
        "indexed": lambda h, b: logic.holds_all(s.indexed(h, b), logic.negated(gone(h))),
    }


def _from_the_tail(logic: Logic, s: State, reference: Term) -> Changes:
    block, index = s.at(s.end - 1), s.first
    return {
        "count": lambda b: logic.choose(logic.same(b, block), 1, s.count(b)),
        "holder": lambda b, i: logic.choose(
            logic.holds_all(logic.same(b, block), logic.same(i, 0)), reference, s.holder(b, i)
        ),
        "on": lambda r: logic.choose(logic.same(r, reference), block, s.on(r)),
        "queued": lambda b: logic.holds_all(s.queued(b), logic.negated(logic.same(b, block))),
        **_dropped(logic, s, block),
        "first": index,
        "end": s.end - 1,
    }


def _always_queues(logic: Logic, s: State, block: Term) -> Changes:
    return {
        "queued": lambda b: logic.holds_any(s.queued(b), logic.same(b, block)),
        "num_free": s.num_free + 1,
    }


def _takes_all_references(logic: Logic, s: State, block: Term) -> Changes:
    return {
        "live": lambda r: logic.holds_all(s.live(r), logic.negated(logic.same(s.on(r), block))),
        "count": lambda b: logic.choose(logic.same(b, block), 0, s.count(b)),
    }


def _moves_owners(logic: Logic, s: State, block: Term, block_hash: Term) -> Changes:
    """Owners of an older copy are moved to the new one."""
    return {
        "on": lambda r: logic.choose(s.indexed(block_hash, s.on(r)), block, s.on(r)),
    }


def _at_the_tail(logic: Logic, s: State, block: Term) -> Changes:
    """Every freed block goes to the tail, whatever the profile says."""
    freed = logic.same(s.count(block), 1)

    def joins(b: Term) -> Truth:
        return logic.holds_all(freed, logic.same(b, block))

    return {
        "at": lambda i: logic.choose(
            logic.holds_all(freed, logic.same(i, s.end)), block, s.at(i)
        ),
        "index": lambda b: logic.choose(joins(b), s.end, s.index(b)),
        "first": s.first,
        "end": logic.choose(freed, s.end + 1, s.end),
    }  # fmt: skip


def _old_place(logic: Logic, s: State, block: Term) -> Changes:
    """The block is counted back in, but nobody puts it at its place in the queue."""
    return {"index": s.index, "at": s.at}


def _swap_first_two(logic: Logic, s: State, _block: Term) -> Changes:
    two = s.end - s.first >= 2
    a, b = s.at(s.first), s.at(s.first + 1)

    def swapped(x: Term, y: Term, value: Term, old: Term) -> Term:
        return logic.choose(logic.holds_all(two, logic.same(x, y)), value, old)

    return {
        "at": lambda i: swapped(i, s.first, b, swapped(i, s.first + 1, a, s.at(i))),
        "index": lambda n: swapped(n, a, s.first + 1, swapped(n, b, s.first, s.index(n))),
    }


def _unchecked(logic: Logic, s: State, *_parameters: Term) -> Truth:
    return True


def _new_reference_only(logic: Logic, s: State, *parameters: Term) -> Truth:
    return logic.negated(s.live(parameters[-1]))


def _any_block_answers(logic: Logic, s: State, block_hash: Term, block: Term) -> Truth:
    return logic.holds_all(logic.negated(s.null(block)), s.hashed(block))


def _old_entry_stays(logic: Logic, s: State, block: Term, block_hash: Term) -> Changes:
    return {
        "indexed": lambda h, b: logic.holds_any(
            s.indexed(h, b), logic.holds_all(logic.same(h, block_hash), logic.same(b, block))
        ),
    }


def _joined_but_not_linked(logic: Logic, s: State, block: Term) -> Changes:
    taken = s.index(block)
    return {
        "queued": lambda b: logic.holds_all(s.queued(b), logic.negated(logic.same(b, block))),
        "num_free": logic.choose(s.queued(block), s.num_free - 1, s.num_free),
        "at": lambda i: logic.choose(
            logic.holds_all(s.queued(block), i >= taken), s.at(i + 1), s.at(i)
        ),
        "index": lambda b: logic.choose(
            logic.holds_all(s.queued(block), s.index(b) > taken), s.index(b) - 1, s.index(b)
        ),
        "end": logic.choose(s.queued(block), s.end - 1, s.end),
    }


_QUEUE = ("queued", "at", "index", "first", "end", "num_free")


def _pool(
    name: str, action: str, invariant: str, sentence: str, thread: str = "", **how: object
) -> Planted:
    return Planted(name, "pool", action, invariant, sentence, thread, **how)  # type: ignore[arg-type] # alter and guard


POOL_BUGS = (
    _pool(
        "P1", "touch", "I1", "touch leaves a free block in the queue", "TensorRT-LLM#12667",
        alter=without(*_QUEUE),
    ),
    _pool(
        "P2", "free", "I1", "free queues a block that others still hold", "LMCache#3004",
        alter=but(_always_queues),
    ),
    _pool(
        "P3", "free", "I1", "free forgets to queue the block", "MinivLLM#70",
        alter=without(*_QUEUE),
    ),
    _pool(
        "P4", "evict", "I1", "evict takes a free block out of the queue",
        alter=but(_joined_but_not_linked),
    ),
    _pool(
        "P5", "allocate", "I2", "allocate does not ask whether a block is free", "sglang#30892",
        guard=_new_reference_only,
    ),
    _pool(
        "P6", "free", "I2", "free takes the references of all owners", "atlas#373",
        alter=but(_takes_all_references),
    ),
    _pool(
        "P7", "cache", "I2", "caching a duplicate moves its owners to the new block",
        "TensorRT-LLM#12648", alter=but(_moves_owners),
    ),
    _pool("P8", "cache", "I3", "the null block is cached", "vllm#34367", guard=_unchecked),
    _pool(
        "P9", "free", "I4", "free takes the hash of a cached block", "ATOM#902",
        alter=but(_dropped),
    ),
    _pool(
        "P10", "allocate", "I4", "eviction drops every block of the same hash", "nano-vllm#219",
        alter=but(_whole_bucket),
    ),
    _pool(
        "P11", "lookup", "I4", "lookup answers with a block of another hash", "vllm#12621",
        guard=_any_block_answers,
    ),
    _pool("P12", "touch", "OWN", "touch does not count the owner", alter=without("count")),
    _pool("P13", "touch", "OWN", "touch counts, and forgets who", alter=without("live")),
    _pool("P14", "free", "OWN", "free below zero", "mllm#688", guard=_unchecked),
    _pool("P15", "touch", "OWN", "the null block is held", "vllm#18652", guard=_new_reference_only),
    _pool("P16", "touch", "OWN", "the counter misses a revived block", alter=without("num_free")),
    _pool(
        "P17", "touch", "OWN", "those behind a revived block keep their places",
        alter=without("at"),
    ),
    _pool(
        "P18", "free", "OWN", "a freed block keeps the place that it had once",
        alter=but(_old_place),
    ),
    _pool(
        "P19", "allocate", "IDX", "the index keeps a recycled block", "nano-vllm#163",
        alter=without("indexed"),
    ),
    _pool(
        "P20", "evict", "IDX", "evict leaves the hash on the block", "kvcached#363",
        alter=without("hashed"),
    ),
    _pool(
        "P21", "cache", "IDX", "the entry under the old hash stays", "vllm#14073",
        alter=but(_old_entry_stays),
    ),
    _pool(
        "P22", "cache", "IDX", "a second carrier where the profile keeps one",
        guard=lambda logic, s, block, block_hash: logic.holds_all(
            s.count(block) > 0, logic.negated(s.null(block))
        ),
    ),
    _pool(
        "P23", "allocate", "ORD", "allocate takes from the tail",
        alter=but(_from_the_tail),
    ),
    _pool(
        "P24", "free", "ORD", "a freed block goes to the tail in every profile", "vllm#51482",
        alter=but(_at_the_tail),
    ),
    _pool("P25", "evict", "ORD", "evict reorders the queue", alter=but(_swap_first_two)),
)  # fmt: skip
