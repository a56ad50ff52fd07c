"""Transformers' `PagedAttentionCache` behind the native manager contract.

Nothing of the library is replaced. The adapter does what its continuous-batching loop does around
the cache: a prefix is searched, and pinned at once; the tokens of the next batch are stored; the
blocks that the forward pass will complete are counted before it and marked after it; forks are
prepared between batches; a preempted request's blocks go back uncached, as when it is offloaded.

Where it stands in for the scheduler:
- a store that does not fit is tried again with the free sectors collected, and once more with all
  cached blocks evicted, which is what the loop does under pressure over several batches. If it
  still does not fit the pinned prefix is given back, where the scheduler keeps the request active.
- all tokens are given, so nothing is sampled, and no request ends by itself.

The cache knows no adapters, salts or images: what changes the KV of a token is put into the token.
"""

from __future__ import annotations

from typing import Any

from poolproof.targets.nano_manager_tokens import TokenNames
from poolproof.targets.transformers_manager_slots import NO_BLOCK, blocks_of, check_indices

__all__ = ["TransformersManager"]

Copies = list[tuple[int, int]]

_FIRST_NAME = 1 << 20
"""Names of tokens must fit into 32 bits, since their hash is taken over these."""


class _Request:
    """A request's state in the library's own class, and what its next batch computes."""

    def __init__(self, state: Any, setting: tuple[object, ...]) -> None:
        self.state = state
        self.setting = setting
        self.num_scheduled = 0


class TransformersManager:
    """`cache`, driven as the library's loop drives it; `RequestState` is the library's class."""

    def __init__(self, cache: Any, RequestState: Any) -> None:  # noqa: N803 - the library's name
        self._cache = cache
        self._allocators = list(cache.cache_allocators.values())
        self._RequestState = RequestState
        self._requests: dict[int, _Request] = {}
        self._names = TokenNames(enable_caching=True, first_name=_FIRST_NAME)
        # Blocks are numbered from the first sector on, and the first two sectors are for trash.
        self._per_sector: int = self._allocators[0].blocks_per_sector
        self._first_block = 2 * self._per_sector

    def admit(
        self,
        seq_id: int,
        tokens: list[int],
        *,
        extra_keys: Any = None,
        num_tokens: int | None = None,
    ) -> int | str:
        setting = self._names.setting(extra_keys)
        named = self._names.named(tokens, setting, extra_keys)
        state = self._RequestState(str(seq_id), named, max_new_tokens=None)
        request = _Request(state, setting)
        cached: int = self._cache.search_prefix_match(state.request_id, named)
        state.position_offset = cached
        left = len(named) - cached
        if not self._store(request, min(num_tokens or left, left)):
            self._cache.free_blocks(state.request_id)
            return "later"
        self._requests[seq_id] = request
        return cached

    def append(self, seq_id: int, tokens: list[int]) -> Copies | str:
        request = self._requests[seq_id]
        if not self._store(request, len(tokens)):
            return "later"
        request.state.generated_tokens += self._names.named(tokens, request.setting)
        return []

    def schedule(self, seq_id: int, num_tokens: int) -> Copies | str:
        return [] if self._store(self._requests[seq_id], num_tokens) else "later"

    def step(self, batch: list[tuple[int, int]]) -> None:
        """Blocks are counted and indices are made before the forward pass, hashes after it."""
        completed = []
        for seq_id, count in batch:
            request = self._requests[seq_id]
            state = request.state
            completed.append((state, self._cache.count_new_complete_blocks(state, count)))
            self._check_indices(state, count)
            state.position_offset += count
            request.num_scheduled = 0
        for state, complete_blocks in completed:
            self._cache.mark_complete_blocks(state, complete_blocks)

    def fork(self, seq_id: int, child_id: int) -> Copies | str:
        """Full blocks are shared where that is allowed, the others are copied at once."""
        parent = self._requests[seq_id]
        copies: dict[str, tuple[list[int], list[int]]] = {
            name: ([], []) for name in self._cache.cache_allocators
        }
        self._cache.pool.try_to_free_sectors()
        if not self._cache.prepare_fork_request(parent.state, [str(child_id)], copies):
            self._evict()
            if not self._cache.prepare_fork_request(parent.state, [str(child_id)], copies):
                return "later"
        self._cache.perform_cache_copy(copies)
        self._requests[child_id] = _Request(parent.state.fork(str(child_id)), parent.setting)
        return [
            (source - self._first_block, destination - self._first_block)
            for sources, destinations in copies.values()
            for source, destination in zip(sources, destinations, strict=True)
        ]

    def preempt(self, seq_id: int) -> None:
        del self._requests[seq_id]
        self._cache.free_blocks(str(seq_id), no_cache=True)

    def finish(self, seq_id: int) -> None:
        self._requests.pop(seq_id, None)
        self._cache.free_blocks(str(seq_id))

    def abort(self, seq_id: int) -> None:
        self.finish(seq_id)

    def lookup_prefix(self, tokens: list[int], *, extra_keys: Any = None) -> int:
        """What `search_prefix_match` would find, without pinning it."""
        if not self._cache.use_prefix_sharing:
            return 0
        named = self._names.named(tokens, self._names.setting(extra_keys), extra_keys)
        lengths: list[int] = [
            len(allocator.match_prefix_blocks(named)) * allocator.tokens_per_page
            for allocator in self._allocators
        ]
        return min(lengths)

    def reset(self) -> bool:
        """The library's own reset also takes what requests hold; it is made when none is left."""
        if any(allocator.block_table for allocator in self._allocators):
            return False
        self._cache.reset()
        return True

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:
        request, allocator = self._requests[seq_id], self._allocators[group]
        num_tokens = request.state.current_len() + request.num_scheduled
        blocks = blocks_of(allocator, str(seq_id), num_tokens)
        return [NO_BLOCK if b == NO_BLOCK else b - self._first_block for b in blocks]

    def num_free(self) -> int:
        """Blocks in free sectors, free blocks of sectors in use, and cached ones without owner."""
        pool = self._cache.pool
        free: int = pool.num_free_sectors * self._per_sector
        for allocator in self._allocators:
            free += pool.count_free_blocks(allocator.index) + len(allocator.ledger.cached_blocks)
        return free

    def free_order(self) -> list[int]:
        """The same blocks, in no order that means anything."""
        pool, size = self._cache.pool, self._per_sector
        free = [s * size + offset for s in pool.free_sectors for offset in range(size)]
        for allocator in self._allocators:
            for leaves in pool._free_blocks[allocator.index].trees.values():  # noqa: SLF001 - no accessor
                free += leaves
            free += allocator.ledger.cached_blocks
        return [block - self._first_block for block in free]

    def ref_count(self, block_id: int) -> int:
        """As the ledgers have it: what is not free and has no entry is held once."""
        block = block_id + self._first_block
        for allocator in self._allocators:
            if block in allocator.ledger.shared_ref_counts:
                return int(allocator.ledger.shared_ref_counts[block])
        return 0 if block_id in self.free_order() else 1

    def is_cached(self, block_id: int) -> bool:
        block = block_id + self._first_block
        return any(block in allocator.ledger.block_to_hash for allocator in self._allocators)

    def _check_indices(self, state: Any, count: int) -> None:
        """What the next forward pass is given to read and write, for each kind of attention."""
        past = state.current_len()
        reads: list[list[int]] = [[] for _ in self._allocators]
        writes: list[list[int]] = [[] for _ in self._allocators]
        self._cache.extend_read_and_write_indices(state.request_id, past, count, reads, writes)
        for allocator, read_at, written_at in zip(self._allocators, reads, writes, strict=True):
            check_indices(allocator, state.request_id, past, read_at, written_at)

    def _store(self, request: _Request, further: int) -> bool:
        """Blocks for so many further tokens of the next batch."""
        count = request.num_scheduled + further
        cache = self._cache
        if not cache.can_store_request_tokens(request.state, count):
            cache.pool.try_to_free_sectors()
            if not cache.can_store_request_tokens(request.state, count):
                self._evict()
                if not cache.can_store_request_tokens(request.state, count):
                    return False
        request.num_scheduled = count
        return True

    def _evict(self) -> None:
        self._cache.evict_cached_blocks()
        self._cache.pool.try_to_free_sectors()
