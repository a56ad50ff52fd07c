"""What a unit example is: a short sequence of calls with the answers that its author expects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Book", "Rules", "UnitExample"]

Rules = Any
"""The profile of what is tested: a `Profile`, of a manager a `ManagerProfile`."""

Body = Callable[[Any, Rules], None]


def _always(_rules: Rules) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class UnitExample:
    """One example; `run` raises AssertionError where an answer is not the one expected.

    It is written for allocators with the methods that it `needs`, under profiles that `suits`
    accepts.
    """

    name: str
    run: Body
    needs: tuple[str, ...]
    suits: Callable[[Rules], bool]

    def is_for(self, instance: Any, rules: Rules) -> bool:
        """Whether it can be run on such an instance."""
        has_all = all(callable(getattr(instance, name, None)) for name in self.needs)
        return has_all and self.suits(rules)


class Book(list[UnitExample]):
    """The examples of one level."""

    def add(self, *needs: str, suits: Callable[[Rules], bool] = _always) -> Callable[[Body], Body]:
        """A decorator that enters a function as an example."""

        def enter(body: Body) -> Body:
            self.append(UnitExample(body.__name__.replace("_", " "), body, needs, suits))
            return body

        return enter
