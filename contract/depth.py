"""How much a certification does: quick for a push, standard for a pull request, deep overnight.

Not to be confused with a level, which says what is driven (`Level`).
"""

from __future__ import annotations

from enum import Enum

from poolproof.contract.errors import OptionError
from poolproof.contract.outside import shown

__all__ = ["Depth"]


class Depth(str, Enum):
    """How much is done; each does what the ones before it do, and more."""

    QUICK = "quick"
    """Under 30 s."""
    STANDARD = "standard"
    """About 2 minutes."""
    DEEP = "deep"
    """As long as it takes."""

    __str__ = str.__str__

    @classmethod
    def named(cls, name: object) -> Depth:
        """The depth of this name, or the depth itself. Raises OptionError."""
        try:
            return cls(name)
        except ValueError as error:
            allowed = ", ".join(cls)
            raise OptionError(f"depth must be one of {allowed}, not {shown(name)}") from error

    @property
    def up_to_here(self) -> tuple[Depth, ...]:
        """The depths from the first to this one."""
        every = tuple(Depth)
        return every[: every.index(self) + 1]
