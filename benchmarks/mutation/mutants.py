"""The mutants of a file: what mutmut would change in it, each as the source of a whole module.

mutmut makes the changes; running them is not done here (trial.py). Its own runner is not used:
there each mutant is a pytest run that collects everything again, through a wrapper around every
function.

Not mutated: module level and class bodies (constants, tables, fields of dataclasses), annotations,
and functions with a decorator other than property, staticmethod and classmethod.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import libcst
from libcst.metadata import MetadataWrapper
from mutmut.mutation.file_mutation import MutationVisitor, deep_replace
from mutmut.mutation.mutators import mutation_operators
from mutmut.mutation.pragma_handling import IgnoredCode

__all__ = ["Mutant", "mutants_of"]


@dataclass(frozen=True)
class Mutant:
    """One change of one function."""

    path: str  # from the root of the tree: impl/block_pool.py
    function: str  # BlockPool.allocate
    before: str  # the lines that change, without their indentation
    after: str
    source: str  # of the module, changed

    @property
    def name(self) -> str:
        """A name that stays until the file or the change is another one."""
        return hashlib.sha256(f"{self.path}\n{self.source}".encode()).hexdigest()[:16]


class _Visitor(MutationVisitor):
    """mutmut's, and properties as well: it passes over them for the sake of its wrappers."""

    def _skip_node_and_children(self, node: libcst.CSTNode) -> bool:
        if isinstance(node, libcst.FunctionDef) and [
            decorator.decorator.value
            for decorator in node.decorators
            if isinstance(decorator.decorator, libcst.Name)
        ] == ["property"]:
            return False
        return bool(super()._skip_node_and_children(node))


def mutants_of(root: Path, path: str) -> Iterator[Mutant]:
    """Every mutant of a file, in the order of the text."""
    source = (root / path).read_text(encoding="utf-8")
    wrapper = MetadataWrapper(libcst.parse_module(source))
    visitor = _Visitor(mutation_operators, IgnoredCode(set(), set(), set()))
    module = wrapper.visit(visitor)
    owners = dict(_functions(module))
    for mutation in visitor.mutations:
        function = mutation.contained_by_top_level_function
        if function not in owners:
            continue
        changed = deep_replace(function, mutation.original_node, mutation.mutated_node)
        owner = owners[function]
        mutated = _with_function(module, owner, function, cast("libcst.FunctionDef", changed)).code
        before, after = _difference(source, mutated)
        name = function.name.value
        qualified = name if owner is None else f"{owner.name.value}.{name}"
        yield Mutant(path, qualified, before, after, mutated)


def _functions(
    module: libcst.Module,
) -> Iterator[tuple[libcst.FunctionDef, libcst.ClassDef | None]]:
    """The functions of a module and the methods of its classes, each with its class."""
    for statement in module.body:
        if isinstance(statement, libcst.FunctionDef):
            yield statement, None
        elif isinstance(statement, libcst.ClassDef):
            for member in statement.body.body:
                if isinstance(member, libcst.FunctionDef):
                    yield member, statement


def _with_function(
    module: libcst.Module,
    owner: libcst.ClassDef | None,
    old: libcst.FunctionDef,
    new: libcst.FunctionDef,
) -> libcst.Module:
    """The module with one function replaced: far cheaper than a walk through all of it."""
    if owner is None:
        return module.with_changes(body=_replaced(module.body, old, new))
    block = owner.body.with_changes(body=_replaced(owner.body.body, old, new))
    return module.with_changes(body=_replaced(module.body, owner, owner.with_changes(body=block)))


def _replaced(nodes: Any, old: libcst.CSTNode, new: libcst.CSTNode) -> list[Any]:
    return [new if node is old else node for node in nodes]


def _difference(source: str, mutated: str) -> tuple[str, str]:
    """The lines that a mutant takes away and those that it puts in their place."""
    old, new = source.splitlines(), mutated.splitlines()
    while old and new and old[0] == new[0]:
        del old[0], new[0]
    while old and new and old[-1] == new[-1]:
        del old[-1], new[-1]
    return "\n".join(map(str.strip, old)), "\n".join(map(str.strip, new))
