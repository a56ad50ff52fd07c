"""After how many commands a workload catches a specimen, from one seed: what survival is made of.

A campaign of the plain driver is run until a run of it fails, or until so many commands were
given in vain. A collision that misleads a manager counts where the specimen is one of weak hashes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from poolproof.bugs.catalogue import MANAGER_SPECIMENS, SPECIMENS
from poolproof.bugs.specimen import ManagerSpecimen, Specimen
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.queue_driver import QueueCampaign
from poolproof.harness.random_driver import PoolCampaign
from poolproof.harness.uniform_workload import (
    UniformManagerWorkload,
    UniformPoolWorkload,
    UniformQueueWorkload,
)

__all__ = ["SPECIMENS_BY_ID", "Caught", "campaign_of", "steps_to_catch"]

SPECIMENS_BY_ID: dict[str, Specimen | ManagerSpecimen] = {**SPECIMENS, **MANAGER_SPECIMENS}

Campaign = PoolCampaign | QueueCampaign | ManagerCampaign


@dataclass(frozen=True, slots=True)
class Caught:
    """After `steps` commands the specimen was caught; or it was not, and they were all."""

    steps: int
    is_caught: bool


def campaign_of(found: Specimen | ManagerSpecimen, seed: int, *, uniform: bool) -> Campaign:
    """The plain driver's campaign against a specimen, with the tuned or the uniform workload."""
    if isinstance(found, ManagerSpecimen):
        options = {"weak_hashes": found.weak_hashes} if found.weak_hashes else {}
        chosen: dict[str, Any] = {"workload": UniformManagerWorkload} if uniform else {}
        return ManagerCampaign(
            found.id, found.make, found.profile, found.block_size, seed, options, **chosen
        )
    if found.level == "queue":
        chosen = {"workload": UniformQueueWorkload} if uniform else {}
        return QueueCampaign(found.id, found.make, seed, **chosen)
    chosen = {"workload": UniformPoolWorkload} if uniform else {}
    return PoolCampaign(found.id, found.make, found.profile, seed, **chosen)


def steps_to_catch(campaign: Campaign, most_steps: int) -> Caught:
    """How many commands the campaign's runs give until one of them fails."""
    steps = number = 0
    while steps < most_steps:
        result = campaign.run(number)
        steps += result.num_steps
        number += 1
        if result.trace is not None or result.collision is not None:
            return Caught(min(steps, most_steps), is_caught=steps <= most_steps)
    return Caught(most_steps, is_caught=False)
