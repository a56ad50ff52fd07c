"""Holds off the cyclic garbage collector while a run is driven.

A session and its parts refer to each other, so they are garbage in cycles, but only once their run
is over; looking for it at every few hundred objects costs a tenth of the time. So the collector
waits for the end of the run and looks at what the run has made. What a target leaves in cycles
stays for at most one run. A collector that the user has switched off stays off.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collected_afterwards"]


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
