"""`prepend_n` as a loop: nodes are linked behind the head, up to the gap before the old first.

The head's old first node is kept in `following`; its previous link is out of date inside.
"""

from __future__ import annotations

from poolproof.exploration.proof.logic import Logic, Term, Truth
from poolproof.exploration.proof.loop import (
    batch_may_join,
    linked_behind,
    loop_model,
    may_join,
    progress,
)
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

__all__ = ["PREPEND_N"]


def _gap(s: State) -> tuple[Term, Term]:
    """From where the batch stands, to where its next node goes."""
    low = s.first - s.total
    return low, low + s.done


def _entry(logic: Logic, s: State) -> Truth:
    return logic.holds_all(
        logic.same(s.cursor, s.head),
        logic.same(s.following, s.next(s.head)),
        logic.same(s.at(s.first - s.total - 1), s.head),
        may_join(logic, s, 0),
    )


def _body(logic: Logic, s: State) -> Changes:
    return linked_behind(logic, s, _gap(s)[1])


def _rest(logic: Logic, s: State) -> Changes:
    return {
        "next": assigned(logic, s.next, (s.cursor, s.following)),
        "previous": assigned(logic, s.previous, (s.following, s.cursor)),
        "length": s.length + s.total,
        "first": s.first - s.total,
    }


def _counter(logic: Logic, s: State) -> Truth:
    return logic.holds_all(logic.same(s.length, s.end - s.first), s.length >= 0)


def _cursor(logic: Logic, s: State) -> Truth:
    low, high = _gap(s)
    return logic.holds_all(
        logic.same(s.cursor, s.at(high - 1)),
        logic.same(s.following, s.at(s.first)),
        logic.same(s.at(low - 1), s.head),
        logic.same(s.at(s.end), s.tail),
    )


def _order(logic: Logic, s: State) -> Truth:
    low, _ = _gap(s)
    return logic.every(
        "Int",
        lambda i: logic.implies(
            logic.holds_all(i >= 0, i < s.done), logic.same(s.batch(i), s.at(low + i))
        ),
    )


def _stands_first(logic: Logic, s: State, t: State) -> Truth:
    return logic.every(
        "Int",
        lambda i: logic.implies(
            logic.holds_all(i >= 0, i < s.total), logic.same(t.batch(i), t.at(t.first + i))
        ),
    )


_ORDER = Promise("ORD", "the batch stands first, in the order given", _stands_first)

_INVARIANTS = {
    "LINK progress": progress,
    "LINK sentinels outside": sentinels_outside,
    "OWN queued has a place": lambda logic, s: members_have_places(
        logic, s, _gap(s), (s.first, s.end)
    ),
    "OWN place has a queued": lambda logic, s: places_have_members(
        logic, s, _gap(s), (s.first, s.end)
    ),
    "OWN counter": _counter,
    "LINK cursor": _cursor,
    "OWN rest may join": batch_may_join,
    "LINK next": lambda logic, s: linked_on(
        logic, s, (_gap(s)[0] - 1, _gap(s)[1] - 1), (s.first, s.end)
    ),
    "LINK previous": lambda logic, s: linked_back(logic, s, _gap(s), (s.first + 1, s.end + 1)),
    "LINK outside unlinked": outside_unlinked,
    "ORD joined in the order given": _order,
}


PREPEND_N = loop_model("prepend_n", _entry, _INVARIANTS, _body, _rest, _ORDER)
