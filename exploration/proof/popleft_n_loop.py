"""`popleft_n` as a loop: the cursor runs along the list, the nodes behind it are unlinked.

The head's own next link, and the previous link of the node at the cursor, are out of date inside.
"""

from __future__ import annotations

from poolproof.exploration.proof.logic import Logic, Truth
from poolproof.exploration.proof.loop import loop_model
from poolproof.exploration.proof.model import Changes, Promise, State
from poolproof.exploration.proof.queue_model import (
    assigned,
    linked_back,
    linked_on,
    members_have_places,
    outside_unlinked,
    places_have_members,
    sentinels_outside,
)

__all__ = ["POPLEFT_N"]


def _entry(logic: Logic, s: State) -> Truth:
    return logic.holds_all(s.total <= s.length, logic.same(s.cursor, s.next(s.head)))


def _body(logic: Logic, s: State) -> Changes:
    node = s.cursor
    return {
        "batch": assigned(logic, s.batch, (s.done, node)),
        "cursor": s.next(node),
        "next": assigned(logic, s.next, (node, s.nil)),
        "previous": assigned(logic, s.previous, (node, s.nil)),
        "member": assigned(logic, s.member, (node, False)),
        "done": s.done + 1,
    }


def _rest(logic: Logic, s: State) -> Changes:
    first = s.first + s.done
    return {
        "next": assigned(logic, s.next, (s.head, s.cursor)),
        "previous": assigned(logic, s.previous, (s.cursor, s.head)),
        "length": s.length - s.total,
        "at": assigned(logic, s.at, (first - 1, s.head)),
        "first": first,
    }


def _counter(logic: Logic, s: State) -> Truth:
    return logic.holds_all(logic.same(s.length, s.end - s.first), s.first + s.total <= s.end)


def _cursor(logic: Logic, s: State) -> Truth:
    return logic.holds_all(
        logic.same(s.cursor, s.at(s.first + s.done)), logic.same(s.at(s.end), s.tail)
    )


def _taken(logic: Logic, s: State) -> Truth:
    return logic.every(
        "Int",
        lambda i: logic.implies(
            logic.holds_all(i >= s.first, i < s.first + s.done),
            logic.holds_all(
                logic.same(s.batch(i - s.first), s.at(i)), logic.negated(s.member(s.at(i)))
            ),
        ),
    )


def _took_the_first(logic: Logic, s: State, t: State) -> Truth:
    return logic.every(
        "Int",
        lambda i: logic.implies(
            logic.holds_all(i >= 0, i < s.total),
            logic.holds_all(
                logic.same(t.batch(i), s.at(s.first + i)), logic.negated(t.member(t.batch(i)))
            ),
        ),
    )


_ORDER = Promise("ORD", "the first nodes left, in their order", _took_the_first)

_INVARIANTS = {
    "LINK sentinels outside": sentinels_outside,
    "OWN queued has a place": lambda logic, s: members_have_places(
        logic, s, (s.first + s.done, s.end)
    ),
    "OWN place has a queued": lambda logic, s: places_have_members(
        logic, s, (s.first + s.done, s.end)
    ),
    "OWN counter": _counter,
    "LINK cursor": _cursor,
    "LINK next": lambda logic, s: linked_on(logic, s, (s.first + s.done, s.end)),
    "LINK previous": lambda logic, s: linked_back(logic, s, (s.first + s.done + 1, s.end + 1)),
    "LINK outside unlinked": outside_unlinked,
    "ORD taken from the head": _taken,
}


POPLEFT_N = loop_model("popleft_n", _entry, _INVARIANTS, _body, _rest, _ORDER)
