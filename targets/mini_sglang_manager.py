"""The target `mini-sglang`: mini-sglang's `CacheManager` over its radix cache, unmodified.

The adapter does what mini-sglang's scheduler does around it. A prompt is matched without its last
token and locks what it hit; its row of the page table begins with those slots, and pages for the
chunk follow. After the step that ends a prompt the prompt goes into the tree; sampled tokens go
there when the request ends. Requests that end together give their pages back together.

Where it stands in for the scheduler:
- room: an admission asks for the pages of its chunk; the scheduler also reserves those of the whole
  output, so that a decode never waits.
- a request that ends between the allocation of its next tokens and the step is none that the
  engine has; the pages of those tokens are given back before it is cached.
- `fast_compare_key`, a kernel in C++: the length of the common beginning.
- preemption: the engine has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from poolproof.contract.adapter_fault import HandedFields
from poolproof.targets.adapter_fit import Call
from poolproof.targets.adapter_uses import Use
from poolproof.targets.engine_sources import stub_module
from poolproof.targets.source_engines import Modules, SourceEngine
from poolproof.targets.token_names import NO_EXTRA_KEYS, TokenNames
from poolproof.targets.torch_stand_in import torch_stand_in

__all__ = ["MINI_SGLANG", "MiniSglangManager", "pages_of", "stubs"]

_NO_PAGE = -1
"""Stands in a table where the slots of a request lie in no page."""


def pages_of(slots: list[int], size: int) -> list[int]:
    """The page of each `size` slots; `_NO_PAGE` where they lie in none."""
    pages = []
    for first in range(0, len(slots), size):
        page, offset = divmod(slots[first], size)
        of_page = slots[first : first + size]
        is_page = not offset and of_page == list(range(slots[first], slots[first] + len(of_page)))
        pages.append(page if is_page else _NO_PAGE)
    return pages


class MiniSglangManager:
    """`cache`, driven as mini-sglang's scheduler drives it; `table` hands out rows."""

    def __init__(self, parts: Modules, cache: Any, table: Any, tensor: Any) -> None:
        self._new_request = parts["core"].Req
        self._cache = cache
        self._table = table
        self._tensor = tensor
        self._names = TokenNames(enable_caching=True)
        self._requests: dict[int, Any] = {}
        self._tokens: dict[int, list[int]] = {}
        self._settings: dict[int, tuple[object, ...]] = {}
        self._is_decoding: dict[int, bool] = {}

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
        input_ids = self._tensor(named)
        pending = HandedFields(input_ids=input_ids, input_len=len(named))
        if not self._table.available_size:
            return "later"
        handle = self._cache.match_req(pending).cuda_handle
        cached: int = handle.cached_len
        left = len(named) - cached
        end = cached + min(num_tokens or left, left)
        self._cache.lock(handle)
        if not self._has_room(cached, end):
            self._cache.unlock(handle)
            return "later"
        row = self._table.allocate()
        if cached:
            self._table.page_table[row][:cached].copy_(handle.get_matched_indices())
        request = self._new_request(
            input_ids=input_ids[:end], table_idx=row, cached_len=cached, output_len=len(named),
            uid=seq_id, sampling_params=None, cache_handle=handle,
        )  # fmt: skip
        self._requests[seq_id], self._tokens[seq_id] = request, named
        self._settings[seq_id] = setting
        self._is_decoding[seq_id] = False
        self._allocate(request, cached, end)
        return cached

    def append(self, seq_id: int, tokens: list[int]) -> list[tuple[int, int]] | str:
        request = self._requests[seq_id]
        first = len(request.input_ids)
        end = first + len(tokens)
        if not self._has_room(first, end):
            return "later"
        self._is_decoding[seq_id] = len(tokens) == 1 and first == request.cached_len
        named = self._names.named(tokens, self._settings[seq_id])
        self._tokens[seq_id] += named
        for token in named:
            request.append_host(self._tensor([token]))
        self._allocate(request, first, end)
        return []

    def schedule(self, seq_id: int, num_tokens: int) -> list[tuple[int, int]] | str:
        request = self._requests[seq_id]
        first = len(request.input_ids)
        if not self._has_room(first, first + num_tokens):
            return "later"
        request.input_ids = self._tensor(self._tokens[seq_id][: first + num_tokens])
        self._is_decoding[seq_id] = False
        self._allocate(request, first, first + num_tokens)
        return []

    def step(self, batch: list[tuple[int, int]]) -> None:
        """The forward pass; prompts that it ended go into the tree."""
        for seq_id, _ in batch:
            self._requests[seq_id].complete_one()
        with self._cache.lazy_free_region():
            for seq_id, _ in batch:
                request = self._requests[seq_id]
                is_whole = request.cached_len == len(self._tokens[seq_id])
                if is_whole and not self._is_decoding[seq_id]:
                    self._cache.cache_req(request, finished=False)

    def finish(self, seq_id: int) -> None:
        request = self._requests.pop(seq_id, None)
        if request is None:
            return
        size = self._cache.page_size
        first = -(-request.cached_len // size) * size
        end = -(-len(request.input_ids) // size) * size
        row = request.table_idx
        if first < end:
            self._cache._free(  # noqa: SLF001 - nothing public gives pages back alone
                self._table.page_table[row, first:end].clone()
            )
        self._table.free(row)
        self._cache.cache_req(request, finished=True)
        del self._tokens[seq_id], self._settings[seq_id], self._is_decoding[seq_id]

    def abort(self, seq_id: int) -> None:
        self.finish(seq_id)

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:  # noqa: ARG002 - one group
        request, size = self._requests[seq_id], self._cache.page_size
        slots = self._table.page_table[request.table_idx, : len(request.input_ids)].tolist()
        return pages_of(slots, size)

    def num_free(self) -> int:
        num_slots: int = self._cache.available_size
        size: int = self._cache.page_size
        return num_slots // size

    def _has_room(self, first: int, end: int) -> bool:
        size: int = self._cache.page_size
        return -(-end // size) - -(-first // size) <= self.num_free()

    def _allocate(self, request: Any, first: int, end: int) -> None:
        """Pages for the positions from `first` on, as for the next batch."""
        request.device_len = end
        row = request.table_idx
        needed = HandedFields(table_idx=row, cached_len=first, device_len=end)
        self._cache.allocate_paged([needed])


class _Registry(dict[str, Any]):
    """Builders by name, as the engine's own registry, which also looks up a type."""

    def __class_getitem__(cls, _item: Any) -> Any:
        return cls

    def __init__(self, _what: str) -> None:
        super().__init__()

    def register(self, name: str) -> Any:
        def entered(builder: Any) -> Any:
            self[name] = builder
            return builder

        return entered


def _common_length(key: Any, tokens: Any) -> int:
    """How many elements two one-dimensional tensors have in common at their beginning."""
    for place, (one, other) in enumerate(zip(key.tolist(), tokens.tolist())):
        if one != other:
            return place
    return min(len(key), len(tokens))


def stubs() -> Mapping[str, ModuleType]:
    """What stands in for modules that the cache imports, by their names."""
    return {
        "torch": torch_stand_in(),
        "minisgl.kernel": stub_module("minisgl.kernel", fast_compare_key=_common_length),
        "minisgl.utils": stub_module(
            "minisgl.utils",
            align_down=lambda number, unit: number // unit * unit,
            div_ceil=lambda number, unit: -(-number // unit),
            Registry=_Registry,
        ),
    }


def _manager(
    modules: Modules, num_blocks: int, block_size: int, enable_caching: bool
) -> MiniSglangManager:
    core, torch = modules["core"], vars(modules["core"])["torch"]
    vars(core)["_GLOBAL_CTX"] = core.Context(page_size=block_size)
    page_table = torch.zeros((num_blocks, num_blocks * block_size))
    cache = modules["scheduler.cache"].CacheManager(
        num_blocks, block_size, page_table, "radix" if enable_caching else "naive"
    )
    table = modules["scheduler.table"].TableManager(num_blocks, page_table)
    return MiniSglangManager(modules, cache, table, torch.tensor)


_USES = (
    Use("core", "Context", (Call("__init__", (), ("page_size",)),)),
    Use(
        "core", "Req",
        (
            Call("__init__", (), (
                "input_ids", "table_idx", "cached_len", "output_len", "uid", "sampling_params",
                "cache_handle",
            )),
            Call("append_host", ("next_token",)), Call("complete_one"),
        ),
        ("input_ids", "table_idx", "cached_len", "device_len"),
    ),
    Use("kvcache.base", "MatchResult", reads=("cuda_handle",)),
    Use("kvcache.base", "BaseCacheHandle", (Call("get_matched_indices"),), ("cached_len",)),
    Use(
        "scheduler.cache", "CacheManager",
        (
            Call("__init__", ("num_pages", "page_size", "page_table", "type")),
            Call("match_req", ("req",)), Call("lock", ("handle",)), Call("unlock", ("handle",)),
            Call("allocate_paged", ("reqs",)), Call("cache_req", ("req",), ("finished",)),
            Call("lazy_free_region"), Call("_free", ("indices",)),
        ),
        ("page_size", "available_size"),
    ),
    Use(
        "scheduler.table", "TableManager",
        (
            Call("__init__", ("max_running_reqs", "page_table")), Call("allocate"),
            Call("free", ("slot",)),
        ),
        ("available_size", "page_table"),
    ),
)  # fmt: skip


MINI_SGLANG = SourceEngine(
    name="mini-sglang",
    what="the CacheManager of mini-sglang over its radix cache",
    address="https://github.com/sgl-project/mini-sglang",
    commit="20fcd7f3c6a1898a61139fae1c97cc7a40bd8d66",
    files=(
        "python/minisgl/core.py",
        "python/minisgl/kvcache/__init__.py",
        "python/minisgl/kvcache/base.py",
        "python/minisgl/kvcache/naive_cache.py",
        "python/minisgl/kvcache/radix_cache.py",
        "python/minisgl/scheduler/cache.py",
        "python/minisgl/scheduler/table.py",
        "LICENSE",
    ),
    package="python/minisgl",
    modules=(
        "core",
        "kvcache.base",
        "kvcache",
        "kvcache.naive_cache",
        "kvcache.radix_cache",
        "scheduler.table",
        "scheduler.cache",
    ),
    stubs=stubs,
    manager=_manager,
    real_class=lambda modules: modules["scheduler.cache"].CacheManager,
    uses=_USES,
    rows={
        "publishes": "prompts",
        "hits": "sound",
        "duplicates": "first",
        "retention": "may-drop",
        "never": "untold",
        "eviction": "unspecified",
        "release_order": "unspecified",
        "misuse": "undefined",
    },
    notes=(
        NO_EXTRA_KEYS,
        "preemption, forks, truncation, drafts, swapping, transfers: the engine has none",
    ),
)
