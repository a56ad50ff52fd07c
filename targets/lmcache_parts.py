"""LMCache's storage on the CPU, from its own files, without PyTorch and without a device.

`make engine-sources` unpacks the release. Of it run, unmodified: the keys of chunks, the
configuration, the memory allocators with their objects, the cache policies and the backends for
host memory and disk. The memory is real: a `ctypes` buffer as large as the configuration says, of
which an object has its bytes. So what stands under a key can be read as LMCache reads it.

Stand-ins, beside PyTorch: metrics and their clock, the controller's messages, compiled device
operations, the monitor that lets go of pins after some minutes, and vLLM's hash functions. A
stand-in that is asked to decide something ends the run.
"""

from __future__ import annotations

import builtins
import ctypes
import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from poolproof.contract.adapter_fault import HandedFields
from poolproof.contract.target import TargetError
from poolproof.targets.engine_sources import engine_folder
from poolproof.targets.release_modules import ReleaseModules, silent_logger
from poolproof.targets.source_patch import patch_key

__all__ = [
    "LMCACHE",
    "LmcacheStorage",
    "StorageSetup",
    "given_to_lmcache",
    "lmcache_modules",
    "lmcache_storage",
    "runs_of_lmcache",
]

LMCACHE = "lmcache-0.5.6"
"""Name and version, which is also the name of its folder."""

_RUN = (
    "lmcache.integration.vllm.utils",
    "lmcache.utils",
    "lmcache.v1.config",
    "lmcache.v1.config_base",
    "lmcache.v1.memory_allocators",
    "lmcache.v1.memory_management",
    "lmcache.v1.metadata",
    "lmcache.v1.storage_backend.abstract_backend",
    "lmcache.v1.storage_backend.cache_policy",
    "lmcache.v1.storage_backend.local_cpu_backend",
    "lmcache.v1.storage_backend.local_disk_backend",
    "lmcache.v1.storage_backend.path_sharder",
    "lmcache.v1.token_database",
)
"""Modules that are run, and packages of which all are."""

_BYTES_OF = {
    "half": 2, "float16": 2, "bfloat16": 2, "float": 4, "float32": 4, "double": 8, "float64": 8,
    "int8": 1, "uint8": 1, "int16": 2, "int32": 4, "int64": 8, "long": 8, "bool": 1,
    "float8_e4m3fn": 1, "float8_e4m3fnuz": 1, "float8_e5m2": 1, "float8_e5m2fnuz": 1,
}  # fmt: skip


class _Dtype:
    """A number type, of which only the size matters."""

    def __init__(self, name: str, itemsize: int) -> None:
        self.name, self.itemsize = name, itemsize

    def __repr__(self) -> str:
        return f"torch.{self.name}"


class _Shape(tuple[int, ...]):
    """As `torch.Size`."""

    __slots__ = ()

    def numel(self) -> int:
        return prod(self)


class _Bytes:
    """A flat tensor of bytes: part of a buffer. Views of it show the same bytes."""

    def __init__(self, buffer: Any, first: int, end: int) -> None:
        self._buffer, self._first, self._end = buffer, first, end

    def view(self, *_shape: object) -> _Bytes:
        return self

    flatten = view

    def numel(self) -> int:
        return self._end - self._first

    def element_size(self) -> int:
        return 1

    def data_ptr(self) -> int:
        return ctypes.addressof(self._buffer) + self._first

    def __getitem__(self, part: slice) -> _Bytes:
        first, end, _ = part.indices(self.numel())
        return _Bytes(self._buffer, self._first + first, self._first + max(first, end))


def _frombuffer(buffer: Any, **_: object) -> _Bytes:
    return _Bytes(buffer, 0, ctypes.sizeof(buffer))


def _empty(num_bytes: int, **_: object) -> _Bytes:
    return _frombuffer((ctypes.c_uint8 * num_bytes)())


def _split(tensor: _Bytes, num_bytes: int, **_: object) -> list[_Bytes]:
    return [tensor[first : first + num_bytes] for first in range(0, tensor.numel(), num_bytes)]


class _HostMemory:
    """`device_ops` as far as they allocate: memory that is there until it is freed."""

    def __init__(self) -> None:
        self._buffers: dict[int, Any] = {}

    def alloc_pinned_ptr(self, num_bytes: int, _flags: int) -> int:
        buffer = ctypes.create_string_buffer(num_bytes)
        address = ctypes.addressof(buffer)
        self._buffers[address] = buffer
        return address

    def free_pinned_ptr(self, address: int) -> None:
        del self._buffers[address]


def runs_of_lmcache(name: str) -> bool:
    """Whether a module of the release is run from its source."""
    return any(name == run or name.startswith(f"{run}.") for run in _RUN)


def _builtin_hash(_name: str) -> Callable[[object], int]:
    return builtins.hash


def lmcache_modules(root: Path | None = None) -> ReleaseModules:
    """The modules of the release below `root`, else of the one that was unpacked.

    Raises TargetError, which says how to get it.
    """
    return _modules(root or engine_folder(LMCACHE), patch_key())


@cache
def _modules(root: Path, _patch: str) -> ReleaseModules:
    return ReleaseModules(root, "lmcache", runs_of_lmcache, given_to_lmcache())


def _sorted_containers() -> Mapping[str, Any]:
    """The real ones: which range of addresses is taken depends on them."""
    try:
        return vars(importlib.import_module("sortedcontainers"))
    except ModuleNotFoundError as error:
        raise TargetError(
            f"{LMCACHE} needs the module sortedcontainers, which is not installed in "
            f"{sys.executable}; install it there"
        ) from error


def given_to_lmcache() -> dict[str, Mapping[str, Any]]:
    """Contents of stand-ins for what it imports. Raises TargetError."""
    dtypes = {name: _Dtype(name, size) for name, size in _BYTES_OF.items()}
    no_device = HandedFields(is_available=lambda: False)
    return {
        "torch": {
            "Size": _Shape, "dtype": _Dtype, "empty": _empty, "frombuffer": _frombuffer,
            "split": _split, **dtypes,
        },
        "sortedcontainers": _sorted_containers(),
        "lmcache": {
            "torch_dev": no_device, "torch_device_type": "cpu", "device_ops": _HostMemory(),
        },
        "lmcache.logging": {"init_logger": silent_logger},
        "lmcache.v1.system_detection": {
            "NUMADetector": HandedFields(get_numa_mapping=lambda _: None)
        },
        # What the key of an empty prefix is where vLLM is not told a seed.
        "vllm.v1.core.kv_cache_utils": {"init_none_hash": lambda _: None, "NONE_HASH": 0},
        "vllm.utils.hashing": {"get_hash_fn_by_name": _builtin_hash},
    }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class StorageSetup:
    """How a server would configure the storage.

    `policy` is one of LMCache's cache policies. With `pages` the memory is divided into pages of
    one chunk; else it is one range of addresses, in which objects lie wherever there is room. With
    `num_layers` an object has one layer of a chunk (`use_layerwise`), else a whole chunk.
    """

    policy: str = "LRU"
    pages: bool = False
    num_layers: int = 0
    chunk_tokens: int = 4
    is_on: bool = True

    @property
    def bytes_of_an_object(self) -> int:
        return self.chunk_tokens * _BYTES_OF_A_TOKEN


_BYTES_OF_A_TOKEN = 16
"""Keys and values of two heads' numbers in 16 bits: the smallest multiple of the alignment."""


@dataclass(frozen=True)
class LmcacheStorage:
    """One instance: its configuration, the keys of its chunks, and the backend in host memory."""

    modules: ReleaseModules
    setup: StorageSetup
    config: Any
    metadata: Any
    token_database: Any
    backend: Any

    @property
    def shapes(self) -> Any:
        """The shape of one object."""
        if not self.setup.num_layers:
            return self.metadata.get_shapes()
        _, _, *sizes = self.metadata.get_shapes()[0]
        return _Shape((sizes[0], 2, *sizes[1:]))

    @property
    def dtypes(self) -> Any:
        return self.metadata.kv_dtype if self.setup.num_layers else self.metadata.get_dtypes()


def lmcache_storage(
    setup: StorageSetup, num_objects: int, root: Path | None = None, **options: Any
) -> LmcacheStorage:
    """A storage with room for so many objects; `options` are LMCache's own."""
    modules = lmcache_modules(root)
    extra: dict[str, Any] = {"local_cpu.pinned_align_bytes": _BYTES_OF_A_TOKEN}
    if setup.pages:
        extra["rust_raw_block.io_engine"] = "io_uring"
    num_bytes = num_objects * setup.bytes_of_an_object
    config = modules("lmcache.v1.config").LMCacheEngineConfig.from_defaults(
        chunk_size=setup.chunk_tokens, local_cpu=setup.is_on, cache_policy=setup.policy,
        max_local_cpu_size=num_bytes / 1024**3, use_layerwise=bool(setup.num_layers),
        extra_config=extra, save_unfull_chunk=False, **options,
    )  # fmt: skip
    layers = setup.num_layers or 1
    metadata = modules("lmcache.v1.metadata").LMCacheMetadata(
        model_name="model", world_size=1, local_world_size=1, worker_id=0, local_worker_id=0,
        kv_dtype=modules("torch").float16, kv_shape=(layers, 2, setup.chunk_tokens, 2, 2),
        chunk_size=setup.chunk_tokens,
    )  # fmt: skip
    backends = modules("lmcache.v1.storage_backend.local_cpu_backend")
    database = modules("lmcache.v1.token_database").ChunkedTokenDatabase(config, metadata)
    backend = backends.LocalCPUBackend(config, metadata, "cpu")
    return LmcacheStorage(modules, setup, config, metadata, database, backend)
