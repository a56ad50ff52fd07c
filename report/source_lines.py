"""The line of a target's own source that a finding points to, for annotations and pages.

Where the target raised, that is the innermost line of its own; otherwise the method that the last
command called. Found by reading the file: nothing of the target is imported.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from poolproof.contract.trace import Trace
from poolproof.harness.failure_kind import failure_kind
from poolproof.targets.target_spec import TargetSpec

__all__ = ["SourceLine", "line_of"]


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A file, a line of it from 1, and what stands there."""

    path: Path
    line: int
    text: str


def line_of(trace: Trace, source: str = "") -> SourceLine | None:
    """Where a failing trace leads in its target's file; None where no file of it is at hand.

    `source` is what a certificate says of the file, which helps where the target is a module.
    """
    file = _file_of(trace.target, source)
    if file is None or trace.violation is None:
        return None
    try:
        text = file.read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError):
        return None
    line = _raised_at(trace, file) or _line_of_method(trace, tree)
    lines = text.splitlines()
    return SourceLine(file, line, lines[line - 1].strip() if line <= len(lines) else "")


def _file_of(target: str, source: str) -> Path | None:
    spec = TargetSpec.parse(target)
    place, colon, _ = spec.base.rpartition(":")
    # With a patch the lines of the file are not those that ran.
    if not colon or place.startswith("cmd") or spec.patch is not None:
        return None
    said = re.fullmatch(r"(.+\.py) \(sha256 [0-9a-f]+\)", source)
    module = Path(*place.split(".")) if re.fullmatch(r"[\w.]+", place) else Path(place)
    candidates = [
        Path(place),
        *([Path(said[1])] if said else []),
        module.with_name(f"{module.name}.py"),
        module / "__init__.py",
    ]
    return next((path for path in candidates if path.suffix == ".py" and path.is_file()), None)


def _raised_at(trace: Trace, file: Path) -> int | None:
    """The innermost line of this file where the target raised; frames name files without folder."""
    assert trace.violation is not None
    for frame in trace.violation.frames:
        found = re.match(r"(.+):(\d+) ", frame)
        if found and Path(found[1]).name == file.name:
            return int(found[2])
    return None


def _line_of_method(trace: Trace, tree: ast.Module) -> int:
    """The line of the method of the last command, else of the class, else the first."""
    assert trace.violation is not None
    operation = failure_kind(trace.violation, trace.commands).operation
    body: list[ast.stmt] = tree.body
    line = 1
    for name in TargetSpec.parse(trace.target).base.rpartition(":")[2].split("."):
        found = next((n for n in body if isinstance(n, ast.ClassDef) and n.name == name), None)
        if found is None:
            return line
        body, line = found.body, found.lineno
    methods = (n for n in body if isinstance(n, ast.FunctionDef) and n.name == operation)
    return next((method.lineno for method in methods), line)
