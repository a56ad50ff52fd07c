"""Where a test's trace and the trace's target lie, whichever folder the tests are started in.

A trace names its target as the certification that wrote it did, from the folder in which that ran.
A test runs anywhere. So both are looked for from the test's own file upward, then from the current
folder.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from poolproof.contract.target import TargetError
from poolproof.contract.trace import TraceError
from poolproof.targets.command_target import PREFIX
from poolproof.targets.load import BUILT_INS
from poolproof.targets.target_spec import TargetSpec

__all__ = ["Places", "in_folder"]

_FARTHEST = 12
"""So many folders upward are looked into."""


@dataclass(frozen=True, slots=True)
class Places:
    """The folders to look in, the nearest first."""

    folders: tuple[Path, ...]

    @classmethod
    def around_caller(cls, frame: FrameType) -> Places:
        """The folder of the code that runs in a frame, those above it, and the current one."""
        file = Path(frame.f_code.co_filename)
        own = _upward(file.resolve().parent) if file.is_file() else ()
        return cls(tuple(dict.fromkeys((*own, Path.cwd()))))

    @classmethod
    def above(cls, folder: Path) -> Places:
        """A folder and those above it, and the current one."""
        return cls(tuple(dict.fromkeys((*_upward(folder.resolve()), Path.cwd()))))

    def and_above(self, path: Path) -> Places:
        """These, and after them the folders of a file and above."""
        return Places(tuple(dict.fromkeys((*self.folders, *_upward(path.resolve().parent)))))

    def trace(self, given: str | Path) -> Path:
        """The file of a trace. Raises TraceError where there is none."""
        for folder in self.folders:
            path = folder / given
            if path.is_file():
                return path
        raise TraceError(
            f"there is no trace {given} in {self.folders[0]} or above; copy it there from "
            ".poolproof/findings, or delete its test"
        )

    def folder_of(self, target: str, trace: str) -> Path:
        """The folder from which a target's name leads to it. Raises TargetError if none does."""
        base = TargetSpec.parse(target).base
        wanted = _file_of(base)
        if wanted is None:
            return self._folder_of_module(base)
        if Path(wanted).is_absolute():
            if Path(wanted).exists():
                return Path.cwd()
        else:
            for folder in self.folders:
                if (folder / wanted).exists():
                    return folder
        raise TargetError(
            f"{trace} names the target {target}, and there is no {wanted} in {self.folders[0]} or "
            "above: if it has moved, name it (target='path/to/file.py:Class'), and if it is gone, "
            "delete the trace with its test"
        )

    def _folder_of_module(self, base: str) -> Path:
        """Where the top of a module's name stands, so that it can be imported from there."""
        top = base.partition(":")[0].partition(".")[0]
        if top not in BUILT_INS:
            for folder in self.folders:
                if (folder / f"{top}.py").is_file() or (folder / top / "__init__.py").is_file():
                    return folder
        return Path.cwd()


@contextmanager
def in_folder(folder: Path) -> Iterator[None]:
    """Work in a folder, and come back."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _upward(folder: Path) -> tuple[Path, ...]:
    return (folder, *list(folder.parents)[: _FARTHEST - 1])


def _file_of(base: str) -> str | None:
    """The file that a target's name leads to, None for modules and built-in names."""
    if base.startswith(PREFIX):
        try:
            words = shlex.split(base.removeprefix(PREFIX))
        except ValueError:
            return None
        return words[0] if words and "/" in words[0] else None
    place, _, _ = base.rpartition(":")
    return place if place.endswith(".py") or "/" in place else None
