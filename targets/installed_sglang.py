"""SGLang's radix cache over its paged allocator, on the CPU, from the engine's own files.

The files of `sglang/srt/mem_cache` (radix cache, paged and token allocators, request pool, the
helpers that allocate and release) and all that they import from `sglang/srt` are unmodified: of an
installed SGLang, else of the wheel that `make engine-sources` unpacks. PyTorch and Triton must be
installed; on a machine without a GPU the allocators take their own PyTorch paths
(`alloc_extend_naive`, `alloc_decode_naive`).

Stubbed, as modules whose every name is falsy and does nothing when called:
- `sglang` itself: its `__init__`, which starts the front end, is not run;
- `sglang.kernels`: GPU kernels;
- `sglang.srt.layers`: model layers, imported by the memory pools that hold KV tensors;
- `sglang.srt.configs`: model configurations, named in annotations;
- `sglang.srt.observability`: metrics, off by default;
- `orjson`, where it is missing: the server's JSON.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from poolproof.contract.target import TargetError
from poolproof.targets.engine_sources import BlankModule, engine_folder

__all__ = ["SGLANG", "SGLANG_STUBS", "Sglang", "sglang_parts"]

SGLANG = "sglang-0.5.23"
"""Name and version, which is also the name of its folder."""

SGLANG_STUBS = (
    "sglang.kernels",
    "sglang.srt.layers",
    "sglang.srt.configs",
    "sglang.srt.observability",
)

_CACHE = "sglang.srt.mem_cache"
_WANTED = (
    (f"{_CACHE}.radix_cache", "RadixCache"),
    (f"{_CACHE}.radix_cache", "RadixKey"),
    (f"{_CACHE}.cache_init_params", "CacheInitParams"),
    (f"{_CACHE}.base_prefix_cache", "MatchPrefixParams"),
    (f"{_CACHE}.base_prefix_cache", "EvictParams"),
    (f"{_CACHE}.allocator", "PagedTokenToKVPoolAllocator"),
    (f"{_CACHE}.allocator", "TokenToKVPoolAllocator"),
    (f"{_CACHE}.memory_pool", "ReqToTokenPool"),
    (f"{_CACHE}.common", "match_kv_cache"),
    (f"{_CACHE}.common", "checkpoint_kv_cache"),
    (f"{_CACHE}.common", "release_kv_cache"),
    (f"{_CACHE}.common", "evict_from_tree_cache"),
    (f"{_CACHE}.allocation", "alloc_paged_token_slots_extend"),
    (f"{_CACHE}.allocation", "alloc_paged_token_slots_decode"),
    (f"{_CACHE}.allocation", "alloc_token_slots"),
)


@dataclass(frozen=True)
class Sglang:
    """What the adapter uses, by the engine's own names."""

    folder: Path
    RadixCache: Any
    RadixKey: Any
    CacheInitParams: Any
    MatchPrefixParams: Any
    EvictParams: Any
    PagedTokenToKVPoolAllocator: Any
    TokenToKVPoolAllocator: Any
    ReqToTokenPool: Any
    match_kv_cache: Any
    checkpoint_kv_cache: Any
    release_kv_cache: Any
    evict_from_tree_cache: Any
    alloc_paged_token_slots_extend: Any
    alloc_paged_token_slots_decode: Any
    alloc_token_slots: Any


def sglang_parts() -> Sglang:
    """The classes and functions. Raises TargetError, which says how to get what is missing."""
    folder = _place_package()
    lent = None
    if "orjson" not in sys.modules and importlib.util.find_spec("orjson") is None:
        lent = sys.modules["orjson"] = BlankModule("orjson")
    parts: dict[str, Any] = {}
    try:
        for module, name in _WANTED:
            parts[name] = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise TargetError(
            f"{folder} needs the module {error.name}, which is not installed in {sys.executable}; "
            "run `make engines` and use `.venv-vllm/bin/poolproof`"
        ) from error
    except (Exception, SystemExit) as error:
        raise TargetError(
            f"{_CACHE} in {folder} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    finally:
        if lent is not None and sys.modules.get("orjson") is lent:
            del sys.modules["orjson"]
    return Sglang(folder=folder, **parts)


def _place_package() -> Path:
    """Make `sglang` importable without its `__init__`; the folder that its files come from."""
    loaded = sys.modules.get("sglang")
    if loaded is not None:
        return Path(loaded.__path__[0])
    installed = importlib.util.find_spec("sglang")
    if installed is not None and installed.submodule_search_locations:
        folder = Path(installed.submodule_search_locations[0])
    else:
        folder = engine_folder(SGLANG) / "sglang"
    package = ModuleType("sglang", "Without its __init__, by Poolproof.")
    package.__path__ = [str(folder)]
    sys.modules["sglang"] = package
    sys.meta_path.insert(0, _StubFinder())
    return folder


class _StubFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers for the stubbed packages and everything below them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if not any(fullname == stub or fullname.startswith(f"{stub}.") for stub in SGLANG_STUBS):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return BlankModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""
