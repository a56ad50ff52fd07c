"""SGLang's hierarchical cache without a device: what its controller stands on, and its tree.

Of `UnifiedRadixCache.init_hicache`, `HybridCacheController`, `L2TransferEngine`, `HostPoolGroup`
and `HostKVCache` every line is the engine's own. Stand-ins are what lies below them:

- the streams and events of the device: a copy on a stream is done when the run says so, each
  stream in its order. An event is complete once what its stream had before it is done. What waits
  for a stream, waits for the steps that were launched on it;
- the memory of both tiers: the device pool has no tensors, and the host pool has the bookkeeping of
  `HostKVCache` and no buffer. A copy is noted with its slots on both sides.

A model of one layer is loaded, so a load is whole when its first layer is. Its host pool is chosen
through the engine's own `register_stack_strategy`.
"""

from __future__ import annotations

import atexit
import importlib
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

from poolproof.contract.adapter_fault import HandedFields, HandedOver
from poolproof.contract.target import TargetError
from poolproof.targets.engine_sources import BlankModule, stub_module
from poolproof.targets.installed_sglang import Sglang, sglang_parts
from poolproof.targets.sglang_unified_manager import unified_cache_module

__all__ = ["Hicache", "HicacheTree", "TierCopies", "TierCopy", "hicache_parts", "hicache_tree"]

_CACHE = "sglang.srt.mem_cache"
_MANAGERS = "sglang.srt.managers"


CONSERVATIVENESS = 0.01
"""Of `schedule_conservativeness`: with its default of 1 the small pools here retract nobody."""


@dataclass(eq=False)
class TierCopy:
    """One copy between the tiers, by slots; `after` is the last step that it waits for."""

    owner: TierCopies
    is_load: bool
    device_slots: list[int]
    host_slots: list[int]
    after: int
    is_done: bool = False
    number: int | None = None


class TierCopies(HandedOver):
    """The copies of one controller, and the streams that they run on.

    `begun` are those that nobody was told of yet, `waited_for` those that the scheduler stood still
    for. `num_launched` counts the steps on the stream of the model.
    """

    def __init__(self) -> None:
        self.begun: list[TierCopy] = []
        self.waited_for: list[TierCopy] = []
        self.num_launched = 0

    def begin(self, stream: _Stream, *, is_load: bool, device: Any, host: Any) -> None:
        """A copy is put on a stream; `device` and `host` are tensors of slots in pairs."""
        copy = TierCopy(self, is_load, device.tolist(), host.tolist(), stream.after)
        stream.copies.append(copy)
        self.begun.append(copy)

    @staticmethod
    def wait_for(copies: list[TierCopy]) -> None:
        """The scheduler stands still until these are done."""
        for copy in copies:
            if not copy.is_done:
                copy.is_done = True
                copy.owner.waited_for.append(copy)


class ModelStream(HandedOver):
    """The stream that steps are launched on."""

    def __init__(self, copies: TierCopies) -> None:
        self.copies = copies


class _Stream(HandedOver):
    """A stream of copies, which end in order."""

    def __init__(self) -> None:
        self.copies: list[TierCopy] = []
        self.after = 0

    def wait_stream(self, other: Any) -> None:
        """What follows waits for the steps that were launched so far."""
        if isinstance(other, ModelStream):
            self.after = other.copies.num_launched

    def wait_event(self, event: _Event) -> None:
        """Events are recorded on this stream itself, or on one without copies."""

    def synchronize(self) -> None:
        """The scheduler stands still until all is done."""
        TierCopies.wait_for(self.copies)

    def unfinished(self) -> list[TierCopy]:
        """What is not done yet, in order."""
        self.copies = [copy for copy in self.copies if not copy.is_done]
        return list(self.copies)


_NO_COPIES = _Stream()
"""The stream of the scheduler, on which nothing is copied."""


class _Event(HandedOver):
    """Complete once all copies are done that its stream had when it was recorded."""

    def __init__(self, *, enable_timing: bool = False) -> None:
        del enable_timing
        self.before: list[TierCopy] = []

    def record(self, stream: _Stream | None = None) -> None:
        self.before = (stream or _Device.stream_now).unfinished()

    def wait(self, stream: _Stream | None = None) -> None:
        """The copies before it are on the same stream, or there are none."""

    def query(self) -> bool:
        return all(copy.is_done for copy in self.before)

    def synchronize(self) -> None:
        TierCopies.wait_for(self.before)

    def elapsed_time(self, end: _Event) -> float:
        """No time passes."""
        del end
        return 0.0


class _Device(HandedOver):
    """What stands where the engine has its device's module."""

    stream_now = _NO_COPIES
    Stream = _Stream
    Event = _Event
    __name__ = "device"

    @staticmethod
    @contextmanager
    def stream(stream: _Stream) -> Iterator[None]:
        """Inside, copies and events are put on the stream."""
        before, _Device.stream_now = _Device.stream_now, stream
        try:
            yield
        finally:
            _Device.stream_now = before

    @staticmethod
    def current_stream() -> _Stream:
        return _Device.stream_now


class DevicePool(HandedOver):
    """The KV of the device, of which there is only the place."""

    device = "cpu"
    layer_num = 1
    start_layer, end_layer = 0, 1
    host_transfer_translate = None

    def __init__(self, copies: TierCopies, num_host_slots: int) -> None:
        self.copies = copies
        self.num_host_slots = num_host_slots

    def register_layer_transfer_counter(self, counter: Any) -> None:
        """Which step waits for which load is told with the step."""


@dataclass(frozen=True)
class Hicache:
    """What the adapter uses, by the engine's own names."""

    parts: Sglang
    UnifiedRadixCache: Any
    PrefillAdder: Any
    AddReqResult: Any
    NewTokenRatioTracker: Any
    CacheRequestHandle: Any
    CacheRequestOutcome: Any
    FULL: Any
    alloc_for_extend: Any
    alloc_for_decode: Any
    retract_decode_steps: int
    settings: SimpleNamespace
    """The server's memory settings, which are read when a tree is built."""


@dataclass
class HicacheTree:
    """A tree with its host tier, and the copies between them."""

    tree: Any
    copies: TierCopies
    rows: Any = field(init=False)
    allocator: Any = field(init=False)

    def __post_init__(self) -> None:
        self.rows = self.tree.req_to_token_pool
        self.allocator = self.tree.token_to_kv_pool_allocator


def hicache_parts() -> Hicache:
    """The classes and functions. Raises TargetError, which says how to get what is missing."""
    parts = sglang_parts()
    unified = unified_cache_module(parts)
    settings = _publish_settings()
    with _lent(_requests_stand_in()):
        try:
            named = {
                name: importlib.import_module(name)
                for name in (
                    f"{_MANAGERS}.schedule_policy",
                    f"{_MANAGERS}.scheduler_components.new_token_ratio_tracker",
                    f"{_MANAGERS}.cache_controller",
                    f"{_CACHE}.l2_transfer",
                    f"{_CACHE}.hybrid_cache.hybrid_pool_assembler",
                    f"{_CACHE}.allocation",
                    f"{_CACHE}.base_prefix_cache",
                    f"{_CACHE}.unified_cache.components",
                    "sglang.srt.environ",
                )
            }
        except (Exception, SystemExit) as error:
            raise TargetError(
                f"the host tier in {parts.folder} cannot be imported: "
                f"{type(error).__name__}: {error}; run `make engines` and use "
                "`.venv-vllm/bin/poolproof`"
            ) from error
    policy, tracker, controller, transfers, assembler, allocation, base, components, environ = (
        named.values()
    )
    vars(controller)["device_module"] = vars(transfers)["device_module"] = _Device
    _choose_host_pool(assembler, components.ComponentType.FULL)
    return Hicache(
        parts=parts,
        UnifiedRadixCache=unified.UnifiedRadixCache,
        PrefillAdder=policy.PrefillAdder,
        AddReqResult=policy.AddReqResult,
        NewTokenRatioTracker=tracker.NewTokenRatioTracker,
        CacheRequestHandle=base.CacheRequestHandle,
        CacheRequestOutcome=base.CacheRequestOutcome,
        FULL=components.ComponentType.FULL,
        alloc_for_extend=allocation.alloc_for_extend,
        alloc_for_decode=allocation.alloc_for_decode,
        retract_decode_steps=environ.envs.SGLANG_RETRACT_DECODE_STEPS.get(),
        settings=settings,
    )


def hicache_tree(
    hicache: Hicache,
    settings: Mapping[str, Any],
    *,
    num_pages: int,
    num_host_pages: int,
    page_size: int,
    num_rows: int,
    enable_caching: bool,
) -> HicacheTree:
    """A tree over `num_pages` pages of `page_size` slots, and a host tier of `num_host_pages`.

    `settings` are the server's, such as `hicache_write_policy`.
    """
    parts, copies = hicache.parts, TierCopies()
    vars(hicache.settings).update(settings)
    num_slots = num_pages * page_size
    pool = DevicePool(copies, num_host_pages * page_size)
    if page_size == 1:
        allocator = parts.TokenToKVPoolAllocator(num_slots, None, "cpu", pool, False)
    else:
        allocator = parts.PagedTokenToKVPoolAllocator(
            num_slots, page_size, None, "cpu", pool, False
        )
    params = parts.CacheInitParams(
        disable=not enable_caching,
        req_to_token_pool=parts.ReqToTokenPool(num_rows, num_slots + page_size, "cpu", False),
        token_to_kv_pool_allocator=allocator,
        page_size=page_size,
        eviction_policy="lru",
        tree_core_backend="python",
        tree_components=(hicache.FULL,),
    )
    tree = hicache.UnifiedRadixCache(params)
    tree.init_hicache(HandedFields(file_storage_path=None), params)
    atexit.unregister(tree.shutdown)  # else every tree of a run is kept until the process ends
    # As the scheduler does once the tree is built.
    tree.cache_controller.load_fence_stream = ModelStream(copies)
    tree.cache_controller.write_fence_stream = ModelStream(copies)
    return HicacheTree(tree, copies)


def _publish_settings() -> SimpleNamespace:
    """What a server of these features has published at its start; the settings of memory."""
    context = importlib.import_module("sglang.srt.runtime_context")._CONTEXT  # noqa: SLF001 - no accessor without a whole configuration
    bags = dict(context._config_bags or {})  # noqa: SLF001 - the same
    memory = bags.get("memory")
    if isinstance(memory, SimpleNamespace):
        return memory
    if memory is not None:
        raise TargetError(
            "a server of SGLang has published its configuration in this process; use another one"
        )
    memory = HandedFields(
        hicache_host_memory_mode="cache",
        hicache_storage_backend=None,
        hicache_storage_prefetch_policy="best_effort",
        hicache_write_policy="write_through",
        hicache_io_backend="kernel",
        hicache_mem_layout="layer_first",
        radix_eviction_policy="lru",
    )
    kernel = dict.fromkeys(("prefill_attention_backend", "decode_attention_backend"))
    bags |= {
        "spec": HandedFields(speculative_algorithm=None),
        "serving": HandedFields(strip_thinking_cache=False, served_model_name="model"),
        "memory": memory,
        "observability": HandedFields(extra_metric_labels=None),
        "disagg": HandedFields(disaggregation_mode="null"),
        "schedule": HandedFields(
            schedule_policy="fcfs", schedule_conservativeness=CONSERVATIVENESS
        ),
        "exec": HandedFields(
            features=HandedFields(enable_encoder_swa_bounded_replay=False),
            mamba=HandedFields(enable_mamba_extra_buffer=False),
            kernel=HandedFields(**kernel, attention_backend="torch_native"),
        ),
    }
    context._config_bags = bags  # noqa: SLF001 - the same
    return memory


def _requests_stand_in() -> ModuleType:
    """The module of requests, of which the admission of prompts takes one function, for metrics."""
    return stub_module(
        f"{_MANAGERS}.schedule_batch",
        Req=object,
        ScheduleBatch=object,
        split_cached_prefix_by_tier=lambda **_lengths: (0, 0, 0),
    )


@contextmanager
def _lent(requests: ModuleType) -> Iterator[None]:
    """Inside, the module of requests and `orjson` can be imported without the server."""
    lent: dict[str, ModuleType] = {}
    for module in (requests, BlankModule("orjson")):
        if module.__name__ not in sys.modules and not _is_installed(module.__name__):
            lent[module.__name__] = sys.modules[module.__name__] = module
    try:
        yield
    finally:
        for name, module in lent.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


def _is_installed(name: str) -> bool:
    return "." not in name and importlib.util.find_spec(name) is not None


def _choose_host_pool(assembler: Any, full: Any) -> None:
    """Let the engine build its controller over a host pool without buffers.

    It is asked for where a tree has the device pool of this file, and nowhere else.
    """
    if any(getattr(s, "is_poolproofs", False) for s in vars(assembler)["_STRATEGIES"]):
        return
    host_pool = _host_pool_class()

    def matches(_self: Any, kvcache: Any, components: Any) -> bool:
        return isinstance(kvcache, DevicePool) and components == {full}

    def build(_self: Any, **named: Any) -> Any:
        return _build_stack(assembler, host_pool, full, **named)

    strategy = type(
        "BookkeepingAlone",
        (assembler.StackStrategy,),
        {"matches": matches, "build": build, "is_poolproofs": True},
    )
    assembler.register_stack_strategy(strategy())


def _build_stack(
    assembler: Any,
    host_pool: Any,
    full: Any,
    *,
    kvcache: DevicePool,
    params: Any,
    load_cache_event: threading.Event,
    **_storage: Any,
) -> Any:
    """As the engine's own strategy for one flat pool does, with our pools."""
    memory = assembler.get_memory()
    pool = host_pool(kvcache, params.page_size, memory.hicache_mem_layout)
    entry = assembler.build_pool_entry(
        name=assembler.PoolName.KV,
        host_pool=pool,
        device_pool=kvcache,
        layer_mapping={0: 0},
        transfer_layer_id_max=1,
        is_anchor=True,
    )
    group = assembler.HostPoolGroup([entry])
    controller = assembler.HybridCacheController(
        params.token_to_kv_pool_allocator,
        group,
        params.page_size,
        params.tp_cache_group,
        load_cache_event=load_cache_event,
        write_policy=memory.hicache_write_policy,
        io_backend=memory.hicache_io_backend,
        transfer_layer_id_max=1,
    )
    return assembler.StackBuildResult(
        host_pool_group=group,
        cache_controller=controller,
        component_host_pools={full: pool},
        pools_desc="KV",
        pool_declarations=(),
    )


def _host_pool_class() -> Any:
    """The engine's host pool with copies that are noted in place of bytes that move."""
    base = importlib.import_module(f"{_CACHE}.pool_host.base").HostKVCache

    def init(self: Any, device_pool: DevicePool, page_size: int, layout: str) -> None:
        base.__init__(
            self,
            dtype=None,
            device_capacity_tokens=device_pool.num_host_slots,
            size_per_token=1,
            start_layer=0,
            end_layer=1,
            host_to_device_ratio=1.0,
            host_size=0,
            page_size=page_size,
            layout=layout,
            pin_memory=False,
            device="cpu",
            is_dummy=True,
            host_token_capacity=device_pool.num_host_slots,
        )
        self.layer_num = 1

    def load(
        _self: Any, device_pool: DevicePool, host: Any, device: Any, *_rest: Any, **_named: Any
    ) -> None:
        stream = _Device.current_stream()
        device_pool.copies.begin(stream, is_load=True, device=device, host=host)

    def backup(_self: Any, device_pool: DevicePool, host: Any, device: Any, _backend: str) -> None:
        stream = _Device.current_stream()
        device_pool.copies.begin(stream, is_load=False, device=device, host=host)

    methods = dict.fromkeys(base.__abstractmethods__)
    methods |= {
        "__init__": init,
        "load_to_device_per_layer": load,
        "backup_from_device_all_layer": backup,
    }
    return type("HostPoolWithoutBuffer", (base,), methods)
