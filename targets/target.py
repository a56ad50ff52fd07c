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

from poolproof.contract.profile import Profile

__all__ = ["Make", "Target", "source_of"]

Make = Callable[[int, bool], Any]
"""(num_blocks, enable_caching) -> a fresh instance that speaks the native contract."""


@dataclass(frozen=True)
class Target:
    """An allocator under test.

    `make` builds a fresh instance and lets whatever the constructor raises pass: that is a
    finding about the target, not an error of the run. `make_chained` builds one that also takes
    token chains of `block_size` tokens a block, whose partial keys may end at multiples of
    `hash_block_size`; None where there is no such surface. Both are queues' `make` at queue
    level, where `enable_caching` means nothing.
    """

    name: str
    """As the user gave it; `load_target(name)` finds the same target again."""
    level: str
    """"pool" or "queue"."""
    shape: str
    """The published shape that the class has: "native", "vllm-v1" or "queue"."""
    profile: Profile
    version: str | None
    source: str
    """Where the code lies, with the beginning of the file's digest."""
    make: Make
    make_chained: Make | None = None
    companion_queue: Target | None = None
    """The free queue that belongs to a pool, as a target of its own."""
    real_class: type | None = None
    """The class itself, behind any adapter; for listing methods that no command calls."""
    notes: tuple[str, ...] = ()
    """What of the shape is not driven, what the adapter stands in for, how a row was found."""
    block_size: int = 1
    hash_block_size: int = 1


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
