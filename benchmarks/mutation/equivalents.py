"""The list of mutants that change nothing anybody can see, and whether it still speaks of our code.

Whether an entry is right is for people to judge; here it is only whether the change that it names
could still be made.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["LIST", "ROOT", "Equivalent", "read_list", "stale"]

ROOT = Path(__file__).resolve().parent.parent.parent
LIST = ROOT / "tests" / "mutation" / "equivalent.toml"


@dataclass(frozen=True)
class Equivalent:
    """One change of one function that no test could tell from the original."""

    file: str
    function: str
    before: str  # the lines that change, without their indentation
    after: str
    reason: str


def read_list(path: Path = LIST) -> list[Equivalent]:
    """All entries; those under one reason share it."""
    groups = tomllib.loads(path.read_text(encoding="utf-8")).get("because", [])
    return [
        Equivalent(reason=group["reason"], **mutant)
        for group in groups
        for mutant in group["mutants"]
    ]


def stale(entry: Equivalent, root: Path = ROOT) -> str | None:
    """What is wrong with an entry; None when its change could still be made."""
    file = root / entry.file
    if not file.is_file():
        return f"{entry.file} is gone; remove the entry"
    source = file.read_text(encoding="utf-8")
    lines = dict(_functions(ast.parse(source))).get(entry.function)
    if lines is None:
        return f"{entry.file} has no function {entry.function}; remove or rename the entry"
    text = "\n".join(line.strip() for line in source.splitlines()[lines])
    if f"\n{entry.before}\n" not in f"\n{text}\n":
        return f"{entry.function} in {entry.file} has no line {entry.before!r}; look at it again"
    if entry.before == entry.after:
        return f"the entry of {entry.function} in {entry.file} changes nothing"
    return None


def _functions(module: ast.Module) -> Iterator[tuple[str, slice]]:
    """The functions of a module and the methods of its classes, with the lines they stand in."""
    for node in module.body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for member in members:
            if isinstance(member, ast.FunctionDef):
                yield prefix + member.name, slice(member.lineno - 1, member.end_lineno)
