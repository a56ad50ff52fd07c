"""The target `aphrodite`: the `KVCacheManager` of Aphrodite, a fork of vLLM with its V1 core.

The fork has vLLM's modules under its own name, so it is driven as a release of vLLM is
(`vllm_release.py`): the core runs unmodified from its sources, which `poolproof engines` fetches by
git, with stand-ins for all else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from poolproof.targets.release_modules import ReleaseModules
from poolproof.targets.source_engines import PublishedEngine, fetched_folder
from poolproof.targets.source_patch import patch_key
from poolproof.targets.target import Target
from poolproof.targets.target_spec import TargetSpec
from poolproof.targets.vllm_manager_target import vllm_manager_target
from poolproof.targets.vllm_release import class_of, given_to, runs_of
from poolproof.targets.vllm_requests import prepare_vllm

__all__ = ["APHRODITE", "ForkEngine", "fork_target"]


@dataclass(frozen=True, kw_only=True)
class ForkEngine(PublishedEngine):
    """A fork whose package stands where `vllm` did."""

    package: str


class _ForkModules:
    """The modules of a fork by the names that they have in vLLM."""

    def __init__(self, root: Path, package: str) -> None:
        self._package = package
        self._modules = ReleaseModules(root, package, runs_of(package), given_to(package))

    def __call__(self, name: str) -> Any:
        return self._modules(self._here(name))

    def has(self, name: str) -> bool:
        """Whether a module of that name in vLLM is run, and not a stand-in."""
        return self._modules.has(self._here(name))

    def _here(self, name: str) -> str:
        top, dot, below = name.partition(".")
        return f"{self._package}{dot}{below}" if top == "vllm" else name


@cache
def _modules_in(root: Path, package: str, _patch: str) -> _ForkModules:
    return _ForkModules(root, package)


def fork_target(engine: ForkEngine, name: str, overrides: Mapping[str, Any]) -> Target:
    """The manager of the fork as it was fetched, or of the checkout behind a colon.

    Raises TargetError where its files are not there, and for an unknown row of the profile.
    """
    path = TargetSpec.parse(name).base.partition(":")[2]
    root = Path(path).expanduser() if path else fetched_folder(engine)
    if not (root / engine.package / "v1" / "core").is_dir():
        raise engine.no_checkout(root, f"folder {engine.package}/v1/core")
    prepare_vllm()
    modules = _modules_in(root.resolve(), engine.package, patch_key())
    cls = class_of(modules, "vllm.v1.core.kv_cache_manager", "KVCacheManager")
    return vllm_manager_target(
        name, cls, {**engine.rows, **overrides}, f"{engine.name} {engine.commit[:7]}", modules
    )


_FILES = (
    "distributed/kv_events", "envs", "lora/request", "multimodal/inputs", "multimodal/utils",
    "utils/__init__", "utils/collection_utils", "utils/hashing", "utils/jsontree",
    "utils/math_utils", "v1/core/__init__", "v1/core/block_pool", "v1/core/kv_cache_coordinator",
    "v1/core/kv_cache_manager", "v1/core/kv_cache_metrics", "v1/core/kv_cache_utils",
    "v1/core/single_type_kv_cache_manager", "v1/kv_cache_interface", "v1/metrics/stats",
    "v1/request", "v1/utils",
)  # fmt: skip

APHRODITE = ForkEngine(
    name="aphrodite",
    what="the KVCacheManager of Aphrodite, a fork of vLLM",
    address="https://github.com/aphrodite-engine/aphrodite-engine",
    commit="b42eeec22c42d9a485bab4a8784b26abccf44515",
    files=(*(f"aphrodite/{name}.py" for name in _FILES), "LICENSE"),
    package="aphrodite",
)
