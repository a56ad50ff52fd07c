"""Mutation operators on statements: what is forgotten, done twice over, or done too early.

Deleting a statement is what most real allocator bugs come down to: the hash that is not reset, the
index entry that stays, the count that is not raised, the link that is not cleared.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from poolproof.power.expression_operators import Edit, negated, span_of
from poolproof.power.mutation import Source

__all__ = ["body_edits", "is_talk", "statement_edits"]

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
