"""What is to be certified, and who hears how it goes on; plain values, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["Job", "Progress"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to be certified and how.

    `device` None: the GPU where there is one. `pool` is the `module:Class` of a native block pool
    for whole requests, `managers` the `module:function` that gives managers to serve requests
    under; None leaves them out. With a `case` each check runs on that case alone. `checks` names
    the checks to run; none names all. `workers` is the number of child processes at once.
    """

    target: str
    overrides: Mapping[str, Any] = field(default_factory=dict)
    device: str | None = None
    level: str = "standard"
    seed: int = 0
    case_timeout_s: float = 120.0
    pool: str | None = None
    managers: str | None = None
    case: Mapping[str, Any] | None = None
    checks: tuple[str, ...] = ()
    workers: int = 1


class Progress(Protocol):
    """The command line's progress, as far as it is needed here."""

    def begin(self, stage: str, total_steps: int | None = None) -> None: ...
    def advance(self, steps: int) -> None: ...
    def end(self) -> None: ...
