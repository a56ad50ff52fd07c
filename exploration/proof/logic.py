"""The operations that a description of a transition relation may use, and the runnable reading.

Terms of sort `Int` also take `+`, `-`, `<` and the other comparisons of Python, in every reading;
equality goes through `same`, because `==` between Python objects is no formula.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

__all__ = ["ConcreteLogic", "Logic", "Term", "Truth"]

Term = Any
"""A block, a hash, a reference, an integer: a Python value or a term of a solver."""

Truth = Any
"""A bool, or a formula of a solver."""


class Logic(Protocol):
    """First-order logic with integers, as far as the models need it."""

    def same(self, left: Term, right: Term) -> Truth: ...

    def holds_all(self, *truths: Truth) -> Truth: ...

    def holds_any(self, *truths: Truth) -> Truth: ...

    def negated(self, truth: Truth) -> Truth: ...

    def implies(self, condition: Truth, consequence: Truth) -> Truth: ...

    def choose(self, condition: Truth, then: Term, otherwise: Term) -> Term:
        """`then` where the condition holds, `otherwise` elsewhere."""
        ...

    def every(self, sorts: str, body: Callable[..., Truth]) -> Truth:
        """The body holds for all values of these sorts, named in one string."""
        ...


@dataclass(frozen=True)
class ConcreteLogic:
    """Truths are bools and terms Python values; `domains` lists the values of each sort."""

    domains: Mapping[str, Iterable[Any]]

    def same(self, left: Term, right: Term) -> bool:
        return bool(left == right)

    def holds_all(self, *truths: Truth) -> bool:
        return all(truths)

    def holds_any(self, *truths: Truth) -> bool:
        return any(truths)

    def negated(self, truth: Truth) -> bool:
        return not truth

    def implies(self, condition: Truth, consequence: Truth) -> bool:
        return bool(consequence or not condition)

    def choose(self, condition: Truth, then: Term, otherwise: Term) -> Term:
        return then if condition else otherwise

    def every(self, sorts: str, body: Callable[..., Truth]) -> bool:
        values = (self.domains[sort] for sort in sorts.split())
        return all(body(*row) for row in product(*values))
