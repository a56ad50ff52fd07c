"""LMCache's connector for vLLM, both sides of it, from its own files beside the installed vLLM.

The scheduler side is `LMCacheConnectorV1Impl` with its tracker of blocks (`RequestTracker`,
`ReqMeta`, `LoadSpec`) and its lookup client. The worker side is the same class in the other role,
over LMCache's own engine: `lookup`, `retrieve` and `store`, the manager of backends, the backends
in host memory and on disk. Nothing of them is changed.

Simulated is what moves KV between a device and an object of LMCache's memory: each block that is
stored gets a place of its own, whose number is written into the object's bytes, and a load takes
the places that it reads there. So what LMCache hands out under a key is told by its own memory.

Stand-ins: the services around the engine (processes, sockets, metrics, the controller), the thread
of the storage's event loop: what waits for it is done when a step begins, and the threads that read
from the disk.
"""

from __future__ import annotations

import asyncio
import importlib
import struct
import sys
import tempfile
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache
from types import ModuleType
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.lmcache_connector import LMCacheConnectorV1

from poolproof.contract.adapter_fault import HandedFields, HandedOver
from poolproof.contract.engine_plan import Transfer
from poolproof.targets.adapter_fit import Call
from poolproof.targets.adapter_uses import Use
from poolproof.targets.engine_sources import engine_folder
from poolproof.targets.lmcache_parts import LMCACHE, given_to_lmcache, runs_of_lmcache
from poolproof.targets.release_modules import ReleaseModules
from poolproof.targets.vllm_connector_workers import Moves, Reported

__all__ = ["CONNECTOR_USES", "LmcacheConnector", "LmcacheWorker", "connector_modules"]

_RUN = (
    "lmcache.integration.vllm.vllm_v1_adapter",
    "lmcache.v1.cache_engine",
    "lmcache.v1.event_manager",
    "lmcache.v1.lookup_client.abstract_client",
    "lmcache.v1.lookup_client.lmcache_lookup_client",
    "lmcache.v1.storage_backend.storage_manager",
)
CONNECTOR_USES = (
    Use(
        "lmcache.integration.vllm.vllm_v1_adapter", "LMCacheConnectorV1Impl",
        (
            Call("__init__", ("vllm_config", "role", "parent")),
            Call("start_load_kv", ("forward_context",)), Call("wait_for_save"),
            Call("get_block_ids_with_load_errors"),
        ),
        ("lmcache_engine",),
    ),
    Use(
        "lmcache.v1.cache_engine", "LMCacheEngine",
        (
            Call("lookup", (), ("hashes", "offsets", "lookup_id", "pin", "request_configs")),
        ),
    ),
    Use("lmcache.v1.event_manager", "EventManager", (Call("__init__"),)),
    Use("lmcache.v1.lookup_client.lmcache_lookup_client", "LMCacheLookupClient"),
    Use("lmcache.v1.storage_backend.storage_manager", "StorageManager"),
    Use(
        "lmcache.v1.storage_backend.local_cpu_backend", "LocalCPUBackend",
        (Call("__init__", ("config", "metadata", "dst_device")),),
    ),
    Use(
        "lmcache.v1.storage_backend.local_disk_backend", "LocalDiskBackend",
        (
            Call("__init__", (
                "config", "loop", "local_cpu_backend", "dst_device", "lmcache_worker", "metadata",
            )),
        ),
    ),
    Use(
        "lmcache.v1.token_database", "ChunkedTokenDatabase",
        (Call("__init__", ("config", "metadata")),),
    ),
)  # fmt: skip
"""What is used of LMCache's connector and of what stands behind it."""
_REAL = (
    "torch", "msgspec", "vllm.config", "vllm.sampling_params", "vllm.version", "vllm.v1.request",
    "vllm.v1.core.sched.output", "vllm.distributed.kv_transfer.kv_connector.v1.base",
)  # fmt: skip
_PATCH = "poolproof.patch"
_PLACE = struct.Struct("<q")
_BYTES_OF_A_TOKEN = 16


@cache
def connector_modules(_patch: str) -> ReleaseModules:
    """LMCache's modules, which see the installed PyTorch and vLLM.

    They have the patch that is active at the first call with its key (`patch_key`).
    """
    real = {name: _contents(importlib.import_module(name)) for name in _REAL}
    given = {
        **given_to_lmcache(),
        **real,
        "vllm.distributed.parallel_state": {
            "get_pp_group": lambda: HandedFields(is_last_rank=True)
        },
        "lmcache.v1.manager": {"LMCacheManager": _Services},
        "lmcache.v1.storage_backend.job_executor.pq_executor": {
            "AsyncPQThreadPoolExecutor": _Executor
        },
    }
    folder = engine_folder(LMCACHE)
    return ReleaseModules(
        folder, "lmcache", lambda name: name in _RUN or runs_of_lmcache(name), given
    )


def _contents(module: ModuleType) -> Mapping[str, Any]:
    names = [name for name in vars(module) if not name.startswith("__") or name == "__version__"]
    return {name: vars(module)[name] for name in names}


class _NoStatistics(HandedOver):
    """Takes what is counted; times are a second."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name.startswith("profile"):
            return nullcontext
        if name.endswith("_time"):
            return 1.0
        if name.startswith("time_to"):
            return lambda: 1.0
        return lambda *_, **__: self


class _Executor:
    """Carries out jobs for the disk once the event loop gets to them, and none at the end."""

    def __init__(self, loop: Any, **_options: Any) -> None:
        self._loop = loop

    async def submit_job(self, job: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        options.pop("priority", None)
        return None if self._loop in _ENDING else job(*arguments, **options)

    def shutdown(self, **_options: Any) -> None: ...


class _InPlace:
    """Reads from the disk one after another. LMCache's own threads outlive what started them.

    A worker of ours has thousands of such backends in turn, and room for about sixty threads.
    """

    def map(self, function: Callable[..., Any], *arguments: Any) -> Iterator[Any]:
        return map(function, *arguments)

    def shutdown(self, **_options: Any) -> None: ...


_ENDING: set[Any] = set()
"""Event loops whose storage is gone."""


def _work_off(loop: Any) -> None:
    """Do all that waits for the event loop."""
    loop.run_until_complete(asyncio.sleep(0))
    while tasks := asyncio.all_tasks(loop):
        loop.run_until_complete(asyncio.gather(*tasks))


class _Clock(HandedOver):
    """The clock of the backend in host memory, which waits where nothing can be evicted.

    While a worker waits nobody else uses its storage but writes to the disk. Where these are done
    and it waits once more, only the monitor that takes pins away by the clock can end it.
    """

    def __init__(self) -> None:
        self.loop: Any = None
        self._has_waited = False

    def begin(self, loop: Any) -> None:
        """A step of a worker begins."""
        self.loop, self._has_waited = loop, False

    def sleep(self, _seconds: float) -> None:
        if self._has_waited:
            raise TimeoutError(
                "a retrieve waits for room in host memory, and all that is there is pinned"
            )
        self._has_waited = True
        _work_off(self.loop)


_CLOCK = _Clock()


def _close(loop: Any) -> None:
    _ENDING.add(loop)
    _work_off(loop)
    _ENDING.remove(loop)
    loop.close()


class _Services:
    """What starts LMCache's engine and lookup client in a server.

    `engine` is that of the one worker; a connector in the scheduler's role asks it through the
    lookup client, as a server does through a socket.
    """

    def __init__(self, config: Any, _factory: Any, connector: Any) -> None:
        self.lookup_client: Any = None
        self.lookup_server = None
        self.lmcache_engine_metadata = None
        self.lmcache_engine: Any = None
        if connector._role.name == "WORKER":  # noqa: SLF001 - it hands itself over to be asked
            self.lmcache_engine = _engine(config)

    def start_services(self) -> None: ...

    def stop_services(self) -> None: ...


class _Transport(HandedOver):
    """The way from a lookup client to the engine, without a socket."""

    world_size = 1

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def send_and_recv_all(self, message: list[Any]) -> list[bytes]:
        hashes, offsets, lookup_id, configs = message
        found: int = self._engine.lookup(
            hashes=hashes, offsets=offsets, lookup_id=lookup_id, pin=True,
            request_configs=_from_json(configs),
        )  # fmt: skip
        return [found.to_bytes(4, "big")]

    def close(self) -> None: ...


def _from_json(text: str) -> Any:
    return importlib.import_module("json").loads(text) if text else None


class _Device(HandedOver):
    """Between blocks of the device and LMCache's objects: what it was asked to move.

    `batched_from_gpu` and `batched_to_gpu` are what LMCache's engine calls.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._num_places = 0
        self.loads: list[tuple[int, int]] = []
        self.stores: list[tuple[int, int]] = []

    def batched_from_gpu(
        self, objects: list[Any], starts: list[int], ends: list[int], **options: Any
    ) -> None:
        for each, start, end in zip(objects, starts, ends, strict=True):
            for number, block in enumerate(self._blocks(options, start, end)):
                self._num_places += 1
                _PLACE.pack_into(each.byte_array.cast("B"), number * _PLACE.size, self._num_places)
                self.stores.append((block, self._num_places))

    def batched_to_gpu(
        self, objects: list[Any], starts: list[int], ends: list[int], **options: Any
    ) -> None:
        """Blocks that vLLM has already are not written to."""
        cached = options["vllm_cached_tokens"]
        for each, start, end in zip(objects, starts, ends, strict=True):
            for number, block in enumerate(self._blocks(options, start, end)):
                first = start + number * self._block_size
                (place,) = _PLACE.unpack_from(each.byte_array.cast("B"), number * _PLACE.size)
                if first + self._block_size > cached:
                    self.loads.append((block, place))

    def take(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """The blocks and places of loads and of stores, since the last call."""
        taken = self.loads, self.stores
        self.loads, self.stores = [], []
        return taken

    def _blocks(self, options: Mapping[str, Any], start: int, end: int) -> list[int]:
        slots = options["slot_mapping"][start:end].tolist()
        return [slot // self._block_size for slot in slots[:: self._block_size]]


def _modules(config: Any) -> ReleaseModules:
    return connector_modules(config.extra_config[_PATCH])


def _engine(config: Any) -> Any:
    """LMCache's engine over its own storage; their constructors would start threads."""
    modules = _modules(config)
    torch = modules("torch")
    metadata = modules("lmcache.v1.metadata").LMCacheMetadata(
        model_name="model", world_size=1, local_world_size=1, worker_id=0, local_worker_id=0,
        kv_dtype=torch.float16, kv_shape=(1, 2, config.chunk_size, 2, 2),
        chunk_size=config.chunk_size, role="worker",
    )  # fmt: skip
    engine_class = modules("lmcache.v1.cache_engine").LMCacheEngine
    engine = engine_class.__new__(engine_class)
    vars(engine).update(
        config=config,
        metadata=metadata,
        token_database=modules("lmcache.v1.token_database").ChunkedTokenDatabase(config, metadata),
        gpu_connector=_Device(config.extra_config["poolproof.block_size"]),
        storage_manager=_storage_manager(config, metadata),
        save_only_first_rank=False,
        async_loading=False,
        event_manager=modules("lmcache.v1.event_manager").EventManager(),
        use_layerwise=False,
        kv_events_enabled=False,
        remove_after_retrieve=False,
        store_location=None,
        retrieve_locations=None,
        num_layers=1,
        fmt=None,
        lookup_pins=defaultdict(lambda: defaultdict(list)),
        stats_monitor=_NoStatistics(),
        kvcache_check_log_enabled=False,
        _health_monitor=None,
        _init_failed=False,
        hidden_state_store=None,
    )
    engine.is_frozen = lambda: False
    return engine


def _storage_manager(config: Any, metadata: Any) -> Any:
    modules = _modules(config)
    name = "lmcache.v1.storage_backend"
    host_module = modules(f"{name}.local_cpu_backend")
    host_module.time = _CLOCK
    host = host_module.LocalCPUBackend(config, metadata, "cpu")
    manager_class = modules(f"{name}.storage_manager").StorageManager
    manager = manager_class.__new__(manager_class)
    backends: OrderedDict[str, Any] = OrderedDict(LocalCPUBackend=host)
    loop = asyncio.new_event_loop()
    weakref.finalize(manager, _close, loop)
    if config.local_disk:
        disk = modules(f"{name}.local_disk_backend").LocalDiskBackend(
            config, loop, host, "cpu", None, metadata
        )
        disk._read_thread_pool = _InPlace()  # noqa: SLF001 - no option replaces it
        backends["LocalDiskBackend"] = disk
    vars(manager).update(
        config=config,
        metadata=metadata,
        loop=loop,
        storage_backends=backends,
        allocator_backend=host,
        local_cpu_backend=host,
        internal_copy_stream=None,
        _freeze=False,
        _freeze_lock=nullcontext(),
        _bypassed_backends=set(),
        _bypass_lock=nullcontext(),
    )
    return manager


@contextmanager
def _in_place(config: Any) -> Iterator[None]:
    """While it lasts, vLLM imports LMCache's adapter, which takes this configuration."""
    modules = _modules(config)
    modules("lmcache.integration.vllm.utils")._config_instance = config  # noqa: SLF001 - what a server reads from its environment
    names = ("lmcache", "lmcache.integration", "lmcache.integration.vllm")
    adapter = "lmcache.integration.vllm.vllm_v1_adapter"
    before = {name: sys.modules.get(name) for name in (*names, adapter)}
    sys.modules.update({name: ModuleType(name) for name in names})
    sys.modules[adapter] = modules(adapter)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


class LmcacheConnector(LMCacheConnectorV1):  # type: ignore[misc]  # vLLM is not typed here
    """vLLM's `LMCacheConnectorV1` over LMCache's own adapter, and a worker for it.

    What it is configured with stands in vLLM's `kv_connector_extra_config`: `lmcache` has LMCache's
    options, `objects` how many chunks the host has room for, `disk_objects` the disk.
    """

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        extra = vllm_config.kv_transfer_config.kv_connector_extra_config
        config = _configuration(extra, vllm_config.cache_config.block_size)
        if config.local_disk:
            weakref.finalize(self, config.poolproof_folder.cleanup)
        with _in_place(config):
            super().__init__(vllm_config, role, kv_cache_config)
            adapter = _modules(config)("lmcache.integration.vllm.vllm_v1_adapter")
            roles = type(role)
            self.worker = adapter.LMCacheConnectorV1Impl(vllm_config, roles.WORKER, self)
        self.worker.kv_caches = {"layer.0": None}
        client_class = _modules(config)(
            "lmcache.v1.lookup_client.lmcache_lookup_client"
        ).LMCacheLookupClient
        client = client_class.__new__(client_class)
        vars(client).update(
            config=config,
            transport=_Transport(self.worker.lmcache_engine),
            token_database=self.worker.lmcache_engine.token_database,
            enable_blending=False,
            reqs_status={},
        )
        self._lmcache_engine._manager.lookup_client = client  # noqa: SLF001 - services make it in a server


def _configuration(extra: Mapping[str, Any], block_size: int) -> Any:
    options = dict(extra["lmcache"])
    num_bytes = options["chunk_size"] * _BYTES_OF_A_TOKEN
    folder = None
    if extra.get("disk_objects"):
        folder = tempfile.TemporaryDirectory(prefix="poolproof-lmcache-")
        options |= {
            "local_disk": folder.name,
            "max_local_disk_size": extra["disk_objects"] * num_bytes / 1024**3,
        }
    patch = extra.get("patch", "")
    config = connector_modules(patch)("lmcache.v1.config").LMCacheEngineConfig.from_defaults(
        local_cpu=True,
        max_local_cpu_size=extra["objects"] * num_bytes / 1024**3,
        extra_config={
            "local_cpu.pinned_align_bytes": _BYTES_OF_A_TOKEN,
            "poolproof.block_size": block_size,
            _PATCH: patch,
        },
        **options,
    )
    config.poolproof_folder = folder
    return config


class LmcacheWorker:
    """LMCache's own worker side: `start_load_kv` before a step, `wait_for_save` behind it.

    Both are called when the step is planned, in the order in which a worker calls them; what they
    move is part of the step.
    """

    def __init__(self, connector: Any) -> None:
        self._connector = connector
        self._impl = connector.worker
        self._engine = self._impl.lmcache_engine
        self._unreadable: dict[int, set[int]] = {}

    def begin(self, step: int, metadata: Any, number: Callable[[], int]) -> Moves:
        """What a step loads before it is computed, and what it stores."""
        loop = self._engine.storage_manager.loop
        _work_off(loop)
        _CLOCK.begin(loop)
        self._connector._connector_metadata = metadata  # noqa: SLF001 - as vLLM's worker binds it
        self._impl.start_load_kv(HandedFields(attn_metadata=True))
        self._impl.wait_for_save()
        self._connector._connector_metadata = None  # noqa: SLF001 - as vLLM's worker clears it
        self._unreadable[step] = self._impl.get_block_ids_with_load_errors()
        loads, stores = self._engine.gpu_connector.take()
        moves = Moves()
        for pairs, is_load in ((loads, True), (stores, False)):
            if pairs:
                blocks, places = zip(*pairs)
                moves.transfers.append(Transfer(number(), is_load, True, blocks, places))
        return moves

    def arrived(self, transfer_id: int, *, is_done: bool) -> bool:
        """Every transfer is part of its step."""
        del transfer_id, is_done
        return False

    def report(self, step: int, metadata: Any) -> Reported:
        """Blocks into which nothing could be loaded."""
        del metadata
        return Reported(invalid_block_ids=self._unreadable.pop(step))
