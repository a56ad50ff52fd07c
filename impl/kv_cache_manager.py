"""The KV-cache manager: which blocks hold the tokens of which request, for a scheduler.

In each step a scheduler asks what of a request is cached (`get_computed_blocks`), takes slots for
the tokens that it wants to compute (`allocate_slots`), and gives everything back when a request
ends or is preempted (`free`). The manager knows no tensors: the scheduler's forward pass has to
compute what slots were taken for, in the next step and in its order.

When a key can be found: `allocate_slots` caches the blocks that the scheduled tokens fill, so a
request of the same step may start from them. That is right where a forward pass writes the keys
and values of the whole step before it reads any; an engine that cannot promise it, or that may
drop a request between scheduling and the pass, passes `delay_cache_blocks` and calls
`cache_blocks` afterwards (vllm#29387), or takes the keys back with `uncache_blocks`. States of
recurrent layers are found from the next step on in any case. Draft tokens are never cached.

Misuse raises ValueError with a sentence that says what was wrong, before anything has changed. The
shape is that of the manager of vLLM V1; the code is its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from poolproof.impl.block_pool import BlockPool
from poolproof.impl.kv_cache_group import FullAttention, Layout, blocks_for, lay_out
from poolproof.impl.kv_cache_inside import InsideTables
from poolproof.impl.kv_cache_request import ManagedRequest
from poolproof.impl.kv_cache_residency import ResidencyMetrics, WatchedPool
from poolproof.impl.kv_cache_tables import NULL_BLOCK, FullAttentionTables, GroupTables, Need
from poolproof.impl.sizing import require_int


@dataclass(slots=True)
class KVCacheBlocks:
    """`blocks[g][i]` is the id of the i-th block in group g; id 0 stands where none is needed.

    True also where there is no block, since an allocation that needs none is not a refused one.
    """

    blocks: tuple[Sequence[int], ...]

    def get_block_ids(self) -> tuple[list[int], ...]:
        """The ids as lists of the caller's own."""
        return tuple(map(list, self.blocks))


@dataclass(slots=True)
class PrefixCacheStats:
    """Counts since the last time they were taken.

    `queries` are tokens of first admissions, `hits` those of them that were cached. Requests that
    had been preempted are counted apart: they find their own blocks again, which says nothing
    about how much requests share. `reset`: the prefix cache was emptied in between.
    """

    reset: bool = False
    requests: int = 0
    queries: int = 0
    hits: int = 0
    preempted_requests: int = 0
    preempted_queries: int = 0
    preempted_hits: int = 0

    def record(self, num_tokens: int, num_hits: int, *, preempted: bool) -> None:
        """Count one admitted request of `num_tokens` tokens, `num_hits` of them cached."""
        if preempted:
            self.preempted_requests += 1
            self.preempted_queries += num_tokens
            self.preempted_hits += num_hits
        else:
            self.requests += 1
            self.queries += num_tokens
            self.hits += num_hits


def require_tokens(
    num_new: int, num_new_computed: int, num_lookahead: int, num_external: int
) -> None:
    """allocate_slots: counts of at least 0, and something to allocate for."""
    counts = (num_new, num_new_computed, num_lookahead, num_external)
    if set(map(type, counts)) != {int} or min(counts) < 0:
        raise ValueError(
            "allocate_slots: the numbers of new, new computed, lookahead and external computed "
            f"tokens must be ints of at least 0, not {counts}"
        )
    if not (num_new or num_new_computed or num_external):
        raise ValueError("allocate_slots: no token is new, found or loaded; there is nothing to do")


def require_hashes(request: ManagedRequest, hash_block_size: int) -> list[bytes]:
    """The block hashes of a request, one for every full block.

    Too many would be those of tokens that have been cut off (vllm#49377).
    """
    hashes = request.block_hashes
    if len(hashes) != request.num_tokens // hash_block_size:
        raise ValueError(
            f"request {request.request_id!r} has {request.num_tokens} tokens and {len(hashes)} "
            f"block hashes; it needs one for every full block of {hash_block_size} tokens, "
            "no more and no less"
        )
    return hashes


def require_admissible(
    request: ManagedRequest,
    num_hit_tokens: int,
    hits: KVCacheBlocks,
    layout: Layout,
    *,
    is_first: bool,
    enable_caching: bool,
) -> None:
    """allocate_slots: computed tokens come with a first allocation, and with blocks."""
    name = request.request_id
    if not is_first:
        raise ValueError(
            f"allocate_slots: request {name!r} has blocks, and computed blocks of others cannot "
            "join them; look up before the first allocation only"
        )
    if request.num_computed_tokens:
        raise ValueError(
            f"allocate_slots: request {name!r} has {request.num_computed_tokens} computed tokens "
            "but no blocks; set num_computed_tokens to 0 when its blocks are freed"
        )
    lengths = [
        len(ids) * group.block_size for ids, group in zip(hits.blocks, layout.groups, strict=False)
    ]
    end = num_hit_tokens
    if layout.hits_inside:
        end = blocks_for(end, layout.alignment) * layout.alignment
    if len(hits.blocks) != len(layout.groups) or set(lengths) != {end}:
        raise ValueError(
            f"allocate_slots: new_computed_blocks of request {name!r} are for {lengths} tokens in "
            f"its groups, and num_new_computed_tokens says {num_hit_tokens}"
        )
    if num_hit_tokens and not enable_caching:
        raise ValueError("allocate_slots: there are no computed blocks without caching")


class KVCacheManager:
    """Block tables of requests over a pool of blocks, of which block 0 is the null block.

    Args:
        num_blocks: at least 1.
        block_size: tokens in a block, of every group that does not say another.
        max_model_len: no request gets slots for more tokens.
        groups: the kinds of attention; a request has a table for each.
        hash_block_size: tokens in a block of `ManagedRequest.block_hashes`; it divides every
            group's block size and is by default the greatest that does.
        enable_caching: without it nothing is looked up or cached, and no hashes are read.
        use_eagle: the last block of a hit is computed again, because a speculative head needs it.
        events: "none", "per-copy" or "per-hash", see `poolproof.impl.cached_keys`.
        max_in_flight_tokens: tokens of one request, drafts and lookahead included, that are
            scheduled and not settled at a time; bounds what a request is expected to hold in
            groups with a window (`full_sequence_must_fit`). None: no bound.
        metrics: watches how long blocks stay.

    `block_pool` is the pool, open to observers. Raises ValueError for arguments out of bounds.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        max_model_len: int,
        groups: Sequence[FullAttention] = (FullAttention(),),
        hash_block_size: int | None = None,
        enable_caching: bool = True,
        use_eagle: bool = False,
        events: str = "none",
        max_in_flight_tokens: int | None = None,
        metrics: ResidencyMetrics | None = None,
    ) -> None:
        self.max_model_len = require_int("max_model_len", max_model_len, at_least=1)
        in_flight = max_model_len if max_in_flight_tokens is None else max_in_flight_tokens
        self._layout = lay_out(
            groups,
            block_size,
            hash_block_size=hash_block_size,
            use_eagle=use_eagle,
            max_in_flight_tokens=require_int("max_in_flight_tokens", in_flight, at_least=1),
            max_model_len=max_model_len,
        )
        profile: dict[str, Any] = {
            "enable_caching": enable_caching,
            "null_block": NULL_BLOCK,
            # A block without a hash serves no hit, so it is taken before any that has one.
            "eviction": "unhashed-first",
            "recache": "forbidden",
            "events": events,
            "keys": "partial" if self._layout.hits_inside else "block",
        }
        self.block_pool = (
            BlockPool(num_blocks, **profile)
            if metrics is None
            else WatchedPool(num_blocks, metrics, **profile)
        )
        self._direct: FullAttentionTables | None = None
        if len(self._layout.groups) == 1 and self._layout.groups[0].reads_all:
            self._direct = FullAttentionTables(self._layout, self.block_pool)
        self._inside: InsideTables | None = None
        if self._layout.hits_inside:
            self._inside = InsideTables(self._layout, self.block_pool)
        self._tables: GroupTables = (
            self._direct or self._inside or GroupTables(self._layout, self.block_pool)
        )
        self.enable_caching = enable_caching
        self.prefix_cache_stats = PrefixCacheStats()
        self.empty_kv_cache_blocks = KVCacheBlocks(tuple(() for _ in self._layout.groups))

    @property
    def usage(self) -> float:
        """The share of the blocks that requests hold, from 0.0 to 1.0."""
        return self.block_pool.usage()

    def get_computed_blocks(self, request: ManagedRequest) -> tuple[KVCacheBlocks, int]:
        """The blocks of the longest cached prefix, and how many tokens it has. Changes nothing.

        At least the last token is left to compute, or there would be nothing to sample from; a
        prefix ends at a block boundary of every group. Raises ValueError for a request whose
        hashes do not match its tokens.
        """
        if not self.enable_caching:
            return self.empty_kv_cache_blocks, 0
        hashes = require_hashes(request, self._layout.hash_block_size)
        blocks, num_tokens = self._tables.lookup(hashes, max(0, request.num_tokens - 1))
        if not num_tokens:
            return self.empty_kv_cache_blocks, 0
        return KVCacheBlocks(blocks), num_tokens

    def allocate_slots(  # noqa: PLR0917 - the order of vLLM's arguments, for its callers
        self,
        request: ManagedRequest,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: KVCacheBlocks | None = None,
        num_lookahead_tokens: int = 0,
        num_external_computed_tokens: int = 0,
        delay_cache_blocks: bool = False,
        full_sequence_must_fit: bool = False,
    ) -> KVCacheBlocks | None:
        """Take slots for the next tokens of a request.

        The tokens in order: `request.num_computed_tokens` that are computed, then
        `num_new_computed_tokens` whose `new_computed_blocks` a lookup has found, then
        `num_external_computed_tokens` that somebody else loads into new blocks, then
        `num_new_tokens` to compute (drafts included), then `num_lookahead_tokens` for what a
        speculative head writes. Only a request without blocks can bring the second and third.

        Returns the blocks that were taken from the pool, for each group in the order in which they
        stand in its table; or None, and nothing has changed, when they are not there. Blocks that
        slide out of a window are freed before, and count as free. With `full_sequence_must_fit` it
        is None also when the rest of the request's tokens would not fit behind it.

        Raises ValueError, and nothing has changed, for numbers that are no counts, when there is
        nothing to allocate for, for computed tokens without blocks, and for computed blocks that
        do not belong to the tokens or have been evicted since they were looked up.
        """
        room = self._tables.rooms.get(request.request_id)
        if (
            room is not None
            and type(num_new_tokens) is int
            and 0 < num_new_tokens <= room - request.num_computed_tokens
            and new_computed_blocks is None
            and not (
                num_new_computed_tokens
                or num_lookahead_tokens
                or num_external_computed_tokens
                or full_sequence_must_fit
            )
        ):
            return self.empty_kv_cache_blocks
        if (
            type(num_new_tokens) is not int
            or num_new_tokens < 1
            or num_new_computed_tokens
            or num_lookahead_tokens
            or num_external_computed_tokens
        ):
            require_tokens(
                num_new_tokens,
                num_new_computed_tokens,
                num_lookahead_tokens,
                num_external_computed_tokens,
            )
        hits = self.empty_kv_cache_blocks if new_computed_blocks is None else new_computed_blocks
        is_first = request.request_id not in self._tables.requests
        if (
            is_first
            or num_new_computed_tokens
            or num_external_computed_tokens
            or (new_computed_blocks is not None and any(new_computed_blocks.blocks))
        ):
            require_admissible(
                request,
                num_new_computed_tokens,
                hits,
                self._layout,
                is_first=is_first,
                enable_caching=self.enable_caching,
            )
        limit, num_tokens = self.max_model_len, request.num_tokens
        computed = min(
            request.num_computed_tokens + num_new_computed_tokens + num_external_computed_tokens,
            limit,
        )
        num_own = min(computed + num_new_tokens, limit)
        num_slots = min(num_own + num_lookahead_tokens, limit)
        to_cache = 0
        if self.enable_caching and not delay_cache_blocks:
            # A draft may be rejected, so it is no token of the request yet (vllm#18668).
            to_cache = min(num_own, num_tokens)
        direct = self._direct
        num_to_fit = min(num_tokens, limit) if full_sequence_must_fit else 0
        if direct is not None and not is_first:
            return self._extend(direct, request, computed, num_slots, num_to_fit, to_cache)
        # The hashes are made before anything changes: bad tokens raise here.
        hashes = (
            require_hashes(request, self._layout.hash_block_size) if self.enable_caching else []
        )
        need = Need(
            num_computed=computed,
            num_settled=max(0, computed - request.num_in_flight_tokens),
            num_slots=num_slots,
            num_to_fit=num_to_fit,
            num_hit=num_new_computed_tokens,
            num_ahead=num_slots - num_own,
        )
        new = self._tables.allocate(request.request_id, hits.blocks, hashes, need)
        if new is None:
            return None
        if self.enable_caching:
            written = request.num_computed_tokens + num_new_computed_tokens
            self._tables.publish(request.request_id, hashes, to_cache, written)
            if self._inside is not None and self._keeps(to_cache, num_tokens):
                self._inside.keep(request.request_id, hashes, to_cache)
            if is_first and new_computed_blocks is not None:
                self.prefix_cache_stats.record(
                    num_tokens, num_new_computed_tokens, preempted=request.num_preemptions > 0
                )
        if direct is not None:
            direct.note_room(request.request_id, limit, is_cached=self.enable_caching)
        return KVCacheBlocks(new) if any(new) else self.empty_kv_cache_blocks

    def _extend(  # noqa: PLR0917 - a part of `allocate_slots`, with what that has worked out
        self,
        direct: FullAttentionTables,
        request: ManagedRequest,
        num_computed: int,
        num_slots: int,
        num_to_fit: int,
        to_cache: int,
    ) -> KVCacheBlocks | None:
        """`allocate_slots` for a request that has blocks, where one group reads everything."""
        request_id = request.request_id
        has_slots = direct.has_slots(request_id, max(num_slots, num_to_fit))
        is_published = direct.is_published(request_id, to_cache)
        new: list[int] = []
        if not (has_slots and is_published):
            # The hashes are looked at before anything changes: bad ones raise here.
            hashes = (
                require_hashes(request, self._layout.hash_block_size) if self.enable_caching else []
            )
            if not has_slots:
                taken = direct.extend(request_id, num_computed, num_slots, num_to_fit)
                if taken is None:
                    return None
                new = taken
            if not is_published:
                direct.publish(request_id, hashes, to_cache, num_computed)
        direct.note_room(request_id, self.max_model_len, is_cached=self.enable_caching)
        return KVCacheBlocks((new,)) if new else self.empty_kv_cache_blocks

    def _keeps(self, end: int, num_tokens: int) -> bool:
        """Whether a key at this end of a chunk is of use: inside a block, before the prompt's end.

        States of generated tokens come one by one; to keep them would cost a block for each.
        """
        layout = self._layout
        is_inside = end % layout.alignment and end % layout.hash_block_size == 0
        return bool(is_inside) and end < num_tokens

    def take_block_copies(self) -> list[tuple[int, int]]:
        """The copies that were ordered since the last call, as (source, destination) blocks.

        They are for hits that end inside a block, and are carried out in this order, before the
        next forward pass.
        """
        if self._inside is None:
            return []
        copies, self._inside.copies = self._inside.copies, []
        return copies

    def cache_blocks(self, request: ManagedRequest, num_computed_tokens: int) -> None:
        """Cache the full blocks of the first tokens, which are computed or loaded by now.

        For what `delay_cache_blocks` left out. A request that has no blocks any more is none of
        its business. Raises ValueError for more tokens than the request has slots.
        """
        held = self._tables.requests.get(request.request_id)
        if not self.enable_caching or held is None:
            return
        self._tables.require_slots(request.request_id, held, num_computed_tokens)
        self._tables.publish(
            request.request_id,
            require_hashes(request, self._layout.hash_block_size),
            min(num_computed_tokens, request.num_tokens),
            num_computed_tokens,
        )

    def uncache_blocks(self, request: ManagedRequest, num_computed_tokens: int) -> None:
        """Take the keys back from blocks beyond the first tokens, which will not be computed.

        For a request that is dropped between its scheduling and its forward pass: its keys would
        stand over blocks that nobody wrote (text-generation-inference#2489). Whoever has found
        them already in the same step must be dropped as well.
        """
        if request.request_id in self._tables.requests:
            self._tables.withdraw(request.request_id, num_computed_tokens)

    def free(self, request: ManagedRequest) -> None:
        """Give back all blocks of a request, the last ones first, so that they are evicted first.

        A request that has none, because it never got any (vllm#18829) or because they were given
        back before (vllm#25067), is fine.
        """
        for ids in self._tables.pop(request.request_id):
            self.block_pool.free(ids[::-1])

    def pop_blocks_for_free(self, request: ManagedRequest) -> list[int]:
        """Forget a request and return the blocks that it held, still referenced.

        For blocks that something is still reading or writing: whoever knows when it is over calls
        `block_pool.free` with the list, reversed. Empty for a request without blocks.
        """
        return [block_id for ids in self._tables.pop(request.request_id) for block_id in ids]

    def remove_skipped_blocks(self, request_id: str, processed_computed_tokens: int) -> None:
        """Free what tokens after the processed ones do not need; `allocate_slots` does it, too."""
        if request_id in self._tables.requests:
            self._tables.skip(request_id, processed_computed_tokens)

    def truncate(self, request: ManagedRequest, num_tokens: int) -> int:
        """Prepare for other tokens in the place of those from position `num_tokens` on.

        Returns how many computed tokens keep their blocks: a cached block may be shared, and is
        given back rather than written over, and so are all where a window cannot move back. The
        caller then sets `request.num_computed_tokens` to it and cuts the tokens. Keys of scheduled
        tokens that are cut before they were computed are taken back.

        Raises ValueError unless num_tokens is from 0 to the request's tokens.
        """
        if not 0 <= num_tokens <= request.num_tokens:
            raise ValueError(
                f"truncate: request {request.request_id!r} has {request.num_tokens} tokens, "
                f"which cannot be cut to {num_tokens!r}"
            )
        computed, request_id = request.num_computed_tokens, request.request_id
        if request_id not in self._tables.requests:
            return computed
        self._tables.withdraw(request_id, max(num_tokens, computed))
        if num_tokens >= computed:
            return computed
        kept = self._tables.num_kept(request_id, num_tokens)
        if kept:
            self._tables.cut(request_id, kept)
        else:
            self.free(request)
        return kept

    def get_blocks(self, request_id: str) -> KVCacheBlocks:
        """The tables of a request, as they are now; empty for a request without blocks."""
        return KVCacheBlocks(self.get_block_ids(request_id))

    def get_block_ids(self, request_id: str) -> tuple[list[int], ...]:
        """The same as lists of ids, one for each group; they are the caller's."""
        held = self._tables.requests.get(request_id)
        blocks = self.empty_kv_cache_blocks.blocks if held is None else held.tables
        return tuple(map(list, blocks))

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        """For each group, how many first blocks all requests with blocks share.

        0 in groups with windows, and for a request without blocks.
        """
        return self._tables.num_common_blocks(running_request_id)

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        """Take blocks out of the prefix cache; whoever holds them keeps them."""
        self.block_pool.evict(block_ids)

    def reset_prefix_cache(self) -> bool:
        """Empty the prefix cache, as after new weights; False while a request holds blocks."""
        if not self.block_pool.reset():
            return False
        self.prefix_cache_stats.reset = True
        return True

    def take_events(self) -> list[dict[str, Any]]:
        """The events of the prefix cache since the last call."""
        return self.block_pool.take_events()

    def make_prefix_cache_stats(self) -> PrefixCacheStats:
        """The counts of the prefix cache since the last call."""
        stats, self.prefix_cache_stats = self.prefix_cache_stats, PrefixCacheStats()
        return stats

    def new_step_starts(self) -> None:
        """The forward pass of what was scheduled before is over, or is before the next in order."""
        self._tables.unwritten.clear()
