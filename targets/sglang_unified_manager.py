"""The target `sglang-unified`: the unified radix cache of SGLang 0.5.23, which a server builds.

`UnifiedRadixCache` is what the engine takes where no other cache is asked for: one tree whose nodes
carry a component for each kind of KV. Driven are full attention alone, and full attention with a
sliding window, whose KV lies in a pool of its own behind `SWATokenToKVPoolAllocator`. A page of the
contract is a page of one of the pools: block 0 stands for what has slid out, then come the pages of
the full pool, then those of the window's.

The adapter is that of `sglang_manager.py`, which says how it stands in for the scheduler. Here it
also does what `ScheduleBatch` does before a decode: what has slid out of a request's window is
freed. The engine's window counts the tokens before the one that reads; the contract's counts that
one, too.

Not driven: `MambaComponent`, since a hit copies the state of the tree into a slot of the request
in the next forward pass, and no row of a profile says so. The tier in host memory (`init_hicache`)
moves pages beside the steps, which only an engine can tell: `sglang_hicache_engine.py`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.target import TargetError
from poolproof.targets.adapter_fit import Call
from poolproof.targets.adapter_uses import Use
from poolproof.targets.engine_sources import BlankModule
from poolproof.targets.installed_sglang import SGLANG, SGLANG_STUBS, Sglang, sglang_parts
from poolproof.targets.manager_target import manager_target
from poolproof.targets.manager_trial import require_a_few_calls
from poolproof.targets.sglang_manager import (
    NUM_ROWS,
    POOL_USES,
    PUBLISHED,
    TREE_CALLS,
    TREE_PARAMETERS,
    TREE_READS,
    KvInfo,
    RadixPages,
    SglangManager,
    SglangRequest,
    require_sglang,
)
from poolproof.targets.target import ManagerLayout, Target, source_of
from poolproof.targets.target_spec import builtin_profile

__all__ = ["USES", "UnifiedRequest", "sglang_unified_manager", "unified_cache_module"]

_CACHE = "sglang.srt.mem_cache"
_REQUESTS = "sglang.srt.managers.schedule_batch"
"""The module of requests, which imports the server; streaming sessions name a class of it."""
_HISPARSE = f"{_CACHE}.allocator.hisparse"
"""An allocator of DeepSeek V4, which imports its layers; the window asks for its class."""


class UnifiedKvInfo(KvInfo):
    """Also how far each component has given up what lies before a request's window."""

    def __init__(self) -> None:
        super().__init__()
        self.evicted: dict[Any, int] = {}

    @property
    def is_kv_released(self) -> bool:
        return self.kv_allocated_len == 0 and not any(self.evicted.values())

    def get_evicted_seqlen(self, component: Any) -> int:
        return self.evicted.get(component, 0)

    def set_evicted_seqlen(self, component: Any, length: int) -> None:
        self.evicted[component] = length

    def mark_kv_released(self) -> None:
        super().mark_kv_released()
        self.evicted.clear()


class UnifiedRequest(SglangRequest):
    """A request without a session, of one rank."""

    kv_class = UnifiedKvInfo
    session = None
    session_id = None
    kv_rotation_base = None
    finished_len = None
    swa_branching_seqlen = None
    mamba_branching_seqlen = None

    def get_fill_ids(self) -> Any:
        """What the last extend was over."""
        return self.full_untruncated_fill_ids[: self.extend_end]


class UnifiedPages(RadixPages):
    """The pages of full attention in a tree of several components."""

    def __init__(self, tree: Any, full: Any) -> None:
        super().__init__(tree)
        self._full = full

    def part_of(self, node: Any) -> tuple[Any, int]:
        data = node.component(self._full)
        return data.value, data.lock_ref


class SglangUnifiedManager(SglangManager):
    """`tree`, whose requests have a window where it `has_window`."""

    request_class = UnifiedRequest

    def __init__(self, parts: Sglang, tree: Any, full: Any, *, has_window: bool) -> None:
        super().__init__(parts, tree, UnifiedPages(tree, full))
        self._has_window = has_window
        if has_window:
            self._num_full: int = self._allocator.size_full // self._page_size
            # What of a tree's window is whose is not told by the pages of full attention.
            self.free_order = self.is_cached = self.ref_count = None  # type: ignore[assignment]  # as lacking

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:
        if not self._has_window:
            return super().block_table(seq_id)
        request = self._requests[seq_id]
        kv, size = request.kv, self._page_size
        slots = self._rows.req_to_token[kv.req_pool_idx, : kv.kv_allocated_len].long()
        if not group:
            return [self._page(part.tolist(), 0) for part in slots.split(size)]
        slots = self._allocator.translate_loc_from_full_to_swa(slots)
        first = self._first_in_window(request) // size
        pages = [self._page(part.tolist(), group) for part in slots.split(size)]
        return [0] * first + pages[first:]

    def num_free(self) -> int:
        if not self._has_window:
            return super().num_free()
        return sum(self._free_slots()) // self._page_size

    def _page(self, slots: list[int], group: int) -> int:
        """The number of a page in the pool of its group; 0 where nothing lies any more."""
        if not any(slots):
            return 0
        page = self._block(slots) + 1
        return page + self._num_full * group if page else -1

    def _first_in_window(self, request: SglangRequest) -> int:
        """The position from which on a request holds the window's KV.

        Of what the tree has, that is what its lock covers; what lies before may go at any time,
        although the tree still names it.
        """
        (window,) = (part for part in self._tree.tree_components if part.is_swa)
        first: int = request.kv.cache_protected_len
        if request.lock is None:
            return first
        boundary = request.lock.receipt.component_lock_uuids.get(window)
        node = self._tree.resolve_node_handle(request.lock.node)
        while node.parent is not None:
            first -= len(node.key)
            if boundary is not None and node.component(window).metadata.get("uuid") == boundary:
                break
            node = node.parent
        return first

    def _free_slots(self) -> tuple[int, int]:
        """Of full attention and of the window, what is free or can be evicted."""
        allocator, tree = self._allocator, self._tree
        full = allocator.full_available_size() + tree.full_evictable_size()
        return full, allocator.swa_available_size() + tree.swa_evictable_size()

    def _has_room(self, first: int, end: int) -> bool:
        if not self._has_window:
            return super()._has_room(first, end)
        size = self._page_size
        needed = -(-end // size) - -(-first // size)
        return needed * size <= min(self._free_slots())

    def _extend(self, request: SglangRequest, first: int, end: int) -> None:
        super()._extend(request, first, end)
        request.num_decodes = 0

    def _decode(self, request: SglangRequest) -> None:
        if self._has_window and request.num_decodes:
            self._tree.evict_sliding_windows(request, request.kv.kv_allocated_len)
        request.num_decodes += 1
        super()._decode(request)


_NOTES = (
    f"stand-ins: {', '.join((*SGLANG_STUBS, _REQUESTS, _HISPARSE))}; orjson, where it is missing",
    "sglang/__init__.py, which starts the front end: not run",
    "stand-ins: Req and ReqKvInfo, whose module imports the server, and the server's configuration",
    "the allocators' PyTorch paths, which they take without a GPU: Triton kernels are not run",
    "the window's KV pool, which has no tensors: only its mapping of slots",
    "what the scheduler keeps in reserve for decoding: an extend is granted when its pages fit",
    "other policies than lru, the tree in Rust, sessions, speculation, several ranks: not driven",
    "forks, swapping and truncation: the cache has none",
)

_NOT_RUN = (
    ("full+mamba", "a hit's state is copied in the next forward pass: certify sglang-engine"),
    ("host", "its copies run beside the steps of an engine: certify sglang-hicache-engine"),
)


USES = (
    *POOL_USES,
    Use(
        f"{_CACHE}.cache_init_params", "CacheInitParams",
        (
            Call("__init__", (), (
                *TREE_PARAMETERS, "sliding_window_size", "tree_core_backend", "tree_components",
            )),
        ),
    ),
    Use(
        f"{_CACHE}.unified_radix_cache", "UnifiedRadixCache",
        (
            *TREE_CALLS, Call("resolve_node_handle", ("node_handle",)),
            Call("evict_sliding_windows", ("req", "pre_len")), Call("full_evictable_size"),
            Call("swa_evictable_size"),
        ),
        (*TREE_READS, "tree_components"),
    ),
    Use(f"{_CACHE}.unified_cache.components", "ComponentType", reads=("FULL", "SWA")),
    Use(f"{_CACHE}.base_swa_memory_pool", "BaseSWAKVPool"),
    Use(
        f"{_CACHE}.allocator.swa", "SWATokenToKVPoolAllocator",
        (
            Call("__init__", (
                "size", "size_swa", "page_size", "dtype", "device", "kvcache", "need_sort",
            )),
            Call("full_available_size"), Call("swa_available_size"),
            Call("translate_loc_from_full_to_swa", ("kv_indices",)), Call("available_size"),
        ),
        ("size_full",),
    ),
)  # fmt: skip


def sglang_unified_manager(name: str, overrides: Mapping[str, Any]) -> Target:
    """The engine's classes. Raises TargetError where its sources or PyTorch are not there."""
    parts = sglang_parts()
    if "groups" in overrides:
        raise TargetError(f"{name}: its layouts have their groups; leave out groups=")
    unified = unified_cache_module(parts)
    require_sglang(name, USES)
    layouts = []
    for size, window in ((4, 0), (4, 6), (1, 0), (1, 4)):
        rows = {**PUBLISHED, **(_windowed(window) if window else {})}
        profile = builtin_profile(name, rows, overrides, ManagerProfile)
        make = _maker(parts, unified, size, window)
        layouts.append(ManagerLayout(f"page-{size}{'-window' * bool(window)}", profile, make, size))
    release = SGLANG.replace("-", " ")
    require_a_few_calls(name, layouts, release)
    first = layouts[0].profile
    layouts += [ManagerLayout(other, first, None, 4, why_not) for other, why_not in _NOT_RUN]
    return manager_target(
        name,
        "native-manager",
        layouts,
        version=release,
        source=source_of(unified.UnifiedRadixCache),
        real_class=unified.UnifiedRadixCache,
        notes=_NOTES,
    )


def _windowed(window: int) -> dict[str, Any]:
    """The rows of a layout whose window has a pool of its own."""
    return {
        "groups": f"full+sliding:{window}",
        "null_block": 0,
        "index": "content",
        "hits": "sound",
        # There are two pools, and what is free in one of them is no room for the other.
        "admission": "sound",
        "release_order": "unspecified",
    }


def unified_cache_module(parts: Sglang) -> Any:
    """The module of the cache. Raises TargetError where it cannot be imported."""
    sys.modules.setdefault(_HISPARSE, BlankModule(_HISPARSE))
    lent = {}
    for blank in (_REQUESTS, "orjson"):
        if blank not in sys.modules and (blank == _REQUESTS or not _is_installed(blank)):
            lent[blank] = sys.modules[blank] = BlankModule(blank)
    try:
        return importlib.import_module(f"{_CACHE}.unified_radix_cache")
    except (Exception, SystemExit) as error:
        raise TargetError(
            f"{_CACHE}.unified_radix_cache in {parts.folder} cannot be imported: "
            f"{type(error).__name__}: {error}; run `make engines` and use "
            "`.venv-vllm/bin/poolproof`"
        ) from error
    finally:
        for blank, module in lent.items():
            if sys.modules.get(blank) is module:
                del sys.modules[blank]


def _is_installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _maker(
    parts: Sglang, unified: Any, page_size: int, window: int
) -> Callable[[int, bool], SglangUnifiedManager]:
    components = importlib.import_module(f"{_CACHE}.unified_cache.components").ComponentType

    def make(num_blocks: int, enable_caching: bool) -> SglangUnifiedManager:
        num_slots = num_blocks * page_size
        rows = parts.ReqToTokenPool(NUM_ROWS, num_slots, "cpu", False)
        if window:
            allocator = _two_pools(num_blocks - 1, page_size)
        elif page_size == 1:
            allocator = parts.TokenToKVPoolAllocator(num_slots, None, "cpu", None, False)
        else:
            allocator = parts.PagedTokenToKVPoolAllocator(
                num_slots, page_size, None, "cpu", None, False
            )
        tree = unified.UnifiedRadixCache(
            parts.CacheInitParams(
                disable=not enable_caching,
                req_to_token_pool=rows,
                token_to_kv_pool_allocator=allocator,
                page_size=page_size,
                eviction_policy="lru",
                sliding_window_size=window - 1 if window else None,
                tree_core_backend="python",
                tree_components=(components.FULL, *((components.SWA,) if window else ())),
            )
        )
        return SglangUnifiedManager(parts, tree, components.FULL, has_window=bool(window))

    return make


def _two_pools(num_pages: int, page_size: int) -> Any:
    """The engine's allocator over a pool for full attention and one for the window."""
    base = importlib.import_module(f"{_CACHE}.base_swa_memory_pool").BaseSWAKVPool
    swa = importlib.import_module(f"{_CACHE}.allocator.swa").SWATokenToKVPoolAllocator

    def register_mapping(self: Any, mapping: Any) -> None:
        self.full_to_swa_index_mapping = mapping

    def translate(self: Any, slots: Any) -> Any:
        return self.full_to_swa_index_mapping[slots]

    methods = dict.fromkeys(base.__abstractmethods__)
    methods |= {
        "__init__": lambda _self: None,
        "register_mapping": register_mapping,
        "translate_loc_from_full_to_swa": translate,
    }
    pool = type("WindowKvPool", (base,), methods)()
    num_window = num_pages // 2
    return swa(
        (num_pages - num_window) * page_size, num_window * page_size, page_size, None, "cpu", pool,
        False,
    )  # fmt: skip
