"""One small change of one source file, as an edit of its bytes.

An edit and not a tree: it is a few words, so it travels to other processes and other interpreters,
and what it did is shown as the lines that it changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

__all__ = ["Mutation", "Source", "changed_lines", "spliced"]

_MOST_SHOWN = 160


class Source:
    """A module's file as it was when the target was loaded from it."""

    def __init__(self, module: str, path: Path, text: bytes) -> None:
        self.module = module
        self.path = path
        self.text = text
        lengths = (len(line) for line in text.splitlines(keepends=True))
        self._line_starts = list(accumulate(lengths, initial=0))

    def position(self, line: int, column: int) -> int:
        """The offset of a place as the parser names it: lines from 1, columns in bytes."""
        return self._line_starts[line - 1] + column


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """Bytes `start` to `end` of the source of `module` become `text`.

    `lines` are those of the code that is changed, the first and the last: where no run executes
    one of them, none can tell the mutant from the original. `before` and `after` are the changed
    lines, in one.
    """

    module: str
    path: Path
    function: str
    operator: str
    lines: tuple[int, int]
    start: int
    end: int
    text: str
    before: str
    after: str

    @property
    def line(self) -> int:
        """The first line that is changed."""
        return self.lines[0]

    def key(self) -> tuple[str, str, str, str, str]:
        """What stays the same when lines above are added or removed."""
        return self.path.name, self.function, self.operator, self.before, self.after

    def to_json(self) -> dict[str, Any]:
        """This mutation as plain JSON values, for people; the offsets are left out."""
        return {
            "module": self.module,
            "file": self.path.name,
            "line": self.line,
            "function": self.function,
            "operator": self.operator,
            "before": self.before,
            "after": self.after,
        }


def spliced(text: bytes, start: int, end: int, replacement: str) -> bytes:
    """The source with the edit in it."""
    return text[:start] + replacement.encode() + text[end:]


def changed_lines(text: bytes, start: int, end: int, replacement: str) -> tuple[str, str]:
    """The whole lines that an edit touches, before and after it, each joined to one."""
    first = text.rfind(b"\n", 0, start) + 1
    last = text.find(b"\n", end)
    last = len(text) if last < 0 else last
    before = text[first:last].decode(errors="replace")
    after = (text[first:start] + replacement.encode() + text[end:last]).decode(errors="replace")
    return _joined(before), _joined(after)


def _joined(lines: str) -> str:
    """Lines as one, comments and indentation away."""
    parts = [line.split("  # ")[0].strip() for line in lines.splitlines()]
    text = " ".join(part for part in parts if part and not part.startswith("#"))
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."
