"""A first look at a loaded target: which levels and layouts it has, and how many states there are.

A job for an isolation, since even building an instance may cost the process.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from poolproof.contract.level import Level
from poolproof.contract.target import TargetError
from poolproof.fuzz.level_runs import RUNS_AT, runs_of
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.subject import subject_of
from poolproof.harness.isolation import Beacon

__all__ = ["Survey", "settled", "survey"]


@dataclass(frozen=True, slots=True)
class Survey:
    """What a campaign on the target will be about.

    `settings` are those that were asked for, with level, layout and blocks filled in.
    """

    settings: CampaignSettings
    num_possible: int | None
    scope: str


def survey(target: Any, asked: CampaignSettings, beacon: Beacon) -> Survey:
    """Look at the target. No level, an empty layout, or 0 blocks stand for the usual ones.

    Raises TargetError for what the target does not have, ScopeError for bounds.
    """
    beacon.bump()
    level = asked.level or target.level
    settings = settled(asked, level)
    if level.has_layouts:
        settings = replace(settings, layout=asked.layout or _usual_layout(target))
    elif asked.layout:
        raise TargetError(f"{asked.target} is no manager or engine; leave out --layout")
    runs = runs_of(subject_of(target, settings), set(), random.Random(0))
    return Survey(settings, runs.num_possible, runs.scope_of(settings))


def settled(asked: CampaignSettings, level: Level) -> CampaignSettings:
    """The settings at a level, with its usual number of blocks where none was asked for."""
    num_blocks = asked.num_blocks or RUNS_AT[level].usual_blocks
    return replace(asked, level=level, num_blocks=num_blocks)


def _usual_layout(target: Any) -> str:
    """The first layout that is run."""
    for layout in target.layouts:
        if layout.make is not None:
            return str(layout.name)
    raise TargetError(
        f"{target.name} is {target.level.with_article} target and has no layout to fuzz"
    )
