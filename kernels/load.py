"""From a target string to a target: built-in names, functions in files and modules.

A function is paged attention unless its declaration names another `kind`, or the target string
does. A user's function carries its declaration as an attribute `declaration`, a mapping; without
one the strictest promises are assumed. Importing runs the user's code: what it raises becomes one
line.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from poolproof.contract.target import TargetError
from poolproof.kernels.catalogue import BUILT_INS
from poolproof.kernels.declaration import Declaration, DeclarationError
from poolproof.kernels.functions.catalogue import FUNCTION_KINDS
from poolproof.kernels.functions.declaration import FunctionDeclaration
from poolproof.kernels.functions.target import FunctionTarget
from poolproof.kernels.target import KernelTarget

__all__ = ["load_kernel"]


Loaded = KernelTarget | FunctionTarget


def load_kernel(text: str, device: str, overrides: Mapping[str, Any] | None = None) -> Loaded:
    """The target that a string names, with rows of its declaration replaced.

    Raises TargetError, whose message says in one or two lines what is wrong and what to do.
    """
    built_in = BUILT_INS.get(text)
    overrides = dict(overrides or {})
    target: Loaded
    if built_in is not None:
        target = built_in.make(device)
    else:
        target = _function_target(text, device, overrides.pop("kind", None))
    if not overrides:
        return target
    rows = {key: _listed(target.declaration, key, value) for key, value in overrides.items()}
    declared = {**target.declaration.to_json(), **rows}
    try:
        if isinstance(target, FunctionTarget):
            return replace(target, declaration=FunctionDeclaration.from_mapping(declared))
        return replace(target, declaration=Declaration.from_mapping(declared))
    except DeclarationError as error:
        raise TargetError(str(error)) from error


def _listed(declaration: Declaration | FunctionDeclaration, key: str, value: Any) -> Any:
    """A list is written with plus signs in a target string: dtypes=float32+float16."""
    if isinstance(getattr(declaration, key, None), tuple):
        parts = str(value).split("+")
        return [int(part) if part.isdecimal() else part for part in parts if part != "none"]
    if type(getattr(declaration, key, None)) is int and str(value).isdecimal():
        return int(value)
    return {"yes": True, "no": False}.get(str(value), value)


def _function_target(text: str, device: str, kind: str | None) -> Loaded:
    place, _, name = text.rpartition(":")
    if not place or not name:
        close = difflib.get_close_matches(text, BUILT_INS, n=2, cutoff=0.6)
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        raise TargetError(
            f"unknown kernel {text!r}; {hint}built in are {', '.join(BUILT_INS)}; your own is "
            "path/to/file.py:function or package.module:function"
        )
    module = _import(place)
    function = getattr(module, name, None)
    if not callable(function):
        functions = [key for key, value in vars(module).items()
                     if callable(value) and not key.startswith("_")]  # fmt: skip
        raise TargetError(
            f"{place} has no function {name}; it has {', '.join(functions[:8]) or 'none'}"
        )
    about: dict[str, Any] = {
        "name": text,
        "version": str(getattr(module, "__version__", "")),
        "source": str(getattr(module, "__file__", place)),
        "device": device,
        "uses_triton": _launches_triton(module),
    }
    declared = getattr(function, "declaration", {})
    try:
        if isinstance(declared, Mapping) and (kind or "kind" in declared):
            declared = {**declared, "kind": kind or declared["kind"]}
            rows = FunctionDeclaration.from_mapping(declared)
            return FunctionTarget(
                function=function, declaration=rows, kind=FUNCTION_KINDS[rows.kind], **about
            )
        return KernelTarget(
            attend=function, declaration=Declaration.from_mapping(declared), **about
        )
    except DeclarationError as error:
        raise TargetError(f"{text}: {error}") from error


def _launches_triton(module: Any) -> bool:
    """Whether a function of the module is a Triton kernel, so that its loads can be watched."""
    return any(type(value).__module__.startswith("triton.") and hasattr(value, "arg_names")
               for value in vars(module).values())  # fmt: skip


def _import(place: str) -> Any:
    is_file = place.endswith(".py") or "/" in place or "\\" in place
    if is_file and not (place.endswith(".py") and Path(place).is_file()):
        raise TargetError(f"there is no Python file {place}")
    try:
        if not is_file:
            return importlib.import_module(place)
        path = Path(place).resolve()
        name = f"poolproof_kernel_target_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None, place
        assert spec.loader is not None, place
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        sys.path.insert(0, str(path.parent))
        spec.loader.exec_module(module)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise TargetError(
            f"{place} cannot be imported: {type(error).__name__}: {error} ({frame.filename} line "
            f"{frame.lineno})"
        ) from error
    return module
