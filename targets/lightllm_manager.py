"""The target `lightllm`: LightLLM's `RadixCache` over its `MemoryManager`, unmodified.

Slots are handed out one by one, so a block has one token. The adapter does what
`lightllm/server/router/model_infer/infer_batch.py` does around the two, which imports the whole
server: a prompt is matched without its last token and holds the node that it reached; slots for the
chunk follow, for which leaves of the tree are evicted. Nothing is published before a request gives
its slots back: then all that was computed goes into the tree, and slots of what the tree had
meanwhile are freed.

Where it stands in for the server:
- room: an admission asks for the slots of its chunk; the router's estimates are its policy.
- a request that ends between the allocation of its next tokens and the step gives their slots back.
- numbers that the router reads from shared memory are kept in lists.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from poolproof.targets.adapter_fit import Call
from poolproof.targets.adapter_uses import Use
from poolproof.targets.engine_sources import BlankModule, stub_module
from poolproof.targets.source_engines import Modules, SourceEngine
from poolproof.targets.token_names import NO_EXTRA_KEYS, TokenNames
from poolproof.targets.torch_stand_in import StandInTensor, torch_stand_in

__all__ = ["LIGHTLLM", "LightllmManager"]


class LightllmRequest:
    """A request: its tokens, the slots of those that have one, and the node that it holds."""

    def __init__(self, tokens: list[int], setting: tuple[object, ...]) -> None:
        self.tokens = tokens
        self.setting = setting
        self.slots: list[int] = []
        self.num_computed = 0
        self.shared_node: Any = None


class LightllmManager:
    """`cache` over `memory`, driven as LightLLM's workers drive them; no cache where it is None."""

    def __init__(self, cache: Any, memory: Any) -> None:
        self._cache = cache
        self._memory = memory
        self._names = TokenNames(enable_caching=cache is not None)
        self._requests: dict[int, LightllmRequest] = {}

    def admit(
        self,
        seq_id: int,
        tokens: list[int],
        *,
        extra_keys: Any = None,
        num_tokens: int | None = None,
    ) -> int | str:
        setting = self._names.setting(extra_keys)
        request = LightllmRequest(self._names.named(tokens, setting, extra_keys), setting)
        if self._cache is not None and len(tokens) > 1:
            key = StandInTensor(request.tokens[:-1])
            request.shared_node, _, slots = self._cache.match_prefix(key, update_refs=True)
            if request.shared_node is not None:
                request.slots = slots.tolist()[: request.shared_node.node_prefix_total_len]
        cached = request.num_computed = len(request.slots)
        left = len(tokens) - cached
        if not self._take(request, min(num_tokens or left, left)):
            if request.shared_node is not None:
                self._cache.dec_node_ref_counter(request.shared_node)
            return "later"
        self._requests[seq_id] = request
        return cached

    def append(self, seq_id: int, tokens: list[int]) -> list[tuple[int, int]] | str:
        request = self._requests[seq_id]
        if not self._take(request, len(tokens)):
            return "later"
        request.tokens += self._names.named(tokens, request.setting)
        return []

    def schedule(self, seq_id: int, num_tokens: int) -> list[tuple[int, int]] | str:
        return [] if self._take(self._requests[seq_id], num_tokens) else "later"

    def step(self, batch: list[tuple[int, int]]) -> None:
        for seq_id, count in batch:
            self._requests[seq_id].num_computed += count

    def finish(self, seq_id: int) -> None:
        """What was computed goes into the tree; slots that the tree had already are free."""
        request = self._requests.pop(seq_id, None)
        if request is None:
            return
        computed = request.num_computed
        freed = request.slots[computed:]
        if self._cache is None:
            freed = request.slots
        else:
            slots = StandInTensor(request.slots[:computed])
            known = self._cache.insert(StandInTensor(request.tokens[:computed]), slots)
            node = request.shared_node
            first = 0 if node is None else node.node_prefix_total_len
            freed = request.slots[first:known] + freed
            if node is not None:
                self._cache.dec_node_ref_counter(node)
        self._memory.free(StandInTensor(freed))

    def preempt(self, seq_id: int) -> None:
        """A pause, which publishes as an end does."""
        self.finish(seq_id)

    def abort(self, seq_id: int) -> None:
        self.finish(seq_id)

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:  # noqa: ARG002 - one group
        return self._requests[seq_id].slots

    def num_free(self) -> int:
        free: int = self._memory.can_use_mem_size
        if self._cache is None:
            return free
        held: int = self._cache.get_refed_tokens_num()
        total: int = self._cache.get_tree_total_tokens_num()
        return free + total - held

    def _take(self, request: LightllmRequest, num_tokens: int) -> bool:
        """Slots for the next tokens, if there is room; what is evicted makes room."""
        if num_tokens > self.num_free():
            return False
        if self._cache is not None:
            self._cache.free_radix_cache_to_get_enough_token(num_tokens)
        request.slots = request.slots + self._memory.alloc(num_tokens).tolist()
        return True


class _SharedArray:
    """A number that other processes of the server would read."""

    def __init__(self, _name: str, _shape: tuple[int, ...] = (1,), **_options: Any) -> None:
        self.arr = [0]

    def set_value(self, value: int) -> None:
        self.arr[0] = value


def _stubs() -> Mapping[str, ModuleType]:
    names = (
        "numpy", "torch.distributed",
        "lightllm.utils.log_utils", "lightllm.utils.dist_utils", "lightllm.utils.envs_utils",
        "lightllm.utils.profile_max_tokens", "lightllm.common.kv_trans_kernel.kv_trans",
        "lightllm.common.kv_trans_kernel.kv_trans_v2", "lightllm.server.pd_io_struct",
        "lightllm.distributed.pynccl",
    )  # fmt: skip
    shared = "lightllm.server.router.dynamic_prompt.shared_arr"
    return {
        "torch": torch_stand_in(),
        **{name: BlankModule(name) for name in names},
        shared: stub_module(shared, SharedArray=_SharedArray, SharedInt=_SharedArray),
    }


def _manager(
    modules: Modules, num_blocks: int, _block_size: int, enable_caching: bool
) -> LightllmManager:
    memory = modules["common.mem_manager"].MemoryManager(
        num_blocks, dtype=None, head_num=1, head_dim=1, layer_num=1
    )
    if not enable_caching:
        return LightllmManager(None, memory)
    radix = modules["server.router.dynamic_prompt.radix_cache"]
    return LightllmManager(radix.RadixCache("poolproof", num_blocks, 0, memory), memory)


_USES = (
    Use(
        "common.mem_manager", "MemoryManager",
        (
            Call("__init__", ("size",), ("dtype", "head_num", "head_dim", "layer_num")),
            Call("alloc", ("need_size",)), Call("free", ("free_index",)),
        ),
        ("can_use_mem_size",),
    ),
    Use(
        "server.router.dynamic_prompt.radix_cache", "RadixCache",
        (
            Call("__init__", ("unique_name", "total_token_num", "rank_in_node", "mem_manager")),
            Call("match_prefix", ("key",), ("update_refs",)), Call("insert", ("key", "value")),
            Call("dec_node_ref_counter", ("node",)), Call("get_refed_tokens_num"),
            Call("get_tree_total_tokens_num"),
            Call("free_radix_cache_to_get_enough_token", ("need_token_num",)),
        ),
    ),
    Use(
        "server.router.dynamic_prompt.radix_cache", "TreeNode",
        reads=("node_prefix_total_len",),
    ),
)  # fmt: skip


LIGHTLLM = SourceEngine(
    name="lightllm",
    what="the RadixCache of LightLLM over its MemoryManager",
    address="https://github.com/ModelTC/lightllm",
    commit="fc72ffab9a3455cfb571f22d45ab777cc29de0de",
    files=(
        "lightllm/common/mem_manager.py",
        "lightllm/server/router/dynamic_prompt/radix_cache.py",
        "LICENSE",
    ),
    package="lightllm",
    modules=("common.mem_manager", "server.router.dynamic_prompt.radix_cache"),
    stubs=_stubs,
    manager=_manager,
    real_class=lambda modules: modules["server.router.dynamic_prompt.radix_cache"].RadixCache,
    uses=_USES,
    rows={
        "publishes": "finish",
        # The tree keeps the first copy, and drops it with its leaf when it needs room.
        "duplicates": "kept",
        "retention": "may-drop",
        "never": "untold",
        "eviction": "unspecified",
        "release_order": "unspecified",
        "misuse": "undefined",
    },
    notes=(
        NO_EXTRA_KEYS,
        "forks, truncation, drafts, swapping, transfers: the cache has none",
    ),
    block_size=1,
)
