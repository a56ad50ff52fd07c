"""Holds off the cyclic garbage collector while a run is driven, or modules are imported.

A session and its parts refer to each other, so they become cyclic garbage, but only when their run
is over; looking for it every few hundred objects costs a tenth of the time. So the collector waits
for the end of the run and looks at what the run has made. Cycles that a target leaves stay for at
most one run. A collector that the user has switched off stays off.

Most objects that an import makes stay: importing an engine took a tenth longer with a collector
that scans them again and again.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collected_afterwards", "rarely_collected"]

_OBJECTS_OF_AN_IMPORT = 50_000
"""So many new objects before the collector looks, while modules are imported."""


@contextmanager
def collected_afterwards() -> Iterator[None]:
    """Collect garbage at the end of the block, and none while it runs."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.collect(0)
        gc.enable()


@contextmanager
def rarely_collected() -> Iterator[None]:
    """Make the collector run rarely inside; thresholds that are set there stay set."""
    before = gc.get_threshold()
    inside = (_OBJECTS_OF_AN_IMPORT, *before[1:])
    if before[0]:  # 0 is a collector that is switched off
        gc.set_threshold(*inside)
    try:
        yield
    finally:
        if gc.get_threshold() == inside:
            gc.set_threshold(*before)
