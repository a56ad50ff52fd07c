"""What a specimen is: one real bug, planted as the smallest change to what is clean.

A row says where the bug was met, what it does to people, which invariant names it, and under which
profiles it is a bug at all: what is wrong in one engine can be another's declared policy. A
`ManagerSpecimen` also names the verbs without which its bug cannot act, further threads that tell
of the same mechanism, and the weak hashes that it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from poolproof.bugs.clean_groups import CleanHybridManager
from poolproof.bugs.clean_index import CleanIndex
from poolproof.bugs.clean_manager import ManagerSteps
from poolproof.bugs.clean_nano import CleanNanoManager
from poolproof.bugs.clean_pool import CleanPool
from poolproof.bugs.clean_queue import CleanQueue
from poolproof.contract.level import Level
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import Profile
from poolproof.contract.violation import Severity

__all__ = [
    "ManagerSection",
    "ManagerSpecimen",
    "Section",
    "Specimen",
    "caches_what_is_free",
    "repeats_in_free",
]


Base = type[CleanPool] | type[CleanQueue] | type[CleanIndex]
Instance = CleanPool | CleanQueue | CleanIndex
Planted = TypeVar("Planted", bound=Base)


def always(_profile: Profile) -> bool:
    """The bug is one under every profile."""
    return True


def caches_what_is_free(profile: Profile) -> bool:
    """The bug needs a cached block that nobody holds."""
    return profile.retention != "while-held"


def repeats_in_free(profile: Profile) -> bool:
    """The bug needs a block that stands twice in one `free`."""
    return profile.repeats_in_free == "allowed"


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


ManagerBase = type[ManagerSteps] | type[CleanHybridManager] | type[CleanNanoManager]
PlantedManager = TypeVar("PlantedManager", bound=ManagerBase)


def _always_of_manager(_profile: ManagerProfile) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class ManagerSpecimen:
    """One planted bug of the manager level.

    `invariants` are those that may name it first, `severity` is the worst that it does, `silent`
    says that nothing raises where it acts. `also` are threads with the same mechanism. With
    `weak_hashes` it only shows where hashes are cut to so many bits.
    """

    id: str
    title: str
    thread: str
    cls: ManagerBase
    invariants: tuple[str, ...]
    severity: Severity
    silent: bool
    profile: ManagerProfile
    verbs: frozenset[str]
    also: tuple[str, ...]
    weak_hashes: int
    block_size: int
    condition: Callable[[ManagerProfile], bool]

    @property
    def level(self) -> str:
        """Always "manager"."""
        return "manager"

    def is_bug_under(self, profile: ManagerProfile) -> bool:
        """Whether it can be built under that profile, and breaks a promise there."""
        return self.cls.serves(profile) and self.condition(profile)

    def make(self, num_blocks: int, enable_caching: bool = True) -> Any:
        """A fresh instance under the profile that the specimen is stated under."""
        return _build_manager(self.cls, self.profile, self.block_size, num_blocks, enable_caching)

    def make_under(
        self, profile: ManagerProfile, block_size: int | None = None
    ) -> Callable[[int, bool], Any]:
        """What builds fresh instances under another profile, under which it is a bug as well.

        Raises ValueError for a profile under which it is none.
        """
        if not self.is_bug_under(profile):
            raise ValueError(f"{self.id} ({self.title}) is no bug under {profile}")
        return partial(_build_manager, self.cls, profile, block_size or self.block_size)


class ManagerSection(dict[str, ManagerSpecimen]):
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
        profile: ManagerProfile | None = None,
        verbs: tuple[str, ...] = (),
        also: tuple[str, ...] = (),
        weak_hashes: int = 0,
        block_size: int = 4,
        is_bug_under: Callable[[ManagerProfile], bool] = _always_of_manager,
    ) -> Callable[[PlantedManager], PlantedManager]:
        """A decorator that enters a class as a specimen."""

        def enter(cls: PlantedManager) -> PlantedManager:
            assert specimen_id not in self, specimen_id
            self[specimen_id] = ManagerSpecimen(
                id=specimen_id,
                title=title,
                thread=thread,
                cls=cls,
                invariants=invariants,
                severity=severity,
                silent=silent,
                profile=profile or ManagerProfile(),
                verbs=frozenset(verbs),
                also=also,
                weak_hashes=weak_hashes,
                block_size=block_size,
                condition=is_bug_under,
            )
            assert self[specimen_id].is_bug_under(self[specimen_id].profile), specimen_id
            return cls

        return enter


def _build_manager(
    cls: ManagerBase,
    profile: ManagerProfile,
    block_size: int,
    num_blocks: int,
    enable_caching: bool,
) -> Any:
    return cls(num_blocks, block_size, enable_caching=enable_caching, rules=profile)
