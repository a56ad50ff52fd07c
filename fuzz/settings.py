"""What a campaign is about: the target, the level, the sizes, the seed.

Everything else of a campaign (how long, with how many workers, where) may differ from one session
to the next; these may not, since the states that were counted and the tapes that were kept mean
nothing elsewhere. Plain values: settings travel to workers and stand in the campaign's folder.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from poolproof.contract.outside import shown

__all__ = ["CampaignSettings"]


@dataclass(frozen=True, slots=True)
class CampaignSettings:
    """What stays the same for the life of a campaign.

    `num_blocks` counts all blocks of a queue and the usable blocks of a pool or manager.
    `num_hashes` and `max_references` bound what counts as a state of a pool. `layout` names that
    of a manager. `api` is what the user forced the target's shape to be.
    """

    target: str
    level: str
    num_blocks: int
    num_hashes: int = 2
    max_references: int = 2
    seed: int = 0
    layout: str = ""
    api: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> CampaignSettings:
        """What `to_json` wrote. Raises TypeError for anything else."""
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
