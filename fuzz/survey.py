"""A first look at a loaded target: which levels and layouts it has, and how many states there are.

A job for an isolation, since even building an instance may cost the process.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from poolproof.contract.target import TargetError
from poolproof.fuzz.level_runs import runs_of
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.subject import subject_of
from poolproof.harness.isolation import Beacon

__all__ = ["Survey", "survey"]

DEFAULT_BLOCKS = {"queue": 5, "index": 3, "pool": 8, "manager": 8}


@dataclass(frozen=True, slots=True)
class Survey:
    """What a campaign on the target will be about.

    `settings` are those that were asked for, with level, layout and blocks filled in.
    """

    settings: CampaignSettings
    num_possible: int | None
    scope: str


def survey(target: Any, asked: CampaignSettings, beacon: Beacon) -> Survey:
    """Look at the target. An empty level or layout, or 0 blocks, stand for the usual ones.

    Raises TargetError for what the target does not have, ScopeError for bounds.
    """
    beacon.bump()
    level = asked.level or target.level
    settings = replace(asked, level=level, num_blocks=asked.num_blocks or DEFAULT_BLOCKS[level])
    if level == "manager":
        settings = replace(settings, layout=asked.layout or _usual_layout(target))
    elif asked.layout:
        raise TargetError(f"{asked.target} is no manager; leave out --layout")
    runs = runs_of(subject_of(target, settings), set(), random.Random(0))
    return Survey(settings, runs.num_possible, _scope_of(settings))


def _usual_layout(target: Any) -> str:
    """The first layout that is run."""
    for layout in target.layouts:
        if layout.make is not None:
            return str(layout.name)
    raise TargetError(f"{target.name} is a {target.level} target and has no manager level to fuzz")


def _scope_of(settings: CampaignSettings) -> str:
    if settings.level == "queue":
        return f"{settings.num_blocks} blocks"
    if settings.level == "index":
        return f"{settings.num_blocks} blocks, {settings.num_hashes} keys"
    if settings.level == "manager":
        return f"layout {settings.layout}, up to {settings.num_blocks} blocks"
    return (
        f"{settings.num_blocks} blocks, {settings.num_hashes} hashes, references up to "
        f"{settings.max_references}"
    )
