"""What the batch forms of the free queue share: a loop as a model, and how a batch is linked.

Such a model starts in any well-formed list with any legal batch; its steps are the body of the
loop in `impl/free_queue.py` and what follows the loop, and after that the list is well formed
again. Inside the loop one link is out of date; each loop's invariants say which. Ghost places
outside the list mean nothing, so a loop may assume there what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from poolproof.exploration.proof.logic import Logic, Term, Truth
from poolproof.exploration.proof.model import Action, Changes, Fact, Model, Promise, State
from poolproof.exploration.proof.queue_model import FIELDS, LINKS, RIGID, assigned, is_sentinel

__all__ = ["batch_may_join", "linked_behind", "loop_model", "may_join", "progress"]

_LOCALS = {
    "batch": "Int Node",
    "cursor": "Node",
    "following": "Node",
    "done": "Int",
    "total": "Int",
}


def loop_model(
    name: str,
    entry: Fact,
    invariants: Mapping[str, Fact],
    body: Callable[[Logic, State], Changes],
    rest: Callable[[Logic, State], Changes],
    order: Promise,
) -> Model:
    """The loop `for done in range(total)` with this body, and the `rest` after it."""
    promises = (
        order,
        *(
            Promise(fact_name.split()[0], f"well formed again: {fact_name}", _well_formed(fact))
            for fact_name, fact in LINKS.items()
        ),
    )
    return Model(
        name=name,
        title=f"{name} as a loop",
        fields={**FIELDS, **_LOCALS},
        rigid=RIGID,
        initial=lambda logic, s: logic.holds_all(
            *(fact(logic, s) for fact in LINKS.values()),
            logic.same(s.done, 0),
            s.total >= 0,
            entry(logic, s),
        ),
        invariants=invariants,
        actions=(
            Action("body", {}, lambda logic, s: s.done < s.total, body),
            Action("rest", {}, lambda logic, s: logic.same(s.done, s.total), rest, promises, True),
        ),
        bounds=within_batch_bounds,
    )


def progress(logic: Logic, s: State) -> Truth:
    """The loop is within its bounds."""
    return logic.holds_all(s.done >= 0, s.done <= s.total)


def within_batch_bounds(logic: Logic, s: State, size: int) -> Truth:
    """Room for batches of two before and behind the list."""
    return logic.holds_all(
        s.done >= -1,
        s.done <= 2,
        s.total >= -1,
        s.total <= 2,
        s.first >= 2,
        s.first <= size,
        s.end >= 2,
        s.end <= size,
    )


def _well_formed(fact: Fact) -> Callable[[Logic, State, State], Truth]:
    return lambda logic, before, after: fact(logic, after)


def may_join(logic: Logic, s: State, start: Term) -> Truth:
    """From the entry `start` on, the batch holds distinct nodes that are not in the list."""
    return logic.every(
        "Int Int",
        lambda i, j: logic.implies(
            logic.holds_all(start <= i, i < s.total),
            logic.holds_all(
                logic.negated(s.member(s.batch(i))),
                logic.negated(is_sentinel(logic, s, s.batch(i))),
                logic.implies(
                    logic.holds_all(start <= j, j < s.total, logic.same(s.batch(i), s.batch(j))),
                    logic.same(i, j),
                ),
            ),
        ),
    )


def batch_may_join(logic: Logic, s: State) -> Truth:
    """What is left of the batch may still join."""
    return may_join(logic, s, s.done)


def linked_behind(logic: Logic, s: State, place: Term) -> Changes:
    """The body of both loops: the next node of the batch behind the cursor, at this place."""
    node = s.batch(s.done)
    return {
        "next": assigned(logic, s.next, (s.cursor, node)),
        "previous": assigned(logic, s.previous, (node, s.cursor)),
        "cursor": node,
        "member": assigned(logic, s.member, (node, True)),
        "at": assigned(logic, s.at, (place, node)),
        "index": assigned(logic, s.index, (node, place)),
        "done": s.done + 1,
    }
