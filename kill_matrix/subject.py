"""The rows of the kill matrix: planted bugs, and correct oddities that no detector may accuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from poolproof.bugs.catalogue import MANAGER_SPECIMENS, SPECIMENS
from poolproof.bugs.engine_catalogue import ENGINE_SPECIMENS
from poolproof.bugs.engine_oddities import ENGINE_ODDITIES
from poolproof.bugs.engine_specimen import BLOCK_SIZE as BLOCK_SIZE_OF_ENGINES
from poolproof.bugs.engine_specimen import EngineOddity, EngineSpecimen
from poolproof.bugs.manager_oddities import MANAGER_ODDITIES
from poolproof.bugs.oddities import ODDITIES
from poolproof.bugs.specimen import ManagerSpecimen, Specimen
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.level import Level
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import Profile
from poolproof.targets.target import EngineLayout, Make, ManagerLayout, Target, TargetLayout

__all__ = ["LAYOUT", "MatrixSubject", "subjects"]

LAYOUT = "planted"
"""The name of the one layout in which a manager or an engine of this matrix is set up."""

_BLOCK_SIZE_OF_ODDITIES = 4
_LOWEST_FIRST = tuple(Level)


@dataclass(frozen=True, slots=True)
class MatrixSubject:
    """An allocator that is wrong in a known way, or an oddity, which is right.

    `threads` are where the cause was told, the own one first. With `weak_hashes` the bug shows
    only where hashes are cut to so many bits.
    """

    id: str
    title: str
    level: Level
    make: Make = field(repr=False)
    profile: Profile = field(repr=False)
    cls: type = field(repr=False)
    is_oddity: bool = False
    threads: tuple[str, ...] = ()
    severity: str = ""
    is_silent: bool = False
    block_size: int = 1
    weak_hashes: int = 0

    @property
    def options(self) -> dict[str, Any]:
        """What the traces of this subject are set up with, beside the sizes."""
        weak = {"weak_hashes": self.weak_hashes} if self.weak_hashes else {}
        return {"layout": LAYOUT, **weak} if self.level.has_layouts else weak

    def target(self) -> Target:
        """The subject as `certify` would have loaded it."""
        layouts: tuple[TargetLayout, ...] = ()
        if isinstance(self.profile, EngineProfile):
            layouts = (EngineLayout(LAYOUT, self.profile, self.make, self.block_size),)
        if isinstance(self.profile, ManagerProfile):
            layouts = (ManagerLayout(LAYOUT, self.profile, self.make, self.block_size),)
        return Target(
            name=self.id,
            level=self.level,
            shape="native",
            profile=self.profile,
            version=None,
            source="planted",
            make=self.make,
            real_class=self.cls,
            block_size=self.block_size,
            layouts=layouts,
        )


def subjects() -> dict[str, MatrixSubject]:
    """All rows by id: queue, pool, manager and engine specimens, then the oddities."""
    in_order = sorted(SPECIMENS.values(), key=lambda found: _LOWEST_FIRST.index(found.level))
    rows = [_planted(found) for found in in_order]
    rows += [_planted_manager(found) for found in MANAGER_SPECIMENS.values()]
    rows += [_planted_engine(found) for found in ENGINE_SPECIMENS.values()]
    rows += [_odd(cls) for cls in (*ODDITIES, *MANAGER_ODDITIES)]
    rows += [_odd_engine(oddity) for oddity in ENGINE_ODDITIES]
    return {row.id: row for row in rows}


def _planted(found: Specimen) -> MatrixSubject:
    return MatrixSubject(
        id=found.id,
        title=found.title,
        level=found.level,
        make=found.make,
        profile=found.level.judged_by(found.profile),
        cls=found.cls,
        threads=(found.thread,) if found.thread else (),
        severity=found.severity.value,
        is_silent=found.silent,
    )


def _planted_manager(found: ManagerSpecimen) -> MatrixSubject:
    return MatrixSubject(
        id=found.id,
        title=found.title,
        level=Level.MANAGER,
        make=found.make,
        profile=found.profile,
        cls=found.cls,
        threads=tuple(thread for thread in (found.thread, *found.also) if thread),
        severity=found.severity.value,
        is_silent=found.silent,
        block_size=found.block_size,
        weak_hashes=found.weak_hashes,
    )


def _planted_engine(found: EngineSpecimen) -> MatrixSubject:
    return MatrixSubject(
        id=found.id,
        title=found.title,
        level=found.level,
        make=found.make,
        profile=found.profile,
        cls=found.cls,
        threads=(found.thread, *found.also),
        severity=found.severity.value,
        is_silent=found.silent,
        block_size=BLOCK_SIZE_OF_ENGINES,
    )


def _odd_engine(oddity: EngineOddity) -> MatrixSubject:
    """An oddity under the first of its profiles; `benchmarks/engine_specimens.py` has all."""
    profile, make = oddity.makes()[0]
    return MatrixSubject(
        id=oddity.cls.__name__,
        title=oddity.name,
        level=Level.ENGINE,
        make=make,
        profile=profile,
        cls=oddity.cls,
        is_oddity=True,
        block_size=BLOCK_SIZE_OF_ENGINES,
    )


def _odd(cls: Any) -> MatrixSubject:
    title = " ".join((cls.__doc__ or "").partition("\n")[0].split()).rstrip(".")
    rows = getattr(cls, "profile", {})
    if hasattr(cls, "block_table"):
        return MatrixSubject(
            id=cls.__name__,
            title=title,
            level=Level.MANAGER,
            make=_manager_maker(cls),
            profile=ManagerProfile.from_mapping(rows),
            cls=cls,
            is_oddity=True,
            block_size=_BLOCK_SIZE_OF_ODDITIES,
        )
    is_queue = hasattr(cls, "popleft")
    return MatrixSubject(
        id=cls.__name__,
        title=title,
        level=Level.QUEUE if is_queue else Level.POOL,
        make=_queue_maker(cls) if is_queue else _pool_maker(cls),
        profile=Profile.from_mapping(rows),
        cls=cls,
        is_oddity=True,
    )


def _queue_maker(cls: Callable[..., Any]) -> Make:
    return lambda num_blocks, _enable_caching: cls(num_blocks)


def _pool_maker(cls: Callable[..., Any]) -> Make:
    return lambda num_blocks, enable_caching: cls(num_blocks, enable_caching=enable_caching)


def _manager_maker(cls: Callable[..., Any]) -> Make:
    return lambda num_blocks, enable_caching: cls(
        num_blocks, _BLOCK_SIZE_OF_ODDITIES, enable_caching=enable_caching
    )
