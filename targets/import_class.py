"""Finds the class that a target string names: `package.module:Class` or `path/to/file.py:Class`.

Importing runs the user's code, so whatever it raises is turned into one line that names the
exception and the user's own file and line. Nothing is constructed here.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from poolproof.contract.outside import class_name, said_by, shown
from poolproof.contract.target import TargetError

__all__ = ["import_class", "version_of"]

_FILE_PREFIX = "poolproof_target_"


def import_class(text: str) -> type:
    """The class behind a target string with a colon. Raises TargetError."""
    place, _, name = text.rpartition(":")
    if not place or not name:
        raise TargetError(
            f"{text!r} names no class; write path/to/file.py:Class or package.module:Class"
        )
    is_file = place.endswith(".py") or "/" in place or "\\" in place
    module = _import_file(Path(place)) if is_file else _import_module(place)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise TargetError(f"{place} has no class {name}; {_classes_in(module)}")
    if not isinstance(found, type):
        raise TargetError(
            f"{text} is not a class but {type(found).__name__}; {_classes_in(module)}"
        )
    return found


def version_of(cls: type) -> str | None:
    """Name and version of the installed distribution that the class comes from, or None."""
    package = cls.__module__.split(".")[0]
    if package.startswith(_FILE_PREFIX):
        return None
    for distribution in importlib.metadata.packages_distributions().get(package, ()):
        return f"{distribution} {importlib.metadata.version(distribution)}"
    return None


class _AsItIsNow(SourceFileLoader):
    """Compiles the file, and neither reads nor leaves bytecode.

    Python takes bytecode for that of a file with the same size and the same second of change. A
    target that was edited twice within a second was certified as it had been before.
    """

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - the loader's own signature
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise TargetError(
            f"{path} {what}; give the path of a Python file from {Path.cwd()}, as path/to/file.py:"
            "Class"
        )
    path = path.resolve()
    # A name of its own: the user's `pool.py` must not hide an installed module `pool`.
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:8]
    name = f"{_FILE_PREFIX}{path.stem}_{digest}"
    loader = _AsItIsNow(name, str(path)) if path.suffix == ".py" else None
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} is not a Python file; a file target ends in .py")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickle look their module up here while it runs.
    sys.modules[name] = module
    try:
        with _importable_from(path.parent):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise TargetError(f"{path} cannot be imported: {_what_happened(error, path)}") from error
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _import_module(name: str) -> ModuleType:
    try:
        with _importable_from(Path.cwd()):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise TargetError(
                f"there is no module {error.name} where Poolproof runs ({sys.executable}); install "
                "it there, or name the file: path/to/file.py:Class"
            ) from error
        raise TargetError(
            f"module {name} cannot be imported: {_what_happened(error, None)}"
        ) from error
    except (Exception, SystemExit) as error:
        raise TargetError(
            f"module {name} cannot be imported: {_what_happened(error, None)}"
        ) from error


@contextmanager
def _importable_from(folder: Path) -> Iterator[None]:
    """Let modules beside the target be found while it is imported."""
    entry = str(folder)
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        if entry in sys.path:
            sys.path.remove(entry)


def _what_happened(error: BaseException, path: Path | None) -> str:
    """The exception in one line, with the innermost line of the user's own code."""
    if isinstance(error, SystemExit):
        what = f"it exits the process with {shown(error.code)}"
    elif isinstance(error, ModuleNotFoundError) and error.name:
        what = f"it needs the module {error.name}, which is not installed in {sys.executable}"
    else:
        lines = said_by(error).splitlines()
        name = class_name(error).rpartition(".")[2]
        what = f"{name}: {lines[0]}" if lines else name
    place = _line_of(error, path)
    return f"{what} ({place})" if place else what


def _line_of(error: BaseException, path: Path | None) -> str | None:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name} line {error.lineno}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen") and frame.filename != __file__
        and Path(frame.filename).parent.name != "importlib"
    ]  # fmt: skip
    own = [frame for frame in frames if path is None or Path(frame.filename) == path] or frames
    return f"{Path(own[-1].filename).name} line {own[-1].lineno}" if own else None


def _classes_in(module: ModuleType) -> str:
    names = [
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__
    ]
    return f"its classes are {', '.join(names)}" if names else "it defines no class"
