"""Builds a correct allocator for the commands of a trace: the specification as a target.

It is used when the trace's own target cannot be asked: to draw a trace without running its target,
and to find out which commands a lost worker's run had reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.level import Level
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.trace import Trace
from poolproof.reference.native_engine import NativePlainEngine
from poolproof.reference.native_index import NativeDictIndex
from poolproof.reference.native_manager import NativeSequenceManager
from poolproof.reference.native_pool import NativeDictPool
from poolproof.reference.native_queue import NativeDictQueue
from poolproof.targets.target import Make

__all__ = ["RIGHT_AT", "right_target"]


def right_target(trace: Trace) -> Make:
    """The specification at the level of the trace, under its profile."""
    return lambda num_blocks, enable_caching: RIGHT_AT[trace.level](
        trace, num_blocks, enable_caching
    )


def _pool(trace: Trace, num_blocks: int, enable_caching: bool) -> NativeDictPool:
    return NativeDictPool(
        num_blocks,
        enable_caching=enable_caching,
        profile=trace.profile,
        block_size=int(trace.options.get("block_size", 1)),
    )


def _manager(trace: Trace, num_blocks: int, enable_caching: bool) -> NativeSequenceManager:
    assert isinstance(trace.profile, ManagerProfile)
    return NativeSequenceManager(
        num_blocks,
        int(trace.options.get("block_size", 1)),
        enable_caching=enable_caching,
        profile=trace.profile,
    )


def _engine(trace: Trace, num_blocks: int, enable_caching: bool) -> NativePlainEngine:
    assert isinstance(trace.profile, EngineProfile)
    return NativePlainEngine(
        num_blocks,
        int(trace.options.get("block_size", 1)),
        enable_caching=enable_caching,
        profile=trace.profile,
    )


RIGHT_AT: Mapping[Level, Callable[[Trace, int, bool], Any]] = {
    Level.QUEUE: lambda trace, num_blocks, _: NativeDictQueue(num_blocks, profile=trace.profile),
    Level.INDEX: lambda trace, _blocks, _caching: NativeDictIndex(profile=trace.profile),
    Level.POOL: _pool,
    Level.MANAGER: _manager,
    Level.ENGINE: _engine,
}
"""The specification of each level, for a number of blocks, with caching or without."""
