"""ADM over the abstract pool: nothing fails after OK, nothing that fits is refused.

A request wants `revived` free blocks that a prefix hit found, and `new` ones. It is admitted if and
only if their sum is at most `num_free`; then the hits are touched and the rest is allocated, one
after the other. Assumed: nobody else acts in between, the hits are distinct free blocks, and there
is no watermark; hits on blocks that somebody holds cost nothing and are left out.
"""

from __future__ import annotations

from poolproof.exploration.proof.logic import Logic, Term, Truth
from poolproof.exploration.proof.model import Action, Changes, Model, Promise, State
from poolproof.exploration.proof.pool_invariants import INVARIANTS, PROFILE, within_bounds
from poolproof.exploration.proof.pool_model import POOL

__all__ = ["ADMISSION"]

_FIELDS = {"revived": "Int", "new": "Int", "admitted": "Bool"}


def initial(logic: Logic, s: State) -> Truth:
    """A pool in any state that is right, and nobody who wants anything."""
    return logic.holds_all(
        *(fact(logic, s) for fact in INVARIANTS.values()),
        logic.same(s.revived, 0),
        logic.same(s.new, 0),
        s.admitted,
    )


def may_ask(logic: Logic, s: State, revived: Term, new: Term) -> Truth:
    return logic.holds_all(revived >= 0, new >= 0)


def ask(logic: Logic, s: State, revived: Term, new: Term) -> Changes:
    """A request arrives and is admitted or refused."""
    return {"revived": revived, "new": new, "admitted": revived + new <= s.num_free}


def _decision_stays_right(logic: Logic, s: State) -> Truth:
    return logic.same(s.admitted, s.revived + s.new <= s.num_free)


def _wanted_is_counted(logic: Logic, s: State) -> Truth:
    return logic.holds_all(s.revived >= 0, s.new >= 0)


def may_revive(logic: Logic, s: State, block: Term, reference: Term) -> Truth:
    return logic.holds_all(
        s.revived > 0, s.queued(block), POOL.action("touch").guard(logic, s, block, reference)
    )


def revive(logic: Logic, s: State, block: Term, reference: Term) -> Changes:
    """A hit on a free block is touched, which takes it out of the queue."""
    touched = POOL.action("touch").effect(logic, s, block, reference)
    return {**touched, "revived": s.revived - 1}


def may_take(logic: Logic, s: State, reference: Term) -> Truth:
    return logic.holds_all(
        logic.same(s.revived, 0),
        s.new > 0,
        POOL.action("allocate").guard(logic, s, reference),
    )


def take(logic: Logic, s: State, reference: Term) -> Changes:
    return {**POOL.action("allocate").effect(logic, s, reference), "new": s.new - 1}


def nothing_fails_after_ok(logic: Logic, s: State) -> Truth:
    """While an admitted request still wants blocks, there is one in the queue."""
    return logic.implies(
        logic.holds_all(s.admitted, s.revived + s.new > 0), s.num_free > 0
    )  # fmt: skip


def a_refusal_is_due(logic: Logic, s: State) -> Truth:
    """A refused request, driven on all the same, ends before the first block that is missing."""
    return logic.implies(
        logic.holds_all(logic.negated(s.admitted), logic.same(s.revived, 0)), s.new > s.num_free
    )


def _counts_down(logic: Logic, s: State, t: State, *_parameters: Term) -> Truth:
    return logic.same(t.num_free, s.num_free - 1)


ADMISSION = Model(
    name="admission",
    title="admission arithmetic over the pool",
    fields={**POOL.fields, **_FIELDS},
    rigid=PROFILE,
    given=INVARIANTS,
    invariants={
        "ADM decision stays right": _decision_stays_right,
        "ADM wanted is counted": _wanted_is_counted,
    },
    initial=initial,
    bounds=lambda logic, s, size: logic.holds_all(
        within_bounds(logic, s, size), s.revived <= size, s.new <= size
    ),
    consequences={
        "ADM nothing fails after OK": nothing_fails_after_ok,
        "ADM a refusal is due": a_refusal_is_due,
    },
    actions=(
        Action("ask", {"revived": "Int", "new": "Int"}, may_ask, ask),
        Action(
            "revive", {"block": "Block", "reference": "Reference"}, may_revive, revive,
            (Promise("ADM", "one block less is free", _counts_down),),
        ),
        Action("take", {"reference": "Reference"}, may_take, take),
    ),
)  # fmt: skip
