"""All mutations of chosen functions of a source, and a sample of those that change the program.

A mutant that does not compile is none; one whose code equals the original's, or another mutant's,
is dropped as well. Two sources whose code objects are equal up to line numbers are one program, so
such a mutant is equivalent and nobody has to look at it. What is sampled depends on the seed and
the source alone.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from types import CodeType

from poolproof.power.mutation import Mutation, Source, changed_lines, spliced
from poolproof.power.operators import (
    Edit,
    body_edits,
    expression_edits,
    is_talk,
    size_edits,
    size_statement_edits,
    statement_edits,
)

__all__ = ["candidates", "changed_functions", "compiled", "functions_of", "sample"]


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


_SILENT = ("__repr__", "__str__")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Sample:
    """Mutations to try, out of so many candidates, some of which do not change the program.

    They stand in the order in which they were drawn, so that the first of them are a sample too.
    """

    mutations: tuple[Mutation, ...]
    num_candidates: int
    num_equivalent: int


def candidates(
    source: Source, functions: Collection[Place], *, of_size: bool = False
) -> list[Mutation]:
    """Every edit of these functions, in the order of the file; of size where `of_size`."""
    edits_of = _size_edits_of if of_size else _edits_of
    tree = ast.parse(source.text)
    with_code = code_lines(compiled(source.text, source.path))
    found = []
    for name, function in _definitions(tree, ""):
        first = min([function.lineno, *(entry.lineno for entry in function.decorator_list)])
        if (function.name, first) not in functions or function.name in _SILENT:
            continue
        for statement, edit in edits_of(function, source):
            found.append(_mutation(source, name, statement, edit, with_code))
    return list(dict.fromkeys(found))


def sample(
    sources: Sequence[Source], candidates_of: Sequence[Mutation], most: int | None, seed: int
) -> Sample:
    """At most so many of the candidates; None for all."""
    order = list(range(len(candidates_of)))
    Random(f"mutants {seed}").shuffle(order)
    by_module = {source.module: source for source in sources}
    seen: dict[tuple[str, str], list[CodeType]] = {}
    chosen: list[Mutation] = []
    num_equivalent = 0
    for place in order:
        if most is not None and len(chosen) >= most:
            break
        mutation = candidates_of[place]
        fitted = _fitted(by_module[mutation.module], mutation, seen)
        if fitted is None:
            num_equivalent += 1
        else:
            chosen.append(fitted)
    return Sample(tuple(chosen), len(candidates_of), num_equivalent)


def changed_functions(source: Source, mutation: Mutation) -> list[tuple[str, CodeType, CodeType]]:
    """The functions whose code the mutation changes: their names, the old code and the new.

    Raises SyntaxError where the mutant does not compile.
    """
    mutant = spliced(source.text, mutation.start, mutation.end, mutation.text)
    with warnings.catch_warnings():
        # "is" beside a literal, and what else only a mutant would write.
        warnings.simplefilter("ignore")
        new = functions_of(compiled(mutant, source.path))
        old = functions_of(compiled(source.text, source.path))
    return [
        (name, before, after)
        for (name, before), (_, after) in zip(old, new, strict=True)
        if not same_code(before, after)
    ]


def _fitted(
    source: Source, mutation: Mutation, seen: dict[tuple[str, str], list[CodeType]]
) -> Mutation | None:
    """The mutation, if it makes a program that nobody has made yet and that can be put in place."""
    try:
        changed = changed_functions(source, mutation)
    except (SyntaxError, ValueError):
        return None
    if len(changed) != 1:
        return None
    name, before, after = changed[0]
    if before.co_freevars != after.co_freevars:
        # A live method keeps its cell of `__class__`; the mutant has to name it as well.
        if mutation.text != "pass":
            return None
        return _fitted(source, replace(mutation, text="__class__"), seen)
    known = seen.setdefault((source.module, name), [])
    if any(same_code(after, other) for other in known):
        return None
    known.append(after)
    return mutation


def _definitions(node: ast.AST, prefix: str) -> Iterator[tuple[str, _Function]]:
    """The outermost functions with their dotted names, as `functions_of` has them."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Function):
            yield f"{prefix}{child.name}", child
        elif isinstance(child, ast.ClassDef):
            yield from _definitions(child, f"{prefix}{child.name}.")
        else:
            yield from _definitions(child, prefix)


def _edits_of(function: _Function, source: Source) -> Iterator[tuple[ast.stmt, Edit]]:
    # A bare annotation, where an edit is put before it, is no line that a run could enter.
    entered = next((s for s in function.body if not _is_bare_annotation(s)), function.body[0])
    for edit in body_edits(function, source):
        yield entered, edit
    yield from _edits_in(function.body, source, function.body[-1])


def _edits_in(
    body: Sequence[ast.stmt], source: Source, last: ast.stmt
) -> Iterator[tuple[ast.stmt, Edit]]:
    for statement in body:
        if is_talk(statement) or isinstance(statement, ast.Assert):
            continue
        for edit in statement_edits(statement, source, is_last=statement is last):
            yield statement, edit
        if isinstance(statement, _Function):
            yield from _edits_in(statement.body, source, statement.body[-1])
            continue
        if isinstance(statement, ast.ClassDef | ast.Raise):
            continue
        for node in _expressions(statement):
            for edit in expression_edits(node, source):
                yield statement, edit
        for inner in _bodies(statement):
            yield from _edits_in(inner, source, last)


def _is_bare_annotation(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.AnnAssign) and statement.value is None


def _size_edits_of(function: _Function, source: Source) -> Iterator[tuple[ast.stmt, Edit]]:
    return _size_edits_in(function.body, source)


def _size_edits_in(body: Sequence[ast.stmt], source: Source) -> Iterator[tuple[ast.stmt, Edit]]:
    for statement in body:
        if is_talk(statement) or isinstance(statement, ast.Assert | ast.ClassDef | ast.Raise):
            continue
        for edit in size_statement_edits(statement, source):
            yield statement, edit
        for node in _expressions(statement):
            for edit in size_edits(node, source):
                yield statement, edit
        for inner in _bodies(statement):
            yield from _size_edits_in(inner, source)


def _bodies(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        inner = getattr(statement, name, None)
        if inner:
            yield inner
    for handler in getattr(statement, "handlers", ()):
        yield handler.body
    for case in getattr(statement, "cases", ()):
        yield case.body


def _expressions(node: ast.AST) -> Iterator[ast.AST]:
    """The expressions of this statement, without those of the statements inside it."""
    for name, value in ast.iter_fields(node):
        if name == "annotation":
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.expr | ast.comprehension | ast.keyword | ast.withitem):
                if isinstance(child, ast.JoinedStr):
                    continue
                yield child
                yield from _expressions(child)
            elif isinstance(child, ast.Slice):
                yield from _expressions(child)


def _mutation(
    source: Source, function: str, statement: ast.stmt, edit: Edit, with_code: set[int]
) -> Mutation:
    first = source.text.count(b"\n", 0, edit.start) + 1
    last = source.text.count(b"\n", 0, edit.end) + 1
    if edit.operator in ("loop left early", "returned early") or not with_code.intersection(
        range(first, last + 1)
    ):
        # Where the compiler gave these lines no code of their own, the statement's are asked.
        assert statement.end_lineno is not None
        first, last = min(first, statement.lineno), max(last, statement.end_lineno)
    before, after = changed_lines(source.text, edit.start, edit.end, edit.text)
    return Mutation(
        module=source.module,
        path=source.path,
        function=function,
        operator=edit.operator,
        lines=(first, last),
        start=edit.start,
        end=edit.end,
        text=edit.text,
        before=before,
        after=after,
    )
