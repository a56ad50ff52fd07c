"""Engines that are read from their sources, without being installed.

`make engine-sources` in a checkout of Poolproof fetches pinned wheels and unpacks them below
`build/engines`; `poolproof engines` fetches those that are on no package index
(`source_engines.py`). They are looked for in the folder that `POOLPROOF_ENGINES` names, else in
`build/engines` below the current folder, else beside Poolproof's own checkout.

An engine's `__init__` loads its kernels, its models and its server. The few modules that do the
bookkeeping need none of that, so they are run one by one, unmodified, in the order of their
imports. They see each other under the names that they import, but are stored under a private
prefix, so that an installed engine of the same name, or another version of the same source, is not
touched. Imports that they do not need (compiled extensions, large libraries that are only mentioned
in annotations) are stubs. Everything that was put in `sys.modules` under a public name is removed
again; a function of theirs that imports when it is called finds the same modules, and no others.
"""

from __future__ import annotations

import builtins
import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from poolproof.contract.adapter_fault import HandedOver
from poolproof.contract.target import TargetError
from poolproof.targets.source_patch import active_patch, patch_key, text_of

__all__ = [
    "BlankModule",
    "engine_folder",
    "fetch_folder",
    "how_to_get",
    "import_from_source",
    "stub_module",
]


ENGINES_VARIABLE = "POOLPROOF_ENGINES"
"""Names the folder that holds one folder for each engine, such as `vllm-0.2.7`."""

_BESIDE = Path("build") / "engines"


def engine_folder(name: str, how: str = "") -> Path:
    """The folder of one engine, as `vllm-0.2.7`. Raises TargetError, which says how to get it.

    `how` is the next step for a user who lacks it, where it is not `make engine-sources`.
    """
    looked_at = _places()
    for place in looked_at:
        if (place / name).is_dir():
            return (place / name).resolve()
    next_step = how or how_to_get(name)
    raise TargetError(f"{name} is not in {' or '.join(map(str, looked_at))}; {next_step}")


def fetch_folder() -> Path:
    """The folder that engines are fetched into: the first that is looked at."""
    return _places()[0]


def how_to_get(name: str) -> str:
    """The next step for a user who lacks the engine's sources, as half a sentence."""
    return (
        f"run `make engine-sources` in a checkout of Poolproof, or set {ENGINES_VARIABLE} to the "
        f"folder that holds {name}/"
    )


def _places() -> list[Path]:
    named = os.environ.get(ENGINES_VARIABLE)
    if named:
        return [Path(named)]
    # The second is the same folder once more when Poolproof runs in its own checkout.
    checkout = Path(__file__).resolve().parent.parent
    return list(dict.fromkeys([Path.cwd() / _BESIDE, checkout / _BESIDE]))


_PREFIX = "poolproof_engine_"


def import_from_source(
    root: Path, package: str, modules: Sequence[str], stubs: Mapping[str, ModuleType]
) -> dict[str, ModuleType]:
    """The modules by their names below the package, as `core.block_manager`.

    Args:
        root: the folder that holds the package's folder.
        package: its name, as its own modules import it.
        modules: names below the package, each after those it imports. A name of a folder stands
            for its `__init__`, which is run only if it is named.
        stubs: modules by the full names under which the sources import them; a stub is used even
            where the real one is installed.

    Raises TargetError, which names the file, for a missing file and for whatever importing raises.
    """
    place = f"{(root / package).resolve()}{patch_key()}"
    digest = hashlib.sha256(place.encode()).hexdigest()[:8]
    private = f"{_PREFIX}{package}_{digest}"
    loaded = {
        name: sys.modules[f"{private}.{name}"]
        for name in modules
        if f"{private}.{name}" in sys.modules
    }
    if len(loaded) == len(modules):
        return loaded
    with _public_names() as public:
        for name, stub in stubs.items():
            public(name, stub)
        _register(package, private, root / package, public)
        shown: dict[str, ModuleType] = {**stubs, package: sys.modules[private]}
        for name, stub in stubs.items():
            if name.startswith(f"{package}."):  # relative imports look under the private name
                sys.modules[f"{private}{name.removeprefix(package)}"] = stub
        for name in modules:
            _import_one(root, (package, private), name, public, shown)
    return {name: sys.modules[f"{private}.{name}"] for name in modules}


def stub_module(name: str, **contents: Any) -> ModuleType:
    """A module with the given contents and nothing else."""
    module = _StubModule(name, "A stub by Poolproof.")
    vars(module).update(contents)
    return module


class _StubModule(ModuleType, HandedOver):
    """What an engine's module looks up in it and does not find, we have left out."""


class _Nothing(HandedOver):
    """Falsy; calling it and asking for an attribute give it again."""

    engine_derives = True

    def __init__(self, *_arguments: object, **_options: object) -> None: ...

    def __call__(self, *_arguments: object, **_options: object) -> _Nothing:
        return self

    def __getattr__(self, name: str) -> _Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __bool__(self) -> bool:
        return False


class BlankModule(ModuleType):
    """Has every name: a class where the name is written like one, else what does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (_Nothing,), {}) if name[:1].isupper() else _Nothing()


def _import_one(
    root: Path, names: tuple[str, str], name: str, public: Any, shown: dict[str, ModuleType]
) -> None:
    package, private = names
    folder = root.joinpath(package, *name.split("."))
    is_package = (folder / "__init__.py").is_file()
    path = folder / "__init__.py" if is_package else folder.with_suffix(".py")
    if not path.is_file():
        raise TargetError(f"{path} does not exist; {root} is not a folder with {package}'s sources")
    *folders, _ = name.split(".")
    for depth in range(1, len(folders) + 1):
        above, inside = ".".join(folders[:depth]), root.joinpath(package, *folders[:depth])
        shown.setdefault(
            f"{package}.{above}",
            _register(f"{package}.{above}", f"{private}.{above}", inside, public),
        )
    loader = _Loader(f"{private}.{name}", str(path))
    spec = ModuleSpec(loader.name, loader, origin=loader.path, is_package=is_package)
    spec.has_location = True
    module = importlib.util.module_from_spec(spec)
    if is_package:
        module.__path__ = [str(folder)]
    vars(module)["__builtins__"] = {**vars(builtins), "__import__": _importing(shown)}
    sys.modules[spec.name] = shown[f"{package}.{name}"] = module
    public(f"{package}.{name}", module)
    try:
        loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[spec.name]
        if isinstance(error, ModuleNotFoundError) and error.name:
            what = f"it needs the module {error.name}, which is not installed in {sys.executable}"
        else:
            what = f"{type(error).__name__}: {error}"
        raise TargetError(f"{path} cannot be imported: {what}") from error


class _Loader(SourceFileLoader):
    """Runs what the active patch makes of the file, where there is one; else as usual."""

    def get_code(self, fullname: str) -> CodeType | None:
        if active_patch() is None:
            return super().get_code(fullname)
        code: CodeType = self.source_to_code(text_of(Path(self.path)), self.path)
        return code


def _importing(shown: Mapping[str, ModuleType]) -> Any:
    """An `__import__` to which the modules are there under their public names."""
    tops = {name.partition(".")[0] for name in shown}

    def import_(name: str, *arguments: Any) -> Any:
        if name.partition(".")[0] not in tops:
            return builtins.__import__(name, *arguments)
        with _public_names() as public:
            for public_name, module in shown.items():
                public(public_name, module)
            return builtins.__import__(name, *arguments)

    return import_


def _register(shown: str, kept: str, folder: Path, public: Any) -> ModuleType:
    """A package that has its folder and nothing of what its `__init__` would do."""
    module = sys.modules.get(kept)
    if module is None:
        module = ModuleType(kept)
        module.__path__ = [str(folder)]
        sys.modules[kept] = module
    public(shown, module)
    return module


@contextmanager
def _public_names() -> Iterator[Any]:
    """A function that puts a module under a public name, until the end of the block."""
    before: dict[str, ModuleType | None] = {}

    def put(name: str, module: ModuleType) -> None:
        before.setdefault(name, sys.modules.get(name))
        sys.modules[name] = module

    try:
        yield put
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module
