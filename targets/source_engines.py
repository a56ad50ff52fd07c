"""Engines that `poolproof engines` fetches by git: where they lie upstream, and how they are run.

Each is a `SourceEngine`: the address and the commit, the files that are wanted, and how a manager
is built of their modules. The modules are run unmodified from the engine's folder, without the
engine (`engine_sources.py`); what they import and the bookkeeping does not need is blank. So no
PyTorch is needed: where an engine keeps its tables in tensors, `torch_stand_in.py` has the few
operations that it uses, on plain lists.

An engine is fetched into NAME-COMMIT below the folder that `POOLPROOF_ENGINES` names. Behind a
colon a checkout of it may be named instead, as in `gllm:path/to/gLLM`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from poolproof.contract.level import Level
from poolproof.contract.manager_profile import FULL, ManagerProfile
from poolproof.contract.target import TargetError
from poolproof.targets.adapter_uses import Use, require_uses
from poolproof.targets.engine_sources import engine_folder, fetch_folder, import_from_source
from poolproof.targets.manager_target import manager_target
from poolproof.targets.manager_trial import require_a_few_calls
from poolproof.targets.target import ManagerLayout, Target, source_of
from poolproof.targets.target_spec import TargetSpec, builtin_profile

__all__ = ["PublishedEngine", "SourceEngine", "fetch_engine", "fetched_folder", "source_target"]

Modules = Mapping[str, ModuleType]
"""The modules of an engine by their names below its package."""


@dataclass(frozen=True, kw_only=True)
class PublishedEngine:
    """Where an engine lies upstream, and what its design is; `name` is that of the target."""

    name: str
    what: str
    address: str
    commit: str
    """Or the version, where the address is that of a package."""
    files: tuple[str, ...]
    """Paths in the repository: of the modules, and of the licence."""
    rows: Mapping[str, Any] = field(default_factory=dict)
    """The rows of the profile that state its design."""
    notes: tuple[str, ...] = ()
    level: Level = Level.MANAGER
    needs: tuple[str, ...] = ()
    """Modules that its sources import, that must be installed."""
    checkout: str = ""
    """The target that takes a checkout behind a colon, where that is not `name`."""

    @property
    def folder(self) -> str:
        """The name of the folder that it is fetched into."""
        return f"{self.name}-{self.commit[:7]}"

    @property
    def adapted_to(self) -> str:
        """What the adapter was written for."""
        return f"commit {self.commit[:7]} of {self.address}"

    def no_checkout(self, root: Path, lacking: str) -> TargetError:
        """That a folder is no checkout of the engine, and how to get one."""
        return TargetError(
            f"{root} is no checkout of {self.address}: it has no {lacking}; get one with "
            f"`git clone {self.address}`"
        )


@dataclass(frozen=True, kw_only=True)
class SourceEngine(PublishedEngine):
    """One engine in Python.

    `manager(modules, num_blocks, block_size, enable_caching)` builds an instance that speaks the
    contract of managers, and `real_class(modules)` is the class that it drives. `uses` says what
    the manager calls and reads of the modules, whatever commit they are of.
    """

    package: str
    """The folder of the package in the repository, as `gllm` or `python/minisgl`."""
    modules: tuple[str, ...]
    """Names below the package, each after those that it imports."""
    stubs: Callable[[], Mapping[str, ModuleType]]
    manager: Callable[[Modules, int, int, bool], Any]
    real_class: Callable[[Modules], type]
    uses: tuple[Use, ...] = ()
    block_size: int = 4


def source_target(engine: SourceEngine, name: str, overrides: Mapping[str, Any]) -> Target:
    """The target `name`: the engine as it was fetched, or the checkout behind a colon.

    Raises TargetError where its files are not there or differ in what the adapter needs, and for
    an unknown row of the profile.
    """
    path = TargetSpec.parse(name).base.partition(":")[2]
    root = Path(path).expanduser() if path else fetched_folder(engine)
    if overrides.get("groups", "full") not in ("full", FULL):
        raise TargetError(f"{name}: {engine.name} has one cache group, full attention")
    if not (root / engine.package).is_dir():
        raise engine.no_checkout(root, f"folder {engine.package}")
    place = root.resolve() / engine.package
    try:
        modules = import_from_source(place.parent, place.name, engine.modules, engine.stubs())
    except TargetError as error:
        raise TargetError(f"{error}; the adapter was written for {engine.adapted_to}") from error
    require_uses(name, engine.uses, modules, engine.adapted_to)
    real_class = engine.real_class(modules)
    profile = builtin_profile(name, engine.rows, overrides, ManagerProfile)

    def make(num_blocks: int, enable_caching: bool) -> Any:
        return engine.manager(modules, num_blocks, engine.block_size, enable_caching)

    layout = ManagerLayout(profile.layout_name, profile, make, engine.block_size)
    require_a_few_calls(name, [layout], engine.adapted_to)
    return manager_target(
        name,
        engine.name,
        [layout],
        version=None if path else f"{engine.name} {engine.commit[:7]}",
        source=source_of(real_class),
        real_class=real_class,
        notes=engine.notes,
    )


def fetched_folder(engine: PublishedEngine) -> Path:
    """Where the engine was fetched to. Raises TargetError, which says how to get it."""
    name = engine.folder if engine.checkout else engine.name
    return engine_folder(engine.folder, f"run `poolproof engines {name}`")


_COMPLETE = ".complete"


def fetch_engine(engine: PublishedEngine, into: Path | None = None) -> tuple[Path, bool]:
    """The folder of the engine, and whether it had to be fetched.

    The files come from the engine's own repository by git, which checks them against the commit;
    the folder appears whole or not at all. Raises TargetError where git or the network is missing,
    and where the commit lacks one of the files.
    """
    folder = into or fetch_folder()
    place = folder / engine.folder
    if (place / _COMPLETE).is_file() and all((place / name).is_file() for name in engine.files):
        return place, False
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-") as scratch:
            repository, files = Path(scratch) / "repository", Path(scratch) / "files"
            files.mkdir()
            _git(engine, "init", "--quiet", "--bare", str(repository))
            where = (f"--git-dir={repository}", f"--work-tree={files}")
            fetching = ("fetch", "--quiet", "--depth=1", engine.address, engine.commit)
            _git(engine, where[0], *fetching)
            _git(engine, *where, "checkout", "--quiet", engine.commit, "--", *engine.files)
            (files / _COMPLETE).write_text(f"{engine.commit}\n", encoding="utf-8")
            shutil.rmtree(place, ignore_errors=True)
            files.rename(place)
    except OSError as error:
        raise TargetError(f"{engine.name} cannot be written to {folder}: {error}") from error
    return place, True


def _git(engine: PublishedEngine, *arguments: str) -> None:
    """Run git, which asks for nothing. Raises TargetError with the last line that it said."""
    command = ["git", "-c", "core.autocrlf=false", "-c", "credential.helper=", *arguments]
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False,
            stdin=subprocess.DEVNULL, env=environment,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise TargetError(f"{engine.name} is fetched by git, which is not installed") from error
    if done.returncode:
        said = (done.stderr.strip() or f"git exited with {done.returncode}").splitlines()[-1]
        raise TargetError(
            f"{engine.name} could not be fetched from {engine.address}: {said}; with a checkout of "
            f"commit {engine.commit[:7]} use {engine.checkout or engine.name}:path/to/checkout"
        )
