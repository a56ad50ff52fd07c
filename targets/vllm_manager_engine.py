"""vLLM's own parts of a manager: its configuration, requests, counters and copies.

Everything is imported by name at first use, because an import of vLLM costs seconds and half a
gigabyte. Layers are of one head of one float32 number: a manager counts blocks and never sees a
tensor. Constructor arguments that a version does not know are left out.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any

from poolproof.contract.content import TokenChain
from poolproof.contract.manager_profile import CacheGroup
from poolproof.targets.linked_blocks import LinkedBlocks
from poolproof.targets.vllm_manager_layouts import BLOCK_SIZE, MAX_MODEL_LEN, NamedLayout
from poolproof.targets.vllm_requests import vllm_requests
from poolproof.targets.vllm_shape import parameters_of

__all__ = ["VllmParts"]


class VllmParts:
    """The parts of one manager class in one layout, of which `layout` is what the version knows."""

    def __init__(self, cls: type, layout: NamedLayout) -> None:
        self._cls = cls
        config = importlib.import_module("vllm.v1.kv_cache_interface").KVCacheConfig
        if "prefix_cache_retention_interval" not in {each.name for each in fields(config)}:
            layout = replace(layout, retention_tokens=None)  # an older version keeps them all
        self.layout = layout
        self._hash_block_size = layout.hash_block_size or min(layout.sizes())
        self._request_of = vllm_requests(self._hash_block_size)
        self._status = importlib.import_module("vllm.v1.request").RequestStatus
        _register_specs()

    def make_manager(self, num_blocks: int, enable_caching: bool, /) -> Any:
        arguments = {
            "max_model_len": MAX_MODEL_LEN,
            "scheduler_block_size": math.lcm(*self.layout.sizes()),
            "hash_block_size": self._hash_block_size,
            "enable_caching": enable_caching,
            "use_eagle": self.layout.use_eagle,
        }
        known = {parameter.name for parameter in parameters_of(self._cls, "__init__")}
        config = _config(num_blocks, self.layout)
        return self._cls(config, **{k: v for k, v in arguments.items() if k in known})

    def make_request(self, request_id: str, chain: TokenChain, /) -> Any:
        request = self._request_of(chain)
        request.request_id = request_id
        return request

    def append(self, request: Any, tokens: list[int], /) -> None:
        request.append_output_token_ids(tokens)

    def set_running(self, request: Any, /) -> None:
        request.status = self._status.RUNNING

    def set_preempted(self, request: Any, /) -> None:
        request.status = self._status.PREEMPTED

    def take_copies(self, manager: Any, /) -> list[tuple[int, int]]:
        """The blocks that the copies hold on to go back, as the engine sees to it after a step."""
        if not hasattr(manager, "take_kv_cache_block_copies"):
            return []
        copies, retained = manager.take_kv_cache_block_copies()
        if retained:
            manager.block_pool.free_blocks(retained)
        return [(copy.src_block_id, copy.dst_block_id) for copy in copies]

    def observers(self, manager: Any, num_blocks: int, /) -> Mapping[str, Callable[..., Any]]:
        pool = manager.block_pool
        blocks = pool.blocks
        found: dict[str, Callable[..., Any]] = {
            "num_free": pool.get_num_free_blocks,
            "ref_count": lambda block_id: blocks[block_id].ref_cnt,
            "is_cached": lambda block_id: blocks[block_id].block_hash is not None,
        }
        links = LinkedBlocks.find(pool.free_block_queue, blocks, num_blocks)
        if links is not None:
            found |= {"free_order": links.free_order, "free_neighbours": links.free_neighbours}
        return found


def _config(num_blocks: int, layout: NamedLayout) -> Any:
    interface = importlib.import_module("vllm.v1.kv_cache_interface")
    groups = [
        interface.KVCacheGroupSpec([f"layer{place}"], _spec(interface, group))
        for place, group in enumerate(layout.groups)
    ]
    config = interface.KVCacheConfig(
        num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=groups
    )
    if layout.retention_tokens is not None:
        config.prefix_cache_retention_interval = layout.retention_tokens
    return config


def _spec(interface: Any, group: CacheGroup) -> Any:
    """What vLLM calls a group of layers that read alike."""
    float32 = importlib.import_module("torch").float32
    size = group.block_size or BLOCK_SIZE
    if group.kind == "state":
        return interface.MambaSpec(
            block_size=size, shapes=((1,),), dtypes=(float32,), mamba_cache_mode="align"
        )
    common = {"block_size": size, "num_kv_heads": 1, "head_size": 1, "dtype": float32}
    if group.kind == "sliding":
        return interface.SlidingWindowSpec(**common, sliding_window=group.window)
    if group.kind == "chunked":
        return interface.ChunkedLocalAttentionSpec(**common, attention_chunk_size=group.window)
    return interface.FullAttentionSpec(**common)


@cache
def _register_specs() -> None:
    """Once a process: which manager class is for which group; older versions need no call."""
    managers = importlib.import_module("vllm.v1.core.single_type_kv_cache_manager")
    register = getattr(managers, "register_all_kvcache_specs", None)
    if register is not None:
        register(None)
