"""The target `parallax`: Parallax's `CacheManager` and `BlockRadixCache`, unmodified.

The adapter does what Parallax's scheduler and its MLX executor do around them. A prompt is matched
without its last token and gets blocks for all of itself, for which leaves of the tree are evicted.
After the step that computed it, its full blocks go into the tree; those of sampled tokens never do.
An end gives back the blocks that the tree does not have.

Where it stands in for the engine:
- `mlx` is blank, and tells as much memory as the blocks need.
- growth: the executor asks for one slot at a time and aborts a request that gets none; here a
  growth that does not fit is refused before anything is asked for.
- the clock, by which leaves are evicted, counts its calls, so that every run is like another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from types import ModuleType
from typing import Any

from poolproof.contract.adapter_fault import HandedFields
from poolproof.targets.adapter_fit import Call
from poolproof.targets.adapter_uses import Use
from poolproof.targets.engine_sources import BlankModule
from poolproof.targets.source_engines import Modules, SourceEngine
from poolproof.targets.token_names import TokenNames

__all__ = ["PARALLAX", "ParallaxManager"]


class ParallaxManager:
    """`cache`, driven as Parallax's executor drives it."""

    def __init__(self, cache: Any, *, enable_caching: bool) -> None:
        self._cache = cache
        self._names = TokenNames(enable_caching=enable_caching)
        self._settings: dict[int, tuple[object, ...]] = {}
        self._waits_for_prefill: set[int] = set()

    def admit(self, seq_id: int, tokens: list[int], *, extra_keys: Any = None) -> int | str:
        setting = self._names.setting(extra_keys)
        named = self._names.named(tokens, setting, extra_keys)
        success, matched = self._cache.allocate_request(str(seq_id), len(tokens), token_ids=named)
        if not success:
            return "later"
        self._settings[seq_id] = setting
        self._waits_for_prefill.add(seq_id)
        return int(matched)

    def append(self, seq_id: int, tokens: list[int]) -> list[tuple[int, int]] | str:
        name, block_size = str(seq_id), self._cache.block_size
        end = self._cache.get_context_length(name) + len(tokens)
        missing = -(-end // block_size) - len(self._cache.get_block_table(name))
        if seq_id in self._waits_for_prefill or missing > self._room():
            return "later"
        for token in self._names.named(tokens, self._settings[seq_id]):
            assert self._cache.append_slot(name), "it had room"
            self._cache.update_request_tokens(name, [token])
        return []

    def step(self, batch: list[tuple[int, int]]) -> None:
        """The full blocks of prompts that are computed now go into the tree."""
        for seq_id, _ in batch:
            if seq_id in self._waits_for_prefill:
                self._cache.insert_full_blocks_to_cache(str(seq_id))
                self._waits_for_prefill.remove(seq_id)

    def finish(self, seq_id: int) -> None:
        self._settings.pop(seq_id, None)
        self._waits_for_prefill.discard(seq_id)
        self._cache.release_request(str(seq_id))

    def abort(self, seq_id: int) -> None:
        self.finish(seq_id)

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:  # noqa: ARG002 - one group
        table: list[int] = self._cache.get_block_table(str(seq_id))
        return table

    def num_free(self) -> int:
        """Free blocks, and those of the tree that no table names."""
        named = {b for name in self._settings for b in self._cache.get_block_table(str(name))}
        free: int = self._cache.allocator.get_num_free_blocks()
        return free + sum(node.block_id not in named for node in self._nodes())

    def _room(self) -> int:
        """Free blocks, and those that the tree would evict."""
        free: int = self._cache.allocator.get_num_free_blocks()
        return free + len([node for node in self._nodes() if node.lock_ref == 0])

    def _nodes(self) -> Iterator[Any]:
        """The nodes of the tree that hold a block."""
        nodes = [] if self._cache.prefix_cache is None else [self._cache.prefix_cache.root]
        while nodes:
            node = nodes.pop()
            nodes += node.children.values()
            if node.block_id is not None:
                yield node


_MLX = BlankModule("mlx.core")
"""Stands for `mlx.core`; how much memory there is, is said before a manager is built."""


def _stubs() -> Mapping[str, ModuleType]:
    names = (
        "mlx", "parallax_utils", "parallax_utils.logging_config", "parallax.server.cache.base",
        "parallax.server.cache.dsa_cache", "parallax.server.cache.kv_cache",
        "parallax.server.cache.linear_cache", "parallax.server.cache.msa_cache",
    )  # fmt: skip
    blank = {name: BlankModule(name) for name in names}
    vars(blank["mlx"])["core"] = _MLX  # `import mlx.core as mx` takes the attribute
    return {**blank, "mlx.core": _MLX}


def _manager(
    modules: Modules, num_blocks: int, block_size: int, enable_caching: bool
) -> ParallaxManager:
    clock = HandedFields(monotonic=count().__next__)
    vars(modules["server.block_radix_cache"])["time"] = clock
    # Keys and values of one number each, of four bytes.
    memory = {"max_recommended_working_set_size": num_blocks * block_size * 2 * 4}
    vars(_MLX).update(device_info=lambda: memory, get_active_memory=lambda: 0)
    cache = modules["server.cache_manager"].CacheManager(
        num_layers=1, num_kv_heads=1, head_dim=1, dtype=None, block_size=block_size,
        cache_memory_fraction=1.0, enable_prefix_cache=enable_caching,
    )  # fmt: skip
    return ParallaxManager(cache, enable_caching=enable_caching)


_SOURCES = "src/parallax"
_MODULES = (
    "utils.layer_types", "server.cache.allocator", "server.block_radix_cache",
    "server.cache_manager",
)  # fmt: skip

_USES = (
    Use(
        "server.cache_manager", "CacheManager",
        (
            Call("__init__", (), (
                "num_layers", "num_kv_heads", "head_dim", "dtype", "block_size",
                "cache_memory_fraction", "enable_prefix_cache",
            )),
            Call("allocate_request", ("request_id", "prompt_len"), ("token_ids",)),
            Call("append_slot", ("request_id",)), Call("get_context_length", ("request_id",)),
            Call("update_request_tokens", ("request_id", "new_token_ids")),
            Call("insert_full_blocks_to_cache", ("request_id",)),
            Call("release_request", ("request_id",)), Call("get_block_table", ("request_id",)),
        ),
        ("block_size", "allocator", "prefix_cache"),
    ),
    Use("server.cache.allocator", "BlockAllocator", (Call("get_num_free_blocks"),)),
    Use("server.block_radix_cache", "BlockRadixCache", reads=("root",)),
    Use(
        "server.block_radix_cache", "BlockTreeNode", reads=("children", "block_id", "lock_ref")
    ),
)  # fmt: skip


PARALLAX = SourceEngine(
    name="parallax",
    what="the CacheManager of Parallax and its BlockRadixCache",
    address="https://github.com/GradientHQ/parallax",
    commit="162354a03234a28cf6e2946e2e0b2203da7c3721",
    files=(*(f"{_SOURCES}/{name.replace('.', '/')}.py" for name in _MODULES), "LICENSE"),
    package=_SOURCES,
    modules=_MODULES,
    stubs=_stubs,
    manager=_manager,
    real_class=lambda modules: modules["server.cache_manager"].CacheManager,
    uses=_USES,
    rows={
        "publishes": "prompts",
        "index": "content",
        # Sampled tokens are never published.
        "hits": "sound",
        "duplicates": "first",
        # A request that computed what the tree has already holds both: its own block, and that one.
        "admission": "sound",
        "retention": "may-drop",
        "never": "untold",
        "eviction": "unspecified",
        "release_order": "unspecified",
        "misuse": "undefined",
    },
    notes=(
        "adapters, salts and images: there are none, so tokens under them are other tokens",
        "linear layers and their slots, chunked prompts, sparse attention: not driven",
        "forks, truncation, drafts, preemption, swapping, transfers: the manager has none",
    ),
)
