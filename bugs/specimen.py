"""What a specimen is: one real bug, planted as the smallest change to a clean pool, queue or index.

A row says where the bug was met, what it does to people, which invariant names it, and under
which profiles it is a bug at all: what is wrong in one engine can be another's declared policy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from poolproof.bugs.clean_index import CleanIndex
from poolproof.bugs.clean_pool import CleanPool
from poolproof.bugs.clean_queue import CleanQueue
from poolproof.contract.level import Level
from poolproof.contract.profile import Profile
from poolproof.contract.violation import Severity

__all__ = ["Section", "Specimen", "always"]

Base = type[CleanPool] | type[CleanQueue] | type[CleanIndex]
Instance = CleanPool | CleanQueue | CleanIndex
Planted = TypeVar("Planted", bound=Base)


def always(_profile: Profile) -> bool:
    """The bug is one under every profile."""
    return True


@dataclass(frozen=True, slots=True)
class Specimen:
    """One planted bug.

    `invariants` are those that may name it first, whichever way a workload meets it, and
    `severity` is the worst that it does. `silent` says that nothing raises where the bug acts: a
    server would stay up. `thread` is where the cause was told, empty for a slip that we made up.
    """

    id: str
    title: str
    thread: str
    cls: Base
    invariants: tuple[str, ...]
    severity: Severity
    silent: bool
    profile: Profile
    is_bug_under: Callable[[Profile], bool]

    @property
    def level(self) -> Level:
        """Whether it is planted in a "pool", a "queue" or an "index"."""
        if issubclass(self.cls, CleanIndex):
            return Level.INDEX
        return Level.QUEUE if issubclass(self.cls, CleanQueue) else Level.POOL

    def make(self, num_blocks: int, enable_caching: bool = True) -> Instance:
        """A fresh instance under the profile that the specimen is stated under."""
        return _build(self.cls, self.profile, num_blocks, enable_caching)

    def make_under(self, profile: Profile) -> Callable[[int, bool], Instance]:
        """What builds fresh instances under another profile, under which it is a bug as well.

        Raises ValueError for a profile under which it is none.
        """
        if not self.is_bug_under(profile):
            raise ValueError(f"{self.id} ({self.title}) is no bug under {profile}")
        return partial(_build, self.cls, profile)


class Section(dict[str, Specimen]):
    """The specimens of one file, by id."""

    def plant(
        self,
        specimen_id: str,
        title: str,
        *,
        thread: str,
        invariants: tuple[str, ...],
        severity: Severity,
        silent: bool = True,
        profile: Profile | None = None,
        is_bug_under: Callable[[Profile], bool] = always,
    ) -> Callable[[Planted], Planted]:
        """A decorator that enters a class as a specimen."""

        def enter(cls: Planted) -> Planted:
            assert specimen_id not in self, specimen_id
            stated = profile or Profile()
            assert is_bug_under(stated), specimen_id
            self[specimen_id] = Specimen(
                specimen_id, title, thread, cls, invariants, severity, silent, stated, is_bug_under
            )
            return cls

        return enter


def _build(cls: Base, profile: Profile, num_blocks: int, enable_caching: bool) -> Instance:
    if issubclass(cls, CleanIndex):
        return cls(profile)
    if issubclass(cls, CleanQueue):
        return cls(num_blocks)
    return cls(num_blocks, enable_caching=enable_caching, rules=profile)
