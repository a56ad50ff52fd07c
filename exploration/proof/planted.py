"""A planted bug: an action with another guard or effect, which the proof must refuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from poolproof.exploration.proof.all_models import MODELS
from poolproof.exploration.proof.concrete_state import ConcreteStep
from poolproof.exploration.proof.finite_search import SCOPES, FiniteSearch
from poolproof.exploration.proof.logic import Truth
from poolproof.exploration.proof.model import Action, Changes, Model

__all__ = ["Caught", "Planted", "catch"]

Effect = Callable[..., Changes]


@dataclass(frozen=True)
class Planted:
    """What is wrong in one sentence, in which action, and the upstream thread, where there is one.

    `alter` takes the right effect and returns the wrong one; `guard` replaces the guard. The bug
    must break `invariant`, and may break others as well.
    """

    name: str
    model: str
    action: str
    invariant: str
    sentence: str
    thread: str = ""
    alter: Callable[[Effect], Effect] | None = None
    guard: Callable[..., Truth] | None = None

    def wrong_action(self) -> Action:
        """The action with the bug in it."""
        action = MODELS[self.model].action(self.action)
        if self.guard is not None:
            action = replace(action, guard=self.guard)
        if self.alter is not None:
            action = replace(action, effect=self.alter(action.effect))
        return action


@dataclass(frozen=True)
class Caught:
    """What became of a planted bug: a step that shows it, and the conditions broken after it.

    `example` is None for a bug that got through.
    """

    planted: Planted
    broken: tuple[str, ...]
    example: ConcreteStep | None

    @property
    def invariants(self) -> tuple[str, ...]:
        """The invariants that the conditions belong to, each once."""
        return tuple(dict.fromkeys(name.split()[0] for name in self.broken))

    @property
    def is_caught(self) -> bool:
        """Whether it breaks the invariant that it was planted for."""
        return self.example is not None


def catch(planted: Planted) -> Caught:
    """Look for a step of the wrong action after which what it was planted for does not hold."""
    model: Model = MODELS[planted.model]
    example = None
    for scope in range(len(SCOPES)):
        search = FiniteSearch(model, planted.wrong_action(), scope)
        wanted = [goal for goal in search.goals if goal.split()[0] == planted.invariant]
        example = search.counterexample(wanted)
        if example is not None:
            break
    return Caught(planted, () if example is None else example.broken, example)
