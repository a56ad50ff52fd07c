"""Puts this manager and its pool under vLLM's own schedulers.

    vllm serve MODEL --scheduler-cls poolproof.impl.vllm_drop_in.DropInAsyncScheduler

vLLM's scheduler stays as it is; what it asks of its `KVCacheManager` is answered by
`poolproof.impl.kv_cache_manager`, with ids in place of objects for blocks. Where a server has
something that is not covered (`reason_not_used` has the list), vLLM's own manager stays and a line
of the log says why. One thing is done better: the keys of tokens that were scheduled, but will not
be computed since their request is preempted in the same step, are taken back. vLLM 0.32 leaves
them, and under `scheduling_policy="priority"` another request reads blocks that nobody has written
(docs/live.md).

Imports vLLM; written for its release 0.32. Of another release, what a scheduler says of itself and
the methods and arguments of its manager are compared with what is known here when it is built.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from inspect import signature
from typing import Any

from vllm.v1.core.kv_cache_manager import KVCacheBlocks as VllmBlocks
from vllm.v1.core.kv_cache_manager import KVCacheManager as VllmManager
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.core.single_type_kv_cache_manager import (
    ChunkedLocalAttentionManager,
    FullAttentionManager,
    SlidingWindowManager,
)

from poolproof.impl.block_pool import BlockPool
from poolproof.impl.kv_cache_group import ChunkedLocal, FullAttention, SlidingWindow
from poolproof.impl.kv_cache_manager import KVCacheManager

__all__ = [
    "BlockIds",
    "DropInAsyncScheduler",
    "DropInBlock",
    "DropInManager",
    "DropInPool",
    "DropInScheduler",
    "reason_not_used",
]

# vLLM's log shows what is said under its name alone.
_LOG = logging.getLogger("vllm.poolproof")

_CONNECTORS_ONLY = frozenset({
    "finalize_partial_tail_offloads", "get_computed_blocks_for_connector",
    "record_blocks_for_zeroing", "truncate_computed_blocks",
})  # fmt: skip
"""Methods of vLLM's manager that only a connector brings about; there is none."""

_INDEPENDENT = frozenset({
    "get_block_ids_for_computed_tokens", "get_num_common_prefix_blocks",
    "make_prefix_cache_stats", "prefix_cache_lookup_enabled", "record_prefix_cache_stats",
    "usage",
})  # fmt: skip
"""Those that use nothing but what stands here, and are right as they are."""


class BlockIds(VllmBlocks):  # type: ignore[misc]  # vLLM is no dependency
    """What vLLM calls `KVCacheBlocks`, with the ids of blocks in place of the blocks."""

    def get_block_ids(
        self, allow_none: bool = False, *, group_ids: Sequence[int] | None = None
    ) -> tuple[list[int], ...] | None:
        """The ids by group; None where there are none and `allow_none`."""
        groups = self.blocks if group_ids is None else [self.blocks[group] for group in group_ids]
        if allow_none and not any(groups):
            return None
        return tuple(map(list, groups))

    def new_empty(self) -> BlockIds:
        """As many groups without blocks."""
        return BlockIds(tuple(() for _ in self.blocks))


class DropInBlock:
    """A block as observers see it: what vLLM calls `KVCacheBlock`."""

    __slots__ = ("_pool", "block_id")

    def __init__(self, pool: BlockPool, block_id: int) -> None:
        self._pool = pool
        self.block_id = block_id

    @property
    def ref_cnt(self) -> int:
        """How many requests hold it."""
        return self._pool.ref_count(self.block_id)

    @property
    def block_hash(self) -> bytes | None:
        """The hash under which it is found."""
        return self._pool.block_hash(self.block_id)

    @property
    def is_null(self) -> bool:
        """Whether it stands where a table has no block."""
        return self.block_id == self._pool.null_block


class DropInPool:
    """What vLLM's scheduler, and who watches it, asks of a pool."""

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self.num_gpu_blocks = pool.num_blocks

    @cached_property
    def blocks(self) -> list[DropInBlock]:
        """Every block, by its id; made when somebody looks."""
        return [DropInBlock(self._pool, block_id) for block_id in range(self.num_gpu_blocks)]

    @property
    def null_block(self) -> DropInBlock:
        """The block that nobody gets."""
        return self.blocks[0]

    def get_num_free_blocks(self) -> int:
        """How many blocks nobody holds."""
        return self._pool.num_free()

    def get_usage(self) -> float:
        """The share of the blocks that requests hold."""
        return self._pool.usage()

    def free_blocks(self, ordered_blocks: Iterable[int]) -> None:
        """Give back blocks whose freeing was put off, the first to be reused first."""
        self._pool.free(list(ordered_blocks))

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        """Take blocks out of the prefix cache."""
        self._pool.evict(block_ids)


class DropInManager(VllmManager):  # type: ignore[misc]  # the same
    """Answers vLLM's scheduler in the place of `replaced`, the manager that it has built.

    Only for a scheduler of which `reason_not_used` says nothing.
    """

    def __init__(self, replaced: VllmManager, *, max_in_flight_tokens: int) -> None:
        self.__dict__.update(vars(replaced))
        managers = self.coordinator.single_type_managers
        self._manager = KVCacheManager(
            replaced.kv_cache_config.num_blocks,
            managers[0].block_size,
            max_model_len=replaced.max_model_len,
            groups=[_group_of(manager) for manager in managers],
            enable_caching=replaced.enable_caching,
            use_eagle=bool(self.coordinator.eagle_group_ids),
            max_in_flight_tokens=max_in_flight_tokens,
        )
        self.block_pool = DropInPool(self._manager.block_pool)
        self._no_blocks = self._manager.empty_kv_cache_blocks
        self.empty_kv_cache_blocks = BlockIds(self._no_blocks.blocks)
        # Of the coordinator only descriptions of groups are read from now on. Whoever asked it for
        # blocks would get them from a pool that knows nothing.
        self.coordinator.block_pool = None
        for manager in managers:
            manager.block_pool = None

    def get_computed_blocks(self, request: Any) -> tuple[BlockIds, int, int]:
        """The longest cached prefix; no group here keeps less of it than another."""
        if not self.prefix_cache_lookup_enabled(request):
            return self.empty_kv_cache_blocks, 0, 0
        found, num_tokens = self._manager.get_computed_blocks(request)
        return self.create_kv_cache_blocks(found.blocks), num_tokens, 0

    def allocate_slots(  # noqa: PLR0917 - vLLM's own signature
        self,
        request: Any,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: VllmBlocks | None = None,
        num_lookahead_tokens: int = 0,
        num_external_computed_tokens: int = 0,
        delay_cache_blocks: bool = False,
        num_encoder_tokens: int = 0,
        full_sequence_must_fit: bool = False,
        reserved_blocks: int = 0,
        has_scheduled_reqs: bool = True,  # noqa: ARG002 - decides on the watermark, which is 0
        skip_zeroing_group_ids: tuple[int, ...] = (),
    ) -> BlockIds | None:
        """Slots for the next tokens, or None where blocks are missing."""
        if num_encoder_tokens or reserved_blocks or skip_zeroing_group_ids:
            raise NotImplementedError(
                "allocate_slots: encoder tokens, reserved blocks and zeroing are not covered; "
                "start the server without poolproof's scheduler class"
            )
        new = self._manager.allocate_slots(
            request,
            num_new_tokens,
            num_new_computed_tokens,
            new_computed_blocks,
            num_lookahead_tokens,
            num_external_computed_tokens,
            delay_cache_blocks,
            full_sequence_must_fit,
        )
        if new is self._no_blocks:
            return self.empty_kv_cache_blocks
        return None if new is None else BlockIds(new.blocks)

    def cache_blocks(self, request: Any, num_computed_tokens: int) -> None:
        """Publish the full blocks of the first tokens."""
        self._manager.cache_blocks(request, num_computed_tokens)

    def free(self, request: Any) -> None:
        """Give back the blocks of a request that is over, or preempted."""
        self._manager.uncache_blocks(request, request.num_computed_tokens)
        self._manager.free(request)

    def pop_blocks_for_free(self, request: Any) -> list[int]:
        """The same for blocks that a step in flight may still write; `free_blocks` gets them."""
        self._manager.uncache_blocks(request, request.num_computed_tokens)
        return self._manager.pop_blocks_for_free(request)

    def remove_skipped_blocks(
        self,
        request_id: str,
        processed_computed_tokens: int,
        num_prompt_tokens: int | None = None,  # noqa: ARG002 - for windows that keep prompts
    ) -> None:
        """Give back what slid out of a window."""
        self._manager.remove_skipped_blocks(request_id, processed_computed_tokens)

    def evict_blocks(self, block_ids: set[int]) -> None:
        """Take blocks out of the prefix cache."""
        self.block_pool.evict_blocks(block_ids)

    def reset_prefix_cache(self) -> bool:
        """Empty the prefix cache; False while a request holds blocks."""
        if not self._manager.reset_prefix_cache():
            return False
        if self.prefix_cache_stats is not None:
            self.prefix_cache_stats.reset = True
        return True

    def get_blocks(self, request_id: str) -> BlockIds:
        """The tables of a request."""
        return self.create_kv_cache_blocks(self._manager.get_block_ids(request_id))

    def get_block_ids(self, request_id: str) -> tuple[list[int], ...]:
        """The same as lists."""
        return self._manager.get_block_ids(request_id)

    def create_kv_cache_blocks(self, blocks: tuple[Sequence[int], ...]) -> BlockIds:
        """Ids by group as an answer."""
        return BlockIds(blocks) if any(blocks) else self.empty_kv_cache_blocks

    def estimate_cached_tokens(self, request: Any) -> int:
        """How many tokens of a request are cached, in the group that has the fewest."""
        pool = self._manager.block_pool
        size = self.coordinator.single_type_managers[0].block_size
        tables = self._manager.get_block_ids(request.request_id)
        return min(
            max((size * n for n, b in enumerate(table, 1) if pool.block_hash(b)), default=0)
            for table in tables
        )

    def new_step_starts(self) -> None:
        """What was scheduled before comes before the next step."""
        self._manager.new_step_starts()

    def take_events(self) -> list[Any]:
        """None: a server that publishes events keeps vLLM's manager."""
        return []

    def take_new_block_ids(self) -> list[int]:
        """None: no block of these groups has to be zeroed."""
        return []

    def take_kv_cache_block_copies(self) -> tuple[list[Any], list[Any]]:
        """None: only recurrent states and hits inside a block are copied."""
        return [], []

    def take_boundary_state_offloads(self) -> dict[str, list[tuple[int, int, int]]]:
        """None: these groups have no states."""
        return {}


def reason_not_used(scheduler: Any) -> str | None:
    """Why a scheduler has to keep vLLM's manager; None where it need not."""
    unknown = sorted(_unknown())
    if unknown:
        return f"this release of vLLM has {', '.join(unknown)}"
    try:
        reasons = _reasons(scheduler)
    except AttributeError as error:
        return f"this release of vLLM is another one: {error}"
    return next((reason for reason, holds in reasons.items() if holds), None)


def _reasons(scheduler: Any) -> dict[str, object]:
    """Every reason, and whether it holds. Raises AttributeError where a release lacks something."""
    manager = scheduler.kv_cache_manager
    managers = manager.coordinator.single_type_managers
    kinds = sorted({type(each).__name__ for each in managers if type(each) not in _KINDS})
    if kinds:  # of which nobody here knows what they have
        return {f"{', '.join(kinds)} is not covered": True}
    sizes = {each.block_size for each in managers}
    num_eagle = len(manager.coordinator.eagle_group_ids)
    return {
        "it has a KV connector": scheduler.connector is not None,
        "it publishes KV events": manager.enable_kv_cache_events,
        "a group is not cached": not all(e.kv_cache_spec.prefix_cacheable for e in managers),
        "a drafter reads some of its groups": 0 < num_eagle < len(managers),
        "its groups have blocks of several sizes": len(sizes) > 1,
        "hashes are finer than blocks": scheduler.hash_block_size not in sizes,
        "the context is split over ranks": scheduler.dcp_world_size > 1,
        "it keeps a watermark of free blocks": manager.watermark_blocks,
        "it samples how long blocks stay": manager.metrics_collector is not None,
        "it computes parts of hits again": scheduler.prefix_replay_tokens,
        "it prefills ahead": scheduler.num_prefill_lookahead,
        "blocks have to be zeroed": scheduler.needs_kv_cache_zeroing,
    }


class DropInScheduler(Scheduler):  # type: ignore[misc]  # the same
    """vLLM's scheduler over Poolproof's manager."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _drop_in(self)


class DropInAsyncScheduler(AsyncScheduler):  # type: ignore[misc]  # the same
    """vLLM's asynchronous scheduler, which it uses by default, over Poolproof's manager."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _drop_in(self)


_KINDS: dict[type, Any] = {
    FullAttentionManager: lambda _: FullAttention(),
    SlidingWindowManager: lambda spec: SlidingWindow(window=spec.sliding_window),
    ChunkedLocalAttentionManager: lambda spec: ChunkedLocal(chunk_size=spec.attention_chunk_size),
}


def _group_of(manager: Any) -> FullAttention:
    group: FullAttention = _KINDS[type(manager)](manager.kv_cache_spec)
    return group


def _unknown() -> Iterator[str]:
    """What vLLM's manager has that is not known here: methods, and arguments of those that are."""
    ours = vars(DropInManager)
    for name, method in vars(VllmManager).items():
        if name.startswith("_") or name in _CONNECTORS_ONLY or name in _INDEPENDENT:
            continue
        if name not in ours:
            yield name
        else:
            known = signature(ours[name]).parameters
            yield from (f"{name}({more})" for more in signature(method).parameters.keys() - known)


def _drop_in(scheduler: Any) -> None:
    reason = reason_not_used(scheduler)
    if reason is not None:
        _LOG.warning("vLLM's KV cache manager stays: %s", reason)
        return
    scheduler.kv_cache_manager = DropInManager(
        scheduler.kv_cache_manager,
        max_in_flight_tokens=scheduler.vllm_config.max_in_flight_tokens,
    )
    _LOG.info("Poolproof's KV cache manager is used under %s", type(scheduler).__name__)
