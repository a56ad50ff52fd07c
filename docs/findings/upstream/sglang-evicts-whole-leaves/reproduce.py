"""SGLang 0.5.23: room for one page evicts every page of the oldest leaf.

Usage: python reproduce.py FOLDER

FOLDER holds `sglang/srt` of the wheel, unpacked; PyTorch and Triton must be installed. No GPU and
no model is used. The tree and the allocator are the engine's own; modules of the server that they
only mention are blank.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from array import array
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

RUN = (
    "environ",
    "mem_cache",
    "platforms",
    "plugins",
    "runtime_context",
    "utils",
)
NOT_RUN = ("mem_cache.allocator.hisparse", "mem_cache.kv_cache_builder")
PAGE, PAGES, ROOM = 4, 6, 8


class Nothing:
    """Falsy; whatever is asked of it does nothing."""

    def __init__(self, *_given: object, **_options: object) -> None: ...

    def __call__(self, *_given: object, **_options: object) -> Nothing:
        return self

    def __getattr__(self, name: str) -> Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __bool__(self) -> bool:
        return False


class Blank(ModuleType):
    """Has every name: a class where it is written like one."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Nothing,), {}) if name[:1].isupper() else Nothing()


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers for the modules of SGLang that are not run."""

    def find_spec(self, name: str, *_more: object) -> Any:
        if not name.startswith("sglang.") or name == "sglang.srt":
            return None
        rest = name.removeprefix("sglang.srt.")
        lies_in = any(rest == run or rest.startswith(f"{run}.") for run in RUN)
        if rest not in NOT_RUN and (lies_in or any(run.startswith(f"{rest}.") for run in RUN)):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return Blank(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


def load(folder: Path) -> Any:
    """A function that imports a module below `sglang.srt`."""
    package = ModuleType("sglang")
    package.__path__ = [str(folder / "sglang")]
    sys.modules["sglang"] = package
    for name in ("orjson", "setproctitle"):
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = Blank(name)
    sys.meta_path.insert(0, Finder())
    return lambda name: importlib.import_module(f"sglang.srt.{name}")


def main() -> int:
    module = load(Path(sys.argv[1]))
    tree, keys = module("mem_cache.radix_cache"), module("mem_cache.base_prefix_cache")
    allocators = module("mem_cache.allocator.paged")
    torch = tree.torch
    allocator = allocators.PagedTokenToKVPoolAllocator(
        ROOM * PAGE, PAGE, torch.float32, "cpu", SimpleNamespace(), need_sort=False
    )
    cache = tree.RadixCache(
        module("mem_cache.cache_init_params").CacheInitParams(
            disable=False,
            req_to_token_pool=None,
            token_to_kv_pool_allocator=allocator,
            page_size=PAGE,
        )
    )
    key = tree.RadixKey(array("q", range(PAGES * PAGE)), None)
    cache.insert(keys.InsertParams(key=key, value=allocator.alloc(PAGES * PAGE)))
    free = allocator.available_size() // PAGE
    print(f"{ROOM} pages; a prompt of {PAGES} is cached, {free} are free, {free + 1} are needed")
    cache.evict(keys.EvictParams(num_tokens=PAGE))
    left = cache.match_prefix(keys.MatchPrefixParams(key=key)).device_prefix_len // PAGE
    print(f"  expected: the prompt's first {PAGES - 1} pages are still found")
    print(f"  happens:  {left} are, {allocator.available_size() // PAGE} pages are free")
    return int(left < PAGES - 1)


if __name__ == "__main__":
    sys.exit(main())
