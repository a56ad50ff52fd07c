"""A proof that proves nothing is found here: actions that never happen, invariants without use.

An action whose guard contradicts the invariants preserves everything. An invariant is needed when
without it, in the state before, some step breaks another condition, or when it alone catches a
planted bug; the report says which.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from poolproof.exploration.proof.all_models import MODELS
from poolproof.exploration.proof.finite_search import SCOPES, FiniteSearch
from poolproof.exploration.proof.model import Model
from poolproof.exploration.proof.planted import Caught, Planted

__all__ = ["InvariantNeed", "Vacuity", "vacuity"]


@dataclass(frozen=True)
class InvariantNeed:
    """Why an invariant is needed: a step that no longer holds without it, or bugs it alone sees."""

    invariant: str
    step: str = ""
    alone_catches: tuple[str, ...] = ()

    @property
    def is_needed(self) -> bool:
        """Whether anything was found that rests on it."""
        return bool(self.step or self.alone_catches)


@dataclass(frozen=True)
class Vacuity:
    """For a model: actions that no state under the invariants enables, and each invariant's use."""

    model: str
    num_actions: int
    never_enabled: tuple[str, ...]
    needs: tuple[InvariantNeed, ...]


def vacuity(model: Model, caught: Sequence[Caught] = ()) -> Vacuity:
    """Whether every action is enabled, and every invariant needed, by a bug caught or a step."""
    steps = dict.fromkeys(model.invariants, "")
    alone: dict[str, tuple[str, ...]] = {}
    idle = {action.name for action in model.actions}
    for scope in range(len(SCOPES)):
        for action in model.actions:
            open_names = [name for name, step in steps.items() if not step and name not in alone]
            if action.name in idle or open_names:
                search = FiniteSearch(model, action, scope)
                if action.name in idle and search.is_enabled():
                    idle.remove(action.name)
                steps |= {name: _rests_on(search, name) for name in open_names}
        for name in [name for name, step in steps.items() if not step]:
            alone |= _sees_alone(name, model, caught)
    needs = tuple(InvariantNeed(name, step, alone.get(name, ())) for name, step in steps.items())
    return Vacuity(model.name, len(model.actions), tuple(sorted(idle)), needs)


def _rests_on(search: FiniteSearch, name: str) -> str:
    """The first other condition that the step breaks without this invariant before it."""
    others = [goal for goal in search.goals if goal != name]
    step = search.counterexample(others, without=[name]) if others else None
    if step is None:
        return ""
    broken = [goal for goal in step.broken if goal in others]
    return f"{search.action.name}: {broken[0]}"


def _sees_alone(name: str, model: Model, caught: Iterable[Caught]) -> dict[str, tuple[str, ...]]:
    """The first planted bug that breaks this condition and, in a larger scope too, no other."""
    for found in caught:
        planted = found.planted
        if planted.model == model.name and found.broken == (name,) and _breaks_only(planted, name):
            return {name: (planted.name,)}
    return {}


def _breaks_only(planted: Planted, name: str) -> bool:
    search = FiniteSearch(MODELS[planted.model], planted.wrong_action(), scope=1)
    return not search.breaks([goal for goal in search.goals if goal != name])
