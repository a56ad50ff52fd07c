"""`[tool.poolproof]` in a pyproject.toml: what `poolproof certify` without a target runs.

    [tool.poolproof]
    targets = ["path/to/file.py:Pool"]
    depth = "quick"
    workers = 2

The first pyproject.toml with this table counts, from the working directory upward. Paths and
targets are those from its folder. Options have the names that they have on the command line, where
each can be given as well and then counts. A target that needs other options is a table:

    [[tool.poolproof.targets]]
    target = "path/to/file.py:Manager"
    layouts = ["full"]
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poolproof.contract.errors import PoolproofError
from poolproof.contract.outside import shown

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["OUTPUTS", "PATHS", "ProjectFile", "ProjectFileError", "ProjectTarget", "find_project"]

FILE = "pyproject.toml"


class ProjectFileError(PoolproofError, ValueError):
    """A `[tool.poolproof]` that cannot be used; the message names the file, the key and the fix."""


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_text, value))


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def _is_table(value: object) -> bool:
    plain = (str, int)
    return isinstance(value, dict) and all(type(row) in plain for row in value.values())


_TEXT = (_is_text, "a text")
_PATH = (_is_text, "a path, as a text")
_TEXTS = (_are_texts, "a list of texts")
_FLAG = (lambda value: isinstance(value, bool), "true or false")
_WHOLE = (lambda value: type(value) is int, "a whole number")
_NUMBER = (_is_number, "a number")

OUTPUTS = ("json", "junit", "md", "html", "sarif", "badge")
"""The keys that name one file, which one target can fill."""

PATHS = ("known", "baseline", "report", *OUTPUTS)
"""The keys whose values are paths."""

_KEYS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "depth": _TEXT,
    "layouts": _TEXTS,
    "profile": (_is_table, 'a table of rows, such as {eviction = "lifo"}'),
    "api": _TEXT,
    "fail-on": _TEXTS,
    "keep-going": _FLAG,
    "hardening": _FLAG,
    "seed": _WHOLE,
    "workers": _WHOLE,
    "call-timeout": _NUMBER,
    "memory-limit": _WHOLE,
    **dict.fromkeys(PATHS, _PATH),
}
"""The options of a target: what is allowed, and that in words."""

_MEANT = {"level": "depth", "layout": "layouts", "target": "targets", "output": "report"}
"""Names that people try, and what they mean by them."""


@dataclass(frozen=True, slots=True)
class ProjectTarget:
    """A target with its options, by the names in the file."""

    target: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """What stands in `[tool.poolproof]` of a file."""

    path: Path
    targets: tuple[ProjectTarget, ...]

    @property
    def folder(self) -> Path:
        """The folder from which its paths and targets are named."""
        return self.path.parent

    def report_folder(self, target: ProjectTarget, report: Path) -> Path:
        """The folder for the reports of one target: one of its own where there are several."""
        return report if len(self.targets) == 1 else report / self._slug(target)

    def _slug(self, target: ProjectTarget) -> str:
        words = "-".join(re.findall(r"[A-Za-z0-9_]+", target.target)).lower()
        place = self.targets.index(target)
        return f"{place + 1}-{words}"[:80]


def find_project(folder: Path) -> ProjectFile | None:
    """The nearest file upward that has the table; None if there is none.

    Raises ProjectFileError for one that cannot be used.
    """
    for place in (folder, *folder.parents):
        path = place / FILE
        if path.is_file():
            table = _table_of(path)
            if table is not None:
                return _read(path, table)
    return None


def _table_of(path: Path) -> dict[str, Any] | None:
    """The table, None where the file has none."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProjectFileError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ProjectFileError(f"{path}: byte {error.start} is not UTF-8 text") from error
    except (ValueError, RecursionError) as error:
        raise ProjectFileError(f"{path} is not TOML: {error}") from error
    tools = document.get("tool")
    table = tools.get("poolproof") if isinstance(tools, dict) else None
    if table is not None and not isinstance(table, dict):
        raise ProjectFileError(f"{path}: tool.poolproof must be a table, not {shown(table)}")
    return table


def _read(path: Path, table: dict[str, Any]) -> ProjectFile:
    where = f"{path}, [tool.poolproof]"
    general = {name: value for name, value in table.items() if name != "targets"}
    _check(where, general, ("targets", *_KEYS))
    targets = table.get("targets")
    if not isinstance(targets, list) or not targets:
        given = "is missing" if targets is None else f"is {shown(targets)}"
        raise ProjectFileError(
            f"{where}: targets {given}; list what is to be certified, such as "
            'targets = ["my_engine/block_pool.py:BlockPool"]'
        )
    read = [_target(where, general, entry) for entry in targets]
    files = [name for name in OUTPUTS if name in general]
    if len(read) > 1 and files:
        raise ProjectFileError(
            f"{where}: {files[0]} names one file for {len(read)} targets; use report, which has a "
            "folder for each, or give each target its own"
        )
    return ProjectFile(path, tuple(read))


def _target(where: str, general: Mapping[str, Any], entry: object) -> ProjectTarget:
    if _is_text(entry):
        return ProjectTarget(str(entry), general)
    if not isinstance(entry, dict) or not _is_text(entry.get("target")):
        raise ProjectFileError(
            f"{where}: targets holds {shown(entry)}; each is a text, or a table with a target: "
            '{target = "pool.py:Pool", depth = "deep"}'
        )
    own = {name: value for name, value in entry.items() if name != "target"}
    _check(f"{where}, target {entry['target']}", own, _KEYS)
    return ProjectTarget(entry["target"], {**general, **own})


def _check(
    where: str, options: Mapping[str, Any], known: Mapping[str, Any] | tuple[str, ...]
) -> None:
    """Raises ProjectFileError for a key that there is not, or a value of a wrong type."""
    for name, value in options.items():
        if name not in known:
            close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
            meant = _MEANT.get(name, close[0] if close else None)
            hint = f"did you mean {meant}?" if meant in known else f"known are {', '.join(known)}"
            raise ProjectFileError(f"{where}: unknown key {shown(name)}; {hint}")
        is_right, words = _KEYS[name]
        if not is_right(value):
            raise ProjectFileError(f"{where}: {name} must be {words}, not {shown(value)}")
