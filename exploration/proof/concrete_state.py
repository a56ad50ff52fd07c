"""States of a model as plain values: tables read off a solver's model, and steps that run.

A concrete step runs the same description that is proved, so a counterexample is checked by running
it: the invariants hold before, the guard is true, and something is broken after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from poolproof.exploration.proof.logic import ConcreteLogic
from poolproof.exploration.proof.model import Action, Model, State

__all__ = ["ConcreteStep", "broken_after", "broken_in", "frozen", "table"]


@dataclass(frozen=True)
class ConcreteStep:
    """A step between two states of plain values; `broken` names what does not hold after it."""

    model: Model
    action: Action
    parameters: tuple[Any, ...]
    before: State
    after: State
    logic: ConcreteLogic
    broken: tuple[str, ...] = ()


def table(values: Mapping[tuple[Any, ...], Any]) -> Callable[..., Any]:
    """A function that looks its arguments up; 0 stands outside of what is listed."""
    return lambda *key: values.get(key, 0)


def frozen(state: State, fields: Mapping[str, str], domains: Mapping[str, Iterable[Any]]) -> State:
    """The state with every function written out as a table over these domains."""
    found: dict[str, Any] = {}
    for name, sorts in fields.items():
        value = getattr(state, name)
        arguments = sorts.split()[:-1]
        if arguments:
            rows = product(*(domains[sort] for sort in arguments))
            value = table({row: value(*row) for row in rows})
        found[name] = value
    return State(found)


def broken_in(model: Model, logic: ConcreteLogic, state: State) -> tuple[str, ...]:
    """The invariants and assumptions that do not hold in the state."""
    facts = {**model.rigid, **model.given, **model.invariants}
    return tuple(name for name, fact in facts.items() if not fact(logic, state))


def broken_after(
    model: Model,
    action: Action,
    logic: ConcreteLogic,
    before: State,
    after: State,
    parameters: tuple[Any, ...],
) -> tuple[str, ...]:
    """What should hold after the step and does not."""
    broken = [] if action.ends else [
        name for name, fact in model.invariants.items() if not fact(logic, after)
    ]  # fmt: skip
    broken += [
        f"{promise.invariant} {promise.sentence}"
        for promise in action.promises
        if not promise.statement(logic, before, after, *parameters)
    ]
    return tuple(broken)
