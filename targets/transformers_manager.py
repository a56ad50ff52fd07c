"""The target `transformers`: the paged cache of Hugging Face Transformers' continuous batching.

`PagedAttentionCache` is the installed library's. Nothing is replaced or stubbed: it is built on the
CPU from a configuration with one tiny layer for each group, without a model, and allocates a tensor
of a few bytes a token. Written for Transformers 5.19, whose cache hands sectors to one allocator
for each kind of attention; earlier 5.x releases have other classes and are not driven.

The adapter does what the continuous-batching loop does around the cache: a prefix is searched, and
pinned at once; the tokens of the next batch are stored; the blocks that the forward pass will
complete are counted before it and marked after it; forks are prepared between batches; a preempted
request's blocks go back uncached, as when it is offloaded. Where it stands in for the scheduler:
- a store that does not fit is tried again with the free sectors collected, and once more with all
  cached blocks evicted, which is what the loop does under pressure over several batches. If it
  still does not fit the pinned prefix is given back, where the scheduler keeps the request active.
- all tokens are given, so nothing is sampled, and no request ends by itself.
- what changes the KV of a token is put into it: the cache knows no adapters, salts or images.

Block tables are made of the indices that `get_read_indices` and `get_write_indices` give the
kernels, and not of the allocator's own list: an error in their arithmetic shows as a wrong table,
or as `ScatteredSlotsError`. A sliding group reads the window before it writes over it; its table
names the same pages again and again, as a ring does. Only windows of whole pages can be told so.

Sectors of the cache's tensor are lent to one allocator for each kind of attention. Where each kind
has as many layers as the others, and a block is padded to no less than a sector, a sector is one
block, and all groups share one pool of equal blocks: that is what the contract speaks of. The
layout `full-sectors` has several blocks in a sector, which one kind alone can have without the
sectors' boundaries showing.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from poolproof.contract.manager_profile import CacheGroup, ManagerProfile
from poolproof.contract.target import TargetError
from poolproof.targets.adapter_fit import Call
from poolproof.targets.adapter_uses import Use, require_uses
from poolproof.targets.manager_target import manager_target
from poolproof.targets.manager_trial import require_a_few_calls
from poolproof.targets.target import ManagerLayout, Target, source_of
from poolproof.targets.target_spec import builtin_profile
from poolproof.targets.token_names import TokenNames

__all__ = [
    "HOW_TO_GET_TRANSFORMERS",
    "NO_BLOCK",
    "USES",
    "CacheSize",
    "ScatteredSlotsError",
    "blocks_of",
    "check_indices",
    "free_blocks",
    "new_cache",
    "transformers_manager",
    "transformers_parts",
]


HOW_TO_GET_TRANSFORMERS = (
    "run `make vllm` and use `.venv-vllm/bin/poolproof`, or install Poolproof into an environment "
    "with transformers==5.19.0 and torch"
)

_ADAPTED_TO = "transformers 5.19"
_BATCHING = "transformers.generation.continuous_batching"
_WANTED = (
    ("transformers", "PretrainedConfig"),
    ("transformers.generation.configuration_utils", "ContinuousBatchingConfig"),
    (f"{_BATCHING}.cache", "PagedAttentionCache"),
    (f"{_BATCHING}.distributed", "DistributedHelper"),
    (f"{_BATCHING}.requests", "RequestState"),
    (f"{_BATCHING}.requests", "RequestStatus"),
    ("torch", "float32"),
)


@dataclass(frozen=True)
class Transformers:
    """What the adapter uses, by the library's own names."""

    version: str
    PretrainedConfig: Any
    ContinuousBatchingConfig: Any
    PagedAttentionCache: Any
    DistributedHelper: Any
    RequestState: Any
    RequestStatus: Any
    float32: Any


def transformers_parts() -> Transformers:
    """The classes. Raises TargetError where they cannot be imported or have another shape."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    version = "unknown"
    with suppress(importlib.metadata.PackageNotFoundError):
        version = importlib.metadata.version("transformers")
    parts = {name: _imported(module, name, version) for module, name in _WANTED}
    logging.getLogger("ContinuousBatchingLogger").setLevel(logging.ERROR)
    if not hasattr(importlib.import_module(f"{_BATCHING}.cache"), "CachePool"):
        raise TargetError(
            f"transformers {version} has another continuous-batching cache than 5.19, for which "
            f"this adapter is written; {HOW_TO_GET_TRANSFORMERS}"
        )
    return Transformers(version=f"transformers {version}", **parts)


def _imported(module: str, name: str, version: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing in {"transformers", "torch"}:
            what = f"{missing} is not installed where Poolproof runs"
        else:
            what = (
                f"{module}.{name} of transformers {version} cannot be imported: "
                f"{type(error).__name__}: {error}"
            )
        raise TargetError(f"{what}; {HOW_TO_GET_TRANSFORMERS}") from error


NO_BLOCK = -1
"""Stands in a table where the slots of a page lie in no block."""


class ScatteredSlotsError(Exception):
    """The indices for reading and writing do not belong together."""


def blocks_of(allocator: Any, request_id: str, num_tokens: int) -> list[int]:
    """The block behind each page of the first `num_tokens` positions, in the engine's numbers."""
    slots = _slots(allocator, request_id, num_tokens)
    size = allocator.tokens_per_page
    return [_block(allocator, slots[first : first + size]) for first in range(0, num_tokens, size)]


def check_indices(
    allocator: Any, request_id: str, past: int, read_at: list[int], written_at: list[int]
) -> None:
    """A forward pass after `past` tokens reads and writes where their slots are.

    Raises ScatteredSlotsError.
    """
    count = len(written_at)
    slots = _slots(allocator, request_id, past + count)
    window = getattr(allocator, "sliding_window", None)
    if window is None:
        reads, writes = slots, slots[past:]
    else:
        reads = slots[max(0, past - window + 1) : past] + [allocator.sentinel_index] * count
        num_lost = max(0, count - window)
        writes = [allocator.write_trash_index] * num_lost + slots[past + num_lost :]
    for what, wanted, given in (
        ("reads", reads, read_at),
        ("writes", writes, written_at),
    ):
        if given != wanted:
            raise ScatteredSlotsError(
                f"{count} tokens after {past} of request {request_id}: the {allocator.layer_type} "
                f"group {what} at {given}, but its tokens lie at {wanted}"
            )


def _slots(allocator: Any, request_id: str, num_tokens: int) -> list[int]:
    """The slot of each position, computed one by one where the window goes round."""
    if getattr(allocator, "sliding_window", None) is None:
        return list(allocator.get_read_indices(request_id, 0, num_tokens))
    return [allocator.get_write_indices(request_id, past, 1)[0] for past in range(num_tokens)]


def _block(allocator: Any, slots: list[int]) -> int:
    """The block whose first slots these are, or `NO_BLOCK`."""
    block, offset = divmod(slots[0], allocator.block_physical_stride)
    if offset or slots != list(range(slots[0], slots[0] + len(slots))):
        return NO_BLOCK
    return int(block)


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
        # What `free_order` lists, until a verb may have changed it: each block asks for it.
        self._free: frozenset[int] | None = None

    def admit(
        self,
        seq_id: int,
        tokens: list[int],
        *,
        extra_keys: Any = None,
        num_tokens: int | None = None,
    ) -> int | str:
        self._free = None
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
        self._free = None
        request = self._requests[seq_id]
        if not self._store(request, len(tokens)):
            return "later"
        request.state.generated_tokens += self._names.named(tokens, request.setting)
        return []

    def schedule(self, seq_id: int, num_tokens: int) -> Copies | str:
        self._free = None
        return [] if self._store(self._requests[seq_id], num_tokens) else "later"

    def step(self, batch: list[tuple[int, int]]) -> None:
        """Blocks are counted and indices are made before the forward pass, hashes after it."""
        self._free = None
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
        self._free = None
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
        self._free = None
        del self._requests[seq_id]
        self._cache.free_blocks(str(seq_id), no_cache=True)

    def finish(self, seq_id: int) -> None:
        self._free = None
        self._requests.pop(seq_id, None)
        self._cache.free_blocks(str(seq_id))

    def abort(self, seq_id: int) -> None:
        self.finish(seq_id)

    def lookup_prefix(self, tokens: list[int], *, extra_keys: Any = None) -> int:
        """What `search_prefix_match` would find, without pinning it."""
        self._free = None
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
        self._free = None
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
        return free_blocks(self._cache)

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
        if self._free is None:
            self._free = frozenset(self.free_order())
        return 0 if block_id in self._free else 1

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


_PAGE_SIZE = 4

_SHARED = {
    "eviction": "unspecified",
    "duplicates": "first",
    "retention": "may-drop",
    "misuse": "undefined",
    "index": "exact",
    "never": "untold",
    "release_order": "unspecified",
    "window_blocks": "reused",
    "tables": "merged",
    "collisions": "trusted",
}

_NOTES = (
    "no stand-ins: the cache is built on the CPU without a model, one layer for each group",
    "adapters, salts and images: the cache has none, so tokens under them are other tokens to it",
    "the scheduler's safety margin: cached blocks are evicted only when something does not fit",
    "copies to host memory: a preempted request's blocks go back uncached, as a soft reset does it",
    "kernels that take the block table (decoding's fast path): read and write indices are seen",
    "asynchronous batching and tensor parallelism: not driven",
)


@dataclass(frozen=True)
class _NamedLayout:
    name: str
    groups: tuple[CacheGroup, ...]
    page_size: int = _PAGE_SIZE
    small_blocks: bool = False
    why_not: str = ""


_FULL = CacheGroup()
_SLIDING = CacheGroup("sliding", 0, 8)

_LAYOUTS = (
    _NamedLayout("full", (_FULL,)),
    _NamedLayout("full-sectors", (_FULL,), small_blocks=True),
    _NamedLayout("full+sliding", (_FULL, _SLIDING)),
    _NamedLayout("sliding", (_SLIDING,)),
    _NamedLayout("full+sliding-page-1", (_FULL, CacheGroup("sliding", 0, 6)), page_size=1),
    _NamedLayout("sliding-page-1", (CacheGroup("sliding", 0, 6),), page_size=1),
    _NamedLayout(
        "sliding-6",
        (CacheGroup("sliding", 0, 6),),
        why_not="a window that is no multiple of the page goes round in the middle of a page, "
        "which a block table cannot tell; sliding-page-1 has such a window",
    ),
    _NamedLayout(
        "full+full+sliding",
        (_FULL, _SLIDING),
        why_not="kinds with unequal numbers of layers have blocks of unequal size in one tensor",
    ),
)


_ALLOCATORS = f"{_BATCHING}.cache_allocators"
USES = (
    Use(
        f"{_BATCHING}.cache", "PagedAttentionCache",
        (
            Call("__init__", ("config", "batching"), ("device", "distributed_helper", "dtype")),
            Call("search_prefix_match", ("request_id", "prompt_ids")),
            Call("can_store_request_tokens", ("state", "request_len")),
            Call("free_blocks", ("request_id",), ("no_cache",)),
            Call("count_new_complete_blocks", ("state", "request_len")),
            Call("mark_complete_blocks", ("state", "complete_blocks")),
            Call("prepare_fork_request", ("state", "request_ids", "copies")),
            Call("perform_cache_copy", ("copies",)),
            Call("extend_read_and_write_indices", (
                "request_id", "past_length", "query_length", "read_index", "write_index",
            )),
            Call("evict_cached_blocks"), Call("reset"),
        ),
        ("cache_allocators", "pool", "use_prefix_sharing"),
    ),
    Use(
        f"{_BATCHING}.requests", "RequestState",
        (
            Call("__init__", ("request_id", "initial_tokens"), ("max_new_tokens",)),
            Call("current_len"), Call("fork", ("request_id",)),
        ),
        ("request_id", "position_offset", "generated_tokens"),
    ),
    Use(f"{_BATCHING}.distributed", "DistributedHelper", (Call("__init__", ("mesh", "timeout")),)),
    Use(
        f"{_ALLOCATORS}.cache_pool", "CachePool",
        (Call("try_to_free_sectors"), Call("count_free_blocks", ("index",))),
        ("num_free_sectors", "free_sectors", "_free_blocks"),
    ),
    Use(
        f"{_ALLOCATORS}.cache_allocator", "CacheAllocator",
        (
            Call("get_read_indices", ("request_id", "past_length", "query_length")),
            Call("get_write_indices", ("request_id", "past_length", "query_length")),
            Call("match_prefix_blocks", ("prompt_ids",)),
        ),
        (
            "tokens_per_page", "blocks_per_sector", "block_physical_stride", "layer_type", "index",
            "ledger", "block_table",
        ),
    ),
    Use(
        f"{_ALLOCATORS}.cache_allocator", "BlockLedger",
        reads=("cached_blocks", "shared_ref_counts", "block_to_hash"),
    ),
)  # fmt: skip


def transformers_manager(name: str, overrides: Mapping[str, Any]) -> Target:
    """The installed library's cache. Raises TargetError where it cannot be imported or differs."""
    parts = transformers_parts()
    if "groups" in overrides:
        raise TargetError(f"{name}: cache groups are chosen with --layout, not by a row")
    modules = {use.module: importlib.import_module(use.module) for use in USES}
    require_uses(name, USES, modules, _ADAPTED_TO)
    layouts = [_layout(name, parts, layout, overrides) for layout in _LAYOUTS]
    require_a_few_calls(name, layouts, _ADAPTED_TO)
    return manager_target(
        name,
        "native-manager",
        layouts,
        version=parts.version,
        source=source_of(parts.PagedAttentionCache),
        real_class=parts.PagedAttentionCache,
        notes=_NOTES,
    )


def _layout(
    name: str, parts: Transformers, layout: _NamedLayout, overrides: Mapping[str, Any]
) -> ManagerLayout:
    # Prefixes are shared only where all layers have full attention.
    publishes = "computed" if layout.groups == (_FULL,) else "never"
    own = {**_SHARED, "publishes": publishes, "groups": layout.groups}
    profile = builtin_profile(name, own, overrides, ManagerProfile)
    make = None if layout.why_not else _maker(parts, layout)
    return ManagerLayout(layout.name, profile, make, layout.page_size, layout.why_not)


@dataclass(frozen=True)
class CacheSize:
    """The blocks of a cache, and its groups of layers."""

    num_blocks: int
    page_size: int
    groups: tuple[CacheGroup, ...] = (_FULL,)
    small_blocks: bool = False
    """Whether several blocks fill a sector."""


def new_cache(
    parts: Transformers,
    size: CacheSize,
    *,
    enable_caching: bool,
    attention: str = "sdpa",
    **options: Any,
) -> tuple[Any, Any, Any]:
    """A cache on the CPU, and the configurations of model and batching that it was built of.

    `attention` names the kernel that the model would have, `options` are further rows of the
    configuration of batching.
    """
    kinds = [f"{group.kind}_attention" for group in size.groups]
    head_dim = _head_dim(size)
    config = parts.PretrainedConfig(
        num_hidden_layers=len(kinds),
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=head_dim,
        hidden_size=head_dim,
        vocab_size=8,
    )
    config.layer_types = kinds
    config.sliding_window = max(group.window for group in size.groups) or None
    config._attn_implementation = attention  # noqa: SLF001 - as a model's constructor sets it
    batching = parts.ContinuousBatchingConfig(
        page_size=size.page_size,
        # Counted in blocks of all layers, so a number of blocks that is odd ends in a half.
        num_blocks=size.num_blocks / len(kinds),
        max_memory_percent=0.5,
        allow_block_sharing=enable_caching,
        **options,
    )
    cache = parts.PagedAttentionCache(
        config,
        batching,
        device="cpu",
        distributed_helper=parts.DistributedHelper(None, None),
        dtype=parts.float32,
    )
    return cache, config, batching


def free_blocks(cache: Any) -> int:
    """Blocks in free sectors, free blocks of sectors in use, and cached ones without owner."""
    allocators = list(cache.cache_allocators.values())
    free: int = cache.pool.num_free_sectors * allocators[0].blocks_per_sector
    for allocator in allocators:
        free += cache.pool.count_free_blocks(allocator.index) + len(allocator.ledger.cached_blocks)
    return free


def _maker(parts: Transformers, layout: _NamedLayout) -> Callable[[int, bool], TransformersManager]:
    def make(num_blocks: int, enable_caching: bool) -> TransformersManager:
        size = CacheSize(num_blocks, layout.page_size, layout.groups, layout.small_blocks)
        cache, _, _ = new_cache(parts, size, enable_caching=enable_caching, max_batch_tokens=64)
        return TransformersManager(cache, parts.RequestState)

    return make


def _head_dim(size: CacheSize) -> int:
    """With this many numbers a head, a block fills a sector of 128 bytes, or a half or quarter.

    A page has a key and a value of 4 bytes a number for each token. Small blocks fill whole
    sectors as far as the number of blocks allows.
    """
    whole = 128 // (2 * 4 * size.page_size)
    if not size.small_blocks:
        return whole
    return next(whole // parts for parts in (4, 2, 1) if size.num_blocks % parts == 0)
