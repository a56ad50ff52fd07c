"""A block pool without bugs, written to be read and to be broken: the base of pool specimens.

It speaks the native contract under every profile, in the shape of vLLM V1's pool: a linked free
queue, reference counts, one hash a block, an index from hash to blocks. Every step is a small
method, so that a specimen is the smallest change: one method replaced by the one with the bug.
What callers must not do is said by functions of their own, None if all is well. Where the profile
leaves a choice it evicts in LRU order and drops nothing early. It is not written for speed
(`poolproof.impl` is), and has no cache groups and no partial keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

from poolproof.bugs.clean_queue import CleanQueue
from poolproof.contract.content import Key
from poolproof.contract.profile import Profile

__all__ = ["CleanPool"]


def bad_count(count: int) -> str | None:
    """A count must not be negative (vllm#52707)."""
    return f"the count {count} is negative" if count < 0 else None


def bad_ids(block_ids: Sequence[int], num_blocks: int, forbidden: int | None) -> str | None:
    """Ids must be in range; `forbidden` is the null block where lists must not contain it."""
    for block_id in block_ids:
        if not 0 <= block_id < num_blocks:
            return f"block {block_id} does not exist (there are {num_blocks})"
        if block_id == forbidden:
            return f"block {block_id} is the null block"
    return None


def too_many_frees(
    block_ids: Sequence[int], ref_counts: Sequence[int], null_block: int | None
) -> str | None:
    """No block may be freed more often, over the whole list, than it has references."""
    for block_id, times in Counter(block_ids).items():
        if times > ref_counts[block_id] and block_id != null_block:
            return f"block {block_id} is freed {times} times, held {ref_counts[block_id]} times"
    return None


def unfit_for_cache(
    block_ids: Sequence[int], ref_counts: Sequence[int], null_block: int | None
) -> str | None:
    """Blocks that get a hash must be held, and named once."""
    for block_id, times in Counter(block_ids).items():
        if block_id == null_block:
            continue
        if times > 1:
            return f"block {block_id} stands {times} times in one call"
        if not ref_counts[block_id]:
            return f"block {block_id} is cached although nobody holds it"
    return None


class CleanPool:
    """A pool of the blocks 0..num_blocks-1 under `rules`, or else the profile of its class.

    The null block's own count goes up and down with the lists that name it and means nothing, as
    in vLLM V1; it is never queued and never hashed.
    """

    profile: ClassVar[dict[str, Any]] = {}
    queue_class: type[CleanQueue] = CleanQueue

    def __init__(
        self, num_blocks: int, *, enable_caching: bool = True, rules: Profile | None = None
    ) -> None:
        self.rules = rules or Profile.from_mapping(self.profile)
        self.num_blocks = num_blocks
        self.enable_caching = enable_caching
        self.null_block = self.rules.null_block
        self.queue = self.queue_class(num_blocks)
        if self.null_block is not None:
            self.queue.remove(self.null_block)
        self.ref_counts = [0] * num_blocks
        self.hashes: list[Key | None] = [None] * num_blocks
        self.index: dict[Key, list[int]] = {}
        self.events: list[dict[str, Any]] = []

    def allocate(self, n: int) -> list[int]:
        """Take n blocks from the head of the queue. Raises ValueError when there are fewer."""
        if self._refuses(self._misuse_of_allocate(n)):
            return []
        taken = self._take_from_queue(n)
        for block_id in taken:
            self._recycle(block_id)
            self._take_first_reference(block_id)
        return taken

    def touch(self, block_ids: list[int]) -> None:
        """One more reference for each entry; a free block leaves the queue and keeps its hash."""
        if self._refuses(self._bad_ids(block_ids)):
            return
        for block_id in block_ids:
            if self._leaves_queue(block_id):
                self._revive(block_id)
            self.ref_counts[block_id] += 1

    def free(self, block_ids: list[int]) -> None:
        """One reference less for each entry, in eviction order."""
        if not self._refuses(self._misuse_of_free(block_ids)):
            freed = self._release(block_ids)
            if self.rules.retention == "while-held":
                self._forget_freed(freed)
            self._queue_freed(freed)

    def cache(self, block_ids: list[int], hashes: list[Key]) -> None:
        """Held, full blocks get their hashes and enter the index."""
        if not self.enable_caching or self._refuses(self._misuse_of_cache(block_ids, hashes)):
            return
        for block_id, key in zip(block_ids, hashes, strict=False):
            if self._may_be_hashed(block_id):
                self._cache_one(block_id, key)

    def lookup(self, block_hash: Key) -> int | None:
        """A block that carries the hash, the one cached first, or None."""
        carriers = self.index.get(block_hash)
        return carriers[0] if carriers else None

    def evict(self, block_ids: list[int]) -> None:
        """The blocks lose hash and index entry; references and queue positions stay."""
        if self.enable_caching and not self._refuses(self._bad_ids(block_ids)):
            for block_id in block_ids:
                self._drop_hash(block_id)

    def reset(self) -> bool:
        """Forget every hash, unless a block is held."""
        if not self._is_idle():
            return False
        self._clear_index()
        self._clear_hashes()
        return True

    def num_free(self) -> int:
        return self.queue.num_free()

    def free_order(self) -> list[int]:
        return self.queue.free_order()

    def free_neighbours(self, block_id: int) -> tuple[int | None, int | None] | None:
        return self.queue.free_neighbours(block_id)

    def ref_count(self, block_id: int) -> int:
        return self.ref_counts[block_id]

    def block_hash(self, block_id: int) -> Key | None:
        return self.hashes[block_id]

    def take_events(self) -> list[dict[str, Any]]:
        """The events since the last call, oldest first."""
        events, self.events = self.events, []
        return events

    # What follows are the steps that specimens replace.

    def _take_from_queue(self, count: int) -> list[int]:
        return self.queue.popleft_n(count)

    def _recycle(self, block_id: int) -> None:
        """A block is handed out to somebody new: what was cached in it is evicted."""
        self._drop_hash(block_id)

    def _take_first_reference(self, block_id: int) -> None:
        self.ref_counts[block_id] += 1

    def _revive(self, block_id: int) -> None:
        """A hit on a free block: it leaves the queue."""
        self.queue.remove(block_id)

    def _release(self, block_ids: Sequence[int]) -> list[int]:
        """Count down and return the blocks that became free, each at the entry that freed it."""
        freed = []
        for block_id in block_ids:
            self.ref_counts[block_id] -= 1
            if self._joins_queue(block_id):
                freed.append(block_id)
        return freed

    def _forget_freed(self, freed: Sequence[int]) -> None:
        """What was cached in a block dies with its last owner."""
        for block_id in freed:
            self._drop_hash(block_id)

    def _queue_freed(self, freed: list[int]) -> None:
        """Blocks that one call freed join the queue, in the order that the profile declares."""
        if self.rules.eviction == "lifo":
            self.queue.prepend_n(freed[::-1])
        elif self.rules.eviction in ("unhashed-first", "unhashed-lifo"):
            useless = [b for b in freed if not self._is_worth_keeping(b)]
            one_by_one = self.rules.eviction == "unhashed-lifo"
            self.queue.prepend_n(useless[::-1] if one_by_one else useless)
            self.queue.append_n([b for b in freed if self._is_worth_keeping(b)])
        else:
            self.queue.append_n(freed)

    def _is_worth_keeping(self, block_id: int) -> bool:
        return self.hashes[block_id] is not None

    def _cache_one(self, block_id: int, key: Key) -> None:
        if self.hashes[block_id] == key:
            return
        self._drop_hash(block_id)
        rivals = list(self.index.get(key, ()))
        if rivals and self.rules.duplicates == "first":
            return
        self._add_hash(block_id, key)
        if self.rules.duplicates == "last":
            for rival in rivals:
                self._drop_hash(rival)

    def _add_hash(self, block_id: int, key: Key) -> None:
        self.hashes[block_id] = key
        self._announce_stored(key, is_first_copy=key not in self.index)
        self._index_insert(key, block_id)

    def _drop_hash(self, block_id: int) -> None:
        key = self.hashes[block_id]
        if key is None:
            return
        self._index_remove(key, block_id)
        self._clear_hash(block_id)
        self._announce_removed(key, is_last_copy=key not in self.index)

    def _clear_hash(self, block_id: int) -> None:
        self.hashes[block_id] = None

    def _index_insert(self, key: Key, block_id: int) -> None:
        self.index.setdefault(key, []).append(block_id)

    def _index_remove(self, key: Key, block_id: int) -> None:
        self.index[key].remove(block_id)
        if not self.index[key]:
            del self.index[key]

    def _is_idle(self) -> bool:
        return self.num_free() == self.num_blocks - (self.null_block is not None)

    def _clear_index(self) -> None:
        self.index.clear()
        self._announce_cleared()

    def _clear_hashes(self) -> None:
        self.hashes = [None] * self.num_blocks

    def _leaves_queue(self, block_id: int) -> bool:
        return not self.ref_counts[block_id] and block_id != self.null_block

    def _joins_queue(self, block_id: int) -> bool:
        return not self.ref_counts[block_id] and block_id != self.null_block

    def _may_be_hashed(self, block_id: int) -> bool:
        return block_id != self.null_block

    def _announce_stored(self, key: Key, *, is_first_copy: bool) -> None:
        if self.rules.events == "per-copy" or (self.rules.events == "per-hash" and is_first_copy):
            self.events.append({"type": "stored", "hashes": [key], "group": 0})

    def _announce_removed(self, key: Key, *, is_last_copy: bool) -> None:
        if self.rules.events == "per-copy" or (self.rules.events == "per-hash" and is_last_copy):
            self.events.append({"type": "removed", "hashes": [key], "group": 0})

    def _announce_cleared(self) -> None:
        if self.rules.events != "none":
            self.events.append({"type": "cleared", "hashes": [], "group": 0})

    def _refuses(self, reason: str | None) -> bool:
        """Whether the whole call is ignored. Raises ValueError where misuse raises."""
        if reason is not None and self.rules.misuse == "raises":
            raise ValueError(reason)
        return reason is not None and self.rules.misuse == "ignores"

    def _misuse_of_allocate(self, count: int) -> str | None:
        return bad_count(count)

    def _misuse_of_free(self, block_ids: list[int]) -> str | None:
        return self._bad_ids(block_ids) or too_many_frees(
            block_ids, self.ref_counts, self.null_block
        )

    def _misuse_of_cache(self, block_ids: list[int], hashes: list[Key]) -> str | None:
        if len(block_ids) != len(hashes):
            return f"{len(block_ids)} blocks come with {len(hashes)} hashes"
        return self._bad_ids(block_ids) or unfit_for_cache(
            block_ids, self.ref_counts, self.null_block
        )

    def _bad_ids(self, block_ids: list[int]) -> str | None:
        forbidden = self.null_block if self.rules.null_in_lists == "misuse" else None
        return bad_ids(block_ids, self.num_blocks, forbidden)
