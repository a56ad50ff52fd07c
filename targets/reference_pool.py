"""The built-in targets `reference`, `-queue` and `-index`: the specification against itself.

They take every profile, `unspecified` and `may-drop` included, although the model itself is
never unspecific and never drops.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from poolproof.contract.level import Level
from poolproof.contract.profile import Profile
from poolproof.reference.native_index import NativeDictIndex
from poolproof.reference.native_pool import NativeDictPool
from poolproof.reference.native_queue import NativeDictQueue
from poolproof.targets.builtin_profile import builtin_profile
from poolproof.targets.target import Target, source_of

__all__ = ["reference_index", "reference_pool", "reference_queue"]

_BLOCK_SIZE = 4


def reference_pool(name: str, overrides: Mapping[str, Any]) -> Target:
    """`DictPool` under a profile. Raises TargetError for a profile that does not exist."""
    profile = builtin_profile(name, {"events": "per-copy"}, overrides, Profile)

    def make(num_blocks: int, enable_caching: bool) -> NativeDictPool:
        return NativeDictPool(num_blocks, enable_caching=enable_caching, profile=profile)

    def make_chained(num_blocks: int, enable_caching: bool) -> NativeDictPool:
        return NativeDictPool(
            num_blocks, enable_caching=enable_caching, profile=profile, block_size=_BLOCK_SIZE
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
        block_size=_BLOCK_SIZE,
        hash_block_size=2,
    )


def _index_of(profile: Profile) -> Target:
    """The index beside a pool: its keys are the hashes of the pool."""
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
