"""The files of Python source that make up a target, in the process that has loaded it.

Those that define its class and the classes that it is derived from, and out of the same folders
what they have names from. The standard library does not count, nor does what judges targets.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from poolproof.contract.level import Level

__all__ = ["files_of"]

_JUDGES = ("poolproof.contract.", "poolproof.harness.", "poolproof.targets.")


def files_of(target: Any, level: Level) -> tuple[Path, ...]:
    """The files, sorted; none for a target whose class is not written in Python, or not known."""
    holder = target.part_at(level)
    found: dict[str, Path] = {}
    for base in getattr(getattr(holder, "real_class", None), "__mro__", ()):
        module = sys.modules.get(base.__module__)
        if module is not None and not _is_foreign(module.__name__):
            _follow(module, found)
    return tuple(sorted(set(found.values())))


def _is_foreign(name: str) -> bool:
    return name.partition(".")[0] in sys.stdlib_module_names or name.startswith(_JUDGES)


def _follow(module: ModuleType, found: dict[str, Path]) -> None:
    """The module and, out of its folder, all that it has names from."""
    path = _file_of(module)
    if path is None or module.__name__ in found:
        return
    found[module.__name__] = path
    for other in _named_in(module):
        beside = _file_of(other)
        if beside is not None and beside.parent == path.parent and beside.name != "__init__.py":
            _follow(other, found)


def _named_in(module: ModuleType) -> Iterator[ModuleType]:
    for value in list(vars(module).values()):
        name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")
        other = sys.modules.get(name) if isinstance(name, str) else None
        if other is not None:
            yield other


def _file_of(module: ModuleType) -> Path | None:
    path = getattr(module, "__file__", None)
    if not isinstance(path, str) or not path.endswith(".py"):
        return None
    return Path(path).resolve()
