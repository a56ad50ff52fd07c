"""From a target string to a target: built-in names, classes in modules and files, programs.

A class is named `package.module:Class` or `path/to/file.py:Class`. Importing it runs the user's
code, so its errors are turned into one line that names the exception and the user's own file and
line. Nothing is constructed to prove that it works: an error of a constructor is a finding about
the target and comes from `Target.make`. `TargetError` is for targets that cannot be run at all; its
message names the cause and the next step.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.metadata
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from poolproof.contract.level import Level
from poolproof.contract.outside import FILE_MODULE, class_name, module_of_file, said_by, shown
from poolproof.contract.target import TargetError
from poolproof.targets.catalogue import (
    FORK_ENGINES,
    PROGRAM_ENGINES,
    PUBLISHED_ENGINES,
    SOURCE_ENGINES,
)
from poolproof.targets.command_target import PREFIX, command_target
from poolproof.targets.gllm_engine import gllm_engine
from poolproof.targets.impl_engine import impl_engine
from poolproof.targets.impl_pool import impl_index, impl_pool, impl_queue
from poolproof.targets.installed_vllm import (
    installed_vllm,
    installed_vllm_index,
    installed_vllm_queue,
)
from poolproof.targets.lmcache_manager import lmcache_manager
from poolproof.targets.manager_target import MANAGER_SHAPES
from poolproof.targets.max_manager import max_jenga, max_manager
from poolproof.targets.max_pool import max_jenga_pool, max_pool
from poolproof.targets.mini_sglang_engine import mini_sglang_engine
from poolproof.targets.nano_engine import nano_engine
from poolproof.targets.nano_manager import impl_nano_manager, nano_vllm_manager
from poolproof.targets.native_target import ask_instance, declared_profile, native_target
from poolproof.targets.patched_target import patched_target, refuse_patched_before
from poolproof.targets.played_recording import RECORDING_PREFIX, recorded_target
from poolproof.targets.program_engines import program_target
from poolproof.targets.reference_targets import (
    reference_index,
    reference_manager,
    reference_pool,
    reference_queue,
)
from poolproof.targets.sglang_engine import sglang_engine
from poolproof.targets.sglang_hicache_engine import sglang_hicache_engine
from poolproof.targets.sglang_manager import sglang_manager
from poolproof.targets.sglang_unified_manager import sglang_unified_manager
from poolproof.targets.source_engines import source_target
from poolproof.targets.source_patch import patch_key, text_of
from poolproof.targets.target import Target
from poolproof.targets.target_spec import TargetSpec
from poolproof.targets.transformers_engine import transformers_engine
from poolproof.targets.transformers_manager import transformers_manager
from poolproof.targets.v0_engine import vllm_v0_engine
from poolproof.targets.v0_manager import impl_vllm_v0_manager, vllm_v0_manager
from poolproof.targets.vllm_drop_in_engine import installed_vllm_drop_in
from poolproof.targets.vllm_engine import (
    installed_vllm_connectors,
    installed_vllm_engine,
    installed_vllm_lmcache,
)
from poolproof.targets.vllm_fork import fork_target
from poolproof.targets.vllm_hybrid import installed_vllm_hybrid
from poolproof.targets.vllm_hybrid_connectors import installed_vllm_hybrid_connectors
from poolproof.targets.vllm_manager_target import impl_kv_cache_manager, installed_vllm_manager
from poolproof.targets.vllm_mooncake import installed_vllm_mooncake
from poolproof.targets.vllm_nixl import installed_vllm_nixl
from poolproof.targets.vllm_pool_parts import (
    has_index_shape,
    has_queue_shape,
    vllm_index_target,
    vllm_queue_target,
)
from poolproof.targets.vllm_release import RELEASES
from poolproof.targets.vllm_requests import prepare_vllm
from poolproof.targets.vllm_target import vllm_target

__all__ = ["BUILT_INS", "load_target"]


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
    if package.startswith(FILE_MODULE):
        return None
    for distribution in importlib.metadata.packages_distributions().get(package, ()):
        return f"{distribution} {importlib.metadata.version(distribution)}"
    return None


class _AsItIsNow(SourceFileLoader):
    """Compiles the file, and neither reads nor leaves bytecode.

    Python reuses bytecode if the file has the same size and the same second of change. A target
    that was edited twice within a second would be certified as it was before. With a patch, what
    that makes of the file.
    """

    def get_data(self, path: str) -> bytes:
        return text_of(Path(path))

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
    digest = hashlib.sha256(f"{path}{patch_key()}".encode()).hexdigest()[:8]
    name = module_of_file(path.stem, digest)
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
    """Make modules next to the target importable while it is imported."""
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
        holder = _folder_with(error.name, path)
        if holder is not None:
            what += f"; it stands in {holder}: set PYTHONPATH={holder}, or install that folder"
    else:
        lines = said_by(error).splitlines()
        name = class_name(error).rpartition(".")[2]
        what = f"{name}: {lines[0]}" if lines else name
    place = _line_of(error, path)
    return f"{what} ({place})" if place else what


def _folder_with(module: str, path: Path | None) -> Path | None:
    """The nearest folder above a file of a target in which the module's package stands."""
    first = module.partition(".")[0]
    above = path.resolve().parents if path is not None else ()
    return next(
        (one for one in above if (one / first).is_dir() or (one / f"{first}.py").is_file()), None
    )


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


APIS = ("native", "vllm-v1", "queue", "index", "native-manager", "native-engine", *MANAGER_SHAPES)
"""The shapes that `api` may force."""

BUILT_INS: dict[str, Callable[[str, Mapping[str, Any]], Target]] = {
    "impl": impl_pool,
    "impl-queue": impl_queue,
    "impl-index": impl_index,
    "reference": reference_pool,
    "reference-queue": reference_queue,
    "reference-index": reference_index,
    "reference-manager": reference_manager,
    "impl-manager": impl_kv_cache_manager,
    "impl-vllm-v0": impl_vllm_v0_manager,
    "impl-nano": impl_nano_manager,
    "impl-engine": impl_engine,
    "vllm": installed_vllm,
    "vllm-queue": installed_vllm_queue,
    "vllm-index": installed_vllm_index,
    "vllm-manager": installed_vllm_manager,
    "vllm-engine": installed_vllm_engine,
    "vllm-connectors": installed_vllm_connectors,
    "vllm-mooncake": installed_vllm_mooncake,
    "vllm-nixl": installed_vllm_nixl,
    "vllm-lmcache": installed_vllm_lmcache,
    "vllm-drop-in": installed_vllm_drop_in,
    "vllm-hybrid": installed_vllm_hybrid,
    "vllm-hybrid-connectors": installed_vllm_hybrid_connectors,
    "vllm-v0": vllm_v0_manager,
    "vllm-v0-engine": vllm_v0_engine,
    "nano-vllm": nano_vllm_manager,
    "nano-engine": nano_engine,
    "mini-sglang-engine": mini_sglang_engine,
    "gllm-engine": gllm_engine,
    "max-manager": max_manager,
    "max-jenga": max_jenga,
    "max-pool": max_pool,
    "max-jenga-pool": max_jenga_pool,
    "sglang": sglang_manager,
    "sglang-engine": sglang_engine,
    "sglang-unified": sglang_unified_manager,
    "lmcache": lmcache_manager,
    "sglang-hicache-engine": sglang_hicache_engine,
    "transformers": transformers_manager,
    "transformers-engine": transformers_engine,
    **{name: partial(source_target, engine) for name, engine in SOURCE_ENGINES.items()},
    **{name: partial(program_target, engine) for name, engine in PROGRAM_ENGINES.items()},
    **{name: partial(fork_target, engine) for name, engine in FORK_ENGINES.items()},
}

_WITH_A_PATH = ("nano-vllm", *PUBLISHED_ENGINES)
"""Built-in names behind which `:PATH` may name a checkout."""

_VLLM_SHAPE = ("get_new_blocks", "free_blocks", "touch", "cache_full_blocks")
_MANAGER = ("admit", "append", "step", "finish", "block_table")
_ENGINE = ("submit", "plan", "answer")
_NATIVE = {
    "native": Level.POOL,
    "native-manager": Level.MANAGER,
    "native-engine": Level.ENGINE,
}
_SHAPES_IN_WORDS = (
    "a native pool has allocate() and free(), a pool in vLLM V1's shape get_new_blocks() and "
    "free_blocks(), a queue popleft(), an index insert() and pop(), a native manager admit() and "
    "step(), a native engine submit() and plan()"
)


def load_target(target: str | type | TargetSpec, *, api: str | None = None) -> Target:
    """The target that a text names, or a class.

    Args:
        target: a built-in name (`nano-vllm:PATH` names a checkout), `package.module:Class`,
            `path/to/file.py:Class`, `cmd:./program arguments` or `recording:FILE`; rows of the
            profile may follow in brackets, as in `impl[eviction=lifo]`, and a diff that is
            applied to its sources in memory, as in `vllm[patch=fix.diff]`. Or a class itself.
        api: one of `APIS`, where the class alone does not tell.

    Raises TargetError, whose message says in one or two lines what is wrong and what to do.
    """
    if api is not None and api not in APIS:
        raise TargetError(f"unknown --api {api!r}; it is one of {', '.join(APIS)}")
    spec = TargetSpec.of(target)
    if spec.patch is None:
        refuse_patched_before(spec)
        loaded = _load(spec, api)
        # A patch of this process changes what is imported later as well, such as just now.
        refuse_patched_before(spec)
        return loaded
    return patched_target(spec, spec.patch, lambda: _load(spec, api))


def _load(spec: TargetSpec, api: str | None) -> Target:
    base, overrides, text = spec.base, spec.rows, spec.text
    if spec.cls is not None:
        return _target_of_class(spec, spec.cls, api)
    if base.startswith(PREFIX):
        if api is not None:
            raise TargetError(f"a program says itself what it is; leave out --api {api}")
        return command_target(text, base, overrides)
    if base.startswith(RECORDING_PREFIX):
        return recorded_target(base, overrides)
    engine, colon, _ = base.partition(":")
    build = BUILT_INS.get(engine if colon and engine in _WITH_A_PATH else base)
    engine, at, _ = base.partition("@")
    if at and engine in RELEASES:
        build = RELEASES[engine]
    if build is not None:
        built = build(text, overrides)
        if api not in {None, built.shape}:
            raise TargetError(f"{base} is a {built.shape} target; leave out --api {api}")
        return built
    if ":" not in base:
        raise TargetError(_unknown(base))
    # A fork of vLLM would print its start-up lines into the certificate.
    prepare_vllm()
    return _target_of_class(spec, import_class(base), api)


def _target_of_class(spec: TargetSpec, cls: type, api: str | None) -> Target:
    text, overrides = spec.text, spec.rows
    shape = api or _shape_of(cls)
    version = version_of(cls)
    if shape == "vllm-v1":
        declared = declared_profile(cls)
        return vllm_target(text, cls, {**declared, **overrides}, version)
    if shape == "queue" and has_queue_shape(cls):
        return vllm_queue_target(text, cls, version)
    if shape == "index" and has_index_shape(cls):
        declared = declared_profile(cls, Level.INDEX)
        return vllm_index_target(text, cls, version, {**declared, **overrides})
    if shape in MANAGER_SHAPES:
        return MANAGER_SHAPES[shape].build(text, cls, overrides, version)
    level = _NATIVE.get(shape) or Level(shape)
    return native_target(text, cls, level, overrides, version)


def _shape_of(cls: type) -> str:
    """The shape of the class, or of an instance where the class has none."""
    shape = _shape_by_methods(cls)
    if shape is None:
        shape = ask_instance(cls, Level.POOL, _shape_by_methods)
    if shape is None:
        public = [name for name in vars(cls) if not name.startswith("_")]
        raise TargetError(
            f"{cls.__name__} has none of the known shapes: {_SHAPES_IN_WORDS}; it has "
            f"{', '.join(public[:8]) or 'no public method'}. `poolproof new FILE` writes a skeleton"
        )
    return shape


def _shape_by_methods(subject: object) -> str | None:
    def has(*names: str) -> bool:
        return all(callable(getattr(subject, name, None)) for name in names)

    if has("allocate", "free", "cache", "num_free"):
        return "native"
    if has(*_VLLM_SHAPE):
        return "vllm-v1"
    for shape, published in MANAGER_SHAPES.items():
        if has(*published.methods):
            return shape
    if sum(has(name) for name in _ENGINE) > 1:
        return "native-engine"
    # Two of its verbs tell a manager, so that the others can be named as missing.
    if sum(has(name) for name in _MANAGER) > 1:
        return "native-manager"
    if has("allocate", "free"):
        return "native"
    if has("popleft") and not has("allocate"):
        return "queue"
    if has("insert", "pop") and (has("get") or has("get_one_block")) and not has("allocate"):
        return "index"
    # One half of a shape is enough to say which methods the class lacks.
    if has("get_new_blocks") or has("free_blocks"):
        return "vllm-v1"
    return "native" if has("allocate") or has("free") else None


def _unknown(name: str) -> str:
    if not name:
        return f"no target was given; the built-in ones are {', '.join(BUILT_INS)}"
    if name.endswith(".py") or "/" in name:
        return f"{name!r} names a file but no class in it; write {name}:Class"
    close = difflib.get_close_matches(name, BUILT_INS, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    return (
        f"unknown target {name!r}; {hint}built in are {', '.join(BUILT_INS)}; your own class is "
        "path/to/file.py:Class or package.module:Class, your own program cmd:./program"
    )
