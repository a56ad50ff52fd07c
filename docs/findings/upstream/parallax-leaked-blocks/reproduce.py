"""Parallax's prefix cache loses the blocks of prompts whose first token is in it already.

Usage: python reproduce.py PATH/TO/parallax

Drives CacheManager with its prefix cache in the order in which the scheduler and the MLX executor
call it. Needs no MLX: the bookkeeping computes nothing, so `mlx` and the classes of the tensors are
empty modules. Exit status 1 if blocks are lost although no request is there.
"""

import sys
import types
from pathlib import Path

BLOCK_SIZE, NUM_BLOCKS = 4, 6


class Anything(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda *_, **__: None})


class Quiet:
    def __getattr__(self, _name):
        return lambda *_: None


def load(checkout):
    """The checkout's own cache manager, without MLX."""
    mlx, core = Anything("mlx"), Anything("mlx.core")
    # A key and a value of one number each, of four bytes.
    size = NUM_BLOCKS * BLOCK_SIZE * 2 * 4
    core.device_info = lambda: {"max_recommended_working_set_size": size}
    core.get_active_memory = lambda: 0
    core.metal = types.SimpleNamespace(device_info=core.device_info)  # until June 2026
    mlx.core = core
    logging = types.ModuleType("parallax_utils.logging_config")
    logging.get_logger = lambda _name: Quiet()
    stubs = {"mlx": mlx, "mlx.core": core, "parallax_utils.logging_config": logging}
    root = Path(checkout) / "src" / "parallax"
    for name in ("base", "dsa_cache", "kv_cache", "linear_cache", "msa_cache"):
        stubs[f"parallax.server.cache.{name}"] = Anything(name)
    for name in ("parallax", "parallax.server", "parallax.server.cache", "parallax.utils"):
        package = types.ModuleType(name)
        package.__path__ = [str(root.parent / name.replace(".", "/"))]
        stubs[name] = package
    stubs["parallax_utils"] = types.ModuleType("parallax_utils")
    sys.modules.update(stubs)
    from parallax.server.cache_manager import CacheManager

    return CacheManager(
        num_layers=1,
        num_kv_heads=1,
        head_dim=1,
        dtype=None,
        block_size=BLOCK_SIZE,
        cache_memory_fraction=1.0,
        enable_prefix_cache=True,
    )


def prefill(cache, name, tokens):
    """The scheduler gives it blocks; after the forward pass the executor inserts full ones."""
    success, matched = cache.allocate_request(name, len(tokens), token_ids=tokens)
    if success:
        cache.insert_full_blocks_to_cache(name)
        print(f"  {name}: blocks {cache.get_block_table(name)}, {matched} tokens matched")
    else:
        print(f"  {name}: has to wait")
    return success


def main():
    cache = load(sys.argv[1])
    print(f"Prompts of one full block, one after the other; there are {NUM_BLOCKS} blocks.")
    for number in range(NUM_BLOCKS):
        # As most prompts do, they begin with one token.
        prefill(cache, f"request {number}", [1, *range(10 * number, 10 * number + BLOCK_SIZE - 1)])
        cache.release_request(f"request {number}")
    print("All have ended. A prompt of two blocks comes.")
    print("  expected: room is made for it, since nobody holds a block")
    success = prefill(cache, "last", [2] * (2 * BLOCK_SIZE))
    cached, free = cache.prefix_cache.num_cached_blocks, cache.allocator.get_num_free_blocks()
    nodes = len(cache.prefix_cache.root.children)
    found = f"{free} of {NUM_BLOCKS} blocks free, {cached} counted as cached, {nodes} in the tree"
    print(f"  happens:  {found}")
    return int(not success)


if __name__ == "__main__":
    sys.exit(main())
