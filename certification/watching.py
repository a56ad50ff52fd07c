"""Who watches a trace of a level while it runs, where a finding shows more than its commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from poolproof.certification.engine_watch import watch_engine
from poolproof.certification.manager_watch import Watched, watch
from poolproof.contract.level import Level
from poolproof.contract.trace import Trace
from poolproof.harness.isolation import Beacon
from poolproof.targets.target import Make

__all__ = ["WATCHES", "watch_at_level"]

WATCHES: Mapping[Level, Callable[[Trace, Make, Beacon | None], Watched]] = {
    Level.MANAGER: watch,
    Level.ENGINE: watch_engine,
}
"""Of queues, indexes and pools the specification draws all that there is to see."""


def watch_at_level(trace: Trace, make: Make, beacon: Beacon | None = None) -> Watched:
    """What the target of a trace shows while it runs; the level must be one that is watched."""
    return WATCHES[trace.level](trace, make, beacon)
