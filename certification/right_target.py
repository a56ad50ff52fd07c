"""What builds a right allocator for the commands of a trace: the specification as a target.

It stands in where the trace's own target cannot be asked: for drawing a trace without running its
target, and for finding out which commands a run had reached whose worker was lost.
"""

from __future__ import annotations

from typing import Any

from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.trace import Trace
from poolproof.reference.native_index import NativeDictIndex
from poolproof.reference.native_manager import NativeSequenceManager
from poolproof.reference.native_pool import NativeDictPool
from poolproof.reference.native_queue import NativeDictQueue
from poolproof.targets.target import Make

__all__ = ["right_target"]


def right_target(trace: Trace) -> Make:
    """The specification at the level of the trace, under its profile."""

    def make(num_blocks: int, enable_caching: bool) -> Any:
        block_size = int(trace.options.get("block_size", 1))
        if trace.level == "queue":
            return NativeDictQueue(num_blocks, profile=trace.profile)
        if trace.level == "index":
            return NativeDictIndex(profile=trace.profile)
        if isinstance(trace.profile, ManagerProfile):
            return NativeSequenceManager(
                num_blocks, block_size, enable_caching=enable_caching, profile=trace.profile
            )
        return NativeDictPool(
            num_blocks, enable_caching=enable_caching, profile=trace.profile, block_size=block_size
        )

    return make
