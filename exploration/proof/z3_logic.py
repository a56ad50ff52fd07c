"""The readings of a model by Z3: about any number of elements, or about a few of each sort.

In the unbounded reading blocks, hashes and references are uninterpreted sorts, which may have any
number of elements. In the finite one they have `size` each, integers that a quantifier ranges over
lie in a window, and every quantifier is written out, so that Z3 always decides and its model is a
state that can be shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count, product
from typing import Any

import z3

from poolproof.exploration.proof.logic import Term, Truth
from poolproof.exploration.proof.model import State

__all__ = ["FiniteLogic", "Z3Logic"]


class Z3Logic:
    """Formulas over sorts of any size."""

    def __init__(self) -> None:
        self._sorts = {"Int": z3.IntSort(), "Bool": z3.BoolSort()}
        self._names = count()

    def sort(self, name: str) -> Any:
        """The solver's sort of this name; one that is new is uninterpreted."""
        if name not in self._sorts:
            self._sorts[name] = z3.DeclareSort(name)
        return self._sorts[name]

    def constant(self, name: str, sort: str) -> Term:
        """An unknown value of the sort."""
        return z3.Const(name, self.sort(sort))

    def state(self, fields: Mapping[str, str]) -> State:
        """A state about which nothing is known."""
        return State({name: self._unknown(name, sorts.split()) for name, sorts in fields.items()})

    def _unknown(self, name: str, sorts: list[str]) -> Any:
        if len(sorts) == 1:
            return self.constant(name, sorts[0])
        return z3.Function(name, *map(self.sort, sorts))

    def same(self, left: Term, right: Term) -> Truth:
        if isinstance(left, bool):
            left = z3.BoolVal(left)
        return left == right

    def holds_all(self, *truths: Truth) -> Truth:
        return z3.And(*truths)

    def holds_any(self, *truths: Truth) -> Truth:
        return z3.Or(*truths)

    def negated(self, truth: Truth) -> Truth:
        return z3.Not(truth)

    def implies(self, condition: Truth, consequence: Truth) -> Truth:
        return z3.Implies(condition, consequence)

    def choose(self, condition: Truth, then: Term, otherwise: Term) -> Term:
        return z3.If(condition, then, otherwise)

    def every(self, sorts: str, body: Callable[..., Truth]) -> Truth:
        variables = [
            self.constant(f"{sort.lower()}!{next(self._names)}", sort) for sort in sorts.split()
        ]
        return z3.ForAll(variables, body(*variables))


class FiniteLogic(Z3Logic):
    """Formulas without quantifiers over `size` elements of each sort.

    Elements are the integers from 0 on. `facts` holds what has to be asserted beside the formulas:
    that every value of a field and every constant is one of its sort, an integer one of `integers`.
    """

    def __init__(self, sizes: Mapping[str, int], window: range) -> None:
        super().__init__()
        self.sizes = sizes
        self.domains: dict[str, Any] = {name: range(size) for name, size in sizes.items()}
        self.domains |= {"Int": window, "Bool": (False, True)}
        self.integers = range(-window.stop - 1, window.stop + 1)
        self.facts: list[Truth] = []

    def sort(self, name: str) -> Any:
        return z3.BoolSort() if name == "Bool" else z3.IntSort()

    def constant(self, name: str, sort: str) -> Term:
        value = z3.Const(name, self.sort(sort))
        self._keep_inside(value, sort)
        return value

    def _unknown(self, name: str, sorts: list[str]) -> Any:
        if len(sorts) == 1:
            return self.constant(name, sorts[0])
        function = z3.Function(name, *map(self.sort, sorts))
        for row in product(*(self.domains[sort] for sort in sorts[:-1])):
            self._keep_inside(function(*row), sorts[-1])
        return function

    def _keep_inside(self, value: Term, sort: str) -> None:
        if sort != "Bool":
            values = self.integers if sort == "Int" else range(self.sizes[sort])
            self.facts.append(z3.And(value >= values.start, value < values.stop))

    def every(self, sorts: str, body: Callable[..., Truth]) -> Truth:
        rows = product(*(self.domains[sort] for sort in sorts.split()))
        return z3.And(*(body(*row) for row in rows))
