"""vllm-mlx's paged prefix cache finds a block whatever stands before it.

Usage: python reproduce.py PATH/TO/vllm-mlx

Drives BlockAwarePrefixCache over PagedCacheManager as the scheduler does: fetch_cache, then
store_cache with what was computed. Needs no MLX: which blocks a request gets is decided by tokens
alone, and the KV that the blocks stand for is told by their numbers. Exit status 1 if a request is
given a block that was computed behind another prefix, or at another position.
"""

import importlib.util
import sys
import types
from pathlib import Path

BLOCK_SIZE = 4


def load(checkout):
    """The checkout's own two modules, without the rest of the package."""
    folder = Path(checkout) / "vllm_mlx"
    package = types.ModuleType("vllm_mlx")
    package.__path__ = [str(folder)]
    sys.modules["vllm_mlx"] = package
    for name in ("paged_cache", "prefix_cache"):
        spec = importlib.util.spec_from_file_location(f"vllm_mlx.{name}", folder / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    return sys.modules["vllm_mlx.paged_cache"], sys.modules["vllm_mlx.prefix_cache"]


def main():
    paged, prefix = load(sys.argv[1])
    pool = paged.PagedCacheManager(block_size=BLOCK_SIZE, max_blocks=16)
    cache = prefix.BlockAwarePrefixCache(None, pool)
    a, b, c = ([token] * BLOCK_SIZE for token in (1, 2, 3))
    first = cache.store_cache("first", a + b, [])
    print("A request with the blocks of tokens a, b is computed and stored.")
    print(f"  its blocks are {first.block_ids}: b was computed behind a, at position {BLOCK_SIZE}")

    print("A prompt begins with b.")
    table, remaining = cache.fetch_cache("second", [*b, 9])
    found = [] if table is None else table.block_ids
    print("  expected: no block, since no prompt that begins with b was computed")
    print(f"  happens:  blocks {found} are reused, {len(remaining)} token is left to compute")

    print("A prompt of c, b is computed and stored.")
    third = cache.store_cache("third", c + b, [])
    print("  expected: two new blocks")
    shared = first.block_ids[1]
    print(f"  happens:  its blocks are {third.block_ids}, of which {shared} holds b behind a")
    return int(bool(found) or shared in third.block_ids)


if __name__ == "__main__":
    sys.exit(main())
