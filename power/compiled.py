"""Compiled code of a source and of its mutant: which function differs, and whether any does.

Two sources whose code objects are equal up to line numbers are one program, so such a mutant is
equivalent and nobody has to look at it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import CodeType

__all__ = ["code_lines", "compiled", "functions_of", "same_code"]

Place = tuple[str, int]
"""Name and first line, decorators included: how a live function is told from its neighbours."""


def compiled(text: bytes, path: Path) -> CodeType:
    """The module's code. Raises SyntaxError."""
    code: CodeType = compile(text, str(path), "exec", dont_inherit=True)
    return code


def functions_of(module: CodeType) -> list[tuple[str, CodeType]]:
    """The outermost functions, methods included, by their dotted names, in the order of the file.

    What is nested in a function belongs to it. Conditional definitions may share a name.
    """
    return list(_functions(module, ""))


def _functions(code: CodeType, prefix: str) -> Iterator[tuple[str, CodeType]]:
    for constant in code.co_consts:
        if not isinstance(constant, CodeType):
            continue
        name = f"{prefix}{constant.co_name}"
        if _is_class_body(constant):
            yield from _functions(constant, f"{name}.")
        elif not constant.co_name.startswith("<"):
            yield name, constant


def _is_class_body(code: CodeType) -> bool:
    # The compiler sets both flags on functions alone (CO_OPTIMIZED, CO_NEWLOCALS).
    return not code.co_flags & 0x3


def same_code(one: CodeType, other: CodeType) -> bool:
    """Whether two code objects do the same, line numbers aside."""
    names = ("co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_flags",
             "co_exceptiontable", "co_argcount", "co_kwonlyargcount")  # fmt: skip
    if any(getattr(one, name, None) != getattr(other, name, None) for name in names):
        return False
    if len(one.co_consts) != len(other.co_consts):
        return False
    return all(map(_same_constant, one.co_consts, other.co_consts))


def _same_constant(one: object, other: object) -> bool:
    if isinstance(one, CodeType) and isinstance(other, CodeType):
        return same_code(one, other)
    # True == 1, and 0.0 == 0.
    return repr(one) == repr(other) and type(one) is type(other)


def code_lines(module: CodeType) -> set[int]:
    """Every line that has code of its own."""
    lines = {line for _, _, line in module.co_lines() if line is not None}
    for constant in module.co_consts:
        if isinstance(constant, CodeType):
            lines |= code_lines(constant)
    return lines
