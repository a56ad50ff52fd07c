"""The workers of `poolproof fuzz --ray`: what each machine of the cluster is told.

Files that a target string names are looked for where the command was started, on each machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from poolproof.fuzz.cluster.host import HostSetup
from poolproof.fuzz.cluster.ray_workers import RayWorkers
from poolproof.fuzz.settings import CampaignSettings
from poolproof.harness.isolation import Limits
from poolproof.targets.load import load_target

__all__ = ["ClusterOptions", "cluster_workers"]


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The address of a Ray cluster, and how many workers; None for one per CPU."""

    address: str
    num_workers: int | None


def cluster_workers(
    settings: CampaignSettings, limits: Limits, options: ClusterOptions, say: Callable[[str], None]
) -> RayWorkers:
    """Workers on the machines of the cluster. Raises ClusterError."""
    setup = HostSetup(
        partial(load_target, settings.target, api=settings.api),
        limits,
        os.getcwd(),  # noqa: PTH109 -- a string that another machine may not have
    )
    return RayWorkers(options.address, setup, options.num_workers, say)
