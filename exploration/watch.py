"""Callbacks told of each fresh target and each command, for runs that never come back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from poolproof.contract.commands import Command
from poolproof.contract.trace import Trace

__all__ = ["Watch"]


@dataclass(frozen=True, slots=True)
class Watch:
    """`begin` hears of every fresh target, with its empty trace; `announce` of every command."""

    begin: Callable[[Trace], object]
    announce: Callable[[Command], object]
