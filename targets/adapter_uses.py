"""What an adapter uses of an engine, declared class by class, and asked before it is driven.

An engine is read from whatever commit or release its user has. So an adapter states which classes
it builds, which methods it calls with which arguments, and which attributes it reads; what differs
is named in one line. Nothing is refused that might work: of an attribute it is only said that it is
missing where neither the class has it nor any code of the engine's modules sets one of that name.
What this leaves open shows in a few calls (`manager_trial.py`).
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from poolproof.contract.target import TargetError
from poolproof.targets.adapter_fit import Call, misfit
from poolproof.targets.source_patch import text_of

__all__ = ["Use", "differences", "require_uses"]


@dataclass(frozen=True)
class Use:
    """What is used of one class, or of the functions of a module where `name` is empty.

    `module` is its name as the mapping of modules has it that goes with it.
    """

    module: str
    name: str = ""
    calls: tuple[Call, ...] = ()
    reads: tuple[str, ...] = ()


def require_uses(
    name: str, uses: Iterable[Use], modules: Mapping[str, ModuleType], adapter: str
) -> None:
    """Raises TargetError where an engine differs; `adapter` says what the adapter is made for."""
    found = differences(uses, modules)
    if found:
        raise TargetError(
            f"{name} is not driven, because {'; '.join(found)}; the adapter was written for "
            f"{adapter}"
        )


def differences(uses: Iterable[Use], modules: Mapping[str, ModuleType]) -> list[str]:
    """What is missing or is called in another way, as clauses."""
    found: list[str] = []
    for use in uses:
        module = modules[use.module]
        owner: Any = module
        if use.name:
            owner = getattr(module, use.name, None)
            if owner is None:
                found.append(f"{use.module} has no {use.name}")
                continue
        shown = use.name or use.module
        for call in use.calls:
            what = misfit(owner, call)
            if what is not None:
                found.append(f"of {shown} {what}")
            elif _is_missing(owner, call.method, modules.values()):
                found.append(f"{shown} has no method `{call.method}`")
        found += [
            f"{shown} has no attribute `{attribute}`"
            for attribute in use.reads
            if _is_missing(owner, attribute, modules.values())
        ]
    return found


def _is_missing(owner: Any, attribute: str, modules: Iterable[ModuleType]) -> bool:
    """Whether neither a class nor its instances can have the attribute."""
    if hasattr(owner, attribute):
        return False
    if not isinstance(owner, type):
        return True
    if any(attribute in vars(cls).get("__annotations__", ()) for cls in owner.__mro__):
        return False
    known = {each.__name__: each for each in modules}
    for cls in owner.__mro__:
        if cls.__module__ not in known and cls.__module__ not in _SET_NOTHING:
            module = sys.modules.get(cls.__module__)
            if module is None:
                return False
            known[cls.__module__] = module
    for module in known.values():
        names = _names_set_by(module)
        if names is None or attribute in names:
            return False
    return not any(hasattr(cls, "__getattr__") for cls in owner.__mro__)


@cache
def _names_set_by(module: ModuleType) -> frozenset[str] | None:
    """The attributes that a module's code sets on anything; None where that cannot be known."""
    place = getattr(module, "__file__", None) or ""
    if not place.endswith(".py"):
        return None
    try:
        code = compile(text_of(Path(place)), place, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError):
        return None
    names: set[str] = set()
    for each in _codes_in(code):
        if _SETS_BY_NAME & {*each.co_names}:
            return None
        names |= {
            str(step.argval) for step in dis.get_instructions(each) if step.opname == "STORE_ATTR"
        }
    return frozenset(names)


_SET_NOTHING = frozenset({"abc", "builtins", "typing"})
"""Classes of these give instances no attributes that are not seen in the class."""

_SETS_BY_NAME = frozenset({"setattr", "__setattr__", "__dict__", "vars", "make_dataclass"})
"""With these, code gives objects attributes whose names do not stand in it."""


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if inspect.iscode(constant):
            yield from _codes_in(constant)
