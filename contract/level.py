"""What is driven: a free queue, an index, a pool of blocks, a manager of sequences, or an engine.

Everything that differs from level to level belongs to one object for each of them, which a room
keeps under this name: the session in `harness/`, the runs in `certification/levels/` and `fuzz/`,
the drawing in `report/`. Elsewhere code asks for a trait of the level.
`tests/contract/test_level.py` lists these tables, and says why some leave levels out.
"""

from __future__ import annotations

from enum import Enum

from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import Profile

__all__ = ["Level"]


class Level(str, Enum):
    """A layer of an allocator, the lowest first. Its value is its name in traces and reports."""

    QUEUE = "queue"
    """The free queue: block ids in the order in which they are handed out."""
    INDEX = "index"
    """The prefix index: which blocks carry a key."""
    POOL = "pool"
    """Blocks with owners and hashes, over a queue and an index."""
    MANAGER = "manager"
    """Sequences of tokens over blocks."""
    ENGINE = "engine"
    """Requests that are scheduled over sequences: everything of a server but the forward pass."""

    __str__ = str.__str__

    @property
    def with_article(self) -> str:
        """As in "an index"."""
        return f"an {self}" if self in (Level.INDEX, Level.ENGINE) else f"a {self}"

    @property
    def is_part(self) -> bool:
        """Whether it is a part of a pool, which has nothing beside its own operations."""
        return self in (Level.QUEUE, Level.INDEX)

    @property
    def has_hashes(self) -> bool:
        """Whether its commands name the hashes of contents."""
        return self in (Level.INDEX, Level.POOL)

    @property
    def has_misuse(self) -> bool:
        """Whether a profile says what becomes of illegal calls; elsewhere none are made."""
        return self is Level.POOL

    @property
    def has_sequences(self) -> bool:
        """Whether its commands name sequences of tokens."""
        return self is Level.MANAGER

    @property
    def has_reads(self) -> bool:
        """Whether it is seen what requests read: elsewhere wrong data is only feared."""
        return self in (Level.MANAGER, Level.ENGINE)

    @property
    def has_layouts(self) -> bool:
        """Whether it can be set up in several ways, each of which has runs of its own."""
        return self in (Level.MANAGER, Level.ENGINE)

    @property
    def has_small_scopes(self) -> bool:
        """Whether a certification visits all states, or all short sequences, of small ones.

        Of engines too few commands are reached in its time; `poolproof explore` searches them.
        """
        return self is not Level.ENGINE

    @property
    def is_built_of_blocks(self) -> bool:
        """Whether its memory grows with its blocks; an index is built empty, whatever ids come."""
        return self is not Level.INDEX

    @property
    def profile_class(self) -> type[Profile]:
        """What its profiles are made of."""
        return _PROFILES.get(self, Profile)

    def judged_by(self, profile: Profile) -> Profile:
        """The rows of a target's profile that bear on it: none on a queue, which has no choice."""
        return Profile() if self is Level.QUEUE else profile


_PROFILES: dict[Level, type[Profile]] = {
    Level.MANAGER: ManagerProfile,
    Level.ENGINE: EngineProfile,
}
