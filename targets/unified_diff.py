"""Reads a unified diff and applies it to texts: exactly, or not at all.

Every line that a hunk keeps or takes away has to stand there as it is. A hunk may stand elsewhere
than its head says, if it fits in one place only, and then that is told; near misses, which other
programs call fuzz, are refused. Whoever judges a repair must know what he has judged.

What `git diff`, `git format-patch` and `diff -u` write is read, also several commits in one file.
Not covered: binary changes, renames and modes, which are told and not carried out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from poolproof.contract.outside import shown
from poolproof.contract.target import TargetError

__all__ = ["Change", "FileDiff", "Hunk", "apply_hunks", "read_diff"]

_HEAD = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_GIT = re.compile(r"diff --git (?P<old>.+) (?P<new>\S+)")
_PREFIXES = ("a/", "b/", "c/", "i/", "o/", "w/")
"""What git puts before paths: a and b, and with `diff.mnemonicPrefix` what is compared."""
_NOWHERE = "/dev/null"
_NO_NEWLINE = "\\"
_MOST_SHOWN = 70


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines that stand together: `old` becomes `new`, each line with its end.

    `first` is the line from 1 where `old` should begin, 0 for what is empty; `line` is where the
    hunk stands in the diff.
    """

    first: int
    old: tuple[str, ...]
    new: tuple[str, ...]
    line: int


Change = str
"""What happens to a file: "changed", "created", "deleted", "renamed", or "binary"."""


@dataclass(slots=True)
class FileDiff:
    """What a diff does to one file; `path` as the repository has it, `line` where it is named.

    `other` is the name behind +++ where `diff -u` compared two files, such as a copy with the file.
    """

    path: str
    change: Change
    line: int
    hunks: list[Hunk] = field(default_factory=list)
    other: str | None = None


def read_diff(text: str, name: str) -> list[FileDiff]:
    """The files of a diff, in its order; one that several commits change stands there as often.

    `name` is that of the diff. Raises TargetError, which names the line that is wrong.
    """
    found = list(_Reader(text, name).files())
    if not found:
        raise TargetError(
            f"{name} changes no file: it has no '--- a/FILE' with '+++ b/FILE' and a hunk below; "
            "write it with `git diff`"
        )
    return found


class _Reader:
    """Reads a diff line by line; `_at` is the place of the next one, from 0."""

    def __init__(self, text: str, name: str) -> None:
        self._lines = text.split("\n")
        if not self._lines[-1]:
            self._lines.pop()
        self._name = name
        self._at = 0

    def files(self) -> Iterator[FileDiff]:
        current: FileDiff | None = None
        in_hunks = False
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.startswith("diff --git "):
                if current is not None:
                    yield from self._whole(current)
                current, in_hunks = self._git_head(line), False
            elif line.startswith("--- ") and self._following("+++ "):
                named = self._named()
                if current is None or current.hunks or in_hunks:
                    if current is not None:
                        yield from self._whole(current)
                    current = named
                elif current.change in ("changed", "created", "deleted"):
                    current = named
                in_hunks = False
            elif line.startswith("@@"):
                if current is None:
                    raise self._wrong("a hunk comes before any '--- a/FILE' and '+++ b/FILE'")
                current.hunks.append(self._hunk(line))
                in_hunks = True
                continue
            elif in_hunks and line[:1] in ("+", "-", " ") and line.rstrip() != "--":
                raise self._wrong(
                    f"the hunk before it has ended by the numbers in its head: {shown(line, 40)} "
                    "is one line more; was it edited by hand?"
                )
            else:
                # Words between files, such as the message of a commit, are anybody's.
                in_hunks = False
            self._at += 1
        if current is not None:
            yield from self._whole(current)

    def _whole(self, file: FileDiff) -> Iterator[FileDiff]:
        """A file that something happens to; only its mode may change, which means nothing here."""
        if file.hunks or file.change != "changed":
            yield file

    def _git_head(self, line: str) -> FileDiff:
        """What git says above a file's hunks, or in their place."""
        if line.endswith('"'):
            raise self._wrong(
                "a path in quotes is not read; write the diff with `git -c core.quotePath=false`"
            )
        names = _GIT.match(line)
        if names is None:
            raise self._wrong("it is no 'diff --git a/FILE b/FILE'")
        file = FileDiff(self._path(names["new"]), "changed", self._at + 1)
        for below in self._lines[self._at + 1 :]:
            if below.startswith(("diff --git ", "--- ", "@@")):
                break
            if below.startswith("new file mode"):
                file.change = "created"
            elif below.startswith("deleted file mode"):
                file.change = "deleted"
            elif below.startswith(("rename from ", "copy from ")):
                file.path, file.change = self._path(below.partition(" from ")[2]), "renamed"
            elif below.startswith(("Binary files ", "GIT binary patch")):
                file.change = "binary"
                break
        return file

    def _named(self) -> FileDiff:
        """The file of a '---' line, and of the '+++' line below, which is the next from now on."""
        line = self._at + 1
        old = self._path_at(self._at)
        self._at += 1
        new = self._path_at(self._at)
        if old is None or new is None:
            change = "created" if old is None else "deleted"
            return FileDiff(old or new or _NOWHERE, change, line)
        # Of renames git tells above; `diff -u` compares whatever it was given.
        return FileDiff(old, "changed", line, other=None if old == new else new)

    def _path_at(self, place: int) -> str | None:
        """The path in a '---' or '+++' line, None for no file at all."""
        named = self._lines[place][4:].partition("\t")[0].rstrip()
        return None if named == _NOWHERE else self._path(named)

    def _path(self, named: str) -> str:
        """A path without git's prefix. Raises TargetError for one that leads out of the package."""
        if named.startswith('"'):
            raise self._wrong(
                "a path in quotes is not read; write the diff with `git -c core.quotePath=false`"
            )
        path = named[2:] if named.startswith(_PREFIXES) else named
        if path.startswith("/") or re.match(r"[A-Za-z]:", path) or ".." in re.split(r"[/\\]", path):
            raise self._wrong(
                f"{path} leads out of the package; paths are those of the repository, as a/pkg/x.py"
            )
        return path.removeprefix("./")

    def _hunk(self, head: str) -> Hunk:
        """The hunk below its head; the next line is the one behind it."""
        numbers = _HEAD.match(head)
        if numbers is None:
            raise self._wrong(f"{shown(head, 40)} is no head of a hunk, as @@ -1,4 +1,5 @@")
        begun = self._at + 1
        left = [1 if numbers[place] is None else int(numbers[place]) for place in (2, 4)]
        sides: tuple[list[str], list[str]] = ([], [])
        self._at += 1
        while any(left) or self._following_sign(_NO_NEWLINE):
            if self._at >= len(self._lines):
                raise self._wrong(f"it ends within the hunk of line {begun}; is it cut short?")
            line = self._lines[self._at]
            sign = line[:1] or " "  # some programs drop the blank of an empty line
            if sign == _NO_NEWLINE:
                self._without_newline(sides)
            elif sign not in "+- " or any(not left[side] for side in _SIDES[sign]):
                raise self._wrong(
                    f"{shown(line, 40)} does not belong into the hunk of line {begun}, by the "
                    "numbers in its head"
                )
            else:
                for side in _SIDES[sign]:
                    left[side] -= 1
                    sides[side].append(f"{line[1:]}\n")
            self._at += 1
        return Hunk(int(numbers[1]), tuple(sides[0]), tuple(sides[1]), begun)

    def _without_newline(self, sides: tuple[list[str], list[str]]) -> None:
        """The line above has no end, on the sides that it stands on."""
        above = self._lines[self._at - 1]
        for side in _SIDES.get(above[:1] or " ", ()):
            if sides[side]:
                sides[side][-1] = sides[side][-1].removesuffix("\n")

    def _following(self, begins: str) -> bool:
        return self._at + 1 < len(self._lines) and self._lines[self._at + 1].startswith(begins)

    def _following_sign(self, sign: str) -> bool:
        return self._at < len(self._lines) and self._lines[self._at].startswith(sign)

    def _wrong(self, what: str) -> TargetError:
        return TargetError(f"{self._name} line {self._at + 1} does not parse: {what}")


_SIDES = {" ": (0, 1), "-": (0,), "+": (1,)}
"""On which sides of a hunk, old and new, a line stands by its first character."""


def apply_hunks(text: str, hunks: Sequence[Hunk], path: str, name: str) -> tuple[str, list[str]]:
    """The text with the hunks carried out, and in words where one stood elsewhere than it says.

    `path` is the file's, `name` the diff's. Raises TargetError for the first that does not fit.
    """
    lines = _lines_of(text)
    made: list[str] = []
    moved: list[str] = []
    done = shift = 0
    for number, hunk in enumerate(hunks, start=1):
        what = f"{name}: hunk {number} of {path} (line {hunk.line})"
        expected = max(hunk.first - 1, 0) if hunk.old else hunk.first
        place = _place(lines, hunk, expected + shift, done, what)
        if place != expected + shift:
            by = place - expected
            shift = by
            direction = "down" if by > 0 else "up"
            moved.append(
                f"hunk {number} of {path} stands {abs(by)} line{'s' * (abs(by) != 1)} further "
                f"{direction} than it says"
            )
        made += [*lines[done:place], *hunk.new]
        done = place + len(hunk.old)
    return "".join([*made, *lines[done:]]), moved


def _lines_of(text: str) -> list[str]:
    """The lines of a text with their ends; `splitlines` would end some at form feeds as well."""
    parts = text.split("\n")
    return [*(f"{part}\n" for part in parts[:-1]), *([parts[-1]] if parts[-1] else [])]


def _place(lines: Sequence[str], hunk: Hunk, expected: int, done: int, what: str) -> int:
    """Where the hunk's old lines stand, from 0. Raises TargetError."""
    if not hunk.old and lines:
        raise TargetError(
            f"{what} has no line around it that would say where it belongs; write the diff with "
            "context, `git diff -U3`"
        )
    if done <= expected and _fits(lines, hunk.old, expected):
        return expected
    places = [at for at in range(done, len(lines)) if _fits(lines, hunk.old, at)]
    if len(places) == 1:
        return places[0]
    if places:
        numbers = ", ".join(str(at + 1) for at in places[:4])
        raise TargetError(
            f"{what} does not apply: it is not at line {expected + 1}, and would be at lines "
            f"{numbers}; write it with more context"
        )
    if hunk.new != hunk.old and hunk.new and _fits(lines, hunk.new, expected):
        raise TargetError(f"{what} does not apply: what it makes stands there already")
    raise TargetError(f"{what} does not apply: {_first_difference(lines, hunk, expected)}")


def _fits(lines: Sequence[str], old: Sequence[str], at: int) -> bool:
    return tuple(lines[at : at + len(old)]) == tuple(old)


def _first_difference(lines: Sequence[str], hunk: Hunk, at: int) -> str:
    for number, wanted in enumerate(hunk.old, start=at):
        if number >= len(lines):
            return f"{shown(wanted.rstrip(), _MOST_SHOWN)} was expected, and the file has ended"
        if lines[number] != wanted:
            return (
                f"line {number + 1} should be {_line_words(wanted, lines[number])} and is "
                f"{_line_words(lines[number], wanted)}"
            )
    return "its lines stand before those of the hunk above it"


def _line_words(line: str, other: str) -> str:
    """A line, with its end where only that differs."""
    bare = line.rstrip("\r\n")
    return shown(line if bare == other.rstrip("\r\n") else bare, _MOST_SHOWN)
