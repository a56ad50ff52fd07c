"""In which files the paths of a patch are looked for, target by target.

A diff names files as their repository does (`vllm/v1/core/x.py` behind an `a/`), and they lie where
they were installed, fetched or checked out: below the folder that holds the package, or, of a
target that is a file, below one of the folders above it. The beginning of a path may be missing
there, as `python/` is where SGLang is installed.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from poolproof.contract.target import TargetError
from poolproof.targets.catalogue import PROGRAM_ENGINES, PUBLISHED_ENGINES
from poolproof.targets.command_target import PREFIX
from poolproof.targets.engine_sources import engine_folder
from poolproof.targets.installed_sglang import SGLANG
from poolproof.targets.lmcache_parts import LMCACHE
from poolproof.targets.nano_manager import NANO_VLLM_PORT
from poolproof.targets.played_recording import RECORDING_PREFIX
from poolproof.targets.source_engines import fetched_folder
from poolproof.targets.target_spec import TargetSpec
from poolproof.targets.v0_manager import VLLM_V0

__all__ = ["PatchPlaces", "places_of"]

_FOLDERS = {
    "vllm-v0": VLLM_V0,
    "vllm-v0-engine": VLLM_V0,
    "nano-vllm": NANO_VLLM_PORT,
    "lmcache": LMCACHE,
}
"""Targets whose sources lie unpacked in a folder of this name."""
_SHORTEST = 2
"""Parts that are left of a path whose beginning is missing: a name alone would mean any file."""


@dataclass(frozen=True, slots=True)
class PatchPlaces:
    """Where a target's sources lie: below `folders`; and `file`, of a target that is one.

    `package` is the name that paths go through, where only one package is the target's.
    """

    folders: tuple[Path, ...]
    package: str = ""
    file: Path | None = None

    def find(self, path: str) -> Path | None:
        """The file that a path of a diff means."""
        parts = PurePosixPath(path).parts
        for folder in self.folders:
            for place in self._tails(parts):
                found = folder.joinpath(*place)
                if found.is_file():
                    return found.resolve()
        if self.file is not None and self.file.name == parts[-1]:
            return self.file
        return None

    def holds(self, path: Path) -> bool:
        """Whether a file belongs to the target."""
        real = path.resolve()
        if self.file is not None:
            return real.is_relative_to(self.file.parent)
        return any(real.is_relative_to(folder / self.package) for folder in self.folders)

    def _tails(self, parts: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """The path, and where its beginning may be missing, what is left of it."""
        if self.file is not None:
            yield parts
            return
        for first in range(len(parts)):
            tail = parts[first:]
            if self.package:
                if tail[0] in (self.package, f"{self.package}.py"):
                    yield tail
            elif not first or len(tail) >= _SHORTEST:
                yield tail


def places_of(spec: TargetSpec) -> PatchPlaces:
    """Where the sources of a target lie. Raises TargetError for one that cannot be patched."""
    base = spec.base
    if spec.cls is not None:
        raise _refused(spec, "it is a class that is loaded; name it as path/to/file.py:Class")
    if base.startswith(PREFIX):
        raise _refused(spec, "it is a program; apply the patch to a checkout, build it, name that")
    if base.startswith(RECORDING_PREFIX):
        raise _refused(spec, "it is a recording, of what was done")
    name, colon, path = base.partition(":")
    if name.startswith(("impl", "reference")) and not colon:
        raise _refused(spec, "it is Poolproof's own; change it in a checkout of Poolproof")
    if name in PROGRAM_ENGINES:
        raise _refused(
            spec,
            f"it is compiled; apply the patch to a checkout and certify {name}:path/to/checkout",
        )
    if colon and (name in PUBLISHED_ENGINES or name == "nano-vllm"):
        return PatchPlaces((Path(path).expanduser().resolve(),))
    if name in PUBLISHED_ENGINES:
        return PatchPlaces((fetched_folder(PUBLISHED_ENGINES[name]).resolve(),))
    engine, at, version = base.partition("@")
    if at and engine.startswith("vllm"):
        how = f"run `poolproof engines vllm=={version}`"
        return PatchPlaces((engine_folder(f"vllm-{version}", how),))
    if name in _FOLDERS:
        return PatchPlaces((engine_folder(_FOLDERS[name]),))
    if name == "vllm-lmcache":
        vllm = _package("vllm")
        return PatchPlaces((*vllm.folders, engine_folder(LMCACHE)))
    if name == "sglang" or name.startswith("sglang-"):
        installed = _package("sglang")
        return installed if installed.folders else PatchPlaces((engine_folder(SGLANG),))
    if not colon:
        return _package(name.partition("-")[0])
    place = base.rpartition(":")[0]
    if place.endswith(".py") or "/" in place or "\\" in place:
        file = Path(place).resolve()
        return PatchPlaces(tuple(file.parents), file=file)
    return _package(place.partition(".")[0])


def _package(name: str) -> PatchPlaces:
    """Where an installed package lies; nothing of it is imported."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        found = None
    finally:
        sys.path.remove(here)
    folders = list(found.submodule_search_locations or ()) if found is not None else []
    if found is not None and found.origin is not None and not folders:
        folders = [found.origin]
    return PatchPlaces(tuple(Path(folder).resolve().parent for folder in folders), name)


def _refused(spec: TargetSpec, why: str) -> TargetError:
    return TargetError(f"{spec.text}: no patch is applied to {spec.base}, because {why}")
