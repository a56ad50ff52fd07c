"""What a description of a transition relation consists of: fields, invariants, guarded actions.

An action is a guard over the state before and its parameters, and for each field that it changes
the new value as an expression over the state before. It is therefore a function of state and
parameters: one state after, or none where the guard is false.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from poolproof.exploration.proof.logic import Logic, Truth

__all__ = ["Action", "Changes", "Fact", "Model", "Promise", "State"]

Changes = dict[str, Any]
"""New values of fields: a term for a plain field, a function of terms for an indexed one."""

Fact = Callable[[Logic, "State"], Truth]


class State:
    """The fields of a state as attributes: terms, or functions from terms to terms."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        vars(self).update(fields)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the state has no field {name!r}; it has {', '.join(vars(self))}")

    def after(self, changes: Changes) -> State:
        """This state with some fields replaced. Raises KeyError for a field that is not there."""
        unknown = sorted(set(changes) - set(vars(self)))
        if unknown:
            raise KeyError(f"no fields {', '.join(unknown)}")
        return State({**vars(self), **changes})


@dataclass(frozen=True)
class Promise:
    """What must hold between the states before and after a step, beside the invariants.

    `statement` takes logic, state before, state after and the action's parameters.
    """

    invariant: str
    sentence: str
    statement: Callable[..., Truth]


@dataclass(frozen=True)
class Action:
    """A step: `parameters` names each parameter with its sort.

    `guard` and `effect` take logic, state before, and the parameters. After a step that `ends` a
    loop its promises alone hold.
    """

    name: str
    parameters: Mapping[str, str]
    guard: Callable[..., Truth]
    effect: Callable[..., Changes]
    promises: Sequence[Promise] = ()
    ends: bool = False


@dataclass(frozen=True, eq=False)
class Model:
    """A transition relation with its invariants.

    `fields` gives each field its sorts, arguments first and result last, in one string. `rigid`
    facts hold in every state: assumptions about the profile, the caller, the hash function.
    `given` facts are proved elsewhere and used here. `bounds` keeps a state within a finite scope.
    `consequences` follow from the invariants in any state. Of an invariant or consequence the name
    begins with the invariant of the catalogue that it belongs to.
    """

    name: str
    title: str
    fields: Mapping[str, str]
    invariants: Mapping[str, Fact]
    initial: Fact
    actions: Sequence[Action]
    bounds: Callable[[Logic, State, int], Truth]
    rigid: Mapping[str, Fact] = field(default_factory=dict)
    given: Mapping[str, Fact] = field(default_factory=dict)
    consequences: Mapping[str, Fact] = field(default_factory=dict)

    def action(self, name: str) -> Action:
        """The action of this name. Raises StopIteration for any other."""
        return next(action for action in self.actions if action.name == name)
