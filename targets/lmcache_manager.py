"""The target `lmcache`: LMCache's backend in host memory as a prefix cache, unmodified.

`LocalCPUBackend` is a pool with an index and an eviction: it allocates objects, each for the KV of
a chunk, finds them by key, and evicts those which nobody has pinned or refers to. A sequence here
is a retrieve and a store that last as long as the sequence does. It is looked up as
`LMCacheEngine.lookup` does it, with pins, and the policy is told. In the next step it gets what was
found as `retrieve` does, which adds a reference, and the pins go. Objects for the other chunks are
allocated as by `store`; once a chunk is full and computed it is put under its key. At its end the
sequence gives its references back.

The keys are those of LMCache's `ChunkedTokenDatabase`. Adapters and salts are tags of a request,
which are part of a key.

In layouts with layers an object has one layer of a chunk, as with `use_layerwise`: the layers are
cache groups, whose objects are allocated and evicted together.

Where it stands in for LMCache's engine:
- room: a request waits until there is room for all that it asks for; LMCache stores what fits.
- a key that has an object already stays with it; the other object has no key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import Any

from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.target import TargetError
from poolproof.targets.adapter_fit import Call
from poolproof.targets.adapter_uses import Use, require_uses
from poolproof.targets.lmcache_parts import (
    LMCACHE,
    LmcacheStorage,
    StorageSetup,
    lmcache_modules,
    lmcache_storage,
)
from poolproof.targets.manager_target import manager_target
from poolproof.targets.manager_trial import require_a_few_calls
from poolproof.targets.target import Make, ManagerLayout, Target, source_of
from poolproof.targets.target_spec import builtin_profile
from poolproof.targets.token_names import TokenNames

__all__ = ["USES", "LmcacheManager", "lmcache_manager"]


class LmcacheSequence:
    """A sequence: its `objects` by group, in order of chunks.

    Those of `pinned`, the first ones, were looked up and not retrieved yet.
    """

    def __init__(self, tokens: list[int], configs: Mapping[str, Any], num_groups: int) -> None:
        self.tokens = tokens
        self.configs = configs
        self.objects: list[list[Any]] = [[] for _ in range(num_groups)]
        self.pinned: list[Any] = []
        self.num_scheduled = self.num_computed = 0
        self.num_put = 0


@dataclass(frozen=True)
class _Inside:
    """Blocks that nobody has, and the objects of those that are cached or held."""

    unused: list[int]
    cached: dict[int, Any]
    held: dict[int, Any]


class LmcacheManager:
    """`storage.backend`, driven as LMCache's engine drives it."""

    def __init__(self, storage: LmcacheStorage) -> None:
        self._storage = storage
        self._backend = storage.backend
        self._chunk_tokens = storage.setup.chunk_tokens
        self._num_groups = storage.setup.num_layers or 1
        # What a token under an image is, of which LMCache makes a number by the image's hash.
        self._names = TokenNames(enable_caching=True)
        self._sequences: dict[int, LmcacheSequence] = {}
        self._allocator = self._backend.memory_allocator.pin_allocator
        self._num_bytes = storage.setup.bytes_of_an_object
        self._seen: _Inside | None = None

    def admit(
        self,
        seq_id: int,
        tokens: list[int],
        *,
        extra_keys: Any = None,
        num_tokens: int | None = None,
    ) -> int | str:
        self._seen = None
        sequence = self._sequence(tokens, extra_keys)
        # The last token is computed in any case.
        keys = self._keys(sequence, len(tokens) - 1)
        self._look_up(sequence, keys)
        cached = len(sequence.objects[0]) * self._chunk_tokens
        sequence.num_computed = cached
        left = len(tokens) - cached
        if not self._grow(sequence, cached + min(num_tokens or left, left)):
            self._let_go(sequence)
            return "later"
        self._sequences[seq_id] = sequence
        return cached

    def append(self, seq_id: int, tokens: list[int]) -> list[tuple[int, int]] | str:
        sequence = self._sequences[seq_id]
        if not self._grow(sequence, sequence.num_scheduled + len(tokens)):
            return "later"
        sequence.tokens += tokens
        return []

    def schedule(self, seq_id: int, num_tokens: int) -> list[tuple[int, int]] | str:
        sequence = self._sequences[seq_id]
        return [] if self._grow(sequence, sequence.num_scheduled + num_tokens) else "later"

    def step(self, batch: list[tuple[int, int]]) -> None:
        for seq_id, count in batch:
            sequence = self._sequences[seq_id]
            self._retrieve(sequence)
            sequence.num_computed += count
            self._put(sequence)

    def finish(self, seq_id: int) -> None:
        sequence = self._sequences.pop(seq_id, None)
        if sequence is not None:
            self._let_go(sequence)

    def abort(self, seq_id: int) -> None:
        self.finish(seq_id)

    def preempt(self, seq_id: int) -> None:
        self.finish(seq_id)

    def lookup_prefix(self, tokens: list[int], *, extra_keys: Any = None) -> int:
        """A lookup that pins nothing."""
        keys = self._keys(self._sequence(tokens, extra_keys), len(tokens) - 1)
        return self._num_found(keys, pin=False) * self._chunk_tokens

    def reset(self) -> bool:
        if self._sequences:
            return False
        self._seen = None
        self._backend.clear()
        return True

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:
        return [self._block(each) for each in self._sequences[seq_id].objects[group]]

    def num_free(self) -> int:
        """What the allocator has left, and what could be evicted."""
        cached = self._backend.hot_cache.values()
        can_go = [each for each in cached if each.meta.ref_count == 1 and not each.meta.pin_count]
        num_bytes: int = self._allocator.address_manager.get_free_size()
        return num_bytes // self._num_bytes + len(can_go)

    def free_order(self) -> list[int]:
        """What nobody has and what could be evicted; the order means nothing."""
        inside = self._inside()
        return inside.unused + [block for block, each in inside.cached.items() if each.can_evict]

    def is_cached(self, block_id: int) -> bool:
        return block_id in self._inside().cached

    def ref_count(self, block_id: int) -> int:
        """References beside that of the cache, and pins."""
        inside = self._inside()
        found = inside.cached.get(block_id) or inside.held.get(block_id)
        if found is None:
            return 0
        count: int = found.meta.ref_count + found.meta.pin_count
        return count - (block_id in inside.cached)

    def _inside(self) -> _Inside:
        """Where every object is now."""
        if self._seen is None:
            held = {
                self._block(each): each
                for sequence in self._sequences.values()
                for objects in sequence.objects
                for each in objects
            }
            cached = {self._block(each): each for each in self._backend.hot_cache.values()}
            self._seen = _Inside(self._unused(), cached, held)
        return self._seen

    def _unused(self) -> list[int]:
        """Blocks that the allocator could hand out at once."""
        if self._storage.setup.pages:
            return [self._block(each) for each in self._allocator.free_blocks]
        ranges = self._allocator.address_manager._explicit_list  # noqa: SLF001 - there is no other way to see what is free
        return [
            block
            for each in ranges
            for block in range(
                each.start // self._num_bytes, (each.start + each.size) // self._num_bytes
            )
        ]

    def _block(self, memory_object: Any) -> int:
        """Pages are numbered by LMCache; elsewhere the address says which object it is."""
        address: int = memory_object.meta.address
        if self._storage.setup.pages:
            return address
        return address // self._num_bytes

    def _sequence(self, tokens: list[int], extra_keys: Any) -> LmcacheSequence:
        images = [keys for keys in extra_keys or () if keys[3] is not None]
        named = self._names.named(tokens, (), images)
        return LmcacheSequence(named, _configs(extra_keys), self._num_groups)

    def _keys(self, sequence: LmcacheSequence, num_tokens: int, first: int = 0) -> list[Any]:
        """The keys of the full chunks among the first tokens, from chunk `first` on."""
        chunks = self._storage.token_database.process_tokens(
            sequence.tokens[: max(0, num_tokens)], request_configs=sequence.configs
        )
        return [key for _, _, key in islice(chunks, first, None)]

    def _num_found(self, keys: list[Any], *, pin: bool) -> int:
        """How many chunks from the first on are there as a whole, as `LMCacheEngine.lookup`."""
        if not self._storage.setup.num_layers:
            found: int = self._backend.batched_contains(keys, pin)
            return found
        for number, key in enumerate(keys):
            layers = key.split_layers(self._num_groups)
            if self._backend.batched_contains(layers, pin) < self._num_groups:
                return number
        return len(keys)

    def _look_up(self, sequence: LmcacheSequence, keys: list[Any]) -> None:
        """Pin what is found, and tell the policy."""
        sequence.pinned = keys[: self._num_found(keys, pin=True)]
        self._backend.touch_cache()
        for key in sequence.pinned:
            for objects, each in zip(sequence.objects, self._of_groups(key)):
                objects.append(self._backend.hot_cache[each])
        sequence.num_put = len(sequence.pinned)

    def _retrieve(self, sequence: LmcacheSequence) -> None:
        """References in place of the pins."""
        for number, key in enumerate(sequence.pinned):
            for objects, each in zip(sequence.objects, self._of_groups(key)):
                objects[number] = self._backend.get_blocking(each)
                self._backend.unpin(each)
        sequence.pinned = []

    def _of_groups(self, key: Any) -> list[Any]:
        """The keys of the objects of one chunk."""
        return key.split_layers(self._num_groups) if self._storage.setup.num_layers else [key]

    def _grow(self, sequence: LmcacheSequence, num_tokens: int) -> bool:
        """Objects for the chunks of so many tokens, if there is room for all of them."""
        self._seen = None
        missing = -(-num_tokens // self._chunk_tokens) - len(sequence.objects[0])
        if missing * self._num_groups > self.num_free():
            return False
        made: list[list[Any]] = []
        for _ in range(missing):
            chunk = self._allocate()
            if chunk is None:
                for each in chain.from_iterable(made):
                    each.ref_count_down()
                return False
            made.append(chunk)
        for chunk in made:
            for objects, each in zip(sequence.objects, chunk):
                objects.append(each)
        sequence.num_scheduled = num_tokens
        return True

    def _allocate(self) -> list[Any] | None:
        """The objects of one chunk, for which others may be evicted."""
        shapes, dtypes = self._storage.shapes, self._storage.dtypes
        if self._storage.setup.num_layers:
            found: list[Any] | None = self._backend.batched_allocate(
                shapes, dtypes, batch_size=self._num_groups, busy_loop=False
            )
            return found
        each = self._backend.allocate(shapes, dtypes, busy_loop=False)
        return None if each is None else [each]

    def _put(self, sequence: LmcacheSequence) -> None:
        """What is full and computed gets its key."""
        self._seen = None
        first, end = sequence.num_put, sequence.num_computed // self._chunk_tokens
        if first == end:
            return
        keys = self._keys(sequence, end * self._chunk_tokens, first)
        layers = zip(*(self._of_groups(key) for key in keys))
        for objects, each in zip(sequence.objects, layers):
            self._backend.batched_submit_put_task(each, objects[first:end])
        sequence.num_put = end

    def _let_go(self, sequence: LmcacheSequence) -> None:
        """What was not retrieved has a pin alone."""
        self._seen = None
        num_pinned = len(sequence.pinned)
        for key in sequence.pinned:
            for each in self._of_groups(key):
                self._backend.unpin(each)
        for objects in sequence.objects:
            for each in objects[num_pinned:]:
                each.ref_count_down()


def _configs(extra_keys: Any) -> dict[str, Any]:
    """Adapters and salts as tags of a request."""
    tags: dict[str, Any] = {}
    for kind, value, _, end in extra_keys or ():
        if end is None and kind == "lora":
            tags |= {"lmcache.tag.adapter": value[0], "lmcache.tag.path": value[1]}
        elif end is None:
            tags[f"lmcache.tag.{kind}"] = value
    return tags


_ROWS = {
    "index": "exact",
    "duplicates": "first",
    "never": "untold",
    # By policy, from the time of a put or a lookup on: not from when a block was given back.
    "eviction": "unspecified",
    "release_order": "unspecified",
    "misuse": "undefined",
}

_LAYOUTS = {
    "lru": StorageSetup(),
    "lfu": StorageSetup(policy="LFU"),
    "fifo": StorageSetup(policy="FIFO"),
    "mru": StorageSetup(policy="MRU"),
    "lru+pages": StorageSetup(pages=True),
    "lru+layers": StorageSetup(num_layers=2),
    "lfu+layers": StorageSetup(policy="LFU", num_layers=2),
}

_NOTES = (
    "stand-ins: PyTorch, metrics, the controller, device operations, vLLM's hash functions",
    "the monitor that takes pins away after some minutes: not run",
    "adapters and salts are tags of a request; what a token under an image is gets a number",
    "forks, truncation, drafts, swapping, transfers: the backend has none",
    "threads that store, retrieve and evict at the same time: not driven",
)


_ALLOCATORS = "lmcache.v1.memory_allocators"
USES = (
    Use(
        "lmcache.v1.config", "LMCacheEngineConfig",
        (
            Call("from_defaults", (), (
                "chunk_size", "local_cpu", "cache_policy", "max_local_cpu_size", "use_layerwise",
                "extra_config", "save_unfull_chunk",
            )),
        ),
    ),
    Use(
        "lmcache.v1.metadata", "LMCacheMetadata",
        (
            Call("__init__", (), (
                "model_name", "world_size", "local_world_size", "worker_id", "local_worker_id",
                "kv_dtype", "kv_shape", "chunk_size",
            )),
            Call("get_shapes"), Call("get_dtypes"),
        ),
        ("kv_dtype",),
    ),
    Use(
        "lmcache.v1.token_database", "ChunkedTokenDatabase",
        (
            Call("__init__", ("config", "metadata")),
            Call("process_tokens", ("tokens",), ("request_configs",)),
        ),
    ),
    Use(
        "lmcache.v1.storage_backend.local_cpu_backend", "LocalCPUBackend",
        (
            Call("__init__", ("config", "metadata", "dst_device")), Call("touch_cache"),
            Call("batched_contains", ("keys", "pin")), Call("get_blocking", ("key",)),
            Call("unpin", ("key",)), Call("clear"),
            Call("allocate", ("shapes", "dtypes"), ("busy_loop",)),
            Call("batched_allocate", ("shapes", "dtypes"), ("batch_size", "busy_loop")),
            Call("batched_submit_put_task", ("keys", "memory_objs")),
        ),
        ("hot_cache", "memory_allocator"),
    ),
    Use("lmcache.utils", "CacheEngineKey", (Call("split_layers", ("num_layers",)),)),
    Use(f"{_ALLOCATORS}.mixed_memory_allocator", "MixedMemoryAllocator", reads=("pin_allocator",)),
    Use(
        f"{_ALLOCATORS}.tensor_memory_allocator", "TensorMemoryAllocator",
        reads=("address_manager",),
    ),
    Use(
        f"{_ALLOCATORS}.paged_tensor_memory_allocator", "PagedTensorMemoryAllocator",
        reads=("address_manager", "free_blocks"),
    ),
    Use(
        "lmcache.v1.memory_management", "MemoryObj", (Call("ref_count_down"),),
        ("can_evict", "meta"),
    ),
    Use(
        "lmcache.v1.memory_management", "MemoryObjMetadata",
        reads=("address", "ref_count", "pin_count"),
    ),
)  # fmt: skip


def lmcache_manager(name: str, overrides: Mapping[str, Any]) -> Target:
    """The backend under each policy. Raises TargetError where its sources are not there."""
    if overrides.get("groups", "full") != "full":
        raise TargetError(f"{name}: the cache groups are the layers of a layout; leave out groups")
    modules = lmcache_modules()
    release = LMCACHE.replace("-", " ")
    require_uses(name, USES, {use.module: modules(use.module) for use in USES}, release)
    layouts = [_layout(name, each, setup, overrides) for each, setup in _LAYOUTS.items()]
    require_a_few_calls(name, layouts, release)
    real_class = modules("lmcache.v1.storage_backend.local_cpu_backend").LocalCPUBackend
    return manager_target(
        name,
        "native-manager",
        layouts,
        version=release,
        source=source_of(real_class),
        real_class=real_class,
        notes=_NOTES,
    )


def _layout(
    name: str, layout: str, setup: StorageSetup, overrides: Mapping[str, Any]
) -> ManagerLayout:
    groups = {"groups": "+".join(["full"] * setup.num_layers)} if setup.num_layers else {}
    profile = builtin_profile(name, {**_ROWS, **groups}, overrides, ManagerProfile)

    def make_of(block_size: int) -> Make:
        return partial(_make, replace(setup, chunk_tokens=block_size))

    return ManagerLayout(layout, profile, make_of(4), 4, make_of=make_of)


def _make(setup: StorageSetup, num_blocks: int, enable_caching: bool) -> LmcacheManager:
    return LmcacheManager(lmcache_storage(replace(setup, is_on=enable_caching), num_blocks))
