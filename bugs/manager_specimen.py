"""What a specimen of the manager level is: one real bug in a manager, as small as can be.

The rows are those of `specimen.py`; in addition a row names the verbs without which its bug
cannot act, further threads that tell of the same mechanism, and the weak hashes that it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from poolproof.bugs.clean_hybrid import CleanHybridManager
from poolproof.bugs.clean_manager_steps import ManagerSteps
from poolproof.bugs.clean_nano import CleanNanoManager
from poolproof.contract.level import Level
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.violation import Severity

__all__ = ["ManagerSection", "ManagerSpecimen"]

Base = type[ManagerSteps] | type[CleanHybridManager] | type[CleanNanoManager]
Planted = TypeVar("Planted", bound=Base)


def _always(_profile: ManagerProfile) -> bool:
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
    cls: Base
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
    def level(self) -> Level:
        """Always "manager"."""
        return Level.MANAGER

    def is_bug_under(self, profile: ManagerProfile) -> bool:
        """Whether it can be built under that profile, and breaks a promise there."""
        return self.cls.serves(profile) and self.condition(profile)

    def make(self, num_blocks: int, enable_caching: bool = True) -> Any:
        """A fresh instance under the profile that the specimen is stated under."""
        return _build(self.cls, self.profile, self.block_size, num_blocks, enable_caching)

    def make_under(
        self, profile: ManagerProfile, block_size: int | None = None
    ) -> Callable[[int, bool], Any]:
        """What builds fresh instances under another profile, under which it is a bug as well.

        Raises ValueError for a profile under which it is none.
        """
        if not self.is_bug_under(profile):
            raise ValueError(f"{self.id} ({self.title}) is no bug under {profile}")
        return partial(_build, self.cls, profile, block_size or self.block_size)


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
        is_bug_under: Callable[[ManagerProfile], bool] = _always,
    ) -> Callable[[Planted], Planted]:
        """A decorator that enters a class as a specimen."""

        def enter(cls: Planted) -> Planted:
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


def _build(
    cls: Base, profile: ManagerProfile, block_size: int, num_blocks: int, enable_caching: bool
) -> Any:
    return cls(num_blocks, block_size, enable_caching=enable_caching, rules=profile)
