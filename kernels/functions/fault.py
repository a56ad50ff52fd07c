"""What a family of faulty functions is: one mistake, with several constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from poolproof.kernels.functions.target import FunctionTarget

__all__ = ["FaultyFunction", "FunctionFamily", "sized"]

Member = tuple[str, Callable[[], Any]]


@dataclass(frozen=True, slots=True)
class FaultyFunction:
    """One member of a family; `function` makes an object with a method `target`."""

    id: str
    title: str
    thread: str
    checks: tuple[str, ...]
    function: Callable[[], Any]

    def make(self) -> FunctionTarget:
        """The faulty function as a target."""
        target: FunctionTarget = self.function().target(f"faulty function {self.id}")
        return target


@dataclass(frozen=True, slots=True)
class FunctionFamily:
    """One mistake. All members are seen by all of the `checks`."""

    letter: str
    title: str
    members: tuple[Member, ...]
    checks: tuple[str, ...]
    thread: str = ""

    def faults(self) -> list[FaultyFunction]:
        """Every member."""
        return [
            FaultyFunction(
                f"{self.letter}{number}", self.title.format(word), self.thread, self.checks, made
            )
            for number, (word, made) in enumerate(self.members, 1)
        ]


def sized(function: Callable[[int], Any], *sizes: int) -> tuple[Member, ...]:
    """A member for each size."""
    return tuple((str(size), partial(function, size)) for size in sizes)
