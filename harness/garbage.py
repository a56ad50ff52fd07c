"""Holds off the cyclic garbage collector while a run is driven, or modules are imported.

A session and its parts refer to each other, so they are garbage in cycles, but only once their run
is over; looking for it at every few hundred objects costs a tenth of the time. So the collector
waits for the end of the run and looks at what the run has made. What a target leaves in cycles
stays for at most one run. A collector that the user has switched off stays off.

What an import makes mostly stays: an engine's took a tenth longer with a collector that looks
through it again and again.
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
    """What becomes garbage inside is collected at the end; nothing while it runs."""
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
    """The collector looks at many objects at a time inside; what is set there stays set."""
    before = gc.get_threshold()
    inside = (_OBJECTS_OF_AN_IMPORT, *before[1:])
    if before[0]:  # 0 is a collector that is switched off
        gc.set_threshold(*inside)
    try:
        yield
    finally:
        if gc.get_threshold() == inside:
            gc.set_threshold(*before)
