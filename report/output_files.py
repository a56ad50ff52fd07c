"""Files that a user asked for: checked to be writable before the work, written whole after it.

A certification takes minutes, and a mistyped folder must not waste them. An existing file is
replaced by a whole new file or stays as it was.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from poolproof.contract.errors import PoolproofError
from poolproof.contract.outside import printable
from poolproof.contract.trace import write_atomically

__all__ = [
    "OutputError",
    "check_file",
    "check_folder",
    "refuse_to_overwrite",
    "write_file",
    "write_if_possible",
]


class OutputError(PoolproofError):
    """A file or folder that cannot be written; the message names it and the cause."""


def check_file(path: Path) -> None:
    """Check that `path` can be written, and change nothing. Raises OutputError."""
    real = _replaceable(path)
    if not real.parent.is_dir():
        raise OutputError(
            f"cannot write {path}: there is no folder {path.parent}; make it first, "
            f"or choose another place"
        )
    _try_to_write(real.parent, path)


def check_folder(path: Path) -> None:
    """Make the folder if it does not exist and check that it can be written. Raises OutputError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make folder {path}: {error.strerror or error}") from error
    _try_to_write(path, path)


def refuse_to_overwrite(written: Iterable[Path], accepting: Mapping[str, Path | None]) -> None:
    """Check that a run writes none of the files that say what it lets pass.

    `accepting` has these by their options. Raises OutputError: what is new in a run that writes its
    own baseline would pass in the next.
    """
    places = {path.resolve() for path in written}
    for option, path in accepting.items():
        if path is not None and path.resolve() in places:
            raise OutputError(
                f"{option} {path} would be overwritten, and what is new in this run would pass in "
                "the next; write to another file"
            )


def write_file(path: Path, text: str) -> None:
    """Write a whole file or leave what was there. Raises OutputError."""
    real = _replaceable(path)
    try:
        write_atomically(real, text)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def write_if_possible(path: Path, text: str) -> bool:
    """Write a file after the work, or say on standard error which file failed, and why.

    The verdict does not change, and everything else is still written.
    """
    try:
        write_file(path, text)
    except OutputError as error:
        click.echo(f"poolproof: {printable(str(error))}", err=True)
        return False
    return True


def _replaceable(path: Path) -> Path:
    """Where the path leads: nothing yet, or a plain file.

    A new file is written next to it and renamed, which would replace a device or a pipe by a plain
    file and break it for everyone.
    """
    real = path.resolve()
    if real.is_dir():
        raise OutputError(f"cannot write {path}: it is a folder; give a file name in it")
    if real.exists() and not real.is_file():
        raise OutputError(f"cannot write {path}: it is not a regular file")
    return real


def _try_to_write(folder: Path, asked_for: Path) -> None:
    """Only a try shows: permissions, read-only file systems and quotas all answer differently."""
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"x")
    except OSError as error:
        raise OutputError(f"cannot write {asked_for}: {error.strerror or error}") from error
