"""What a specimen of the engine level is: a public bug, as a small change to our own engine.

The base is `poolproof.impl.engine` itself, or one of its correct relatives in `clean_engine.py`:
each is a subclass that replaces a method or two. It is stated under one profile, and is a bug under
others where `is_bug_under` says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.level import Level
from poolproof.contract.manager_profile import CacheGroup
from poolproof.contract.violation import Severity
from poolproof.impl.engine import Engine

__all__ = [
    "ADAPTERS",
    "ASYNC",
    "ASYNC_3",
    "BLOCK_SIZE",
    "CHUNKS",
    "DRAFTS",
    "FULL",
    "HYBRID",
    "HYBRID_ASYNC_DRAFTS",
    "HYBRID_DRAFTS",
    "HYBRID_LAST",
    "HYBRID_STEP_END",
    "HYBRID_TOLD",
    "IMAGES",
    "PRIORITY",
    "RESETS",
    "WINDOWS",
    "EngineOddity",
    "EngineSection",
    "EngineSpecimen",
    "build_engine",
    "has_adapter_limit",
    "has_drafts",
    "has_encoder_cache",
    "is_asynchronous",
    "resets_preempt",
]

BLOCK_SIZE = 4

FULL = EngineProfile(null_block=0)
PRIORITY = EngineProfile(null_block=0, policy="priority", max_batch_tokens=10)
CHUNKS = EngineProfile(null_block=0, max_batch_tokens=7, max_running=3)
DRAFTS = EngineProfile(null_block=0, draft_tokens=3, max_batch_tokens=9)
ASYNC = EngineProfile(null_block=0, steps_in_flight=2)
ASYNC_3 = EngineProfile(null_block=0, steps_in_flight=3, policy="priority")
WINDOWS = EngineProfile(
    null_block=0,
    steps_in_flight=2,
    draft_tokens=3,
    groups=(CacheGroup(), CacheGroup("sliding", window=5)),
)
ADAPTERS = EngineProfile(null_block=0, max_adapters=1, max_batch_tokens=12, policy="priority")
IMAGES = EngineProfile(
    null_block=0, image_tokens=6, encoder_cache_tokens=9, max_batch_tokens=10, policy="priority"
)
RESETS = EngineProfile(null_block=0, steps_in_flight=2, reset="preempts")
HYBRID = EngineProfile(null_block=0, groups=(CacheGroup(), CacheGroup("state")))
HYBRID_TOLD = replace(HYBRID, state_moves="told", max_batch_tokens=11)
HYBRID_STEP_END = replace(HYBRID, states="step-end", steps_in_flight=2)
HYBRID_DRAFTS = replace(HYBRID, state_moves="told", draft_tokens=3, state_blocks=4)
HYBRID_ASYNC_DRAFTS = replace(HYBRID_DRAFTS, steps_in_flight=2, states="step-end")
HYBRID_LAST = replace(HYBRID, draft_tokens=3, draft_states="last")

Planted = TypeVar("Planted", bound=type[Engine])
Make = Callable[[int, bool], Engine]


def always(_profile: EngineProfile) -> bool:
    """The bug is one under every profile."""
    return True


def is_asynchronous(profile: EngineProfile) -> bool:
    """The bug needs a step that is planned before the one before it is answered."""
    return profile.steps_in_flight > 1


def has_drafts(profile: EngineProfile) -> bool:
    """The bug needs drafts."""
    return profile.draft_tokens > 0


def has_encoder_cache(profile: EngineProfile) -> bool:
    """The bug needs images whose encoder outputs are kept."""
    return profile.image_tokens > 0 and profile.encoder_cache_tokens > 0


def has_adapter_limit(profile: EngineProfile) -> bool:
    """The bug needs more adapters than a step may have."""
    return 0 < profile.max_adapters < 3


def resets_preempt(profile: EngineProfile) -> bool:
    """The bug needs resets that take the blocks of those that run."""
    return profile.reset == "preempts"


@dataclass(frozen=True, slots=True)
class EngineSpecimen:
    """One planted bug of the engine level.

    `invariants` are those that may name it first, `severity` is the worst that it does, `silent`
    says that nothing raises where it acts. `also` are threads with the same mechanism.
    `host_places` is 0 unless it is about host memory.
    """

    id: str
    title: str
    thread: str
    cls: type[Engine]
    invariants: tuple[str, ...]
    severity: Severity
    silent: bool
    profile: EngineProfile
    host_places: int
    also: tuple[str, ...]
    condition: Callable[[EngineProfile], bool]

    @property
    def level(self) -> Level:
        """Always that of engines."""
        return Level.ENGINE

    def is_bug_under(self, profile: EngineProfile) -> bool:
        """Whether it can be built under that profile, and does harm there."""
        is_full = len(profile.groups) == 1 and profile.groups[0].is_full
        fits = profile.groups == self.profile.groups if self.profile.has_states else is_full
        return self.condition(profile) and (fits or not self.host_places)

    def make(self, num_blocks: int, enable_caching: bool = True) -> Engine:
        """A fresh instance under the profile that the specimen is stated under."""
        return build_engine(self.cls, self.profile, self.host_places, num_blocks, enable_caching)

    def make_under(self, profile: EngineProfile, block_size: int = BLOCK_SIZE) -> Make:
        """What builds fresh instances under another profile, under which it is a bug as well.

        Raises ValueError for a profile under which it is none.
        """
        if not self.is_bug_under(profile):
            raise ValueError(f"{self.id} ({self.title}) is no bug under {profile}")
        return partial(build_engine, self.cls, profile, self.host_places, block_size=block_size)


class EngineSection(dict[str, EngineSpecimen]):
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
        profile: EngineProfile = FULL,
        host_places: int = 0,
        also: tuple[str, ...] = (),
        is_bug_under: Callable[[EngineProfile], bool] = always,
    ) -> Callable[[Planted], Planted]:
        """A decorator that enters a class as a specimen."""

        def enter(cls: Planted) -> Planted:
            assert specimen_id not in self, specimen_id
            self[specimen_id] = EngineSpecimen(
                id=specimen_id,
                title=title,
                thread=thread,
                cls=cls,
                invariants=invariants,
                severity=severity,
                silent=silent,
                profile=profile,
                host_places=host_places,
                also=also,
                condition=is_bug_under,
            )
            assert self[specimen_id].is_bug_under(profile), specimen_id
            return cls

        return enter


@dataclass(frozen=True, slots=True)
class EngineOddity:
    """A correct engine unlike others: nobody may accuse it under `profiles`."""

    name: str
    why: str
    cls: type[Engine]
    profiles: tuple[EngineProfile, ...]
    host_places: int = 0

    def makes(self) -> list[tuple[EngineProfile, Make]]:
        """What builds instances, for each profile."""
        return [
            (profile, partial(build_engine, self.cls, profile, self.host_places))
            for profile in self.profiles
        ]


def build_engine(
    cls: type[Engine],
    profile: EngineProfile,
    host_places: int,
    num_blocks: int,
    enable_caching: bool,
    *,
    block_size: int = BLOCK_SIZE,
) -> Engine:
    """An engine that keeps to the profile."""
    rows: dict[str, Any] = profile.to_json()
    return cls.under(
        rows, num_blocks, block_size, enable_caching=enable_caching, host_places=host_places
    )
