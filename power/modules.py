"""Which modules of a target are mutated, and their live functions, in the process that holds it.

By default the module that defines the target's class, and those beside it in the same folder that
it imports from, directly or through each other; where a target says which modules are its own,
those. A mutant is put in place by giving live functions
other code, so that whoever has imported a function already runs the mutant as well.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType

from poolproof.contract.target import TargetError
from poolproof.power.mutation import Mutation, Source
from poolproof.power.planting import changed_functions
from poolproof.targets.target import Target

__all__ = ["Prepared", "plant", "prepare"]

_OURS = "poolproof."
_MUTABLE = "poolproof.impl."
"""Of ourselves this alone may be mutated: the rest is what judges."""


@dataclass(slots=True)
class Prepared:
    """A loaded target, the sources of its modules, and the functions that live in each.

    `targets` are the one that was asked for and those that judge its mutants as well.
    """

    targets: tuple[Target, ...]
    sources: list[Source]
    functions: dict[str, list[FunctionType]]

    def source(self, module: str) -> Source:
        """The source of a module by the module's name."""
        return next(source for source in self.sources if source.module == module)


def prepare(
    load: Callable[[], Target], names: Sequence[str], also: Sequence[Callable[[], Target]] = ()
) -> Prepared:
    """Load the target and find its modules, or the ones that are named; `also` are loaded beside.

    Raises TargetError for a target without a readable source, and for a name that fits none.
    """
    target = load()
    targets = (target, *(load_other() for load_other in also))
    modules = _named(names, target) if names else _default(target)
    sources = [_source(module) for module in modules]
    # Found here, once and before any worker forks: a walk over all objects costs seconds.
    functions: dict[str, list[FunctionType]] = {module.__name__: [] for module in modules}
    by_globals = {id(vars(module)): module.__name__ for module in modules}
    files = {str(source.path) for source in sources} | {str(module.__file__) for module in modules}
    for thing in gc.get_objects():
        if type(thing) is FunctionType and thing.__code__.co_filename in files:
            name = by_globals.get(id(thing.__globals__))
            if name is not None:
                functions[name].append(thing)
    return Prepared(targets, sources, functions)


def plant(prepared: Prepared, mutation: Mutation) -> None:
    """Give the functions that the mutation changes their new code, for the rest of this process."""
    source = prepared.source(mutation.module)
    for _, before, after in changed_functions(source, mutation):
        for function in prepared.functions[mutation.module]:
            code = function.__code__
            if (code.co_name, code.co_firstlineno) == (before.co_name, before.co_firstlineno):
                function.__code__ = after


def _default(target: Target) -> list[ModuleType]:
    if target.own_modules:
        return [sys.modules[name] for name in target.own_modules]
    classes = [target.real_class]
    parts = (target.companion_queue, target.companion_index)
    classes += [part.real_class for part in parts if part is not None]
    found: dict[str, ModuleType] = {}
    for cls in classes:
        if cls is not None and cls.__module__ in sys.modules:
            _follow(sys.modules[cls.__module__], found)
    if not found:
        raise TargetError(
            f"{target.name}: its class cannot be told, so its source cannot be read; name its "
            "modules with --power-modules"
        )
    return sorted(found.values(), key=lambda module: module.__name__)


def _follow(module: ModuleType, found: dict[str, ModuleType]) -> None:
    """The module and, out of its folder, all that it has names from."""
    if module.__name__ in found:
        return
    found[module.__name__] = module
    folder = _file_of(module).parent
    for value in list(vars(module).values()):
        name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")
        other = sys.modules.get(name) if isinstance(name, str) else None
        # Compiled neighbours stay as they are: there is nothing that could be changed.
        if other is None or not str(getattr(other, "__file__", None)).endswith(".py"):
            continue
        if _file_of(other).parent == folder and _file_of(other).name != "__init__.py":
            _follow(other, found)


def _named(names: Sequence[str], target: Target) -> list[ModuleType]:
    found = {}
    for name in names:
        fitting = [
            module
            for full, module in sorted(sys.modules.items())
            if (full == name or full.endswith(f".{name}")) and isinstance(module, ModuleType)
        ]
        exact = [module for module in fitting if module.__name__ == name] or fitting
        if len(exact) != 1:
            known = ", ".join(module.__name__ for module in _default(target))
            what = "no module" if not exact else f"{len(exact)} modules"
            raise TargetError(
                f"--power-modules {name}: loading {target.name} loads {what} of that name; "
                f"by default these are mutated: {known}"
            )
        found[exact[0].__name__] = exact[0]
    return list(found.values())


def _file_of(module: ModuleType) -> Path:
    path = getattr(module, "__file__", None)
    if not isinstance(path, str) or not path.endswith(".py"):
        raise TargetError(
            f"the source of {module.__name__} cannot be read: it is "
            f"{'built in' if path is None else 'compiled'}; --power changes Python source"
        )
    return Path(path)


def _source(module: ModuleType) -> Source:
    path = _file_of(module)
    if module.__name__.startswith(_OURS) and not module.__name__.startswith(_MUTABLE):
        raise TargetError(
            f"{module.__name__} is what targets are judged by: a fault in it would change judge "
            "and target alike; --power takes impl, an engine, or a class of your own"
        )
    try:
        return Source(module.__name__, path, path.read_bytes())
    except OSError as error:
        raise TargetError(
            f"the source of {module.__name__} cannot be read: {path}: {error.strerror or error}"
        ) from error
