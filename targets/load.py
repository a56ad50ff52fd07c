"""From a target string to a target: built-in names, classes in modules and files, programs.

Nothing is constructed to prove that it works: what a constructor raises is a finding about the
target and comes out of `Target.make`. `TargetError` is for what cannot be run at all; its message
names the cause and the next step.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from poolproof.contract.level import Level
from poolproof.contract.target import TargetError
from poolproof.targets.command_target import PREFIX, command_target
from poolproof.targets.impl_pool import impl_index, impl_pool, impl_queue
from poolproof.targets.import_class import import_class, version_of
from poolproof.targets.installed_vllm import (
    installed_vllm,
    installed_vllm_index,
    installed_vllm_queue,
)
from poolproof.targets.manager_target import MANAGER_SHAPES
from poolproof.targets.nano_manager_target import impl_nano_manager, nano_vllm_manager
from poolproof.targets.native_target import ask_instance, declared_profile, native_target
from poolproof.targets.reference_manager import reference_manager
from poolproof.targets.reference_pool import reference_index, reference_pool, reference_queue
from poolproof.targets.sglang_manager_target import sglang_manager
from poolproof.targets.target import Target
from poolproof.targets.target_spec import TargetSpec
from poolproof.targets.transformers_manager_target import transformers_manager
from poolproof.targets.v0_manager_target import impl_vllm_v0_manager, vllm_v0_manager
from poolproof.targets.vllm_index import has_index_shape, vllm_index_target
from poolproof.targets.vllm_manager_target import impl_kv_cache_manager, installed_vllm_manager
from poolproof.targets.vllm_queue import has_queue_shape, vllm_queue_target
from poolproof.targets.vllm_requests import prepare_vllm
from poolproof.targets.vllm_target import vllm_target

__all__ = ["APIS", "BUILT_INS", "load_target"]

APIS = ("native", "vllm-v1", "queue", "index", "native-manager", *MANAGER_SHAPES)
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
    "vllm": installed_vllm,
    "vllm-queue": installed_vllm_queue,
    "vllm-index": installed_vllm_index,
    "vllm-manager": installed_vllm_manager,
    "vllm-v0": vllm_v0_manager,
    "nano-vllm": nano_vllm_manager,
    "sglang": sglang_manager,
    "transformers": transformers_manager,
}

_WITH_A_PATH = ("nano-vllm",)
"""Built-in names behind which `:PATH` may name a checkout."""

_VLLM_SHAPE = ("get_new_blocks", "free_blocks", "touch", "cache_full_blocks")
_MANAGER = ("admit", "append", "step", "finish", "block_table")
_SHAPES_IN_WORDS = (
    "a native pool has allocate() and free(), a pool in vLLM V1's shape get_new_blocks() and "
    "free_blocks(), a queue popleft(), an index insert() and pop(), a native manager admit() and "
    "step()"
)


def load_target(target: str | type | TargetSpec, *, api: str | None = None) -> Target:
    """The target that a text names, or a class.

    Args:
        target: a built-in name (`nano-vllm:PATH` names a checkout), `package.module:Class`,
            `path/to/file.py:Class` or `cmd:./program arguments`; rows of the profile may follow in
            brackets, as in `impl[eviction=lifo]`. Or a class itself.
        api: one of `APIS`, where the class alone does not tell.

    Raises TargetError, whose message says in one or two lines what is wrong and what to do.
    """
    if api is not None and api not in APIS:
        raise TargetError(f"unknown --api {api!r}; it is one of {', '.join(APIS)}")
    spec = TargetSpec.of(target)
    base, overrides, text = spec.base, spec.rows, spec.text
    if spec.cls is not None:
        return _target_of_class(spec, spec.cls, api)
    if base.startswith(PREFIX):
        if api is not None:
            raise TargetError(f"a program says itself what it is; leave out --api {api}")
        return command_target(text, base, overrides)
    engine, colon, _ = base.partition(":")
    build = BUILT_INS.get(engine if colon and engine in _WITH_A_PATH else base)
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
    level = {"native": Level.POOL, "native-manager": Level.MANAGER}.get(shape) or Level(shape)
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
