"""The specification as a target: `DictPool` behind the native contract, in every profile.

`certify reference` runs one instance of it against another, which shows that harness, checks and
specification agree with each other. Misuse is judged by `legality.py`, refusals are MemoryError.
Written to be read: the observers copy and search, and events are the difference between two
states of the index. It also takes token chains, whose keys are their contents, unhashed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from poolproof.contract.commands import (
    Allocate,
    Cache,
    CacheChain,
    CachePartial,
    Command,
    Evict,
    Free,
    Touch,
)
from poolproof.contract.content import ContentKey, Key, TokenChain
from poolproof.contract.observation import Neighbours
from poolproof.contract.profile import Profile
from poolproof.reference.dict_pool import DictPool
from poolproof.reference.legality import misuse_of

__all__ = ["NativeDictPool"]


class NativeDictPool:
    """A native pool target. Raises ValueError for misuse where the profile says so."""

    def __init__(
        self,
        num_blocks: int,
        *,
        enable_caching: bool = True,
        profile: Profile | None = None,
        block_size: int = 1,
    ) -> None:
        self._profile = profile or Profile()
        self._model = DictPool(num_blocks, self._profile, enable_caching=enable_caching)
        self._model.block_size = block_size
        self._announced: Counter[Key] = Counter()
        self.profile = self._profile.to_json()

    def allocate(self, n: int, /) -> list[int]:
        if self._misused(Allocate(n)):
            return []
        if n > self.num_free():
            raise MemoryError(f"allocate: {n} blocks asked for, {self.num_free()} free")
        return self._model.allocate(n)

    def touch(self, block_ids: Sequence[int], /) -> None:
        if not self._misused(Touch(tuple(block_ids))):
            self._model.touch(block_ids)

    def free(self, block_ids: Sequence[int], /) -> None:
        if not self._misused(Free(tuple(block_ids))):
            self._model.release(block_ids)

    def cache(self, block_ids: Sequence[int], hashes: Sequence[Key], /) -> None:
        if not self._misused(Cache(tuple(block_ids), tuple(hashes))):
            self._model.cache(block_ids, hashes)

    def lookup(self, block_hash: Key, /) -> int | None:
        carriers = self._model.lookup(block_hash)
        return carriers[0] if carriers else None

    def evict(self, block_ids: Sequence[int], /) -> None:
        if not self._misused(Evict(tuple(block_ids))):
            self._model.evict(block_ids)

    def reset(self) -> bool:
        return self._model.reset()

    def num_free(self) -> int:
        return len(self._model.free)

    def cache_chain(
        self, chain: TokenChain, block_ids: Sequence[int], num_cached: int, group: int, /
    ) -> None:
        """Block i of the request gets the key of the chain's first (i + 1) * block_size tokens."""
        if self._misused(CacheChain(chain, tuple(block_ids), num_cached, group)):
            return
        for position, block_id in enumerate(block_ids):
            if position >= num_cached:
                num_tokens = (position + 1) * self._model.block_size
                self._model.cache_full(block_id, chain.prefix(num_tokens, group), num_tokens)

    def lookup_chain(
        self, chain: TokenChain, num_tokens: int, groups: Sequence[int], /
    ) -> list[int] | None:
        """One carrier for each group, or None when any group has none."""
        found = [self.lookup(chain.prefix(num_tokens, group)) for group in groups]
        hits = [block_id for block_id in found if block_id is not None]
        return hits if len(hits) == len(found) else None

    def cache_partial(
        self, chain: TokenChain, block_id: int, num_tokens: int, group: int, /
    ) -> None:
        """A key that ends inside the block."""
        if not self._misused(CachePartial(chain, block_id, num_tokens, group)):
            self._model.cache_partial(block_id, chain.prefix(num_tokens, group), num_tokens)

    def usage(self) -> float:
        """The share of the usable blocks that are held."""
        return self._model.usage()

    def free_order(self) -> list[int]:
        """The free blocks, head first."""
        return list(self._model.free)

    def free_neighbours(self, block_id: int, /) -> Neighbours:
        """The ids before and after in the queue; None for a block outside it."""
        if block_id not in self._model.free:
            return None
        order: list[int | None] = [None, *self._model.free, None]
        position = order.index(block_id)
        return order[position - 1], order[position + 1]

    def ref_count(self, block_id: int, /) -> int:
        """How many references are outstanding."""
        return len(self._model.holders[block_id])

    def block_hash(self, block_id: int, /) -> Key | None:
        """The first of the block's keys."""
        keys = self._model.keys[block_id]
        return keys[0] if keys else None

    def take_events(self) -> list[dict[str, Any]]:
        """What changed in the index since the last call: what went first, then what came."""
        now: Counter[Key] = Counter()
        for key, carriers in self._model.carriers.items():
            now[key] = 1 if self._profile.events == "per-hash" else len(carriers)
        gone, new = self._announced - now, now - self._announced
        self._announced = now
        if self._profile.events == "none":
            return []
        return [_event("removed", key) for key in gone.elements()] + [
            _event("stored", key) for key in new.elements()
        ]

    def _misused(self, command: Command) -> bool:
        """Whether the call is misuse and to be ignored. Raises ValueError where misuse raises."""
        self._model.command_number += 1
        if self._profile.misuse == "undefined":
            return False
        reason = misuse_of(self._model, command)
        if reason is not None and self._profile.misuse == "raises":
            raise ValueError(f"{command.verb}: {reason}")
        return reason is not None


def _event(kind: str, key: Key) -> dict[str, Any]:
    return {"type": kind, "hashes": [key], "group": key.group if isinstance(key, ContentKey) else 0}
