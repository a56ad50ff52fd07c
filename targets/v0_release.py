"""`vllm-v0@V`: the `BlockSpaceManager` of releases of vLLM V0, read from their sources.

`poolproof engines vllm==V` puts the files of a release before 0.4 into the folder `vllm-V`. Run
unmodified are `block.py`, `utils.py`, `sampling_params.py`, `sequence.py` and `core/`, without its
scheduler; all else is a stand-in (`release_modules.py`). They are driven as 0.2.7 is
(`v0_manager.py`).

Not covered: releases from 0.4 on, whose managers take several slots in one call, look ahead, and
may keep a cache of prefixes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from poolproof.contract.target import TargetError
from poolproof.targets.engine_sources import engine_folder
from poolproof.targets.release_modules import ReleaseModules
from poolproof.targets.release_sources import fetch_release, in_order
from poolproof.targets.source_patch import patch_key
from poolproof.targets.target import Target
from poolproof.targets.target_spec import TargetSpec
from poolproof.targets.v0_manager import published_v0_target

__all__ = ["fetch_v0", "v0_release"]

_FILES = ("vllm/block.py", "vllm/sampling_params.py", "vllm/sequence.py", "vllm/utils.py")
_WANTED = (*_FILES, "vllm/core/")
_NOTES = (
    "stand-ins: all that is not in block.py, utils.py, sampling_params.py, sequence.py and core/",
    "vllm/__init__.py, which starts the engine, is not run",
)


def _runs(name: str) -> bool:
    place = name.replace(".", "/")
    if place == "vllm/core" or place.startswith("vllm/core/"):
        return place != "vllm/core/scheduler"
    return f"{place}.py" in _FILES


@cache
def _modules_in(root: Path, _patch: str) -> ReleaseModules:
    return ReleaseModules(root, "vllm", _runs, {})


def fetch_v0(version: str, into: Path | None = None) -> tuple[Path, bool]:
    """The folder of a release, and whether it had to be fetched. Raises TargetError."""
    return fetch_release("vllm", version, _WANTED, into)


def v0_release(name: str, overrides: Mapping[str, Any]) -> Target:
    """The manager of the release that `name` gives behind an @.

    Raises TargetError where it has not been fetched, or has another shape.
    """
    version = TargetSpec.parse(name).base.partition("@")[2]
    if not version:
        raise TargetError(f"{name} names no release; write its version, as vllm-v0@0.3.3")
    if in_order(version) >= [0, 4]:
        raise TargetError(
            f"vLLM {version} is not driven as {name}: the managers of V0 that are driven end with "
            "0.3.3, and vllm-manager@VERSION begins with 0.8.0"
        )
    folder = engine_folder(f"vllm-{version}", f"run `poolproof engines vllm=={version}`")
    modules = _modules_in(folder, patch_key())
    if not modules.has("vllm.core.block_manager"):
        raise TargetError(
            f"{name} is not driven, because vLLM {version} has no core/block_manager.py with the "
            "BlockSpaceManager of 0.2 and 0.3; later ones take several slots in one call"
        )
    cls = modules("vllm.core.block_manager").BlockSpaceManager
    return published_v0_target(name, cls, overrides, f"vllm {version}", _NOTES)
