"""Whole tapes: a target that takes all commands of a run at once and answers them at once.

A program in another process costs one round trip per command, or one per tape. If the profile
leaves a target no choice, the commands of a run can be known before it answers: the reference
predicts what it must say. What a played tape shows is judged afterwards, command by command, by the
same checks. `poolproof.targets` decides how tapes travel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from poolproof.contract.commands import Command
from poolproof.contract.level import Level
from poolproof.contract.profile import Profile
from poolproof.contract.target import Capabilities

__all__ = ["PlayedTape", "PlaysTapes", "TapeDivergedError", "TapeLostError", "is_predictable"]


class TapeLostError(Exception):
    """A tape that was not answered to its end; given one by one, its commands tell which failed."""


class TapeDivergedError(BaseException):
    """A command that is not the tape's next one was asked of a played tape.

    No Exception: a session takes those for what the target raises, and this is not the target's.
    """


class PlayedTape(Protocol):
    """What a program answered to a tape, read and not yet judged."""

    @property
    def state(self) -> Mapping[str, Any]:
        """What was shown before the first command."""
        ...

    @property
    def answers(self) -> Sequence[Mapping[str, Any]]:
        """One for each command; docs/protocol.md says what stands in them."""
        ...

    def instance(self) -> Any:
        """A target that gives these answers again, to just these commands, in this order."""
        ...


class PlaysTapes(Protocol):
    """A target that takes whole tapes."""

    @property
    def can(self) -> Capabilities:
        """Which verbs it has and what it shows."""
        ...

    @property
    def num_lost(self) -> int:
        """How often the target was lost until now, with a tape or between two commands."""
        ...

    def play(
        self, num_blocks: int, enable_caching: bool, commands: Sequence[Command], /
    ) -> PlayedTape:
        """Give the commands to a fresh instance. Raises TapeLostError."""
        ...

    def renew(self) -> None:
        """What the last tape may have broken is not the business of the next one."""
        ...


def is_predictable(profile: Profile, can: Capabilities) -> bool:
    """Whether a right target of this profile has no choice that later commands depend on."""
    return (
        can.level is Level.POOL
        and profile.eviction != "unspecified"
        and profile.retention != "may-drop"
        and "acquire" not in can.verbs
        and {"touch", "lookup"} <= can.verbs
    )
