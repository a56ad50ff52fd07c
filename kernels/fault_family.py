"""Families of faults, in kernels and in functions beside them: one mistake, several constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from poolproof.kernels.functions.target import FunctionTarget
from poolproof.kernels.target import KernelTarget

__all__ = ["FaultFamily", "FaultOfFamily", "Member", "sized"]

Member = tuple[str, Callable[[], Any]]
"""What distinguishes a member, and what makes an object with a method `target`."""


@dataclass(frozen=True, slots=True)
class FaultOfFamily:
    """One mistake with one constant: what `faulty_kernels.FaultyKernel` is for our own kernels."""

    id: str
    title: str
    thread: str
    checks: tuple[str, ...]
    faulty: Callable[[], Any]

    def make(self) -> KernelTarget | FunctionTarget:
        """The faulty kernel or function as a target."""
        target: KernelTarget | FunctionTarget = self.faulty().target(f"faulty {self.id}")
        return target


@dataclass(frozen=True, slots=True)
class FaultFamily:
    """One mistake, which all of the `checks` see in all members.

    `letter` begins the ids; `title` holds a place for what distinguishes a member. `thread` is
    where the mistake was met.
    """

    letter: str
    title: str
    members: tuple[Member, ...]
    checks: tuple[str, ...] = ("dense",)
    thread: str = ""

    def faults(self) -> list[FaultOfFamily]:
        """Every member."""
        return [
            FaultOfFamily(
                f"{self.letter}{number}", self.title.format(word), self.thread, self.checks, faulty
            )
            for number, (word, faulty) in enumerate(self.members, 1)
        ]


def sized(faulty: Callable[[int], Any], *sizes: int) -> tuple[Member, ...]:
    """A member for each size."""
    return tuple((str(size), partial(faulty, size)) for size in sizes)
