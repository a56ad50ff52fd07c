"""A kind of target: what its cases are, which checks it has, how a case is drawn and made smaller.

Attention is one kind; functions that write a cache, copy its blocks or merge outputs are others.
One run, one report and one isolation serve them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from poolproof.contract.depth import Depth
from poolproof.kernels.checks.check import Check

__all__ = ["Certifiable", "Kind"]

Choose = Callable[[int], int]


class Certifiable(Protocol):
    """What a run has to know of a target; `kind` None is attention."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def uses_triton(self) -> bool: ...
    @property
    def declaration(self) -> Any: ...
    @property
    def kind(self) -> Kind | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The cases of a kind have `to_json` and `words`; its declarations `to_json` and `assumed`.

    `read_case` raises CaseError. `in_order` gives what draws each example of a check, `smaller` the
    smaller forms of a case that a declaration allows, the boldest first, and `work` about how much
    a case costs, in tiles of the interpreter. `precision` names the types in which a case counts.
    """

    name: str
    checks: Mapping[str, Check]
    read_case: Callable[[Any], Any]
    in_order: Callable[[Check, Any, Depth, Choose], list[Callable[[Choose, Any], Any]]]
    smaller: Callable[[Any, Any], Iterator[Any]]
    work: Callable[[Any], int]
    precision: Callable[[Any], str]
    why_not: Callable[[Check, Any], str]
    not_covered: Callable[[Any], list[str]]
