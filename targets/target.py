"""What a loaded target is: how to build instances of it, and what is known before one is built.

A `Target` says nothing about whether the allocator is right; it is what the drivers, the
certificate and the traces need to name it, build it and judge it by its own profile.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.level import Level
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import Profile
from poolproof.contract.tapes import PlaysTapes
from poolproof.contract.target import TargetError

__all__ = ["EngineLayout", "Make", "ManagerLayout", "Target", "TargetLayout", "source_of"]

Make = Callable[[int, bool], Any]
"""(num_blocks, enable_caching) -> a fresh instance that speaks the native contract."""


@dataclass(frozen=True)
class TargetLayout:
    """One way in which a manager or an engine can be set up.

    Without `make` the layout is not run, and `why_not` says why. `make_of` is there where instances
    can be built with blocks of other sizes: it has what `make` is for each.
    """

    name: str
    profile: Profile
    make: Make | None
    block_size: int = 4
    why_not: str = ""
    make_of: Callable[[int], Make] | None = None

    def make_with(self, block_size: int) -> Make:
        """What builds instances with blocks of that size. Raises TargetError if nothing does."""
        assert self.make is not None
        if block_size == self.block_size:
            return self.make
        if self.make_of is None:
            raise TargetError(
                f"layout {self.name} has {self.block_size} tokens a block and takes no other size"
            )
        return self.make_of(block_size)


@dataclass(frozen=True)
class ManagerLayout(TargetLayout):
    """A layout of a manager: its cache groups, and whatever else differs."""

    profile: ManagerProfile


@dataclass(frozen=True)
class EngineLayout(TargetLayout):
    """A set-up of an engine: its policy, its limits, what stands beside its scheduler."""

    profile: EngineProfile


@dataclass(frozen=True)
class Target:
    """An allocator under test.

    `make` builds a fresh instance and lets whatever the constructor raises pass: that is a
    finding about the target, not an error of the run. `make_chained` builds one that also takes
    token chains of `block_size` tokens a block, whose partial keys may end at multiples of
    `hash_block_size`; None where there is no such surface. At queue and index level
    `enable_caching` means nothing. A manager or an engine has `layouts`, and its `profile`,
    `make` and `block_size` are those of the first that is run.
    """

    name: str
    """As the user gave it; `load_target(name)` finds the same target again."""
    level: Level
    shape: str
    """The published shape that the class has, one of `load.APIS`."""
    profile: Profile
    version: str | None
    source: str
    """Where the code lies, with the beginning of the file's digest."""
    make: Make
    make_chained: Make | None = None
    companion_queue: Target | None = None
    """The free queue that belongs to a pool, as a target of its own."""
    companion_index: Target | None = None
    """The index from hashes to blocks that belongs to a pool, as a target of its own."""
    real_class: type | None = None
    """The class itself, behind any adapter; for listing methods that no command calls."""
    notes: tuple[str, ...] = ()
    """What of the shape is not driven, what the adapter stands in for, how a row was found."""
    block_size: int = 1
    hash_block_size: int = 1
    layouts: tuple[TargetLayout, ...] = ()
    own_modules: tuple[str, ...] = ()
    """The modules that are its own, where others beside its class are targets by themselves."""
    pair: tuple[str, str] | None = None
    """Of two targets that are driven as one, their names."""
    tapes: PlaysTapes | None = None
    """For a target that takes whole tapes: a program at the other end of a pipe."""

    def __post_init__(self) -> None:
        """The name of a level stands for it. Raises ValueError for what is none."""
        object.__setattr__(self, "level", Level(self.level))

    def part_at(self, level: Level) -> Target | None:
        """The target at a level: itself, or the queue or index that belongs to a pool."""
        if level == self.level:
            return self
        parts = {Level.QUEUE: self.companion_queue, Level.INDEX: self.companion_index}
        return parts.get(level)

    def layout(self, name: str) -> TargetLayout:
        """The layout of that name. Raises TargetError where there is none or it is not run."""
        for layout in self.layouts:
            if layout.name == name:
                if layout.make is None:
                    raise TargetError(f"layout {name} of {self.name} is not run: {layout.why_not}")
                return layout
        names = ", ".join(layout.name for layout in self.layouts)
        known = f"it has {names}" if names else f"{self.level.with_article} target has none"
        raise TargetError(f"{self.name} has no layout {name!r}; {known}")


def source_of(cls: type) -> str:
    """The file that defines the class and the first 12 hexadecimal digits of its SHA-256."""
    try:
        path = inspect.getsourcefile(cls)
        if path is None:
            return f"{cls.__module__}, compiled"
        digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except (OSError, TypeError):
        return f"{cls.__module__}, source not found"
    return f"{_shortened(Path(path))} (sha256 {digest[:12]})"


def _shortened(path: Path) -> str:
    """The path below the current or an import folder: a certificate is for others to read."""
    path = path.resolve()
    folders = [Path.cwd(), *(Path(entry).resolve() for entry in sys.path if entry)]
    below = [str(path.relative_to(folder)) for folder in folders if path.is_relative_to(folder)]
    return min(below, key=len, default=str(path))
