"""What a certification may be told: its level, its seed, its limits.

How many steps a level means for each stage is decided in `levels.py`, not here.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

from poolproof.harness.failure_kind import FailureKind
from poolproof.harness.isolation import Limits

__all__ = ["LEVELS", "CertifyOptions", "Limits"]

LEVELS = ("quick", "standard", "deep")
"""Under 30 s, about 2 minutes, as long as it takes."""


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

    level: str = "standard"
    seed: int = 0
    workers: int = 1
    in_process: bool = False
    limits: Limits = field(default_factory=Limits)
    hardening: bool = False
    api: str | None = None
    profile_overrides: Mapping[str, Any] = field(default_factory=dict)
    layouts: tuple[str, ...] = ()
    accepted: Container[FailureKind] = frozenset()
