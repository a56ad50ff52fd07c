"""The targets `max-pool` and `max-jenga-pool`: MAX's two pools of blocks, unmodified.

`BlockPool` is Python, with a linked free queue; `JengaBlockPool` is Rust, compiled in MAX's wheel.
Both hand out, hold and free one block at a time, and merge: whoever publishes a hash that another
block has gets that block instead of its own. The Jenga pool serves one cache here, with two little
blocks in a huge one; where that leaves one more than was asked for, it is held back from the
beginning.

Where the adapter stands in for the managers: it asks for room before it takes blocks, looks a hash
up before it holds the block, and publishes nothing with the cache off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from poolproof.contract.level import Level
from poolproof.contract.profile import Profile
from poolproof.targets.max_release import PAGED, MaxEngine, max_engine, max_modules
from poolproof.targets.target import Make, Target, source_of
from poolproof.targets.target_spec import builtin_profile

__all__ = [
    "MAX_JENGA_POOL",
    "MAX_POOL",
    "MaxJengaPool",
    "MaxPool",
    "free_blocks",
    "jenga_pool",
    "max_jenga_pool",
    "max_pool",
]


def free_blocks(pool: Any) -> Iterator[int]:
    """The free queue of a `BlockPool`, head first; of a damaged one it may never end."""
    block = pool.free_block_queue.free_list_head
    while block is not None:
        yield block.bid
        block = block.next_free_block


class MaxPool:
    """A `BlockPool`; with caching off nothing is published."""

    def __init__(self, pool: Any, *, enable_caching: bool) -> None:
        self._pool = pool
        self._is_caching = enable_caching

    def num_free(self) -> int:
        free: int = self._pool.num_free_blocks
        return free

    def allocate(self, n: int) -> tuple[list[int], list[bytes]]:
        if n > self.num_free():
            raise MemoryError(f"{n} blocks wanted, {self.num_free()} free")
        taken = [self._pool.alloc_block() for _ in range(n)]
        return [block.bid for block, _ in taken], [old for _, old in taken if old is not None]

    def touch(self, block_ids: list[int]) -> None:
        for block_id in block_ids:
            self._pool.touch(self._block(block_id))

    def free(self, block_ids: list[int]) -> None:
        for block_id in block_ids:
            self._pool.free_block(self._block(block_id))

    def cache(self, block_ids: list[int], hashes: list[bytes]) -> list[int]:
        if not self._is_caching:
            return list(block_ids)
        held = []
        for block_id, block_hash in zip(block_ids, hashes, strict=True):
            other = self._pool.get_or_commit_into_prefix_cache(block_hash, self._block(block_id))
            held.append(block_id if other is None else other.bid)
        return held

    def lookup(self, block_hash: bytes) -> int | None:
        block = self._pool.prefix_cache.get(block_hash)
        return None if block is None else block.bid

    def evict(self, block_ids: list[int]) -> None:
        for block_id in block_ids:
            block = self._block(block_id)
            if block.block_hash is not None:
                self._pool.uncommit_block(block)

    def reset(self) -> bool:
        if self.num_free() < self._pool.total_num_blocks:
            return False
        self._pool.reset_prefix_cache()
        return True

    def free_order(self) -> list[int]:
        return list(islice(free_blocks(self._pool), self._pool.total_num_blocks + 1))

    def free_neighbours(self, block_id: int) -> tuple[int | None, int | None] | None:
        if block_id not in self._pool.free_blocks:
            return None
        block = self._block(block_id)
        before, after = block.prev_free_block, block.next_free_block
        return before and before.bid, after and after.bid

    def ref_count(self, block_id: int) -> int:
        count: int = self._block(block_id).ref_cnt
        return count

    def block_hash(self, block_id: int) -> bytes | None:
        found: bytes | None = self._block(block_id).block_hash
        return found

    def _block(self, block_id: int) -> Any:
        return self._pool.pool[block_id]


class MaxJengaPool:
    """A `JengaBlockPool` with one cache, of which `first_block` is block 1 of the contract."""

    cache_id = "cache"

    def __init__(self, pool: Any, first_block: int, *, enable_caching: bool) -> None:
        self._pool = pool
        self._shift = first_block - 1
        self._is_caching = enable_caching
        self._prefixes = pool.prefix_caches[self.cache_id]

    def num_free(self) -> int:
        free: int = self._pool.num_free_blocks(self.cache_id)
        return free

    def allocate(self, n: int) -> list[int]:
        if n > self.num_free():
            raise MemoryError(f"{n} blocks wanted, {self.num_free()} free")
        return [self._pool.alloc_block(self.cache_id).bid - self._shift for _ in range(n)]

    def touch(self, block_ids: list[int]) -> None:
        for block_id in block_ids:
            self._pool.touch(self._block(block_id))

    def free(self, block_ids: list[int]) -> None:
        for block_id in block_ids:
            self._pool.free_block(self._block(block_id))

    def cache(self, block_ids: list[int], hashes: list[bytes]) -> list[int]:
        if not self._is_caching:
            return list(block_ids)
        held = []
        for block_id, block_hash in zip(block_ids, hashes, strict=True):
            other = self._pool.get_or_commit_into_prefix_cache(block_hash, self._block(block_id))
            held.append(block_id if other is None else other.bid - self._shift)
        return held

    def lookup(self, block_hash: bytes) -> int | None:
        block = self._prefixes.get(block_hash)
        return None if block is None else block.bid - self._shift

    def ref_count(self, block_id: int) -> int:
        count: int = self._block(block_id).ref_cnt
        return count

    def block_hash(self, block_id: int) -> bytes | None:
        found: bytes | None = self._block(block_id).block_hash
        return found

    def _block(self, block_id: int) -> Any:
        return self._pool.block(self.cache_id, block_id and block_id + self._shift)


def max_pool(name: str, overrides: Mapping[str, Any]) -> Target:
    """The target `max-pool`. Raises TargetError where MAX is not there."""
    modules, version = max_modules(MAX_POOL, name)
    real_class = modules(f"{PAGED}.block_pool").BlockPool

    def make(num_blocks: int, enable_caching: bool) -> MaxPool:
        return MaxPool(real_class(num_blocks), enable_caching=enable_caching)

    return _target(MAX_POOL, name, overrides, version, make=make, real_class=real_class)


_RATIO = 2


def max_jenga_pool(name: str, overrides: Mapping[str, Any]) -> Target:
    """The target `max-jenga-pool`. Raises TargetError where MAX is not there."""
    modules, version = max_modules(MAX_JENGA_POOL, name)
    real_class = modules(f"{PAGED}.jenga_block_pool").JengaBlockPool

    def make(num_blocks: int, enable_caching: bool) -> MaxJengaPool:
        pool, first_block = jenga_pool(real_class, num_blocks, (MaxJengaPool.cache_id,), _RATIO)
        return MaxJengaPool(pool, first_block, enable_caching=enable_caching)

    return _target(MAX_JENGA_POOL, name, overrides, version, make=make, real_class=real_class)


def jenga_pool(
    real_class: Any, num_blocks: int, caches: tuple[str, ...], ratio: int
) -> tuple[Any, int]:
    """A pool with `num_blocks` little blocks, the null block included, and the first of them.

    What huge blocks of `ratio` little ones have beyond that is held by the first cache.
    """
    num_huge = -(-(num_blocks - 1) // ratio)
    pool = real_class(num_huge + 1, dict.fromkeys(caches, ratio))
    surplus = num_huge * ratio - (num_blocks - 1)
    for _ in range(surplus):
        pool.alloc_block(caches[0])
    return pool, ratio + surplus


def _target(
    engine: MaxEngine,
    name: str,
    overrides: Mapping[str, Any],
    version: str | None,
    *,
    make: Make,
    real_class: type,
) -> Target:
    return Target(
        name=name,
        level=Level.POOL,
        shape="native",
        profile=builtin_profile(name, engine.rows, overrides, Profile),
        version=version,
        source=source_of(real_class),
        make=make,
        real_class=real_class,
        notes=engine.notes,
    )


_ROWS: Mapping[str, Any] = {
    # Whoever publishes what another block has is given that one.
    "duplicates": "first",
    "recache": "forbidden",
    "misuse": "undefined",
}

MAX_POOL = max_engine("max-pool", "the BlockPool of Modular's MAX", rows=_ROWS, level=Level.POOL)
MAX_JENGA_POOL = max_engine(
    "max-jenga-pool",
    "its JengaBlockPool in Rust, with two little blocks in a huge one",
    # MAX hashes to 8 bytes, or to 32; the pool refuses longer ones.
    rows={**_ROWS, "eviction": "unhashed-lifo", "null_block": 0, "hash_bytes": 8},
    level=Level.POOL,
    notes=("uncommit_block: not driven; MAX takes a hash away as it hands out the block",),
)
