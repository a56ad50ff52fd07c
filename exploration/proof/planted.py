"""Planted bugs, which a run of the proof must catch: actions with another guard or effect.

Those in the steps of the abstract pool were most of them real, in some engine. The others are in
the operations of the linked list, the batch forms included, in what owners do with blocks, and in
admission.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from poolproof.exploration.proof.all_models import MODELS
from poolproof.exploration.proof.concrete_state import ConcreteStep
from poolproof.exploration.proof.finite_search import SCOPES, FiniteSearch
from poolproof.exploration.proof.logic import Logic, Term, Truth
from poolproof.exploration.proof.model import Action, Changes, Model, State
from poolproof.exploration.proof.pool_model import POOL
from poolproof.exploration.proof.queue_model import assigned

__all__ = ["PLANTED", "Caught", "Planted", "catch"]


Effect = Callable[..., Changes]


@dataclass(frozen=True)
class Planted:
    """What is wrong in one sentence, in which action, and the upstream thread, where there is one.

    `alter` takes the right effect and returns the wrong one; `guard` replaces the guard. The bug
    must break `invariant`, and may break others as well.
    """

    name: str
    model: str
    action: str
    invariant: str
    sentence: str
    thread: str = ""
    alter: Callable[[Effect], Effect] | None = None
    guard: Callable[..., Truth] | None = None

    def wrong_action(self) -> Action:
        """The action with the bug in it."""
        action = MODELS[self.model].action(self.action)
        if self.guard is not None:
            action = replace(action, guard=self.guard)
        if self.alter is not None:
            action = replace(action, effect=self.alter(action.effect))
        return action


@dataclass(frozen=True)
class Caught:
    """What became of a planted bug: a step that shows it, and the conditions broken after it.

    `example` is None for a bug that got through.
    """

    planted: Planted
    broken: tuple[str, ...]
    example: ConcreteStep | None

    @property
    def invariants(self) -> tuple[str, ...]:
        """The invariants that the conditions belong to, each once."""
        return tuple(dict.fromkeys(name.split()[0] for name in self.broken))

    @property
    def is_caught(self) -> bool:
        """Whether it breaks the invariant that it was planted for."""
        return self.example is not None


def catch(planted: Planted) -> Caught:
    """Look for a step of the wrong action after which what it was planted for does not hold."""
    model: Model = MODELS[planted.model]
    example = None
    for scope in range(len(SCOPES)):
        search = FiniteSearch(model, planted.wrong_action(), scope)
        wanted = [goal for goal in search.goals if goal.split()[0] == planted.invariant]
        example = search.counterexample(wanted)
        if example is not None:
            break
    return Caught(planted, () if example is None else example.broken, example)


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


def _stale_links(logic: Logic, s: State, node: Term) -> Changes:
    before, after = s.previous(node), s.next(node)
    return {
        "next": assigned(logic, s.next, (before, after)),
        "previous": assigned(logic, s.previous, (after, before)),
    }


def _half_unlinked(logic: Logic, s: State, node: Term) -> Changes:
    return {"previous": assigned(logic, s.previous, (node, s.nil))}


def _swapped(logic: Logic, s: State, node: Term) -> Changes:
    last = s.previous(s.tail)
    return {"previous": assigned(logic, s.previous, (node, s.tail), (s.tail, last))}


def _lost_back_link(logic: Logic, s: State, node: Term) -> Changes:
    return {"previous": assigned(logic, s.previous, (node, s.head))}


def _not_a_sentinel(logic: Logic, s: State, node: Term) -> Truth:
    return logic.holds_all(*(logic.negated(logic.same(node, n)) for n in (s.head, s.tail, s.nil)))


def _may_pop(logic: Logic, s: State) -> Truth:
    return True


def _unlinks_nothing(logic: Logic, s: State) -> Changes:
    return {"next": s.next, "previous": s.previous}


def _one_too_far(logic: Logic, s: State) -> Changes:
    return {"next": assigned(logic, s.next, (s.head, s.next(s.cursor)))}


def _no_back_link(logic: Logic, s: State) -> Changes:
    return {"previous": s.previous}


def _cursor_stays(logic: Logic, s: State) -> Changes:
    return {"cursor": s.cursor}


def _counts_one(logic: Logic, s: State) -> Changes:
    return {"length": s.length + 1}


def _at_the_head(logic: Logic, s: State, node: Term) -> Changes:
    """As `prepend` does."""
    first = s.next(s.head)
    return {
        "next": assigned(logic, s.next, (s.head, node), (node, first)),
        "previous": assigned(logic, s.previous, (node, s.head), (first, node)),
        "at": assigned(logic, s.at, (s.first - 1, node), (s.first - 2, s.head)),
        "index": assigned(logic, s.index, (node, s.first - 1)),
        "first": s.first - 1,
        "end": s.end,
    }


QUEUE_BUGS = (
    Planted(
        "Q1", "queue", "remove", "LINK", "a removed node keeps its links", "vllm#33875",
        alter=but(_stale_links),
    ),
    Planted(
        "Q2", "queue", "remove", "LINK", "its neighbours still point to a removed node",
        alter=but(_half_unlinked),
    ),
    Planted(
        "Q3", "queue", "append", "LINK", "links are set the wrong way round", alter=but(_swapped),
    ),
    Planted(
        "Q4", "queue", "append", "OWN", "a node that is queued joins again", "vllm#42571",
        guard=_not_a_sentinel,
    ),
    Planted(
        "Q5", "queue", "prepend", "LINK", "the old first does not point back",
        alter=but(_lost_back_link),
    ),
    Planted(
        "Q6", "queue", "popleft", "LINK", "an empty queue is popped", "vllm#24228",
        guard=_may_pop,
    ),
    Planted("Q7", "queue", "remove", "OWN", "removal is not counted", alter=without("length")),
    Planted(
        "Q8", "queue", "append", "ORD", "append puts the node at the head", "vllm#51482",
        alter=but(_at_the_head),
    ),
    Planted(
        "Q9", "popleft_n", "body", "LINK", "popped nodes keep their links", "vllm#33875",
        alter=but(_unlinks_nothing),
    ),
    Planted("Q10", "popleft_n", "rest", "LINK", "the head skips a node", alter=but(_one_too_far)),
    Planted(
        "Q11", "append_n", "rest", "LINK", "the tail does not point back",
        alter=but(_no_back_link),
    ),
    Planted(
        "Q12", "append_n", "body", "LINK", "every node is linked behind the old last",
        alter=but(_cursor_stays),
    ),
    Planted(
        "Q13", "prepend_n", "rest", "LINK", "the old first does not point back",
        alter=but(_no_back_link),
    ),
    Planted("Q14", "prepend_n", "rest", "OWN", "a batch counts as one", alter=but(_counts_one)),
)  # fmt: skip


def _written_while_shared(logic: Logic, s: State, reference: Term, *_rest: Term) -> Truth:
    return logic.holds_all(s.live(reference), logic.negated(s.hashed(s.on(reference))))


def _written_while_cached(logic: Logic, s: State, reference: Term, *_rest: Term) -> Truth:
    return logic.holds_all(s.live(reference), logic.same(s.count(s.on(reference)), 1))


def _cached_early(logic: Logic, s: State, block: Term) -> Truth:
    return POOL.action("cache").guard(logic, s, block, s.name_of(s.kv(block)))


def _under_another_hash(logic: Logic, s: State, block: Term) -> Changes:
    """The hash leaves out a part of what the KV depends on."""
    return POOL.action("cache").effect(logic, s, block, s.name_of(s.chain_of(s.hash(block))))


def _hit_on_any(logic: Logic, s: State, chain: Term, block: Term, reference: Term) -> Truth:
    return POOL.action("touch").guard(logic, s, block, reference)


def _counts_new_only(logic: Logic, s: State, revived: Term, new: Term) -> Changes:
    return {"admitted": new <= s.num_free}


def _counts_all_as_new(logic: Logic, s: State, revived: Term, new: Term) -> Changes:
    return {"admitted": revived + new + 1 <= s.num_free}


def _anything(logic: Logic, s: State, *_parameters: Term) -> Truth:
    return True


CONTENT_BUGS = (
    Planted(
        "C1", "content", "write", "DATA", "a shared block is written to without a copy",
        "atlas#1193", guard=_written_while_shared,
    ),
    Planted(
        "C2", "content", "write", "I3", "a cached block is written to again", "vllm#49377",
        guard=_written_while_cached,
    ),
    Planted(
        "C3", "content", "cache", "I3", "a block is cached before it is full", "vllm#29387",
        guard=_cached_early,
    ),
    Planted(
        "C4", "content", "cache", "IDX", "the key leaves something out", "vllm#3264",
        alter=instead(_under_another_hash),
    ),
    Planted(
        "C5", "content", "allocate", "I3", "a recycled block keeps its hash", "nano-vllm#163",
        alter=without("hashed", "indexed"),
    ),
    Planted(
        "C6", "content", "hit", "DATA", "a hit is not compared with what was asked for",
        "openvino.genai#3722", guard=_hit_on_any,
    ),
    Planted(
        "C7", "content", "share", "DATA", "a fork does not hold what its parent holds",
        "tvm#16666", alter=without("wants"),
    ),
    Planted(
        "M1", "admission", "ask", "ADM", "revived hits are not counted", "vllm#11565",
        alter=but(_counts_new_only),
    ),
    Planted(
        "M2", "admission", "ask", "ADM", "one block too many is wanted", "vllm#19031",
        alter=but(_counts_all_as_new),
    ),
    Planted(
        "M3", "admission", "ask", "ADM", "a negative number of blocks is asked for", "vllm#52707",
        guard=_anything,
    ),
    Planted(
        "M4", "admission", "take", "ADM", "the counter misses an allocation",
        alter=without("num_free"),
    ),
)  # fmt: skip


PLANTED: tuple[Planted, ...] = (*POOL_BUGS, *QUEUE_BUGS, *CONTENT_BUGS)
