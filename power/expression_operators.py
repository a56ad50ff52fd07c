"""Mutation operators on expressions: what a programmer gets wrong within one line.

Each operator takes a node and yields edits; which nodes are asked is decided in `planting.py`.
Messages, annotations and assertions never come here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from poolproof.power.mutation import Source

__all__ = ["Edit", "expression_edits", "span_of"]


class Edit(NamedTuple):
    """A replacement of the source between two offsets, and the operator that made it."""

    operator: str
    start: int
    end: int
    text: str


_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: (r"<", "<="),
    ast.LtE: (r"<=", "<"),
    ast.Gt: (r">", ">="),
    ast.GtE: (r">=", ">"),
    ast.Eq: (r"==", "!="),
    ast.NotEq: (r"!=", "=="),
    ast.Is: (r"\bis\b", "is not"),
    ast.IsNot: (r"\bis\s+not\b", "is"),
    ast.In: (r"\bin\b", "not in"),
    ast.NotIn: (r"\bnot\s+in\b", "in"),
}
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: (r"\+", "-"),
    ast.Sub: (r"-", "+"),
    ast.Mult: (r"\*", "//"),
    ast.FloorDiv: (r"//", "*"),
    ast.Mod: (r"%", "//"),
}
_OTHER_FUNCTION = {"min": "max", "max": "min", "any": "all", "all": "any"}
_OTHER_END = {
    "append": "appendleft",
    "appendleft": "append",
    "popleft": "pop",
    "append_n": "prepend_n",
    "prepend_n": "append_n",
}
_COPIES = ("list", "set", "dict", "tuple")


def span_of(node: ast.expr | ast.stmt, source: Source) -> tuple[int, int]:
    """Where the node begins and ends."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return (
        source.position(node.lineno, node.col_offset),
        source.position(node.end_lineno, node.end_col_offset),
    )


def expression_edits(node: ast.AST, source: Source) -> Iterator[Edit]:
    """All edits of this one expression, its parts not included."""
    match node:
        case ast.Compare():
            yield from _comparisons(node, source)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _ARITHMETIC:
            sign = _ARITHMETIC[type(operator)]
            yield from _between(left, right, sign, "arithmetic swapped", source)
        case ast.BoolOp():
            yield _other_connective(node, source)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield Edit("not dropped", *span_of(node, source), f"({_text(operand, source)})")
        case ast.IfExp(test=test):
            yield negated(test, source)
        case ast.comprehension(ifs=conditions):
            for condition in conditions:
                yield negated(condition, source)
        case ast.Constant(value=bool(value)):
            yield Edit("constant flipped", *span_of(node, source), str(not value))
        case ast.Constant(value=int(value)):
            yield Edit("off by one", *span_of(node, source), str(value + 1))
        case ast.Subscript(value=value, slice=ast.Slice() as part):
            yield from _slices(node, value, part, source)
        case ast.Call():
            yield from _calls(node, source)


def negated(test: ast.expr, source: Source) -> Edit:
    """A condition turned round."""
    return Edit("condition negated", *span_of(test, source), f"(not ({_text(test, source)}))")


def _text(node: ast.expr, source: Source) -> str:
    start, end = span_of(node, source)
    return source.text[start:end].decode()


def _between(
    left: ast.expr, right: ast.expr, sign: tuple[str, str], operator: str, source: Source
) -> Iterator[Edit]:
    """Replace the sign that stands between two operands, whatever stands around it."""
    pattern, other = sign
    start, end = span_of(left, source)[1], span_of(right, source)[0]
    found = re.search(pattern, source.text[start:end].decode())
    if found is not None:
        yield Edit(operator, start + found.start(), start + found.end(), other)


def _comparisons(node: ast.Compare, source: Source) -> Iterator[Edit]:
    operands = [node.left, *node.comparators]
    for left, sign, right in zip(operands, node.ops, operands[1:], strict=False):
        yield from _between(left, right, _COMPARISONS[type(sign)], "comparison swapped", source)


def _other_connective(node: ast.BoolOp, source: Source) -> Edit:
    word, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
    start, end = span_of(node, source)
    text = ""
    at = start
    for left, right in zip(node.values, node.values[1:], strict=False):
        gap_start, gap_end = span_of(left, source)[1], span_of(right, source)[0]
        gap = source.text[gap_start:gap_end].decode()
        text += source.text[at:gap_start].decode() + re.sub(rf"\b{word}\b", other, gap, count=1)
        at = gap_end
    return Edit("and/or swapped", start, end, f"({text}{source.text[at:end].decode()})")


def _slices(
    node: ast.Subscript, value: ast.expr, part: ast.Slice, source: Source
) -> Iterator[Edit]:
    name = "slice dropped"
    if isinstance(part.step, ast.UnaryOp):
        name = "reversal dropped"
    elif part.lower is None and part.upper is None:
        name = "copy dropped"
    yield Edit(name, *span_of(node, source), _text(value, source))


def _calls(node: ast.Call, source: Source) -> Iterator[Edit]:
    plain = [argument for argument in node.args if not isinstance(argument, ast.Starred)]
    whole = span_of(node, source)
    match node.func:
        case ast.Name(id=("reversed" | "sorted") as name) if plain:
            what = "reversal dropped" if name == "reversed" else "sorting dropped"
            yield Edit(what, *whole, f"({_text(plain[0], source)})")
        case ast.Name(id=name) if name in _COPIES and len(plain) == 1 and not node.keywords:
            yield Edit("copy dropped", *whole, f"({_text(plain[0], source)})")
        case ast.Name(id=name) if name in _OTHER_FUNCTION:
            yield Edit("bound swapped", *span_of(node.func, source), _OTHER_FUNCTION[name])
        case ast.Attribute(attr=name, value=owner) if name in _OTHER_END:
            start, end = span_of(node.func, source)
            yield Edit("other end", start, end, f"{_text(owner, source)}.{_OTHER_END[name]}")
        case ast.Attribute(attr="copy", value=owner) if not plain:
            yield Edit("copy dropped", *whole, _text(owner, source))
        case ast.Attribute(attr="get" | "pop") if len(plain) > 1:
            # A missing entry is then nothing, and no longer what the caller stands ready for.
            yield Edit("default None", *span_of(plain[1], source), "None")
    if len(plain) > 1 and plain[:2] == node.args[:2] and not _same(plain[0], plain[1]):
        first, second = span_of(plain[0], source), span_of(plain[1], source)
        between = source.text[first[1] : second[0]].decode()
        swapped = f"{_text(plain[1], source)}{between}{_text(plain[0], source)}"
        yield Edit("arguments swapped", first[0], second[1], swapped)


def _same(one: ast.expr, other: ast.expr) -> bool:
    return ast.dump(one) == ast.dump(other)
