"""What a campaign needs of a loaded target: one level of it, and how to build instances.

Targets are loaded elsewhere (`targets/`, which this folder does not know); whatever has the few
attributes of `LoadedTarget` will do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from poolproof.contract.level import Level
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import Profile
from poolproof.contract.target import TargetError
from poolproof.fuzz.settings import CampaignSettings

__all__ = ["CampaignSubject", "LoadedTarget", "Make", "subject_of"]

Make = Callable[[int, bool], Any]


class LoadedTarget(Protocol):
    """A loaded target, as `targets.Target` is one."""

    @property
    def name(self) -> str: ...
    @property
    def level(self) -> Level: ...
    @property
    def profile(self) -> Profile: ...
    @property
    def make(self) -> Make: ...
    def part_at(self, level: Level, /) -> Any: ...
    def layout(self, name: str, /) -> Any: ...


@dataclass(frozen=True)
class CampaignSubject:
    """One level of a target.

    `num_blocks` counts the null block, which `settings.num_blocks` does not.
    """

    name: str
    level: Level
    profile: Profile
    make: Make
    num_blocks: int
    settings: CampaignSettings
    block_size: int = 1

    @property
    def manager_profile(self) -> ManagerProfile:
        """The profile of a manager."""
        assert isinstance(self.profile, ManagerProfile)
        return self.profile


def subject_of(target: LoadedTarget, settings: CampaignSettings) -> CampaignSubject:
    """The level of the target that the settings name. Raises TargetError where it has none."""
    level, name = settings.driven_level, settings.target
    if settings.layout and level.has_layouts:
        layout = target.layout(settings.layout)
        return _subject(
            name, level, layout.profile, layout.make, settings, block_size=layout.block_size
        )
    part = target if level is target.level else target.part_at(level)
    if part is not None:
        # A target goes by the name that it was given, by which it is found again.
        name = name if part is target else part.name
        return _subject(name, level, level.judged_by(part.profile), part.make, settings)
    raise TargetError(
        f"{name} is {target.level.with_article} target and has no {level} level to fuzz"
    )


def _subject(
    name: str,
    level: Level,
    profile: Profile,
    make: Make,
    settings: CampaignSettings,
    *,
    block_size: int = 1,
) -> CampaignSubject:
    null = profile.null_block
    num_blocks = settings.num_blocks + (null is not None)
    if null is not None and null >= num_blocks:
        raise TargetError(f"{name}: null_block={null} does not exist in a pool of {num_blocks}")
    return CampaignSubject(name, level, profile, make, num_blocks, settings, block_size)
