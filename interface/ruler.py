"""The ruler is checked before measuring: planted bugs that the checks must catch first.

Each certification plants a few real bugs under the profile of the target, behind a veil that
shows no more than the target itself shows, and drives them as it drives the target. A bug that
gets through makes the whole run inconclusive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from poolproof.bugs.catalogue import canaries, queue_canaries
from poolproof.bugs.specimen import Specimen
from poolproof.contract.profile import Profile
from poolproof.contract.target import POOL_OBSERVERS, Capabilities
from poolproof.harness.queue_driver import QueueCampaign
from poolproof.harness.random_driver import PoolCampaign

__all__ = ["MOST_RUNS", "Veiled", "check_ruler"]

MOST_RUNS = 400
"""Runs after which a planted bug counts as not caught; the catchable ones need a few dozen."""

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
    profile: Profile, can: Capabilities, *, pool: bool, queue: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The planted bugs that were caught and those that were missed, by id and title."""
    caught: list[str] = []
    missed: list[str] = []
    hidden = frozenset(POOL_OBSERVERS) - can.observers
    planted: list[tuple[Specimen, Callable[[int], Any]]] = []
    if pool:
        planted += [
            (specimen, _pool_runs(specimen, profile, hidden))
            for specimen in canaries(profile)
            if _NEEDS_SIGHT.get(specimen.severity.value) not in hidden
        ]
    if queue:
        planted += [
            (specimen, QueueCampaign(specimen.id, specimen.make).run)
            for specimen in queue_canaries()
        ]
    for specimen, run in planted:
        was_caught = any(run(number).trace is not None for number in range(MOST_RUNS))
        (caught if was_caught else missed).append(f"{specimen.id} {specimen.title}")
    return tuple(caught), tuple(missed)


def _pool_runs(
    specimen: Specimen, profile: Profile, hidden: frozenset[str]
) -> Callable[[int], Any]:
    make = specimen.make_under(profile)
    return PoolCampaign(
        specimen.id,
        lambda num_blocks, enable_caching: Veiled(make(num_blocks, enable_caching), hidden),
        profile,
    ).run
