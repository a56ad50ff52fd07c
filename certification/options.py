"""What a certification may be told: its depth, its seed, its limits.

How many steps a depth means for each stage is decided in `depths.py`, not here.
"""

from __future__ import annotations

import os
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

from poolproof.contract.depth import Depth
from poolproof.contract.errors import OptionError
from poolproof.contract.outside import shown
from poolproof.harness.failure_kind import FailureKind
from poolproof.harness.isolation import Limits

__all__ = ["CertifyOptions", "Limits", "usable_processors"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifyOptions:
    """How a target is certified.

    The seed is fixed unless it is given, so that the same code gets the same verdict. `in_process`
    turns the isolation off, and with it the limits and all but one worker. `hardening` also drives
    misuse that the profile leaves undefined. `api` is the shape that the user forced, which traces
    have to carry so that their target can be loaded again. `profile_overrides` are rows that the
    user set in place of the target's own; they stand in the target string already, in brackets.
    `layouts` are those of a manager that are asked for; none means all. `accepted` are the kinds of
    failures that may turn out to be accepted: they do not end a search for others.
    """

    depth: Depth = Depth.STANDARD
    seed: int = 0
    workers: int = 1
    in_process: bool = False
    limits: Limits = field(default_factory=Limits)
    hardening: bool = False
    api: str | None = None
    profile_overrides: Mapping[str, Any] = field(default_factory=dict)
    layouts: tuple[str, ...] = ()
    accepted: Container[FailureKind] = frozenset()

    def __post_init__(self) -> None:
        """Raises OptionError."""
        object.__setattr__(self, "depth", Depth.named(self.depth))
        for name, least in (("seed", 0), ("workers", 1)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise OptionError(f"{name} must be an int from {least} on, not {shown(value)}")
        if isinstance(self.layouts, str) or not all(type(name) is str for name in self.layouts):
            raise OptionError(f"layouts must be names of layouts, not {shown(self.layouts)}")


def usable_processors() -> int:
    """How many CPUs this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
