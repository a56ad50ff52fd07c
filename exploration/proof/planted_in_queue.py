"""Bugs in the operations of the linked list, the batch forms included."""

from __future__ import annotations

from poolproof.exploration.proof.logic import Logic, Term, Truth
from poolproof.exploration.proof.model import Changes, State
from poolproof.exploration.proof.planted import Planted
from poolproof.exploration.proof.planted_in_pool import but, without
from poolproof.exploration.proof.queue_model import assigned

__all__ = ["QUEUE_BUGS"]


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
