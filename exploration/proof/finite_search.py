"""Counterexamples to induction in a small pool: a state and a step after which something breaks.

Over a few blocks, hashes and references all quantifiers are written out, so Z3 decides every
question and its answer is a state of plain values, which is then checked by running the step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import z3

from poolproof.exploration.proof.concrete_state import (
    ConcreteStep,
    broken_after,
    broken_in,
    frozen,
    table,
)
from poolproof.exploration.proof.conditions import Known, ProofStep
from poolproof.exploration.proof.logic import ConcreteLogic
from poolproof.exploration.proof.model import Action, Model, State
from poolproof.exploration.proof.z3_logic import FiniteLogic

__all__ = ["SCOPES", "FiniteSearch"]

SCOPES: tuple[Mapping[str, int], ...] = (
    {"Block": 1, "Hash": 1, "Reference": 1, "Chain": 1, "Node": 4},
    {"Block": 2, "Hash": 2, "Reference": 2, "Chain": 2, "Node": 5},
    {"Block": 3, "Hash": 2, "Reference": 3, "Chain": 2, "Node": 6},
)
"""How many elements of each sort, smallest first. Three nodes are sentinels."""


@dataclass(frozen=True)
class _Scope:
    """What all actions of a model share: an unknown state over a few elements."""

    logic: FiniteLogic
    known: Known
    bounds: Any

    @classmethod
    def of(cls, model: Model, scope: Mapping[str, int]) -> _Scope:
        named = " ".join(model.fields.values()).split()
        sizes = {sort: size for sort, size in scope.items() if sort in named}
        size = sizes.get("Block", sizes.get("Node", 0))
        # Steps look one place beyond the ends of a queue, batches of two two more.
        logic = FiniteLogic(sizes, range(-1, size + 2))
        known = Known.of(model, logic)
        return cls(logic, known, model.bounds(logic, known.state, size))


_SHARED: dict[tuple[Model, int], _Scope] = {}
"""By model and scope: written out once, since that takes longer than most answers."""


class FiniteSearch:
    """One action of a model over one of `SCOPES`; queries may leave out invariants before it."""

    def __init__(self, model: Model, action: Action, scope: int = 0) -> None:
        self.model = model
        self.action = action
        shared = _SHARED.get((model, scope))
        if shared is None:
            shared = _SHARED[model, scope] = _Scope.of(model, SCOPES[scope])
        self._logic = shared.logic
        self._before = shared.known
        self._step = ProofStep.of(model, action, self._logic, self._before)
        self._made: dict[str, Any] = {}
        self._known = {name: z3.Bool(f"known {name}") for name in model.invariants}
        self._solver = z3.Solver()
        self._solver.add(
            *self._logic.facts,
            *self._before.assumed,
            *(z3.Implies(self._known[name], t) for name, t in self._before.invariants.items()),
            self._step.guard,
            shared.bounds,
        )

    @property
    def goals(self) -> tuple[str, ...]:
        """What must hold after the step, by name."""
        return tuple(self._step.goals)

    def is_enabled(self) -> bool:
        """Whether there is a state under the invariants in which the action can be taken."""
        return self._model(z3.BoolVal(True), ()) is not None

    def breaks(self, goals: Iterable[str] | None = None, without: Collection[str] = ()) -> bool:
        """Whether some step breaks one of the goals, by default any."""
        return self._model(self._broken(goals), without) is not None

    def counterexample(
        self, goals: Iterable[str] | None = None, without: Collection[str] = ()
    ) -> ConcreteStep | None:
        """A step that breaks one of the goals, by default any; None where there is none."""
        found = self._model(self._broken(goals), without)
        return None if found is None else self._run(found, without)

    def _broken(self, goals: Iterable[str] | None) -> Any:
        wanted = self.goals if goals is None else tuple(goals)
        for name in wanted:
            if name not in self._made:
                self._made[name] = self._step.goals[name]()
        return z3.Not(z3.And(*(self._made[name] for name in wanted)))

    def _model(self, question: Any, without: Collection[str]) -> z3.ModelRef | None:
        assumed = [known for name, known in self._known.items() if name not in without]
        self._solver.push()
        self._solver.add(question)
        answer = str(self._solver.check(*assumed))
        found = self._solver.model() if answer == "sat" else None
        self._solver.pop()
        assert answer != "unknown", f"{self.model.name}, {self.action.name}: a finite question"
        return found

    def _run(self, found: z3.ModelRef, without: Collection[str]) -> ConcreteStep:
        """The step that the solver's model describes, run and checked."""
        logic = ConcreteLogic(self._logic.domains)
        before = State(
            {
                name: self._value(found, getattr(self._before.state, name), sorts.split())
                for name, sorts in self.model.fields.items()
            }
        )
        parameters = tuple(_plain(found, term) for term in self._step.parameters)
        after = before.after(self.action.effect(logic, before, *parameters))
        after = frozen(after, self.model.fields, {**logic.domains, "Int": self._logic.integers})
        wrong_before = set(broken_in(self.model, logic, before)) - set(without)
        assert not wrong_before, f"the counterexample starts outside of {wrong_before}"
        assert self.action.guard(logic, before, *parameters)
        broken = broken_after(self.model, self.action, logic, before, after, parameters)
        assert broken, f"{self.action.name}: the step of the counterexample breaks nothing"
        return ConcreteStep(self.model, self.action, parameters, before, after, logic, broken)

    def _value(self, found: z3.ModelRef, field: Any, sorts: list[str]) -> Any:
        if len(sorts) == 1:
            return _plain(found, field)
        integers = self._logic.integers
        # A step looks up to two places further.
        domains = {
            **self._logic.domains,
            "Int": range(integers.start - 2, integers.stop + 2),
        }
        rows = product(*(domains[sort] for sort in sorts[:-1]))
        return table({row: _plain(found, field(*row)) for row in rows})


def _plain(found: z3.ModelRef, term: Any) -> Any:
    value = found.eval(term, model_completion=True)
    return z3.is_true(value) if z3.is_bool(value) else value.as_long()
