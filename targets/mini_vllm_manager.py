"""The target `mini-vllm`: the `KVCacheBlockManager` of w4096/mini-vllm, unmodified.

The adapter does what its scheduler does around the manager. A prompt is asked for with
`can_allocate_new_block`, takes blocks for all its tokens, and its full blocks have their keys at
once. A sampled token is appended, the block that it completes gets its key, and where it needs a
block one is taken. The scheduler builds the manager without a prefix cache; the target with
caching builds it with `support_prefix_cache=True`.
"""

from __future__ import annotations

from typing import Any

from poolproof.targets.adapter_fit import Call
from poolproof.targets.adapter_uses import Use
from poolproof.targets.source_engines import Modules, SourceEngine
from poolproof.targets.token_names import NO_EXTRA_KEYS, TokenNames

__all__ = ["MINI_VLLM", "MiniVllmManager"]

_FIRST_NAME = -(1 << 31)
"""The engine writes a token in four signed bytes; no vocabulary has these."""


class MiniVllmManager:
    """`manager`, driven as mini-vllm's scheduler drives it; `request` is its class of requests."""

    def __init__(self, manager: Any, request: Any) -> None:
        self._manager = manager
        self._request = request
        self._names = TokenNames(enable_caching=True, first_name=_FIRST_NAME)
        self._requests: dict[int, Any] = {}
        self._settings: dict[int, tuple[object, ...]] = {}

    def admit(
        self,
        seq_id: int,
        tokens: list[int],
        *,
        extra_keys: Any = None,
        num_tokens: int | None = None,  # noqa: ARG002 - blocks are taken for the whole prompt
    ) -> int | str:
        request = self._requests.get(seq_id)
        setting = self._settings.get(seq_id, ())
        if request is None:
            setting = self._names.setting(extra_keys)
            request = self._request(self._names.named(tokens, setting, extra_keys))
        if not self._manager.can_allocate_new_block(request):
            return "later"
        self._manager.allocate_blocks_for_prefill(request)
        request.state = self._request.RUNNING
        self._requests[seq_id], self._settings[seq_id] = request, setting
        cached: int = request.num_cached_tokens
        return cached

    def append(self, seq_id: int, tokens: list[int]) -> list[tuple[int, int]] | str:
        request = self._requests[seq_id]
        end = len(request) + len(tokens)
        if -(-end // self._manager.block_size) - len(request.blocks) > self.num_free():
            return "later"
        for token in self._names.named(tokens, self._settings[seq_id]):
            request.append_output_token(token)
            self._manager.cache_block_if_needed(request)
            self._manager.allocate_block_for_decode(request)
        return []

    def step(self, batch: list[tuple[int, int]]) -> None:
        """Nothing: the manager is not told what has been computed."""

    def preempt(self, seq_id: int) -> None:
        request = self._requests[seq_id]
        request.state = self._request.WAITING
        self._manager.deallocate(request)

    def finish(self, seq_id: int) -> None:
        request = self._requests.pop(seq_id, None)
        if request is not None:
            request.state = self._request.FINISHED
            self._manager.deallocate(request)

    def abort(self, seq_id: int) -> None:
        self.finish(seq_id)

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:  # noqa: ARG002 - one group
        table: list[int] = self._requests[seq_id].blocks
        return table

    def num_free(self) -> int:
        return len(self._manager.free_block_ids)

    def ref_count(self, block_id: int) -> int:
        count: int = self._manager.block_table[block_id].refcount
        return count


def _manager(
    modules: Modules, num_blocks: int, block_size: int, enable_caching: bool
) -> MiniVllmManager:
    manager = modules["kvcache.block_manager"].KVCacheBlockManager(
        num_blocks, block_size, support_prefix_cache=enable_caching
    )
    request = modules["engine.request"].Request
    return MiniVllmManager(manager, request)


_USES = (
    Use(
        "engine.request", "Request",
        (
            Call("__init__", ("prompt_tokens",)), Call("__len__"),
            Call("append_output_token", ("token",)),
        ),
        ("WAITING", "RUNNING", "FINISHED", "num_cached_tokens", "blocks", "state"),
    ),
    Use(
        "kvcache.block_manager", "KVCacheBlockManager",
        (
            Call("__init__", ("capacity", "block_size"), ("support_prefix_cache",)),
            Call("can_allocate_new_block", ("req",)), Call("allocate_blocks_for_prefill", ("req",)),
            Call("allocate_block_for_decode", ("req",)), Call("cache_block_if_needed", ("req",)),
            Call("deallocate", ("req",)),
        ),
        ("block_size", "free_block_ids", "block_table"),
    ),
    Use("kvcache.block_manager", "KVCacheBlock", reads=("refcount",)),
)  # fmt: skip


MINI_VLLM = SourceEngine(
    name="mini-vllm",
    what="the KVCacheBlockManager of w4096/mini-vllm",
    address="https://github.com/w4096/mini-vllm",
    commit="2353cec0864b18ea66a0ba490b9061961ce631c8",
    files=(
        "minivllm/config/sampling.py",
        "minivllm/engine/request.py",
        "minivllm/kvcache/block_manager.py",
        "minivllm/utils/utils.py",
        "README.md",
    ),
    package="minivllm",
    modules=("config.sampling", "engine.request", "utils.utils", "kvcache.block_manager"),
    stubs=dict,
    manager=_manager,
    real_class=lambda modules: modules["kvcache.block_manager"].KVCacheBlockManager,
    uses=_USES,
    rows={
        "publishes": "scheduled",
        "reserves": "sequence",
        "same_step_hit": "allowed",
        "full_hit": "allowed",
        "duplicates": "last",
        "hits": "sound",
        "admission": "sound",
        "never": "untold",
        "eviction": "unspecified",
        "release_order": "unspecified",
        "collisions": "trusted",
        "misuse": "undefined",
    },
    notes=(
        NO_EXTRA_KEYS,
        "chunked prefill: the engine computes a prompt at once",
        "forks, truncation, drafts, swapping, transfers: the manager has none",
    ),
)
