"""Mutation operators: what a programmer gets wrong in an expression, a statement, or at some size.

Each operator takes a node and yields edits; which nodes are asked is decided in `planting.py`.
Messages, annotations and assertions never come here.

Expressions: what is wrong within one line. Statements: what is forgotten, done twice over, or done
too early; deleting one is what most real allocator bugs come down to: the hash that is not reset,
the index entry that stays, the count that is not raised, the link that is not cleared.

Sizes: what is right in small and wrong from some constant on. A counter of one byte, a list that
is cut, a length that stops growing. The other operators hardly make such a mutant, and small runs
do not tell it from the original. An edit is made only where the expression is a number by its
form: a length, what is compared by order or with a number, an index that is called one, the end of
a slice or of a range, a sum that is kept.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from poolproof.power.mutation import Source

__all__ = [
    "SIZES",
    "Edit",
    "body_edits",
    "expression_edits",
    "is_talk",
    "size_edits",
    "size_statement_edits",
    "statement_edits",
]


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


_TALKERS = ("logger", "logging", "log", "warnings", "print", "_logger")
_OTHER_SIGN: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+=", "-="),
    ast.Sub: ("-=", "+="),
}


def is_talk(node: ast.AST) -> bool:
    """Whether a statement only says something: a log line, a warning, a docstring."""
    match node:
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr(value=ast.Call(func=function)):
            while isinstance(function, ast.Attribute):
                function = function.value
            return isinstance(function, ast.Name) and function.id in _TALKERS
        case _:
            return False


def statement_edits(node: ast.stmt, source: Source, *, is_last: bool) -> Iterator[Edit]:
    """All edits of this one statement, those inside it not included.

    `is_last`: nothing of the function follows, so that falling off its end is what happens next.
    """
    whole = span_of(node, source)
    match node:
        case ast.Expr(value=ast.Call()) | ast.Delete():
            yield Edit("statement deleted", *whole, "pass")
        case (
            ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_])
            | ast.AnnAssign(target=ast.Attribute() | ast.Subscript(), value=ast.expr())
        ):
            yield Edit("statement deleted", *whole, "pass")
        case ast.AugAssign(target=target, op=operator, value=value):
            counts = "ref" in ast.unparse(target).lower()
            yield Edit("ref count kept" if counts else "statement deleted", *whole, "pass")
            if type(operator) in _OTHER_SIGN:
                sign, other = _OTHER_SIGN[type(operator)]
                start, end = span_of(target, source)[1], span_of(value, source)[0]
                gap = source.text[start:end].decode().replace(sign, other, 1)
                yield Edit("+= and -= swapped", start, end, gap)
        case ast.Raise():
            yield Edit("refusal dropped", *whole, "pass")
        case ast.Return(value=value):
            if not is_last:
                yield Edit("early return dropped", *whole, "pass")
            if value is not None and not isinstance(value, ast.Constant):
                yield Edit("nothing returned", *span_of(value, source), "None")
        case ast.Break():
            yield Edit("break and continue swapped", *whole, "continue")
        case ast.Continue():
            yield Edit("break and continue swapped", *whole, "break")
        case ast.If(test=test):
            yield negated(test, source)
        case ast.For(iter=iterated, body=body):
            start, end = span_of(iterated, source)
            text = source.text[start:end].decode()
            yield Edit("order reversed", start, end, f"reversed(list({text}))")
            yield _left_after_first(body, source)
        case ast.While(body=body):
            yield _left_after_first(body, source)


def _left_after_first(body: list[ast.stmt], source: Source) -> Edit:
    """A `break` behind the loop's last statement."""
    last = body[-1]
    start, end = span_of(last, source)
    text = source.text[start:end].decode()
    return Edit("loop left early", start, end, f"{text}\n{' ' * body[0].col_offset}break")


def body_edits(function: ast.FunctionDef | ast.AsyncFunctionDef, source: Source) -> Iterator[Edit]:
    """An early return, before anything is done."""
    body = [statement for statement in function.body if not is_talk(statement)]
    if not body or isinstance(body[0], ast.Return | ast.Raise | ast.Pass):
        return
    start, _ = span_of(body[0], source)
    # A decorated or one-line body cannot take a line of its own in front.
    if body[0].lineno == function.lineno or isinstance(body[0], ast.FunctionDef | ast.ClassDef):
        return
    end = source.position(body[0].lineno, body[0].col_offset)
    yield Edit("returned early", start, end, f"return None\n{' ' * body[0].col_offset}")


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
