"""`append_n` as a loop: nodes are linked behind the last, the tail's own link is out of date."""

from __future__ import annotations

from poolproof.exploration.proof.logic import Logic, Truth
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

__all__ = ["APPEND_N"]


def _entry(logic: Logic, s: State) -> Truth:
    return logic.holds_all(
        logic.same(s.cursor, s.previous(s.tail)), may_join(logic, s, 0)
    )  # fmt: skip


def _body(logic: Logic, s: State) -> Changes:
    return {**linked_behind(logic, s, s.end), "end": s.end + 1}


def _rest(logic: Logic, s: State) -> Changes:
    return {
        "next": assigned(logic, s.next, (s.cursor, s.tail)),
        "previous": assigned(logic, s.previous, (s.tail, s.cursor)),
        "length": s.length + s.total,
        "at": assigned(logic, s.at, (s.end, s.tail)),
    }


def _counter(logic: Logic, s: State) -> Truth:
    return logic.holds_all(logic.same(s.length, s.end - s.first - s.done), s.length >= 0)


def _cursor(logic: Logic, s: State) -> Truth:
    return logic.holds_all(
        logic.same(s.cursor, s.at(s.end - 1)), logic.same(s.at(s.first - 1), s.head)
    )


def _order(logic: Logic, s: State) -> Truth:
    return logic.every(
        "Int",
        lambda i: logic.implies(
            logic.holds_all(i >= 0, i < s.done),
            logic.same(s.batch(i), s.at(s.end - s.done + i)),
        ),
    )


def _stands_last(logic: Logic, s: State, t: State) -> Truth:
    return logic.every(
        "Int",
        lambda i: logic.implies(
            logic.holds_all(i >= 0, i < s.total),
            logic.same(t.batch(i), t.at(t.end - s.total + i)),
        ),
    )


_ORDER = Promise("ORD", "the batch stands last, in the order given", _stands_last)

_INVARIANTS = {
    "LINK progress": progress,
    "LINK sentinels outside": sentinels_outside,
    "OWN queued has a place": lambda logic, s: members_have_places(logic, s, (s.first, s.end)),
    "OWN place has a queued": lambda logic, s: places_have_members(logic, s, (s.first, s.end)),
    "OWN counter": _counter,
    "LINK cursor": _cursor,
    "OWN rest may join": batch_may_join,
    "LINK next": lambda logic, s: linked_on(logic, s, (s.first - 1, s.end - 1)),
    "LINK previous": lambda logic, s: linked_back(logic, s, (s.first, s.end)),
    "LINK outside unlinked": outside_unlinked,
    "ORD joined in the order given": _order,
}


APPEND_N = loop_model("append_n", _entry, _INVARIANTS, _body, _rest, _ORDER)
