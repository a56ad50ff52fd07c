"""The conditions to discharge: what has to be unsatisfiable for a model's invariants to hold.

Initial states satisfy each invariant; each step preserves each of them and keeps its promises; the
consequences follow. Together they say, by induction over the steps, that the invariants hold in
every state that can be reached, whatever the number of blocks, hashes and references.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from poolproof.exploration.proof.logic import Truth
from poolproof.exploration.proof.model import Action, Model, State
from poolproof.exploration.proof.z3_logic import Z3Logic

__all__ = ["Condition", "Known", "ProofStep", "conditions"]


@dataclass(frozen=True)
class Condition:
    """`goal` follows from `hypotheses`; the name begins with an invariant of the catalogue."""

    model: str
    step: str
    name: str
    hypotheses: tuple[Truth, ...]
    goal: Truth

    def __str__(self) -> str:
        return f"{self.model}, {self.step}: {self.name}"


@dataclass(frozen=True)
class Known:
    """An unknown state of a model: what is assumed of it, and its invariants, as formulas."""

    state: State
    assumed: tuple[Truth, ...]
    invariants: Mapping[str, Truth]

    @classmethod
    def of(cls, model: Model, logic: Z3Logic) -> Known:
        """The same state, by the names of its fields, for every call with one logic."""
        s = logic.state(model.fields)
        assumed = tuple(fact(logic, s) for fact in (*model.rigid.values(), *model.given.values()))
        return cls(s, assumed, {name: fact(logic, s) for name, fact in model.invariants.items()})


@dataclass(frozen=True)
class ProofStep:
    """One action from a state that is known: its guard, and the state after it.

    `goals` makes, for each condition by name, the formula of what must hold after the step.
    """

    action: Action
    before: Known
    after: State
    parameters: tuple[Any, ...]
    guard: Truth
    goals: Mapping[str, Callable[[], Truth]]

    @classmethod
    def of(cls, model: Model, action: Action, logic: Z3Logic, before: Known) -> ProofStep:
        """The step of an action with unknown parameters."""
        s = before.state
        parameters = tuple(
            logic.constant(f"the_{name}", sort) for name, sort in action.parameters.items()
        )
        t = s.after(action.effect(logic, s, *parameters))
        goals: dict[str, Callable[[], Truth]] = {}
        if not action.ends:
            goals |= {name: partial(fact, logic, t) for name, fact in model.invariants.items()}
        for promise in action.promises:
            name = f"{promise.invariant} {promise.sentence}"
            goals[name] = partial(promise.statement, logic, s, t, *parameters)
        return cls(action, before, t, parameters, action.guard(logic, s, *parameters), goals)


def conditions(model: Model) -> Iterator[Condition]:
    """All conditions of a model, about any number of elements."""
    logic = Z3Logic()
    known = Known.of(model, logic)
    start = (*known.assumed, model.initial(logic, known.state))
    for name, invariant in known.invariants.items():
        yield Condition(model.name, "initial state", name, start, invariant)
    always = (*known.assumed, *known.invariants.values())
    for action in model.actions:
        step = ProofStep.of(model, action, logic, known)
        for name, goal in step.goals.items():
            yield Condition(model.name, action.name, name, (*always, step.guard), goal())
    for name, fact in model.consequences.items():
        yield Condition(model.name, "every state", name, always, fact(logic, known.state))
