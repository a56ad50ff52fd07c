"""How much of a target's code a campaign's tapes run: plain values, kept in its folder.

Only code in functions counts. The rest runs when the target is imported, whatever drives it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["CodeCoverage", "CoveragePoint", "FileCoverage"]


@dataclass(frozen=True, slots=True)
class FileCoverage:
    """One file: how many lines and branches it has, and those that were not taken.

    A branch is a pair of lines; the second is negative if the branch leaves the function.
    """

    path: str
    num_lines: int
    num_branches: int
    missing_lines: tuple[int, ...]
    missing_branches: tuple[tuple[int, int], ...]

    @property
    def num_reached(self) -> int:
        """Lines that ran."""
        return self.num_lines - len(self.missing_lines)

    @property
    def num_taken(self) -> int:
        """Branches that were taken."""
        return self.num_branches - len(self.missing_branches)


@dataclass(frozen=True, slots=True)
class CoveragePoint:
    """Lines, branches and states that the first so many tapes of the corpus reach together."""

    num_tapes: int
    num_lines: int
    num_branches: int
    num_states: int


@dataclass(frozen=True, slots=True)
class CodeCoverage:
    """What the corpus runs, in the order in which its tapes were kept.

    `num_tapes` were replayed, `num_left_out` were not, to keep it short. `why_not` says why there
    is nothing else here.
    """

    files: tuple[FileCoverage, ...] = ()
    curve: tuple[CoveragePoint, ...] = ()
    num_tapes: int = 0
    num_left_out: int = 0
    why_not: str = ""

    @property
    def num_lines(self) -> int:
        """All lines."""
        return sum(file.num_lines for file in self.files)

    @property
    def num_branches(self) -> int:
        """All branches."""
        return sum(file.num_branches for file in self.files)

    @property
    def num_reached(self) -> int:
        """Lines that ran."""
        return sum(file.num_reached for file in self.files)

    @property
    def num_taken(self) -> int:
        """Branches that were taken."""
        return sum(file.num_taken for file in self.files)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CodeCoverage:
        """What `to_json` wrote, even after a trip through text. Raises TypeError, KeyError."""
        files = tuple(
            FileCoverage(
                **{
                    **file,
                    "missing_lines": tuple(file["missing_lines"]),
                    "missing_branches": tuple((a, b) for a, b in file["missing_branches"]),
                }
            )
            for file in value["files"]
        )
        curve = tuple(CoveragePoint(**point) for point in value["curve"])
        return cls(**{**value, "files": files, "curve": curve})
