"""The free queue as a doubly linked list with sentinels: what it must be, and its operations.

The pointer assignments are those of `impl/free_queue.py`; the ghosts `at`, `index`, `first` and
`end` follow what the operation means. `at` and `index` number the nodes from head to tail. Over
the whole segment `first` to `end` the facts say that a walk from the head meets exactly `length`
distinct nodes and ends at the tail, forwards and backwards; loops use the same facts over parts of
it.

Here are the operations on one node. The batch forms are loops: `append_n_loop.py`,
`popleft_n_loop.py`, `prepend_n_loop.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from poolproof.exploration.proof.logic import Logic, Term, Truth
from poolproof.exploration.proof.model import Action, Changes, Model, Promise, State

__all__ = [
    "FIELDS",
    "LINKS",
    "QUEUE",
    "RIGID",
    "assigned",
    "is_sentinel",
    "linked_back",
    "linked_on",
    "members_have_places",
    "outside_unlinked",
    "places_have_members",
    "sentinels_outside",
]


FIELDS = {
    "head": "Node",
    "tail": "Node",
    "nil": "Node",
    "next": "Node Node",
    "previous": "Node Node",
    "member": "Node Bool",
    "at": "Int Node",
    "index": "Node Int",
    "first": "Int",
    "end": "Int",
    "length": "Int",
}

Segment = tuple[Term, Term]
"""From a place, to the place after the last."""


def within(logic: Logic, place: Term, *segments: Segment) -> Truth:
    """The place lies in one of the segments."""
    return logic.holds_any(*(logic.holds_all(low <= place, place < high) for low, high in segments))


def is_sentinel(logic: Logic, s: State, node: Term) -> Truth:
    """The node is head, tail, or what stands for no node."""
    return logic.holds_any(*(logic.same(node, n) for n in (s.head, s.tail, s.nil)))


def members_have_places(logic: Logic, s: State, *segments: Segment) -> Truth:
    """Every member stands at its place, in one of the segments."""
    return logic.every(
        "Node",
        lambda n: logic.implies(
            s.member(n),
            logic.holds_all(
                within(logic, s.index(n), *segments), logic.same(s.at(s.index(n)), n)
            ),
        ),
    )  # fmt: skip


def places_have_members(logic: Logic, s: State, *segments: Segment) -> Truth:
    """At every place of the segments stands a member."""
    return logic.every(
        "Int",
        lambda i: logic.implies(
            within(logic, i, *segments),
            logic.holds_all(s.member(s.at(i)), logic.same(s.index(s.at(i)), i)),
        ),
    )


def linked_on(logic: Logic, s: State, *segments: Segment) -> Truth:
    """The next of the node at each of these places is the node at the following place."""
    return logic.every(
        "Int",
        lambda i: logic.implies(
            within(logic, i, *segments), logic.same(s.next(s.at(i)), s.at(i + 1))
        ),
    )


def linked_back(logic: Logic, s: State, *segments: Segment) -> Truth:
    """The previous of the node at each of these places is the node at the place before."""
    return logic.every(
        "Int",
        lambda i: logic.implies(
            within(logic, i, *segments), logic.same(s.previous(s.at(i)), s.at(i - 1))
        ),
    )


def outside_unlinked(logic: Logic, s: State) -> Truth:
    """A node outside has no links, and the sentinels none beyond the ends."""
    return logic.holds_all(
        logic.same(s.previous(s.head), s.nil),
        logic.same(s.next(s.tail), s.nil),
        logic.every(
            "Node",
            lambda n: logic.implies(
                logic.negated(logic.holds_any(s.member(n), is_sentinel(logic, s, n))),
                logic.holds_all(logic.same(s.next(n), s.nil), logic.same(s.previous(n), s.nil)),
            ),
        ),
    )


def sentinels_outside(logic: Logic, s: State) -> Truth:
    """Head, tail and no node are not in the list."""
    return logic.every(
        "Node", lambda n: logic.implies(is_sentinel(logic, s, n), logic.negated(s.member(n)))
    )


def _distinct_sentinels(logic: Logic, s: State) -> Truth:
    pairs = ((s.head, s.tail), (s.head, s.nil), (s.tail, s.nil))
    return logic.holds_all(*(logic.negated(logic.same(a, b)) for a, b in pairs))


def _counter(logic: Logic, s: State) -> Truth:
    return logic.holds_all(s.first <= s.end, logic.same(s.length, s.end - s.first))


def _ends(logic: Logic, s: State) -> Truth:
    return logic.holds_all(
        logic.same(s.at(s.first - 1), s.head), logic.same(s.at(s.end), s.tail)
    )  # fmt: skip


RIGID = {"sentinels are distinct": _distinct_sentinels}

LINKS = {
    "LINK sentinels outside": sentinels_outside,
    "OWN queued has a place": lambda logic, s: members_have_places(logic, s, (s.first, s.end)),
    "OWN place has a queued": lambda logic, s: places_have_members(logic, s, (s.first, s.end)),
    "OWN counter": _counter,
    "LINK ends": _ends,
    "LINK next": lambda logic, s: linked_on(logic, s, (s.first - 1, s.end)),
    "LINK previous": lambda logic, s: linked_back(logic, s, (s.first, s.end + 1)),
    "LINK outside unlinked": outside_unlinked,
}


def assigned(
    logic: Logic, old: Callable[[Term], Term], *assignments: tuple[Term, Term]
) -> Callable[[Term], Term]:
    """The array after `array[key] = value` for each pair, in this order."""

    def value(key: Term) -> Term:
        result = old(key)
        for place, new in assignments:
            result = logic.choose(logic.same(key, place), new, result)
        return result

    return value


def initial(logic: Logic, s: State) -> Truth:
    """An empty list, from which appends make every other; a full one is its own line."""
    return logic.holds_all(
        logic.same(s.first, s.end),
        logic.same(s.length, 0),
        logic.same(s.at(s.first - 1), s.head),
        logic.same(s.at(s.end), s.tail),
        logic.same(s.next(s.head), s.tail),
        logic.same(s.previous(s.tail), s.head),
        logic.every("Node", lambda n: logic.negated(s.member(n))),
        logic.same(s.previous(s.head), s.nil),
        logic.same(s.next(s.tail), s.nil),
        logic.every(
            "Node",
            lambda n: logic.implies(
                logic.negated(is_sentinel(logic, s, n)),
                logic.holds_all(logic.same(s.next(n), s.nil), logic.same(s.previous(n), s.nil)),
            ),
        ),
    )


def _unlinked(logic: Logic, s: State, node: Term) -> Changes:
    before, after = s.previous(node), s.next(node)
    return {
        "next": assigned(logic, s.next, (before, after), (node, s.nil)),
        "previous": assigned(logic, s.previous, (after, before), (node, s.nil)),
        "member": assigned(logic, s.member, (node, False)),
        "length": s.length - 1,
    }


def is_queued(logic: Logic, s: State, node: Term) -> Truth:
    """As the code asks: the node has links."""
    return logic.negated(
        logic.holds_any(logic.same(s.next(node), s.nil), is_sentinel(logic, s, node))
    )


def remove(logic: Logic, s: State, node: Term) -> Changes:
    """The node leaves from wherever it stands; those behind it move up."""
    gone = s.index(node)
    return {
        **_unlinked(logic, s, node),
        "at": lambda i: logic.choose(i >= gone, s.at(i + 1), s.at(i)),
        "index": lambda n: logic.choose(s.index(n) > gone, s.index(n) - 1, s.index(n)),
        "end": s.end - 1,
    }


def is_not_empty(logic: Logic, s: State) -> Truth:
    return logic.negated(logic.same(s.next(s.head), s.tail))


def popleft(logic: Logic, s: State) -> Changes:
    """The node at the head leaves."""
    return {
        **_unlinked(logic, s, s.next(s.head)),
        "at": assigned(logic, s.at, (s.first, s.head)),
        "first": s.first + 1,
    }


def may_join(logic: Logic, s: State, node: Term) -> Truth:
    """As the code asks: the node has no links."""
    return logic.holds_all(
        logic.same(s.next(node), s.nil), logic.negated(is_sentinel(logic, s, node))
    )


def append(logic: Logic, s: State, node: Term) -> Changes:
    """The node joins at the tail."""
    last = s.previous(s.tail)
    return {
        "next": assigned(logic, s.next, (last, node), (node, s.tail)),
        "previous": assigned(logic, s.previous, (node, last), (s.tail, node)),
        "member": assigned(logic, s.member, (node, True)),
        "length": s.length + 1,
        "at": assigned(logic, s.at, (s.end, node), (s.end + 1, s.tail)),
        "index": assigned(logic, s.index, (node, s.end)),
        "end": s.end + 1,
    }


def prepend(logic: Logic, s: State, node: Term) -> Changes:
    """The node joins at the head."""
    first = s.next(s.head)
    return {
        "next": assigned(logic, s.next, (s.head, node), (node, first)),
        "previous": assigned(logic, s.previous, (node, s.head), (first, node)),
        "member": assigned(logic, s.member, (node, True)),
        "length": s.length + 1,
        "at": assigned(logic, s.at, (s.first - 1, node), (s.first - 2, s.head)),
        "index": assigned(logic, s.index, (node, s.first - 1)),
        "first": s.first - 1,
    }


def _took_the_first(logic: Logic, s: State, t: State) -> Truth:
    taken = s.next(s.head)
    return logic.holds_all(
        s.member(taken), logic.same(s.index(taken), s.first), logic.negated(t.member(taken))
    )


def _stands_last(logic: Logic, s: State, t: State, node: Term) -> Truth:
    return _alone_at(logic, t, node, lambda n: t.index(n) < t.index(node))


def _stands_first(logic: Logic, s: State, t: State, node: Term) -> Truth:
    return _alone_at(logic, t, node, lambda n: t.index(n) > t.index(node))


def _alone_at(logic: Logic, t: State, node: Term, beyond: Callable[[Term], Truth]) -> Truth:
    others = logic.every(
        "Node",
        lambda n: logic.implies(
            logic.holds_all(t.member(n), logic.negated(logic.same(n, node))), beyond(n)
        ),
    )
    return logic.holds_all(t.member(node), others)


def _order_stays(logic: Logic, s: State, t: State, *_parameters: Term) -> Truth:
    return logic.every(
        "Node Node",
        lambda a, b: logic.implies(
            logic.holds_all(
                s.member(a), s.member(b), t.member(a), t.member(b), s.index(a) < s.index(b)
            ),
            t.index(a) < t.index(b),
        ),
    )


def inverse(logic: Logic, s: State) -> Truth:
    """Next and previous are inverse to each other on everything in the list."""

    def on(n: Term) -> Truth:
        return logic.holds_any(s.member(n), logic.same(n, s.head))

    def back(n: Term) -> Truth:
        return logic.holds_any(s.member(n), logic.same(n, s.tail))

    return logic.every(
        "Node",
        lambda n: logic.holds_all(
            logic.implies(
                on(n), logic.holds_all(back(s.next(n)), logic.same(s.previous(s.next(n)), n))
            ),
            logic.implies(
                back(n), logic.holds_all(on(s.previous(n)), logic.same(s.next(s.previous(n)), n))
            ),
        ),
    )


def a_walk_gets_on(logic: Logic, s: State) -> Truth:
    """Each link leads one place further, so that a walk of `length` + 1 links is at the tail."""
    return logic.every(
        "Node",
        lambda n: logic.implies(
            s.member(n),
            logic.holds_any(
                logic.same(s.index(s.next(n)), s.index(n) + 1),
                logic.holds_all(logic.same(s.next(n), s.tail), logic.same(s.index(n), s.end - 1)),
            ),
        ),
    )


def within_bounds(logic: Logic, s: State, size: int) -> Truth:
    """Places stay where a finite scope of `size` nodes, the sentinels among them, looks."""
    return logic.holds_all(s.first >= 0, s.first <= size, s.end >= 0, s.end <= size)


_ORDER = Promise("ORD", "nodes that stay keep their order", _order_stays)
_NODE = {"node": "Node"}

QUEUE = Model(
    name="queue",
    title="free queue, a doubly linked list",
    fields=FIELDS,
    rigid=RIGID,
    invariants=LINKS,
    initial=initial,
    bounds=within_bounds,
    consequences={"LINK inverse": inverse, "LINK a walk ends": a_walk_gets_on},
    actions=(
        Action(
            "popleft", {}, is_not_empty, popleft,
            (_ORDER, Promise("ORD", "the first node leaves", _took_the_first)),
        ),
        Action(
            "append", _NODE, may_join, append,
            (_ORDER, Promise("ORD", "the node stands last", _stands_last)),
        ),
        Action(
            "prepend", _NODE, may_join, prepend,
            (_ORDER, Promise("ORD", "the node stands first", _stands_first)),
        ),
        Action("remove", _NODE, is_queued, remove, (_ORDER,)),
    ),
)  # fmt: skip
