"""Mutation operators with a constant in them: what is right in small and wrong from some size on.

A counter of one byte, a list that is cut, a length that stops growing. The usual operators hardly
make such a mutant, and small runs do not tell it from the original. An edit is made only where the
expression is a number by its form: a length, what is compared by order or with a number, an index
that is called one, the end of a slice or of a range, a sum that is kept.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from poolproof.power.expression_operators import Edit, span_of
from poolproof.power.mutation import Source

__all__ = ["SIZES", "size_edits", "size_statement_edits"]

SIZES = (16, 100, 256, 1000)
"""Where the mutants begin to be wrong; 4,096 blocks are the most that quick and standard have."""

_NUMBERS = re.compile(r"(^|_)(block|id|index|position|place|count|number)$")
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def size_edits(node: ast.AST, source: Source) -> Iterator[Edit]:
    """All edits of this one expression, its parts not included."""
    match node:
        case ast.Call(func=ast.Name(id="len"), args=[_]):
            yield from _limited(node, source)
        case ast.Call(func=ast.Name(id="range"), args=[*_, end]):
            yield from _limited(end, source)
        case ast.Compare(left=left, ops=[sign], comparators=[right]):
            if isinstance(sign, _ORDERS) or _is_number(right):
                yield from _limited(left, source)
            if isinstance(sign, _ORDERS) or _is_number(left):
                yield from _limited(right, source)
        case ast.Subscript(slice=ast.Slice(upper=ast.expr() as upper)):
            yield from _limited(upper, source)
        case ast.Subscript(slice=ast.Name(id=name) as index) if _NUMBERS.search(name):
            yield from _limited(index, source)


def size_statement_edits(statement: ast.stmt, source: Source) -> Iterator[Edit]:
    """All edits of a statement that keeps a sum."""
    match statement:
        case ast.AugAssign(target=target, op=ast.Add() | ast.Sub(), value=value):
            kept, added = (_text(part, source) for part in (target, value))
            sign = "+" if isinstance(statement.op, ast.Add) else "-"
            if isinstance(value, ast.List | ast.Tuple | ast.ListComp):
                return
            start, end = span_of(statement, source)
            for size in SIZES:
                wrapped = f"{kept} = ({kept} {sign} ({added})) % {size}"
                yield Edit(f"sum wraps at {size}", start, end, wrapped)


def _limited(node: ast.expr, source: Source) -> Iterator[Edit]:
    """The number wraps at some size, or stops there."""
    if isinstance(node, ast.Constant):
        return
    start, end = span_of(node, source)
    text = _text(node, source)
    for size in SIZES:
        yield Edit(f"wraps at {size}", start, end, f"(({text}) % {size})")
        yield Edit(f"stops at {size}", start, end, f"min({text}, {size})")


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def _text(node: ast.expr, source: Source) -> str:
    start, end = span_of(node, source)
    return source.text[start:end].decode()
