"""The target `sglang`: the radix cache of SGLang 0.5.23 over its page allocators.

A page of the contract is a page of the allocator; pages of 4 slots and of 1, each with freed pages
at the head of the free list and with freed pages sorted in later. Nodes are evicted by the time of
their last use, which is read from a clock: no order is declared. The engine asks for up to a page
more than it needs before it evicts (sglang#32217), so cached pages may go early.

The real functions do the work; the adapter does what the scheduler does around them: the prefix is
matched and locked, then room is looked for; slots are taken by an extend for prompts and chunks, by
a decode for a single sampled token, both of which evict first; an extend is checkpointed into the
tree after its forward pass, a decode is not; a finished request is checkpointed on release, a
retracted or aborted one is not.

Where it stands in for the scheduler:
- room: an extend is granted when free and evictable slots hold its pages; what the scheduler keeps
  in reserve for decoding is its policy. A decode is asked for with `check_decode_capacity`.
- several tokens appended at once are an extend of what was computed, as in a session's next turn.
- a request that ends while tokens of it wait for the forward pass is not checkpointed.
- images: the token ids under one are replaced by ids of its own, as the server's pad values do.
- `Req` and `ReqKvInfo` live in a module that imports the whole server. `SglangRequest` has the
  fields and methods that the cache functions touch, with the values of a request without
  speculation, sliding windows, recurrent state or sessions.

How the engine's functions are found without its server is told in `installed_sglang.py`.
"""

from __future__ import annotations

import importlib
from array import array
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from poolproof.contract.adapter_fault import HandedFields, HandedOver
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.target import TargetError
from poolproof.targets.adapter_fit import Call
from poolproof.targets.adapter_uses import Use, require_uses
from poolproof.targets.installed_sglang import SGLANG, SGLANG_STUBS, Sglang, sglang_parts
from poolproof.targets.manager_target import manager_target
from poolproof.targets.manager_trial import require_a_few_calls
from poolproof.targets.target import ManagerLayout, Target, source_of
from poolproof.targets.target_spec import builtin_profile
from poolproof.targets.token_names import TokenNames

__all__ = [
    "NUM_ROWS",
    "POOL_USES",
    "PUBLISHED",
    "TREE_CALLS",
    "TREE_PARAMETERS",
    "TREE_READS",
    "USES",
    "KvInfo",
    "RadixPages",
    "SglangManager",
    "SglangRequest",
    "publish_settings",
    "require_sglang",
    "sglang_manager",
]


def server_settings() -> dict[str, SimpleNamespace]:
    """No speculative decoding, and what was thought stays in the cache."""
    return {
        "spec": HandedFields(speculative_algorithm=None),
        "serving": HandedFields(strip_thinking_cache=False),
    }


class KvInfo(HandedOver):
    """Which row of the request pool, and how much KV, a request holds outside of the tree."""

    holds_mamba = False
    swa_evict_floor = 0

    def __init__(self) -> None:
        self.req_pool_idx: int | None = None
        self.cache_protected_len = 0
        self.cache_inserted_len = 0
        self.kv_committed_len = 0
        self.kv_allocated_len = 0

    @property
    def holds_kv(self) -> bool:
        return self.req_pool_idx is not None

    @property
    def is_kv_released(self) -> bool:
        return self.kv_allocated_len == 0

    def get_evicted_seqlen(self, _component: Any) -> int:
        return 0

    def swa_dead_lo(self, _page_size: int) -> int:
        return self.cache_protected_len

    def mark_kv_released(self) -> None:
        self.kv_allocated_len = 0


class SglangRequest(HandedOver):
    """A request with `tokens` as its prompt, in a namespace of the radix tree.

    `computed` positions are done; what is allocated beyond waits for the next forward pass, a
    single sampled token if `is_decoding`.
    """

    skip_radix_cache_insert = False
    priority = None
    kv_class = KvInfo

    def __init__(
        self, name: str, tokens: Iterable[int], extra_key: str | None, cache_salt: str | None
    ) -> None:
        self.rid = name
        self.origin_input_ids = array("q", tokens)
        self.output_ids = array("q")
        self.full_untruncated_fill_ids = array("q")
        self.extra_key = extra_key
        self.cache_salt = cache_salt
        self.kv = self.kv_class()
        self.lock: Any = None
        self.last_node: Any = None
        self.prefix_len = 0
        self.extend_end = 0
        self.computed = 0
        self.is_decoding = False
        self.num_decodes = 0
        self.has_ended = False

    def refresh_fill_ids(self) -> None:
        """All tokens so far are what the next extend is over."""
        self.full_untruncated_fill_ids = self.origin_input_ids + self.output_ids

    def owned_kv_len(self) -> int:
        """Nothing was sampled beyond a stop."""
        return self.kv.kv_committed_len

    def finished(self) -> bool:
        """Whether the request is about to release its KV for good."""
        return self.has_ended

    def _compute_max_prefix_len(self, num_tokens: int) -> int:
        """One token is left to compute."""
        return max(num_tokens - 1, 0)


_NO_PAGE = -1
"""Stands in a table where the slots of a request lie in no page."""


class RadixPages:
    """The pages of a tree's allocator; what the tree shows is read once until something changes."""

    def __init__(self, tree: Any) -> None:
        self._tree = tree
        self._page_size: int = tree.page_size
        self._seen: tuple[dict[int, int], list[int]] | None = None

    def extend(self, parts: Sglang, row: Any, first: int, end: int) -> Any:
        """Slots for the positions from `first` to `end` - 1 of a row, as a tensor."""
        if self._page_size == 1:
            return parts.alloc_token_slots(self._tree, end - first)
        before, after = row.new_tensor([first]).long(), row.new_tensor([end]).long()
        last = row[first - 1 : first].long() if first else row.new_tensor([-1]).long()
        return parts.alloc_paged_token_slots_extend(
            self._tree, before, before, after, after, last, end - first
        )

    def decode(self, parts: Sglang, row: Any, length: int) -> Any:
        """The slot for position `length` of a row, as a tensor."""
        if self._page_size == 1:
            return parts.alloc_token_slots(self._tree, 1)
        after = row.new_tensor([length + 1]).long()
        last = row[length - 1 : length].long()
        return parts.alloc_paged_token_slots_decode(self._tree, after, after, last)

    def part_of(self, node: Any) -> tuple[Any, int]:
        """The slots of a node, and how often it is locked."""
        return node.value, node.lock_ref

    def may_have_changed(self) -> None:
        """The tree is read again before the next answer."""
        self._seen = None

    def locks(self) -> dict[int, int]:
        """How often each page that the tree holds is locked; one that stands there twice adds up.

        Whoever uses a page of the tree has locked the path to it.
        """
        return self._read()[0]

    def unlocked(self) -> list[int]:
        """The pages of nodes without a lock, as often as they stand there."""
        return self._read()[1]

    def _read(self) -> tuple[dict[int, int], list[int]]:
        if self._seen is None:
            locks: dict[int, int] = {}
            unlocked: list[int] = []
            waiting = list(self._tree.root_node.children.values())
            while waiting:
                node = waiting.pop()
                waiting += node.children.values()
                value, num_locks = self.part_of(node)
                firsts = value[:: self._page_size].tolist()
                for page in [slot // self._page_size for slot in firsts]:
                    locks[page] = locks.get(page, 0) + num_locks
                    if num_locks == 0:
                        unlocked.append(page)
            self._seen = locks, unlocked
        return self._seen


Copies = list[tuple[int, int]]


class SglangManager:
    """`tree` over its own allocator and request pool, driven as SGLang's scheduler drives them."""

    request_class = SglangRequest

    def __init__(self, parts: Sglang, tree: Any, pages: RadixPages | None = None) -> None:
        self._parts = parts
        self._tree = tree
        self._allocator = tree.token_to_kv_pool_allocator
        self._rows = tree.req_to_token_pool
        self._page_size: int = tree.page_size
        self._requests: dict[int, SglangRequest] = {}
        self._names = TokenNames(enable_caching=True)
        self._pages = pages or RadixPages(tree)

    def admit(
        self,
        seq_id: int,
        tokens: list[int],
        *,
        extra_keys: Any = None,
        num_tokens: int | None = None,
    ) -> int | str:
        request = self._request(str(seq_id), tokens, extra_keys)
        self._pages.may_have_changed()
        if not self._rows.available_size():
            return "later"  # the scheduler looks before it takes a request
        cached = self._match(request)
        request.kv.cache_protected_len = request.computed = cached
        request.lock = self._tree.lock(request.last_node)
        left = len(tokens) - cached
        end = cached + min(num_tokens or left, left)
        if not self._has_room(cached, end):
            self._tree.unlock(request.lock)
            return "later"
        prefix = self._tree.prefix_device_indices(request)
        self._rows.alloc([request])
        self._rows.write((request.kv.req_pool_idx, slice(0, cached)), prefix)
        self._extend(request, cached, end)
        self._requests[seq_id] = request
        return cached

    def append(self, seq_id: int, tokens: list[int]) -> Copies | str:
        request = self._requests[seq_id]
        self._pages.may_have_changed()
        first = request.kv.kv_allocated_len
        end = first + len(tokens)
        is_decoding = len(tokens) == 1 and first == request.computed
        fits = self._can_decode(request) if is_decoding else self._has_room(first, end)
        if not fits:
            return "later"
        request.output_ids.extend(tokens)
        if is_decoding:
            self._decode(request)
        else:
            self._extend(request, first, end)
        request.is_decoding = is_decoding
        return []

    def schedule(self, seq_id: int, num_tokens: int) -> Copies | str:
        request = self._requests[seq_id]
        self._pages.may_have_changed()
        first = request.kv.kv_allocated_len
        if not self._has_room(first, first + num_tokens):
            return "later"
        self._extend(request, first, first + num_tokens)
        request.is_decoding = False
        return []

    def step(self, batch: list[tuple[int, int]]) -> None:
        """After the forward pass extends are checkpointed, request by request."""
        self._pages.may_have_changed()
        for seq_id, count in batch:
            request = self._requests[seq_id]
            request.computed += count
            if not request.is_decoding:
                self._parts.checkpoint_kv_cache(request, self._tree)

    def preempt(self, seq_id: int) -> None:
        """A retraction: what was checkpointed before stays in the tree."""
        self._release(self._requests.pop(seq_id), checkpoint=False)

    def finish(self, seq_id: int) -> None:
        request = self._requests.pop(seq_id, None)
        if request is not None:
            is_settled = request.computed == request.kv.kv_allocated_len
            request.has_ended = True
            self._release(request, checkpoint=is_settled)

    def abort(self, seq_id: int) -> None:
        request = self._requests.pop(seq_id, None)
        if request is not None:
            request.has_ended = True
            self._release(request, checkpoint=False)

    def lookup_prefix(self, tokens: list[int], *, extra_keys: Any = None) -> int:
        """A match without a lock, as the scheduler makes one for its waiting requests."""
        self._pages.may_have_changed()
        return self._match(self._request("", tokens, extra_keys))

    def reset(self) -> bool:
        """`flush_cache`: the tree, the rows and the allocator begin anew."""
        if self._requests:
            return False
        self._pages.may_have_changed()
        self._tree.reset()
        self._rows.clear()
        self._allocator.clear()
        return True

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:  # noqa: ARG002 - one group
        kv = self._requests[seq_id].kv
        slots = self._rows.req_to_token[kv.req_pool_idx, : kv.kv_allocated_len].tolist()
        return [
            self._block(slots[first : first + self._page_size])
            for first in range(0, len(slots), self._page_size)
        ]

    def num_free(self) -> int:
        slots: int = self._allocator.available_size() + self._tree.evictable_size()
        return slots // self._page_size

    def free_order(self) -> list[int]:
        """Free pages, and pages of the tree that nobody has locked; the order means nothing."""
        pages = self._allocator.get_all_free_pages().tolist()
        return [page - 1 for page in pages + self._pages.unlocked()]

    def is_cached(self, block_id: int) -> bool:
        return block_id + 1 in self._pages.locks()

    def ref_count(self, block_id: int) -> int:
        """Locks on pages of the tree; others are free, or in the row of the one that has them."""
        locks = self._pages.locks()
        if block_id + 1 in locks:
            return locks[block_id + 1]
        return 0 if block_id in self.free_order() else 1

    def _block(self, slots: list[int]) -> int:
        """The page whose first slots these are, numbered from 0; slot 0 begins the padding page."""
        page, offset = divmod(slots[0], self._page_size)
        if offset or slots != list(range(slots[0], slots[0] + len(slots))):
            return _NO_PAGE
        return page - 1

    def _request(self, name: str, tokens: list[int], extra_keys: Any) -> SglangRequest:
        """Adapters go into the extra key, as the server puts their id there; salts are salts."""
        whole = {kind: value for kind, value, _, end in extra_keys or () if end is None}
        images = [keys for keys in extra_keys or () if keys[3] is not None]
        extra_key = "@".join(whole["lora"]) if "lora" in whole else None
        named = self._names.named(tokens, (), images)
        return self.request_class(name, named, extra_key, whole.get("salt"))

    def _match(self, request: SglangRequest) -> int:
        request.refresh_fill_ids()
        ids = request.full_untruncated_fill_ids
        self._parts.match_kv_cache(request, self._tree, ids, max_prefix_len=len(ids) - 1)
        return request.prefix_len

    def _has_room(self, first: int, end: int) -> bool:
        """Whether free and evictable pages hold the positions from `first` on."""
        size = self._page_size
        needed = -(-end // size) - -(-first // size)
        return needed <= self.num_free()

    def _can_decode(self, request: SglangRequest) -> bool:
        """The engine's own question, for one request."""
        needed = request.kv.kv_allocated_len % self._page_size == 0
        can: bool = self._allocator.check_decode_capacity(
            num_tokens=self._page_size * needed, tree_cache=self._tree
        )
        return can

    def _extend(self, request: SglangRequest, first: int, end: int) -> None:
        request.refresh_fill_ids()
        slots = self._pages.extend(self._parts, self._row(request), first, end)
        self._rows.write((request.kv.req_pool_idx, slice(first, end)), slots)
        request.extend_end = request.kv.kv_allocated_len = request.kv.kv_committed_len = end

    def _decode(self, request: SglangRequest) -> None:
        length = request.kv.kv_allocated_len
        slots = self._pages.decode(self._parts, self._row(request), length)
        self._rows.write((request.kv.req_pool_idx, slice(length, length + 1)), slots)
        request.kv.kv_allocated_len = request.kv.kv_committed_len = length + 1

    def _row(self, request: SglangRequest) -> Any:
        return self._rows.req_to_token[request.kv.req_pool_idx]

    def _release(self, request: SglangRequest, *, checkpoint: bool) -> None:
        self._pages.may_have_changed()
        self._parts.release_kv_cache(request, self._tree, checkpoint=checkpoint)


_RELEASE = SGLANG.replace("-", " ")

NUM_ROWS = 64
"""Requests that may run at once."""

PUBLISHED = {
    "eviction": "unspecified",
    "duplicates": "first",
    "retention": "may-drop",
    "misuse": "undefined",
    "index": "exact",
    "publishes": "prompts",
    "never": "untold",
    "tables": "merged",
    "max_sequences": NUM_ROWS,
}

_NOTES = (
    f"stand-ins: {', '.join(SGLANG_STUBS)}; orjson, where it is missing",
    "sglang/__init__.py, which starts the front end: not run",
    "stand-ins: Req and ReqKvInfo, whose module imports the server, and the server's configuration",
    "the allocators' PyTorch paths, which they take without a GPU: Triton kernels are not run",
    "what the scheduler keeps in reserve for decoding: an extend is granted when its pages fit",
    "windows, states, host memory: sglang-unified, sglang-engine, sglang-hicache-engine",
    "other policies than lru: not driven",
    "sessions, speculation, several ranks and events: not driven",
    "forks, swapping and truncation: the cache has none",
)

_NOT_RUN = (
    ("full+sliding", "a radix tree of one kind of KV has no windows: certify sglang-unified"),
    ("full+mamba", "a radix tree of one kind of KV has no states: certify sglang-engine"),
)

_CACHE = "sglang.srt.mem_cache"
_ALLOCATED = (
    Call("available_size"), Call("clear"), Call("get_all_free_pages"),
    Call("check_decode_capacity", (), ("num_tokens", "tree_cache")),
)  # fmt: skip
TREE_CALLS = (
    Call("__init__", ("params",)), Call("lock", ("node",)), Call("unlock", ("lock",)),
    Call("prefix_device_indices", ("req",)), Call("evictable_size"), Call("reset"),
)  # fmt: skip
"""What is called of either tree."""
TREE_READS = ("token_to_kv_pool_allocator", "req_to_token_pool", "page_size")
TREE_PARAMETERS = (
    "disable", "req_to_token_pool", "token_to_kv_pool_allocator", "page_size", "eviction_policy",
)  # fmt: skip
POOL_USES = (
    Use("sglang.srt.runtime_context", reads=("_CONTEXT",)),
    Use(
        f"{_CACHE}.memory_pool", "ReqToTokenPool",
        (
            Call("__init__", ("size", "max_context_len", "device", "enable_memory_saver")),
            Call("alloc", ("reqs",)), Call("available_size"), Call("clear"),
            Call("write", ("indices", "values")),
        ),
        ("req_to_token",),
    ),
    Use(
        f"{_CACHE}.allocator", "PagedTokenToKVPoolAllocator",
        (
            Call("__init__", ("size", "page_size", "dtype", "device", "kvcache", "need_sort")),
            *_ALLOCATED,
        ),
    ),
    Use(
        f"{_CACHE}.allocator", "TokenToKVPoolAllocator",
        (Call("__init__", ("size", "dtype", "device", "kvcache", "need_sort")), *_ALLOCATED),
    ),
    Use(
        f"{_CACHE}.common",
        calls=(
            Call("match_kv_cache", ("req", "tree_cache", "token_ids"), ("max_prefix_len",)),
            Call("checkpoint_kv_cache", ("req", "tree_cache")),
            Call("release_kv_cache", ("req", "tree_cache"), ("checkpoint",)),
        ),
    ),
    Use(
        f"{_CACHE}.allocation",
        calls=(
            Call("alloc_token_slots", ("tree_cache", "num_tokens")),
            Call("alloc_paged_token_slots_extend", (
                "tree_cache", "prefix_lens", "prefix_lens_cpu", "seq_lens", "seq_lens_cpu",
                "last_loc", "num_tokens",
            )),
            Call("alloc_paged_token_slots_decode", (
                "tree_cache", "seq_lens", "seq_lens_cpu", "last_loc",
            )),
        ),
    ),
)  # fmt: skip
"""What is used of the pools, under either tree."""
USES = (
    *POOL_USES,
    Use(f"{_CACHE}.cache_init_params", "CacheInitParams", (Call("__init__", (), TREE_PARAMETERS),)),
    Use(f"{_CACHE}.radix_cache", "RadixCache", TREE_CALLS, (*TREE_READS, "root_node")),
    Use(f"{_CACHE}.radix_cache", "TreeNode", reads=("children", "value", "lock_ref")),
)


def sglang_manager(name: str, overrides: Mapping[str, Any]) -> Target:
    """The engine's classes. Raises TargetError where its sources or PyTorch are not there."""
    parts = sglang_parts()
    if overrides.get("groups", "full") != "full":
        raise TargetError(f"{name}: the radix cache has one group, full attention")
    require_sglang(name, USES)
    profile = builtin_profile(name, PUBLISHED, overrides, ManagerProfile)
    layouts = [
        ManagerLayout(
            f"page-{size}{'-sorted' * sorts}",
            profile,
            _maker(parts, size, sorts, profile.max_sequences or NUM_ROWS),
            size,
        )
        for size in (4, 1)
        for sorts in (False, True)
    ]
    require_a_few_calls(name, layouts, _RELEASE)
    layouts += [ManagerLayout(other, profile, None, 4, why_not) for other, why_not in _NOT_RUN]
    return manager_target(
        name,
        "native-manager",
        layouts,
        version=_RELEASE,
        source=source_of(parts.RadixCache),
        real_class=parts.RadixCache,
        notes=_NOTES,
    )


def require_sglang(name: str, uses: Iterable[Use]) -> None:
    """Raises TargetError where SGLang differs in what an adapter uses; else it may be built."""
    wanted = tuple(uses)
    modules = {use.module: importlib.import_module(use.module) for use in wanted}
    require_uses(name, wanted, modules, _RELEASE)
    publish_settings()


def publish_settings() -> None:
    """What a server has published at its start, unless one runs in this process."""
    context = importlib.import_module("sglang.srt.runtime_context")._CONTEXT  # noqa: SLF001 - no accessor without a whole configuration
    if context._config_bags is None:  # noqa: SLF001 - the same
        context._config_bags = server_settings()  # noqa: SLF001 - the same


def _maker(
    parts: Sglang, page_size: int, sorts: bool, num_rows: int
) -> Callable[[int, bool], SglangManager]:
    def make(num_blocks: int, enable_caching: bool) -> SglangManager:
        num_slots = num_blocks * page_size
        # No KV is stored, so there is neither a number type nor a tensor for it.
        if page_size == 1:
            allocator = parts.TokenToKVPoolAllocator(num_slots, None, "cpu", None, sorts)
        else:
            allocator = parts.PagedTokenToKVPoolAllocator(
                num_slots, page_size, None, "cpu", None, sorts
            )
        tree = parts.RadixCache(
            parts.CacheInitParams(
                disable=not enable_caching,
                req_to_token_pool=parts.ReqToTokenPool(num_rows, num_slots, "cpu", False),
                token_to_kv_pool_allocator=allocator,
                page_size=page_size,
                eviction_policy="lru",
            )
        )
        return SglangManager(parts, tree)

    return make
