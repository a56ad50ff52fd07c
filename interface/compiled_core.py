"""Leaves compiled modules aside that do not fit, so that their Python sources run instead.

A compiled module hides the source beside it: after an edit, a run would judge with code that nobody
reads any more. `setup.py` records what it compiled in `compiled.json`: each source's digest, its
types (`.pxd`) included, and the suffix by which the interpreter knows its own compiled files. The
package asks here before anything else is imported, and only where that record lies.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    ExtensionFileLoader,
    ModuleSpec,
    SourceFileLoader,
)
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

__all__ = ["RECORD", "leave_unfit_aside", "left_aside", "left_aside_line", "source_digest"]

RECORD = "compiled.json"

_LEFT_ASIDE: dict[str, str] = {}

_OLDER = "older than the source"
_BUILD_AGAIN = "POOLPROOF_COMPILE=1 pip install --force-reinstall ."
_MOST_NAMES = 3


def source_digest(source: Path) -> str:
    """The SHA-256 of a module's source and of the types beside it, in hexadecimal.

    `setup.py` computes the same. Raises OSError if the source cannot be read.
    """
    types = source.with_suffix(".pxd")
    return hashlib.sha256(
        source.read_bytes() + b"\0" + (types.read_bytes() if types.exists() else b"")
    ).hexdigest()


def leave_unfit_aside(package: Path) -> None:
    """Compare what was compiled in a package's folder with its sources; later imports follow.

    A record that cannot be read leaves nothing that could be trusted: every compiled file that this
    interpreter would import is left aside.
    """
    try:
        record = json.loads((package / RECORD).read_bytes())
        suffix, digests = str(record["suffix"]), dict(record["modules"])
    except (OSError, ValueError, TypeError, KeyError):
        suffix = EXTENSION_SUFFIXES[0]
        compiled = [path.relative_to(package.parent) for path in package.rglob(f"*{suffix}")]
        digests = {".".join(path.parts).removesuffix(suffix): "" for path in compiled}
    files: dict[str, Path] = {}
    for name, digest in digests.items():
        stem = package.joinpath(*name.split(".")[1:])
        source = stem.with_name(f"{stem.name}.py")
        if not source.exists():
            continue
        compiled_file = stem.with_name(f"{stem.name}{suffix}")
        if suffix not in EXTENSION_SUFFIXES:
            _LEFT_ASIDE[name] = f"compiled for {suffix}, not for this Python"
        elif not compiled_file.exists():
            _LEFT_ASIDE[name] = "the compiled file is gone"
        elif source_digest(source) != digest:
            _LEFT_ASIDE[name] = _OLDER
        files[name] = source
    sys.meta_path.insert(0, _CompiledFinder(files, suffix))


def left_aside() -> dict[str, str]:
    """The modules that so far run as Python although they were compiled, each with the reason."""
    return dict(_LEFT_ASIDE)


def left_aside_line(known: Iterable[str] = ()) -> str:
    """What was left aside besides `known`, why, and how to build again; empty if nothing was."""
    left = {name: why for name, why in _LEFT_ASIDE.items() if name not in set(known)}
    if not left:
        return ""
    shown = ", ".join(name.partition(".")[2] for name in list(left)[:_MOST_NAMES])
    more = f" and {len(left) - _MOST_NAMES} more" if len(left) > _MOST_NAMES else ""
    reasons = "; ".join(dict.fromkeys(left.values()))
    return (
        f"poolproof: compiled modules are left aside and their sources run: {shown}{more} "
        f"({reasons}); to build again, in a checkout: {_BUILD_AGAIN}"
    )


class _CompiledFinder:
    """Finds the modules of the record: compiled, or the source of one that is left aside."""

    def __init__(self, sources: Mapping[str, Path], suffix: str) -> None:
        self._sources = sources
        self._suffix = suffix

    def find_spec(
        self,
        fullname: str,
        path: object = None,  # noqa: ARG002 -- importlib's signature
        target: object = None,  # noqa: ARG002 -- the same
    ) -> ModuleSpec | None:
        source = self._sources.get(fullname)
        if source is None:
            return None
        if fullname in _LEFT_ASIDE:
            return spec_from_file_location(fullname, source)
        compiled = source.with_name(f"{source.stem}{self._suffix}")
        return spec_from_file_location(
            fullname, compiled, loader=_CompiledLoader(fullname, str(compiled), source)
        )


class _CompiledLoader(ExtensionFileLoader):
    """Loads a compiled module, or its source if the system cannot load the compiled file."""

    def __init__(self, name: str, path: str, source: Path) -> None:
        super().__init__(name, path)
        self._source = source

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:  # type: ignore[override] # None asks for an ordinary module
        try:
            return super().create_module(spec)
        except ImportError as error:
            _LEFT_ASIDE[spec.name] = f"cannot be loaded: {str(error).splitlines()[0][:200]}"
        # importlib reads both again before it runs the module.
        spec.origin = str(self._source)
        spec.loader = SourceFileLoader(spec.name, spec.origin)
        return None
