"""mini-sglang's CacheManager.cache_req frees pages that the request's own row still names.

Usage: python reproduce.py PATH/TO/mini-sglang

Drives CacheManager and its radix cache in the order in which scheduler.py calls them. Needs
PyTorch, on the CPU; no GPU, no model. minisgl's kernels and utils are replaced by the few functions
that the cache uses, because importing them loads the whole engine.
Exit status 1 if a page is given to another request while one still reads it.
"""

import sys
import types
from pathlib import Path

import torch

PAGE_SIZE, NUM_PAGES = 4, 8


class Registry(dict):
    def __class_getitem__(cls, _item):
        return lambda _what: cls()

    def register(self, name):
        return lambda builder: self.setdefault(name, builder)


def compare(key, tokens):
    length = min(len(key), len(tokens))
    differ = (key[:length] != tokens[:length]).nonzero()
    return int(differ[0]) if len(differ) else length


def load(checkout):
    """The checkout's own modules, without minisgl's kernels."""
    kernel, utils = types.ModuleType("minisgl.kernel"), types.ModuleType("minisgl.utils")
    kernel.fast_compare_key = compare
    utils.align_down = lambda number, unit: number // unit * unit
    utils.div_ceil = lambda number, unit: -(-number // unit)
    utils.align_ceil = lambda number, unit: -(-number // unit) * unit
    utils.Registry = Registry
    root = Path(checkout) / "python" / "minisgl"
    for name, folder in (("minisgl", root), ("minisgl.scheduler", root / "scheduler")):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [str(folder)]
    sys.modules["minisgl.kernel"], sys.modules["minisgl.utils"] = kernel, utils
    empty = torch.empty

    def unpinned(*sizes, **options):
        """Pinned memory needs CUDA."""
        return empty(*sizes, **{**options, "pin_memory": False})

    torch.empty = unpinned
    from minisgl import core
    from minisgl.scheduler.cache import CacheManager

    core.set_global_ctx(core.Context(page_size=PAGE_SIZE))
    return core, CacheManager


class Engine:
    """The scheduler's calls around the cache."""

    def __init__(self, core, cache_class):
        self.core = core
        self.page_table = torch.zeros((4, 64), dtype=torch.int32)
        self.cache = cache_class(NUM_PAGES, PAGE_SIZE, self.page_table, "radix")

    def prefill(self, row, tokens):
        """A prompt is matched and locked, gets its pages, and is computed."""
        input_ids = torch.tensor(tokens, dtype=torch.int32)
        pending = types.SimpleNamespace(input_ids=input_ids, input_len=len(tokens))
        handle = self.cache.match_req(pending).cuda_handle
        self.cache.lock(handle)
        if handle.cached_len:
            self.page_table[row][: handle.cached_len].copy_(handle.get_matched_indices())
        request = self.core.Req(
            input_ids=input_ids,
            table_idx=row,
            cached_len=handle.cached_len,
            output_len=8,
            uid=row,
            sampling_params=None,
            cache_handle=handle,
        )
        self.cache.allocate_paged([request])
        request.complete_one()
        return request

    def pages(self, request):
        slots = self.page_table[request.table_idx, : request.cached_len : PAGE_SIZE]
        return [slot // PAGE_SIZE for slot in slots.tolist()]

    def free(self):
        return [slot // PAGE_SIZE for slot in self.cache.free_slots.tolist()]


def main():
    engine = Engine(*load(sys.argv[1]))
    prompt = [1, 2, 3, 4]
    first, second = engine.prefill(0, prompt), engine.prefill(1, prompt)
    with engine.cache.lazy_free_region():  # _process_last_data, of a batch with both
        engine.cache.cache_req(first, finished=False)
        engine.cache.cache_req(second, finished=False)
    print(
        "Two requests with one prompt of a full page are computed in one batch and go on decoding."
    )
    print(f"  the first reads page {engine.pages(first)}, the second page {engine.pages(second)}")
    print("  expected: no page that a request reads is free")
    both = set(engine.free()) & set(engine.pages(second))
    print(f"  happens:  free pages are {engine.free()}; {sorted(both)} is read by the second")
    others = [engine.prefill(2, list(range(100, 100 + PAGE_SIZE * len(engine.free()))))]
    given = both & set(engine.pages(others[0]))
    print("Another request then takes what is free.")
    print(f"  it overwrites page {sorted(given)}, from which the second still reads its prompt")
    return int(bool(given))


if __name__ == "__main__":
    sys.exit(main())
