"""When a doubly linked list with sentinels is well formed, over segments of a line of places.

The ghosts `at` and `index` number the nodes from head to tail. Over the whole segment `first` to
`end` the facts say that a walk from the head meets exactly `length` distinct nodes and ends at the
tail, forwards and backwards; loops use the same facts over parts of it.
"""

from __future__ import annotations

from poolproof.exploration.proof.logic import Logic, Term, Truth
from poolproof.exploration.proof.model import State

__all__ = [
    "FIELDS",
    "LINKS",
    "RIGID",
    "is_sentinel",
    "linked_back",
    "linked_on",
    "members_have_places",
    "outside_unlinked",
    "places_have_members",
    "sentinels_outside",
    "within",
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
