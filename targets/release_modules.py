"""Modules of a release, run from its sources, with stand-ins for all that is missing.

`engine_sources.py` runs modules in an order that somebody wrote down. The releases of an engine
import in changing order, and the ones that a bookkeeping needs are among hundreds that it does not.
Here each module that is asked for imports the others as it does in the engine: those that `runs`
names come from the sources, the standard library is the real one, all else is a stand-in.

A stand-in can be imported, subclassed, named in an annotation, used as a decorator and called. It
decides nothing: as soon as it is asked for a truth, a number or its items, that is a TargetError
that names it, so that no verdict rests on what is not there. Modules lie under a private name, and
each has an `__import__` of its own, also for what its functions import later. So several releases
stand side by side, and an installed engine is not touched.
"""

from __future__ import annotations

import builtins
import hashlib
import importlib
import logging
import sys
import typing
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

from poolproof.contract.target import TargetError
from poolproof.targets.source_patch import active_patch, patch_key, text_of

__all__ = ["PREFIX", "ReleaseModules", "msgspec_stand_in"]

PREFIX = "poolproof_release_"
"""Begins the names of the modules, under which `sys.modules` has them."""

_REFUSED = (
    "bool", "len", "iter", "next", "int", "float", "index", "contains", "getitem", "setitem", "lt",
    "le", "gt", "ge", "add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "floordiv", "mod",
    "pow", "neg", "and", "rand", "invert",
)  # fmt: skip


def _refusal(operation: str) -> Callable[..., Any]:
    def refuse(self: Any, *_: object) -> Any:
        raise TargetError(
            f"{self.stands_for} is a stand-in, because it is not among the sources, and the "
            f"engine asked it for {operation}; certify this release where it is installed"
        )

    return refuse


class _Kind(type):
    """The class of stand-in classes: nested names, subscripts, unions and decorators work."""

    stands_for: str

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _nested(f"{cls.stands_for}.{name}")

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        # A class of the engine's own that is derived from one is built as it says.
        if "stands_for" in vars(cls) and _decorates(arguments, named):
            return arguments[0]
        return super().__call__(*arguments, **named)

    def __getitem__(cls, _: object) -> Any:
        return cls

    def __or__(cls, _: object) -> Any:
        return cls

    def __ror__(cls, _: object) -> Any:
        return cls


def _decorates(arguments: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    """Whether a call looks like `@name` above a function or a class."""
    kinds = (FunctionType, MethodType, type, staticmethod, classmethod, property)
    return len(arguments) == 1 and not named and isinstance(arguments[0], kinds)


class _StandIn(metaclass=_Kind):
    stands_for = "a stand-in"

    def __init__(self, *_arguments: object, **_named: object) -> None: ...

    def __init_subclass__(cls, **_named: object) -> None: ...

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _nested(f"{self.stands_for}.{name}")

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return arguments[0] if _decorates(arguments, named) else self

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __or__(self, _: object) -> Any:
        return type(self)

    def __ror__(self, _: object) -> Any:
        return type(self)


for _operation in _REFUSED:
    setattr(_StandIn, f"__{_operation}__", _refusal(f"__{_operation}__"))


def _stand_in(stands_for: str) -> Any:
    name = stands_for.rpartition(".")[2]
    return _Kind(name, (_StandIn,), {"stands_for": stands_for, "__module__": __name__})


def _nested(stands_for: str) -> Any:
    """A class, to derive from, where the name is written like one; else an object."""
    kind = _stand_in(stands_for)
    return kind if kind.__name__[:1].isupper() else kind()


class _StandInModule(ModuleType):
    """Has every name: what `contents` says, else a stand-in class."""

    def __init__(self, name: str, contents: Mapping[str, Any]) -> None:
        super().__init__(name, "Stands in for a module that is not run.")
        self.__path__: list[str] = []
        vars(self).update(contents)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = _stand_in(f"{self.__name__}.{name}")
        setattr(self, name, found)
        return found


class ReleaseModules:
    """The modules of one package below `root`; calling it with a full name gives that module.

    Args:
        root: the folder that holds the package's folder.
        package: its name.
        runs: whether a module of the package, by its full name, is run from its source.
        given: contents of stand-in modules, by full name; what they lack is a stand-in.
    """

    def __init__(
        self,
        root: Path,
        package: str,
        runs: Callable[[str], bool],
        given: Mapping[str, Mapping[str, Any]],
    ) -> None:
        self._root = root
        self._package = package
        self._runs = runs
        self._given = {"typing_extensions": _typing_names(), **given}
        # What is imported later has the patch that the first had.
        self._patch = active_patch()
        digest = hashlib.sha256(f"{root.resolve()}{patch_key()}".encode()).hexdigest()[:8]
        self._private = f"{PREFIX}{package}_{digest}"
        self._modules: dict[str, ModuleType] = {}
        self._builtins = {**vars(builtins), "__import__": self._import}

    def __call__(self, name: str) -> Any:
        """The module. Raises TargetError, which names its file, for whatever importing raises."""
        known = self._modules.get(name)
        if known is not None:
            return known
        above, _, last = name.rpartition(".")
        parent = self(above) if above else None
        # Importing what is above may have imported it.
        known = self._modules.get(name)
        if known is None:
            path = self._path(name)
            is_folder = self._root.joinpath(*name.split(".")).is_dir()
            if path is not None and self._runs(name) and name not in self._given:
                known = self._run(name, path)
            elif is_folder and name not in self._given:
                known = self._folder(name)
            else:
                known = _StandInModule(name, self._given.get(name, {}))
                self._modules[name] = known
        if parent is not None:
            setattr(parent, last, known)
        return known

    def has(self, name: str) -> bool:
        """Whether a module of that name is run, and not a stand-in."""
        return self._runs(name) and self._path(name) is not None

    def _path(self, name: str) -> Path | None:
        below = self._root.joinpath(*name.split("."))
        for path in (below / "__init__.py", below.with_suffix(".py")):
            if path.is_file():
                return path
        return None

    def _folder(self, name: str) -> ModuleType:
        """A package of which the folder alone matters: what its `__init__` does is not done."""
        module = _StandInModule(name, {})
        self._modules[name] = module
        return module

    def _run(self, name: str, path: Path) -> ModuleType:
        shown = self._private + name.removeprefix(self._package)
        loader = SourceFileLoader(shown, str(path))
        is_package = path.name == "__init__.py"
        spec = ModuleSpec(shown, loader, origin=str(path), is_package=is_package)
        module = ModuleType(shown)
        module.__spec__, module.__file__, module.__loader__ = spec, str(path), loader
        module.__package__ = shown if is_package else shown.rpartition(".")[0]
        if is_package:
            module.__path__ = [str(path.parent)]
        vars(module)["__builtins__"] = self._builtins
        self._modules[name] = sys.modules[shown] = module
        try:
            # Compiled from its text: bytecode would lie in a folder that is not ours to write to.
            source = text_of(path, self._patch)
            exec(compile(source, str(path), "exec", dont_inherit=True), vars(module))  # noqa: S102 -- what an import does
        except (Exception, SystemExit) as error:
            del self._modules[name], sys.modules[shown]
            if isinstance(error, TargetError):
                raise
            raise TargetError(
                f"{path} cannot be imported: {type(error).__name__}: {error}"
            ) from error
        if "LazyLoader" in vars(module):
            vars(module)["LazyLoader"] = self._lazily
        return module

    def _import(
        self,
        name: str,
        scope: Mapping[str, Any] | None = None,
        _locals: object = None,
        fromlist: tuple[str, ...] | None = (),
        level: int = 0,
    ) -> Any:
        """`__import__`, as the modules of the release have it."""
        if level:
            assert scope is not None
            package = str(scope["__package__"]).rsplit(".", level - 1)[0]
            above = self._package + package.removeprefix(self._private)
            name = f"{above}.{name}" if name else above
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names:
            return importlib.__import__(name, None, None, fromlist or ())
        module = self(name)
        if not fromlist:
            return self(top)
        for each in fromlist:
            below = f"{name}.{each}"
            is_missing = each != "*" and each not in vars(module)
            if is_missing and (below in self._given or self._path(below) is not None):
                setattr(module, each, self(below))
        return module

    def _lazily(self, _local_name: str, _scope: object, name: str) -> Any:
        """TensorFlow's idiom, which engines copy, puts what it loads in `sys.modules`."""
        return self(name)


def _typing_names() -> dict[str, Any]:
    """The newest typing that is here under its backport's name."""
    names = dict(vars(typing))
    try:
        names |= vars(importlib.import_module("typing_extensions"))
    except ModuleNotFoundError:
        names.setdefault("deprecated", lambda *_, **__: lambda decorated: decorated)
        names.setdefault("override", lambda decorated: decorated)
    return {name: value for name, value in names.items() if not name.startswith("__")}


_NO_DEFAULT = object()


class _Field:
    def __init__(self, default: Any = _NO_DEFAULT, default_factory: Any = None, **_: Any) -> None:
        self.default, self.default_factory = default, default_factory


class Struct:
    """What `msgspec.Struct` does when objects are made, compared and shown; none is encoded."""

    def __init_subclass__(cls, **_named: Any) -> None: ...

    def __init__(self, *arguments: Any, **named: Any) -> None:
        cls = type(self)
        names = [
            name for base in reversed(cls.__mro__) for name in vars(base).get("__annotations__", ())
        ]
        values = dict(zip(names, arguments, strict=False)) | named
        unknown = values.keys() - set(names)
        if unknown or len(arguments) > len(names):
            raise TypeError(f"{cls.__name__}() got unexpected arguments: {sorted(unknown)}")
        for name in names:
            setattr(self, name, values[name] if name in values else _default_of(cls, name))
        after = getattr(self, "__post_init__", None)
        if after is not None:
            after()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # as msgspec's own, unless a class has another

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({shown})"


def _default_of(cls: type, name: str) -> Any:
    default = getattr(cls, name, _NO_DEFAULT)
    if isinstance(default, _Field):
        made = default.default_factory
        default = default.default if made is None else made()
    if default is _NO_DEFAULT:
        raise TypeError(f"{cls.__name__}() lacks {name!r}")
    # As msgspec does it, an empty container that stands as a default is made anew.
    return type(default)() if isinstance(default, list | dict | set) else default


def msgspec_stand_in() -> dict[str, Any]:
    """The contents of a module that stands in for msgspec."""
    return {"Struct": Struct, "field": _Field}


def silent_logger(_name: str = "") -> logging.Logger:
    """A logger that writes nothing, with the `_once` methods that engines add."""
    logger: Any = _SilentLogger("poolproof.release")
    return logger  # type: ignore[no-any-return]  # of a class derived from it


class _SilentLogger(logging.Logger):
    def __init__(self, name: str) -> None:
        super().__init__(name, logging.CRITICAL + 1)

    def __getattr__(self, name: str) -> Any:
        if name.endswith("_once"):
            return self.debug
        raise AttributeError(name)
