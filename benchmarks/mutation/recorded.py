"""What is recorded of the mutants, a row for each file, and what a new result replaces of it.

Needs none of what makes the mutants: generators/generate.py reads it too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["FOLDERS", "beside_others", "digest_of", "mutated_paths", "standing", "state_of"]

FOLDERS = ("impl", "invariants", "reference")


def mutated_paths(root: Path, folder: str, names: Collection[str] | None = None) -> list[str]:
    """The files of a folder that are mutated; of these names, where some are given."""
    files = sorted((root / folder).glob("*.py"))
    return [
        f"{folder}/{file.name}"
        for file in files
        if file.name != "__init__.py" and (names is None or file.stem in names)
    ]


def digest_of(file: Path) -> str:
    """What tells one version of a file from another: twelve hexadecimal digits."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12]


def state_of(file: Path, row: Mapping[str, Any]) -> str:
    """What became of a file since its row was recorded: nothing, "moved" or "changed"."""
    if not file.is_file():
        return "moved"
    return "" if row.get("digest") == digest_of(file) else "changed"


def standing(recorded: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """What is recorded of files that are still there; those that are gone are measured no more."""
    return {
        **recorded,
        "files": {path: row for path, row in recorded["files"].items() if (root / path).is_file()},
        "survivors": [one for one in recorded["survivors"] if (root / one["file"]).is_file()],
    }


def beside_others(
    value: Mapping[str, Any], folders: Sequence[str], recorded: Mapping[str, Any]
) -> dict[str, Any]:
    """A result, and what is recorded beside it, in the order of all.

    The result replaces the rows of its files, and all rows of the `folders` that it covers whole.
    """

    def stays(path: str) -> bool:
        return path not in value["files"] and _folder(path) not in folders

    others = {path: row for path, row in recorded["files"].items() if stays(path)}
    files = {**others, **value["files"]}
    return {
        **value,
        "files": dict(sorted(files.items(), key=lambda item: _place(item[0]))),
        "survivors": [
            *(one for one in recorded["survivors"] if stays(one["file"])),
            *value["survivors"],
        ],
    }


def _folder(path: str) -> str:
    return path.partition("/")[0]


def _place(path: str) -> tuple[int, str]:
    return FOLDERS.index(_folder(path)), path
