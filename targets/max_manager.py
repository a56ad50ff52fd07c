"""The targets `max-manager` and `max-jenga`: MAX's two KV cache managers, unmodified.

`BlockManager` keeps one cache of full attention over a `BlockPool`. `JengaBlockManager` keeps any
number of caches over a `JengaBlockPool`, whose memory is cut into huge blocks; each serves one
cache at a time, as so many little blocks of its page size. The adapter does what MAX's batch
constructor and its pipeline do around them. A prompt is claimed and gets blocks for all of itself,
what is cached at its head included. After each step the sampled token joins the request, full
blocks are published, of all tokens but the last one, and windows slide. An end, or a preemption,
gives all blocks back.

Driven of the Jenga manager are one cache of full attention, one of a sliding window, and both, with
one or two little blocks in a huge one. Where that leaves more little blocks than were asked for,
one is held back from the beginning. A block of the contract is a little block: of two caches with
equal pages, those of one number are the same memory.

Where it stands in for the server:
- how many tokens a batch has, and who is preempted for want of blocks, are policy.
- a decode grows by one token in MAX. Further ones are what accepted drafts would be; no hit is
  looked for then.
- `BlockManager` looks for hits before each chunk of a prompt, and leaps over what others computed
  meanwhile. The contract has no word for that, so chunks are driven in `max-jenga` alone, which
  looks once.
- the prefix cache is reset only while nothing is held; MAX drops what is unheld at any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from poolproof.contract.manager_profile import FULL, ManagerProfile
from poolproof.contract.target import TargetError
from poolproof.targets.manager_target import manager_target
from poolproof.targets.max_pool import free_blocks, jenga_pool
from poolproof.targets.max_release import PAGED, MaxEngine, MaxRequests, max_engine, max_modules
from poolproof.targets.release_modules import ReleaseModules
from poolproof.targets.target import ManagerLayout, Target, source_of
from poolproof.targets.target_spec import builtin_profile

__all__ = ["MAX_JENGA", "MAX_MANAGER", "MaxJengaManager", "MaxManager", "max_jenga", "max_manager"]

_BLOCK_SIZE = 4
_WINDOW = 6
"""Tokens of a window, the one that reads included, as MAX counts them."""


class _MaxManager:
    """What both managers have in common; `blocks` is the manager, `requests` makes its requests.

    `no_space` is what it raises where there is no room.
    """

    def __init__(self, blocks: Any, requests: Any, no_space: type[Exception]) -> None:
        self._blocks = blocks
        self._requests = requests
        self._no_space = no_space
        self._live: dict[int, Any] = {}
        self._in_step: set[int] = set()

    def append(self, seq_id: int, tokens: list[int]) -> list[tuple[int, int]] | str:
        if seq_id in self._in_step:
            return "later"
        request = self._live[seq_id]
        # The first token is in the request since it was sampled.
        grown = self._requests.grown(request, tokens[1:]) if tokens[1:] else request
        if not self._takes(grown):
            return "later"
        self._live[seq_id] = grown
        self._in_step.add(seq_id)
        return []

    def step(
        self, batch: list[tuple[int, int]], *, sampled: Sequence[tuple[int, int]] = ()
    ) -> None:
        told = dict(sampled)
        for seq_id, _ in batch:
            request = self._live[seq_id]
            if seq_id in told:
                request.update(self._requests.named(request, told[seq_id]))
            else:
                request.tokens.advance_chunk()
            self._blocks.step(request)
            self._in_step.discard(seq_id)

    def finish(self, seq_id: int) -> None:
        request = self._live.pop(seq_id, None)
        self._in_step.discard(seq_id)
        if request is not None:
            self._blocks.release(request)

    def preempt(self, seq_id: int) -> None:
        self.finish(seq_id)

    def abort(self, seq_id: int) -> None:
        self.finish(seq_id)

    def reset(self) -> bool:
        if self._live:
            return False
        self._blocks.reset_prefix_cache()
        return True

    def _admitted(self, seq_id: int, request: Any) -> int | str:
        """The cached tokens of a request that is claimed, or that there is no room for it."""
        if not self._takes(request):
            self._blocks.release(request)
            return "later"
        self._live[seq_id] = request
        self._in_step.add(seq_id)
        return int(request.tokens.processed_length)

    def _takes(self, request: Any) -> bool:
        """Whether the request has blocks for all of its tokens now."""
        try:
            self._allocate(request)
        except self._no_space:
            return False
        return True

    def _allocate(self, request: Any) -> None:
        raise NotImplementedError


class MaxManager(_MaxManager):
    """A `BlockManager` over one pool; `hashes_of(request)` are those of its full blocks."""

    def __init__(
        self, blocks: Any, requests: Any, no_space: type[Exception], hashes_of: Any
    ) -> None:
        super().__init__(blocks, requests, no_space)
        self._hashes_of = hashes_of

    def admit(self, seq_id: int, tokens: list[int], *, extra_keys: Any = None) -> int | str:
        request = self._requests.new(seq_id, tokens, extra_keys)
        self._blocks.claim(request)
        return self._admitted(seq_id, request)

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:  # noqa: ARG002 - one group
        table: list[int] = self._blocks.get_req_blocks(self._live[seq_id])
        return table

    def lookup_prefix(self, tokens: list[int], *, extra_keys: Any = None) -> int:
        hashes = self._hashes_of(self._requests.new(-1, tokens, extra_keys))
        (found,) = self._blocks.count_cached_prefix_blocks_per_replica(hashes)
        return int(found.device_blocks) * _BLOCK_SIZE

    def num_free(self) -> int:
        free: int = self._blocks.device_block_pool.num_free_blocks
        return free

    def free_order(self) -> list[int]:
        pool = self._blocks.device_block_pool
        return list(islice(free_blocks(pool), pool.total_num_blocks + 1))

    def ref_count(self, block_id: int) -> int:
        count: int = self._blocks.device_block_pool.pool[block_id].ref_cnt
        return count

    def is_cached(self, block_id: int) -> bool:
        return self._blocks.device_block_pool.pool[block_id].block_hash is not None

    def _allocate(self, request: Any) -> None:
        """As `PagedKVCacheManager.alloc` does it, which owns the memory as well."""
        is_new = not request.tokens.processed_length
        skipped = self._blocks.reuse_blocks_from_prefix_cache(request) if is_new else 0
        try:
            self._blocks.allocate_new_blocks(request)
        except self._no_space:
            self._blocks.rollback_prefix_reuse(request, skipped)
            raise


class MaxJengaManager(_MaxManager):
    """A `JengaBlockManager` over one pool, of which `first_block` is block 1 of the contract.

    Block 0 is the null block. `ratio` is how many little blocks a huge one has.
    """

    def __init__(
        self,
        blocks: Any,
        requests: Any,
        no_space: type[Exception],
        *,
        first_block: int = 1,
        ratio: int = 1,
    ) -> None:
        super().__init__(blocks, requests, no_space)
        self._first_block = first_block
        if ratio > 1:
            # What is free in a huge block of one cache is not free for another: no number says it.
            hidden: Any = None
            self.num_free = hidden  # type: ignore[method-assign]  # absent, as the contract writes it

    def admit(
        self,
        seq_id: int,
        tokens: list[int],
        *,
        extra_keys: Any = None,
        num_tokens: int | None = None,
    ) -> int | str:
        request = self._requests.new(seq_id, tokens, extra_keys)
        self._blocks.claim(request)
        answer = self._admitted(seq_id, request)
        if isinstance(answer, int):
            _cut(request, num_tokens)
        return answer

    def schedule(self, seq_id: int, num_tokens: int) -> list[tuple[int, int]] | str:
        request = self._live[seq_id]
        if seq_id in self._in_step or not self._takes(request):
            return "later"
        self._in_step.add(seq_id)
        _cut(request, num_tokens)
        return []

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:
        tables = self._blocks.get_req_blocks_per_leaf(self._live[seq_id])
        return [block and block - self._first_block + 1 for block in tables[_cache_id(group)]]

    def lookup_prefix(self, tokens: list[int], *, extra_keys: Any = None) -> int:
        request = self._requests.new(-1, tokens, extra_keys)
        (found,) = self._blocks.get_prefix_cache_hit_counts(request)
        return int(found.device_blocks) * _BLOCK_SIZE

    def num_free(self) -> int:
        (pool,) = self._blocks.pools
        free: int = pool.num_free_huge_blocks
        return free

    def _allocate(self, request: Any) -> None:
        self._blocks.alloc(request)


def _cut(request: Any, num_tokens: int | None) -> None:
    """Leave all but so many tokens for later steps; its blocks do not depend on that."""
    if num_tokens is not None and num_tokens < request.tokens.active_length:
        request.tokens.chunk(num_tokens)


def _cache_id(group: int) -> str:
    return f"cache {group}"


def max_manager(name: str, overrides: Mapping[str, Any]) -> Target:
    """The target `max-manager`. Raises TargetError where MAX is not there."""
    modules, version = max_modules(MAX_MANAGER, name)
    if overrides.get("groups", "full") not in ("full", FULL):
        raise TargetError(f"{name}: BlockManager has one cache group, full attention")
    utils, common = modules(f"{PAGED}.block_utils"), modules(f"{PAGED}._common")
    real_class = modules(f"{PAGED}.block_manager").BlockManager

    def make(num_blocks: int, enable_caching: bool) -> MaxManager:
        blocks = real_class(num_blocks, _BLOCK_SIZE, enable_caching)

        def hashes_of(request: Any) -> Any:
            settings = (_BLOCK_SIZE, blocks.kv_hash_algo, blocks.kv_hash_seed)
            return common.compute_block_hashes(request, [], *settings)

        requests = MaxRequests(modules)
        return MaxManager(blocks, requests, utils.InsufficientBlocksError, hashes_of)

    profile = builtin_profile(name, MAX_MANAGER.rows, overrides, ManagerProfile)
    layout = ManagerLayout(profile.layout_name, profile, make, _BLOCK_SIZE)
    return _target(MAX_MANAGER, name, [layout], version, real_class)


def max_jenga(name: str, overrides: Mapping[str, Any]) -> Target:
    """The target `max-jenga`. Raises TargetError where MAX is not there."""
    modules, version = max_modules(MAX_JENGA, name)
    if "groups" in overrides:
        raise TargetError(f"{name}: the groups are those of its layouts; choose one with --layout")
    layouts = [_jenga_layout(modules, layout, overrides, name) for layout in _JENGA_LAYOUTS]
    real_class = modules(f"{PAGED}.jenga_block_manager").JengaBlockManager
    return _target(MAX_JENGA, name, layouts, version, real_class)


def _target(
    engine: MaxEngine,
    name: str,
    layouts: list[ManagerLayout],
    version: str | None,
    real_class: type,
) -> Target:
    return manager_target(
        name,
        engine.name,
        layouts,
        version=version,
        source=source_of(real_class),
        real_class=real_class,
        notes=engine.notes,
    )


@dataclass(frozen=True)
class _JengaLayout:
    name: str
    groups: str
    ratio: int
    rows: Mapping[str, Any]


def _jenga_layout(
    modules: ReleaseModules, layout: _JengaLayout, overrides: Mapping[str, Any], name: str
) -> ManagerLayout:
    rows = {**MAX_JENGA.rows, "groups": layout.groups, **layout.rows}
    profile = builtin_profile(name, rows, overrides, ManagerProfile)

    def make(num_blocks: int, enable_caching: bool) -> MaxJengaManager:
        return _jenga(modules, profile, layout.ratio, num_blocks, enable_caching=enable_caching)

    return ManagerLayout(layout.name, profile, make, _BLOCK_SIZE)


def _jenga(
    modules: ReleaseModules,
    profile: ManagerProfile,
    ratio: int,
    num_blocks: int,
    *,
    enable_caching: bool,
) -> MaxJengaManager:
    """A manager with `num_blocks` little blocks, the null block included."""
    kinds = modules("max.nn.kv_cache")
    manager = modules(f"{PAGED}.jenga_block_manager")
    identifiers = {
        _cache_id(number): kinds.KVCacheGroupId("sliding_window", group.window)
        if group.is_sliding
        else kinds.KVCacheGroupId.full()
        for number, group in enumerate(profile.groups)
    }
    real_pool = modules(f"{PAGED}.jenga_block_pool").JengaBlockPool
    pool, first_block = jenga_pool(real_pool, num_blocks, tuple(identifiers), ratio)
    infos = {
        cache: manager.KVLeafInfo(ratio=ratio, group_id=identifier)
        for cache, identifier in identifiers.items()
    }
    leaves = {
        cache: kinds.PagedKVLeafRegion(cache, identifier, 1, page_size=_BLOCK_SIZE)
        for cache, identifier in identifiers.items()
    }
    groups = manager.create_groups(infos, [pool], _BLOCK_SIZE, enable_prefix_caching=enable_caching)
    blocks = manager.JengaBlockManager(
        [pool], _BLOCK_SIZE, enable_caching, groups=groups, leaves=leaves
    )
    no_space = modules(f"{PAGED}.block_utils").InsufficientBlocksError
    return MaxJengaManager(
        blocks, MaxRequests(modules), no_space, first_block=first_block, ratio=ratio
    )


_NOTES = (
    "adapters and images: tokens under them are other tokens; MAX refuses adapters with its cache",
    "drafts, connectors and external tiers, several replicas: not driven",
    "forks, truncation, swapping: the manager has none",
)
_ROWS: Mapping[str, Any] = {
    "sampled": "with-step",
    # What is computed twice is merged into the block that has the hash.
    "duplicates": "first",
    "tables": "merged",
    "never": "untold",
    # A request that is in the step being planned does not grow before it is over.
    "admission": "exact-at-admission",
    # As in the pools; but a prompt that is put off has used what it found, and moves it to the end.
    "eviction": "unspecified",
    "uncached_order": "unspecified",
    "misuse": "undefined",
}

MAX_MANAGER = max_engine(
    "max-manager",
    "the BlockManager of Modular's MAX",
    rows=_ROWS,
    notes=("chunks of a prompt: driven in max-jenga", *_NOTES),
)
MAX_JENGA = max_engine(
    "max-jenga",
    "the JengaBlockManager of Modular's MAX, over its pool in Rust",
    # A prompt has blocks for all of itself before its first chunk.
    rows={**_ROWS, "null_block": 0, "reserves": "sequence"},
    notes=_NOTES,
)
_SLIDING = f"sliding:{_WINDOW}"
_SLIDES = {"index": "content"}
"""A window slides at the end of a step."""

_JENGA_LAYOUTS = (
    _JengaLayout("full", "full", 1, {}),
    _JengaLayout("sliding", _SLIDING, 1, _SLIDES),
    _JengaLayout("full+sliding", f"full+{_SLIDING}", 1, _SLIDES),
    _JengaLayout("full-halves", "full", 2, {}),
    _JengaLayout(
        "full+sliding-halves",
        f"full+{_SLIDING}",
        2,
        # A huge block of one cache has no room for another, and is forgotten whole when it goes
        # from one to the other.
        {**_SLIDES, "admission": "sound", "retention": "may-drop", "hits": "sound"},
    ),
)
"""`halves`: a huge block has two little ones."""
