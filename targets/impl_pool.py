"""The built-in targets `impl`, `impl-queue` and `impl-index`: Poolproof's own allocator.

For the native grammar the instance is the bare `BlockPool`, with no wrapper that would cost time
or hide anything; for the grammar of token chains it is the subclass in `impl_chains.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from poolproof.contract.level import Level
from poolproof.contract.profile import Profile
from poolproof.contract.target import TargetError
from poolproof.impl.block_pool import BlockPool
from poolproof.impl.free_queue import FreeQueue
from poolproof.impl.prefix_index import PrefixIndex
from poolproof.targets.builtin_profile import builtin_profile
from poolproof.targets.impl_chains import ChainedBlockPool
from poolproof.targets.target import Target, source_of

__all__ = ["impl_index", "impl_pool", "impl_queue"]

_BLOCK_SIZE = 4
_HASH_BLOCK_SIZE = 2

# Rows that the pool has no argument for, with the one value that it has.
_FIXED = {"retention": "exact", "same_step_hit": "forbidden"}


def impl_pool(name: str, overrides: Mapping[str, Any]) -> Target:
    """`BlockPool` under a profile. Raises TargetError for one that it does not have."""
    own = {"events": "per-copy", "keys": "partial"}
    profile = builtin_profile(name, own, overrides, Profile)
    arguments = _arguments(name, profile)

    def make(num_blocks: int, enable_caching: bool) -> BlockPool:
        return BlockPool(num_blocks, enable_caching=enable_caching, **arguments)

    def make_chained(num_blocks: int, enable_caching: bool) -> ChainedBlockPool:
        return ChainedBlockPool(
            num_blocks,
            enable_caching=enable_caching,
            block_size=_BLOCK_SIZE,
            hash_block_size=_HASH_BLOCK_SIZE,
            **arguments,
        )

    return Target(
        name=name,
        level=Level.POOL,
        shape="native",
        profile=profile,
        version=None,
        source=source_of(BlockPool),
        make=make,
        make_chained=make_chained,
        companion_queue=impl_queue("impl-queue", {}),
        companion_index=_index_of(profile),
        real_class=BlockPool,
        block_size=_BLOCK_SIZE,
        hash_block_size=_HASH_BLOCK_SIZE,
    )


def impl_queue(name: str, overrides: Mapping[str, Any]) -> Target:
    """`FreeQueue`, whose misuse always raises. Raises TargetError for another profile."""
    profile = builtin_profile(name, {}, overrides, Profile)
    if profile.misuse != "raises":
        raise TargetError(f"{name}: the queue of impl always raises on misuse; leave the row out")

    def make(num_blocks: int, enable_caching: bool) -> FreeQueue:  # noqa: ARG001 -- a queue caches nothing
        return FreeQueue(num_blocks)

    return Target(
        name=name,
        level=Level.QUEUE,
        shape="queue",
        profile=profile,
        version=None,
        source=source_of(FreeQueue),
        make=make,
        real_class=FreeQueue,
    )


class _IndexOfImpl(PrefixIndex):
    """`PrefixIndex` under the names of the contract; its `remove` says whether a key is gone."""

    key_kinds = ("bytes", "pair")

    def pop(self, key: Hashable, block_id: int) -> int | None:
        try:
            self.remove(key, block_id)
        except KeyError:
            return None
        return block_id

    def get(self, key: Hashable) -> int | None:
        return self.lookup(key)

    def num_keys(self) -> int:
        return len(self)


def impl_index(name: str, overrides: Mapping[str, Any]) -> Target:
    """`PrefixIndex`, which keeps every carrier. Raises TargetError for another profile."""
    profile = builtin_profile(name, {}, overrides, Profile)
    if profile.duplicates != "kept":
        raise TargetError(f"{name}: the index of impl keeps every carrier; leave the row out")

    def make(num_blocks: int, enable_caching: bool) -> _IndexOfImpl:  # noqa: ARG001 -- an index has no size
        return _IndexOfImpl()

    return Target(
        name=name,
        level=Level.INDEX,
        shape="index",
        profile=profile,
        version=None,
        source=source_of(PrefixIndex),
        make=make,
        real_class=PrefixIndex,
    )


def _index_of(profile: Profile) -> Target:
    """The index beside a pool: its keys are the hashes of the pool."""
    if profile.fixed_hash_bytes is None:
        return impl_index("impl-index", {})
    rows = {"hash_bytes": profile.hash_bytes}
    return impl_index(f"impl-index[hash_bytes={profile.hash_bytes}]", rows)


def _arguments(name: str, profile: Profile) -> dict[str, Any]:
    rows = profile.to_json()
    del rows["hash_bytes"]  # impl takes hashes of any length
    for key, value in _FIXED.items():
        if rows.pop(key) != value:
            raise TargetError(f"{name}: impl has {key}={value} only; `reference` takes every row")
    try:
        BlockPool(2, **{**rows, "null_block": None})
    except ValueError as error:
        raise TargetError(f"{name}: {error}; `reference` takes every row") from error
    return rows
