"""What a campaign is about: the target, the level, the sizes, the seed.

Everything else of a campaign (how long, with how many workers, where) may differ from one session
to the next; these may not, since the states that were counted and the tapes that were kept mean
nothing elsewhere. Plain values: settings travel to workers and stand in the campaign's folder.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from poolproof.contract.errors import OptionError
from poolproof.contract.level import Level
from poolproof.contract.outside import shown

__all__ = ["CampaignSettings"]


@dataclass(frozen=True, slots=True)
class CampaignSettings:
    """What stays the same for the life of a campaign.

    `num_blocks` counts all blocks of a queue and the usable blocks of a pool or manager.
    `num_hashes` and `max_references` bound what counts as a state of a pool. `layout` names that
    of a manager. `api` is what the user forced the target's shape to be. A level of None is the
    target's own; a campaign has found out which that is.
    """

    target: str
    level: Level | None
    num_blocks: int
    num_hashes: int = 2
    max_references: int = 2
    seed: int = 0
    layout: str = ""
    api: str | None = None

    def __post_init__(self) -> None:
        """The name of a level stands for it. Raises OptionError for what is none."""
        try:
            level = Level(self.level) if self.level else None
        except ValueError as error:
            raise OptionError(
                f"level must be one of {', '.join(Level)}, not {shown(self.level)}"
            ) from error
        object.__setattr__(self, "level", level)

    @property
    def driven_level(self) -> Level:
        """The level of a campaign that knows its target."""
        assert self.level is not None, "nobody has looked at the target yet"
        return self.level

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> CampaignSettings:
        """What `to_json` wrote. Raises TypeError or ValueError for anything else."""
        return cls(**value)

    def differs_from(self, other: CampaignSettings) -> str | None:
        """The first setting that keeps two campaigns from sharing states and tapes, in words.

        The seed may differ: it decides what is tried, not what it means.
        """
        mine, theirs = self.to_json(), other.to_json()
        for name, value in mine.items():
            if name != "seed" and value != theirs[name]:
                return f"{name} is {theirs[name]!r} there and {shown(value)} here"
        return None
