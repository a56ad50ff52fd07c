"""The built-in targets that drive the specification against itself: `reference` and its kin.

`reference`, `reference-queue`, `reference-index` and `reference-manager` take every profile,
`unspecified` and `may-drop` included, although the model itself is never unspecific and never
drops. The manager's layouts show each kind of cache group; rows in brackets hold in all of them,
and `groups` in brackets takes the place of the layouts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from poolproof.contract.level import Level
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import Profile
from poolproof.contract.target import TargetError
from poolproof.reference.native_index import NativeDictIndex
from poolproof.reference.native_manager import NativeSequenceManager
from poolproof.reference.native_pool import NativeDictPool
from poolproof.reference.native_queue import NativeDictQueue
from poolproof.targets.manager_target import manager_target
from poolproof.targets.target import Make, ManagerLayout, Target, source_of
from poolproof.targets.target_spec import builtin_profile

__all__ = ["reference_index", "reference_manager", "reference_pool", "reference_queue"]


_CHAIN_BLOCK_SIZE = 4


def reference_pool(name: str, overrides: Mapping[str, Any]) -> Target:
    """`DictPool` under a profile. Raises TargetError for a profile that does not exist."""
    profile = builtin_profile(name, {"events": "per-copy"}, overrides, Profile)

    def make(num_blocks: int, enable_caching: bool) -> NativeDictPool:
        return NativeDictPool(num_blocks, enable_caching=enable_caching, profile=profile)

    def make_chained(num_blocks: int, enable_caching: bool) -> NativeDictPool:
        return NativeDictPool(
            num_blocks, enable_caching=enable_caching, profile=profile, block_size=_CHAIN_BLOCK_SIZE
        )

    return Target(
        name=name,
        level=Level.POOL,
        shape="native",
        profile=profile,
        version=None,
        source=source_of(NativeDictPool),
        make=make,
        make_chained=make_chained,
        companion_queue=reference_queue("reference-queue", {}),
        companion_index=_index_of(profile),
        real_class=NativeDictPool,
        notes=("the keys of token chains are the contents themselves: nothing is hashed",),
        block_size=_CHAIN_BLOCK_SIZE,
        hash_block_size=2,
    )


def _index_of(profile: Profile) -> Target:
    """The index of a pool: its keys are the hashes of the pool."""
    if profile.fixed_hash_bytes is None:
        return reference_index("reference-index", {})
    rows = {"hash_bytes": profile.hash_bytes}
    return reference_index(f"reference-index[hash_bytes={profile.hash_bytes}]", rows)


def reference_queue(name: str, overrides: Mapping[str, Any]) -> Target:
    """`DictQueue` under a profile. Raises TargetError for a profile that does not exist."""
    profile = builtin_profile(name, {}, overrides, Profile)

    def make(num_blocks: int, enable_caching: bool) -> NativeDictQueue:  # noqa: ARG001 -- a queue caches nothing
        return NativeDictQueue(num_blocks, profile=profile)

    return Target(
        name=name,
        level=Level.QUEUE,
        shape="queue",
        profile=profile,
        version=None,
        source=source_of(NativeDictQueue),
        make=make,
        real_class=NativeDictQueue,
    )


def reference_index(name: str, overrides: Mapping[str, Any]) -> Target:
    """`DictIndex` under a profile. Raises TargetError for a profile that does not exist."""
    profile = builtin_profile(name, {}, overrides, Profile)

    def make(num_blocks: int, enable_caching: bool) -> NativeDictIndex:  # noqa: ARG001 -- an index has no size
        return NativeDictIndex(profile=profile)

    return Target(
        name=name,
        level=Level.INDEX,
        shape="index",
        profile=profile,
        version=None,
        source=source_of(NativeDictIndex),
        make=make,
        real_class=NativeDictIndex,
    )


_BLOCK_SIZE = 4
_LAYOUTS = ("full", "sliding:6", "full+sliding:6", "full+chunked:8", "full+state")


def reference_manager(name: str, overrides: Mapping[str, Any]) -> Target:
    """`SequenceModel` under a profile. Raises TargetError for one that it does not have."""
    groups = [overrides["groups"]] if "groups" in overrides else _LAYOUTS
    return manager_target(
        name,
        "native-manager",
        [_layout(name, {**overrides, "groups": text}) for text in groups],
        source=source_of(NativeSequenceManager),
        real_class=NativeSequenceManager,
        notes=("contents are their own keys: nothing is hashed",),
    )


def _layout(name: str, rows: Mapping[str, Any]) -> ManagerLayout:
    profile = builtin_profile(name, _own(rows), rows, ManagerProfile)
    if profile.window_blocks == "reused":
        raise TargetError(f"{name}: the specification keeps no rings; leave window_blocks out")
    if profile.states == "step-end":
        raise TargetError(f"{name}: it keeps a state at every block; leave states out")
    if profile.layout_name != "full" and profile.null_block is None:
        raise TargetError(f"{name}: what slides out needs a null block in its place")

    def make_of(block_size: int) -> Make:
        return lambda num_blocks, enable_caching: NativeSequenceManager(
            num_blocks, block_size, enable_caching=enable_caching, profile=profile
        )

    return ManagerLayout(
        profile.layout_name, profile, make_of(_BLOCK_SIZE), _BLOCK_SIZE, make_of=make_of
    )


def _own(rows: Mapping[str, Any]) -> dict[str, Any]:
    """Where something slides out of a table, the null block takes its place."""
    return {} if rows["groups"] == "full" else {"null_block": 0}
