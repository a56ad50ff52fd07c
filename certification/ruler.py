"""The ruler is checked before measuring: planted bugs that the checks must catch first.

Each certification plants a few real bugs under the profile of the target, behind a veil that
shows no more than the target itself shows, and drives them as it drives the target. A bug that
gets through makes the whole run inconclusive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from poolproof.bugs.catalogue import (
    canaries,
    index_canaries,
    manager_canaries,
    queue_canaries,
)
from poolproof.bugs.manager_specimen import ManagerSpecimen
from poolproof.bugs.specimen import Specimen
from poolproof.certification.description import Description, LayoutDescription
from poolproof.certification.run_kinds import INDEX, POOL, QUEUE, RunKind
from poolproof.contract.manager_target import MANAGER_OBSERVERS
from poolproof.contract.profile import Profile
from poolproof.contract.target import (
    INDEX_OBSERVERS,
    INDEX_VERBS,
    POOL_OBSERVERS,
    Capabilities,
)
from poolproof.harness.index_driver import IndexCampaign
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.queue_driver import QueueCampaign
from poolproof.harness.random_driver import PoolCampaign

__all__ = ["MOST_RUNS", "Veiled", "check_ruler"]

MOST_RUNS = 400
"""Runs after which a planted bug counts as not caught; the catchable ones need a few dozen."""

AnySpecimen = Specimen | ManagerSpecimen
SpecimenT = TypeVar("SpecimenT", Specimen, ManagerSpecimen)

_NEEDS_SIGHT = {"order": "free_order", "events": "take_events"}


class Veiled:
    """An allocator of which only some observers can be seen."""

    def __init__(self, instance: Any, hidden: frozenset[str]) -> None:
        self._instance = instance
        self._hidden = hidden

    def __getattr__(self, name: str) -> Any:
        if name in self._hidden:
            raise AttributeError(name)
        return getattr(self._instance, name)


def check_ruler(
    about: Description, kinds: Sequence[RunKind]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The planted bugs that were caught and those that were missed, by id and title.

    Planted is at each level at which the target is driven with runs of these `kinds`, and for a
    manager each bug in the first layout under whose profile it is one.
    """
    caught: list[str] = []
    missed: list[str] = []
    planted: list[tuple[AnySpecimen, Callable[[int], Any]]] = []
    if POOL in kinds:
        assert about.can is not None
        hidden = frozenset(POOL_OBSERVERS) - about.can.observers
        planted += [
            (specimen, _pool_runs(specimen, about.profile, hidden))
            for specimen in _visible(canaries(about.profile), hidden)
        ]
    in_layouts: dict[str, tuple[AnySpecimen, Callable[[int], Any]]] = {}
    for layout in about.layouts:
        if layout.kind in kinds and layout.can is not None:
            hidden = frozenset(MANAGER_OBSERVERS) - layout.can.observers
            for found in _visible(manager_canaries(layout.profile, layout.can), hidden):
                runs = _manager_runs(found, layout, hidden)
                in_layouts.setdefault(found.id, (found, runs))
    planted += in_layouts.values()
    if QUEUE in kinds:
        planted += [
            (specimen, QueueCampaign(specimen.id, specimen.make).run)
            for specimen in queue_canaries()
        ]
    if INDEX in kinds:
        assert about.index_can is not None
        planted += [
            (specimen, _index_runs(specimen, about.profile_at("index"), about.index_can))
            for specimen in index_canaries(about.profile_at("index"))
        ]
    for specimen, run in planted:
        was_caught = any(run(number).trace is not None for number in range(MOST_RUNS))
        (caught if was_caught else missed).append(f"{specimen.id} {specimen.title}")
    return tuple(caught), tuple(missed)


def _visible(specimens: Iterable[SpecimenT], hidden: frozenset[str]) -> list[SpecimenT]:
    """Those that can be seen although these observers are missing."""
    return [s for s in specimens if _NEEDS_SIGHT.get(s.severity.value) not in hidden]


def _manager_runs(
    specimen: ManagerSpecimen, layout: LayoutDescription, hidden: frozenset[str]
) -> Callable[[int], Any]:
    make = specimen.make_under(layout.profile)
    return ManagerCampaign(
        specimen.id,
        lambda num_blocks, enable_caching: Veiled(make(num_blocks, enable_caching), hidden),
        layout.profile,
        specimen.block_size,
    ).run


def _index_runs(specimen: Specimen, profile: Profile, can: Capabilities) -> Callable[[int], Any]:
    make = specimen.make_under(profile)
    hidden = frozenset((*INDEX_VERBS, *INDEX_OBSERVERS)) - can.verbs - can.observers
    return IndexCampaign(
        specimen.id,
        lambda num_blocks, enable_caching: Veiled(make(num_blocks, enable_caching), hidden),
        profile,
    ).run


def _pool_runs(
    specimen: Specimen, profile: Profile, hidden: frozenset[str]
) -> Callable[[int], Any]:
    make = specimen.make_under(profile)
    return PoolCampaign(
        specimen.id,
        lambda num_blocks, enable_caching: Veiled(make(num_blocks, enable_caching), hidden),
        profile,
    ).run
