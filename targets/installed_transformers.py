"""The paged cache of Hugging Face Transformers' continuous batching, as it is installed.

Nothing is stubbed: `PagedAttentionCache` is built on the CPU from a configuration with one tiny
layer for each group, without a model. It does allocate its tensor, of a few bytes a token. Written
for Transformers 5.19, whose cache hands sectors to one allocator for each kind of attention;
earlier 5.x releases have other classes and are not driven.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from poolproof.contract.target import TargetError

__all__ = ["HOW_TO_GET_TRANSFORMERS", "Transformers", "transformers_parts"]

HOW_TO_GET_TRANSFORMERS = (
    "run `make vllm` and use `.venv-vllm/bin/poolproof`, or install Poolproof into an environment "
    "with transformers==5.19.0 and torch"
)

_BATCHING = "transformers.generation.continuous_batching"
_WANTED = (
    ("transformers", "PretrainedConfig"),
    ("transformers.generation.configuration_utils", "ContinuousBatchingConfig"),
    (f"{_BATCHING}.cache", "PagedAttentionCache"),
    (f"{_BATCHING}.distributed", "DistributedHelper"),
    (f"{_BATCHING}.requests", "RequestState"),
    (f"{_BATCHING}.requests", "RequestStatus"),
    ("torch", "float32"),
)


@dataclass(frozen=True)
class Transformers:
    """What the adapter uses, by the library's own names."""

    version: str
    PretrainedConfig: Any
    ContinuousBatchingConfig: Any
    PagedAttentionCache: Any
    DistributedHelper: Any
    RequestState: Any
    RequestStatus: Any
    float32: Any


def transformers_parts() -> Transformers:
    """The classes. Raises TargetError where they cannot be imported or have another shape."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    version = "unknown"
    with suppress(importlib.metadata.PackageNotFoundError):
        version = importlib.metadata.version("transformers")
    parts = {name: _imported(module, name, version) for module, name in _WANTED}
    logging.getLogger("ContinuousBatchingLogger").setLevel(logging.ERROR)
    if not hasattr(importlib.import_module(f"{_BATCHING}.cache"), "CachePool"):
        raise TargetError(
            f"transformers {version} has another continuous-batching cache than 5.19, for which "
            f"this adapter is written; {HOW_TO_GET_TRANSFORMERS}"
        )
    return Transformers(version=f"transformers {version}", **parts)


def _imported(module: str, name: str, version: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing in {"transformers", "torch"}:
            what = f"{missing} is not installed where Poolproof runs"
        else:
            what = (
                f"{module}.{name} of transformers {version} cannot be imported: "
                f"{type(error).__name__}: {error}"
            )
        raise TargetError(f"{what}; {HOW_TO_GET_TRANSFORMERS}") from error
