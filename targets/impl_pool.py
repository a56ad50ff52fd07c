"""The built-in targets `impl`, `impl-queue` and `impl-index`: Poolproof's own allocator.

For the native grammar the instance is the bare `BlockPool`, with no wrapper that would cost time
or hide anything. For the grammar of token chains it is a subclass: reference counts, queue and
index are the pool's own methods, untouched; what is added turns a chain into real hashes of real
tokens, and what is overridden turns the hashes that the pool shows back into the contents that
they represent.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from poolproof.contract.content import Key, TokenChain
from poolproof.contract.level import Level
from poolproof.contract.profile import Profile
from poolproof.contract.target import TargetError
from poolproof.impl.block_hash import BlockHasher, ExtraKey, LoRA, MultiModal, Salt
from poolproof.impl.block_pool import BlockPool
from poolproof.impl.free_queue import FreeQueue
from poolproof.impl.prefix_index import PrefixIndex
from poolproof.targets.hash_book import HashBook
from poolproof.targets.target import Target, source_of
from poolproof.targets.target_spec import builtin_profile

__all__ = ["ChainedBlockPool", "impl_index", "impl_pool", "impl_queue"]


class ChainedBlockPool(BlockPool):
    """A pool of blocks of `block_size` tokens, hashed at every `hash_block_size` tokens.

    Takes the arguments of `BlockPool`. Keys are contents; an opaque hash still represents itself
    in `lookup`.
    """

    def __init__(
        self, num_blocks: int, *, block_size: int, hash_block_size: int, **arguments: Any
    ) -> None:
        super().__init__(num_blocks, **arguments)
        self._block_size = block_size
        self._grain = hash_block_size
        # Any seed would do: nothing is shared with another process.
        self._hasher = BlockHasher("sha256", seed=b"poolproof", block_size=hash_block_size)
        self._book = HashBook()
        self._chain_hashes: dict[TokenChain, list[bytes]] = {}
        if arguments.get("keys", "block") != "partial":
            hidden: Any = None
            self.cache_partial = hidden  # type: ignore[method-assign]  # absent, as the contract writes it

    def cache_chain(
        self, chain: TokenChain, block_ids: Sequence[int], num_cached: int, group: int, /
    ) -> None:
        """The blocks of one request, of which the first `num_cached` are cached already."""
        scale = self._block_size // self._grain
        full = self._hashes(chain)[scale - 1 :: scale]
        self.cache(list(block_ids[num_cached:]), full[num_cached : len(block_ids)], group=group)

    def lookup_chain(
        self, chain: TokenChain, num_tokens: int, groups: Iterable[int], /
    ) -> list[int] | None:
        """One block for each group under the hash of the chain's first tokens, or None."""
        full, rest = divmod(num_tokens, self._grain)
        hashes = self._hashes(chain)
        return None if rest or not full else self.lookup_groups(hashes[full - 1], groups)

    def cache_partial(  # type: ignore[override]  # the contract's verb: a chain in place of a hash
        self, chain: TokenChain, block_id: int, num_tokens: int, group: int, /
    ) -> None:
        """Make a block reachable under a key that ends inside it."""
        block_hash = self._hashes(chain)[num_tokens // self._grain - 1]
        super().cache_partial(block_id, block_hash, num_tokens=num_tokens, group=group)

    def lookup(self, block_hash: Key, *, group: int = 0) -> int | None:
        """As the pool's own; a content names its group itself."""
        if isinstance(block_hash, bytes):
            return super().lookup(block_hash, group=group)
        real = self._book.real(block_hash)
        return None if real is None else super().lookup(real[0], group=real[1])

    def block_hash(self, block_id: int, /) -> Any:
        """The content that the block's primary hash represents."""
        keys = self.block_hashes(block_id)
        return self._book.key(*keys[0]) if keys else None

    def take_events(self) -> list[dict[str, Any]]:
        return [
            {**event, "hashes": [self._book.key(h, event["group"]) for h in event["hashes"]]}
            for event in super().take_events()
        ]

    def _hashes(self, chain: TokenChain) -> list[bytes]:
        hashes = self._chain_hashes.get(chain)
        if hashes is None:
            hashes = self._hasher.hash_sequence(chain.tokens, _extra_keys(chain, self._grain))
            self._book.learn_chain(chain, hashes, self._grain)
            self._chain_hashes[chain] = hashes
        return hashes


def _extra_keys(chain: TokenChain, grain: int) -> dict[int, list[ExtraKey]]:
    """The extra keys of each hash block: adapter everywhere, salt first, images where they lie."""
    extra: dict[int, list[ExtraKey]] = {}
    for block in range(len(chain.tokens) // grain):
        start = block * grain
        keys: list[ExtraKey] = []
        if chain.lora is not None:
            keys.append(LoRA(*chain.lora))
        if chain.salt is not None and block == 0:
            keys.append(Salt(chain.salt))
        keys += [
            MultiModal(image.identifier, image.offset - start)
            for image in chain.images
            if image.offset < start + grain and start < image.offset + image.length
        ]
        extra[block] = keys
    return extra


_BLOCK_SIZE = 4
_HASH_BLOCK_SIZE = 2

# Rows that the pool has no argument for, with the one value that it has.
_FIXED = {"retention": "exact", "same_step_hit": "forbidden"}


def impl_pool(name: str, overrides: Mapping[str, Any]) -> Target:
    """`BlockPool` under a profile. Raises TargetError for a profile that it does not support."""
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
    """The index of a pool: its keys are the hashes of the pool."""
    if profile.fixed_hash_bytes is None:
        return impl_index("impl-index", {})
    rows = {"hash_bytes": profile.hash_bytes}
    return impl_index(f"impl-index[hash_bytes={profile.hash_bytes}]", rows)


def _arguments(name: str, profile: Profile) -> dict[str, Any]:
    rows = profile.to_json()
    # impl takes hashes of any length, and a block in one list as often as it is held.
    del rows["hash_bytes"], rows["repeats_in_free"]
    for key, value in _FIXED.items():
        if rows.pop(key) != value:
            raise TargetError(f"{name}: impl has {key}={value} only; `reference` takes every row")
    try:
        BlockPool(2, **{**rows, "null_block": None})
    except ValueError as error:
        raise TargetError(f"{name}: {error}; `reference` takes every row") from error
    return rows
