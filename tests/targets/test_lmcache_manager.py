"""LMCache's backend in host memory behind the contract: it holds, and planted bugs are caught."""

from __future__ import annotations

import pytest

from poolproof.contract.manager_target import manager_capabilities_of
from poolproof.contract.target import TargetError
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.manager_facts import required_manager_facts
from poolproof.harness.minimise import execute_in_process, minimise
from poolproof.targets.engine_sources import engine_folder
from poolproof.targets.lmcache_manager import lmcache_manager
from poolproof.targets.lmcache_parts import LMCACHE, lmcache_modules

TOKENS = [1, 2, 3, 4, 5, 6, 7, 8, 9]
SALT = (("salt", "s", 0, None),)
LORA = (("lora", ("a", "/a"), 0, None),)
OTHER_LORA = (("lora", ("a", "/b"), 0, None),)


@pytest.fixture(scope="module")
def target():
    try:
        engine_folder(LMCACHE)
    except TargetError as error:
        pytest.skip(str(error))
    return lmcache_manager("lmcache", {})


@pytest.fixture(scope="module")
def parts(target):
    return lmcache_modules()


def campaign(target, layout, seed=0):
    chosen = target.layout(layout)
    return ManagerCampaign(target.name, chosen.make, chosen.profile, chosen.block_size, seed)


def first_finding(target, layout, runs=60):
    """The violation of the first run that fails; None where all hold."""
    under_test = campaign(target, layout)
    for number in range(runs):
        trace = under_test.run(number).trace
        if trace is not None:
            return trace.violation
    return None


def built(target, layout="lru", num_blocks=6, *, caching=True):
    return target.layout(layout).make(num_blocks, caching)


def computed(manager, seq_id, tokens, **named):
    """A sequence that was admitted and computed; how much of it was cached."""
    cached = manager.admit(seq_id, tokens, **named)
    manager.step([(seq_id, len(tokens) - cached)])
    return cached


@pytest.mark.some(2)
@pytest.mark.parametrize("layout", ["lru", "lfu", "fifo", "mru", "lru+pages", "lru+layers"])
def test_it_holds_and_every_situation_occurs(target, layout):
    runs, facts = campaign(target, layout), set()
    for number in range(40):
        result = runs.run(number)
        assert result.trace is None, (result.trace.violation, result.trace.commands)
        facts |= result.facts
    can = manager_capabilities_of(built(target, layout))
    assert facts >= set(required_manager_facts(runs.profile, can))


def test_layers_under_lfu_are_refused(target):
    """Objects that were candidates once are never candidates again: upstream's own fault."""
    chosen = target.layout("lfu+layers")
    under_test = campaign(target, "lfu+layers")
    traces = (under_test.run(number).trace for number in range(40))
    found = next(trace for trace in traces if trace is not None)
    shortest = minimise(found, execute_in_process(chosen.make))
    assert len(shortest.commands) <= 5
    assert shortest.violation.invariant in {"ADM", "CRASH", "I4"}


def test_what_is_found_is_what_was_stored_for_these_tokens(target):
    manager = built(target)
    assert computed(manager, 0, TOKENS) == 0
    assert computed(manager, 1, TOKENS) == 8
    assert manager.block_table(1)[:2] == manager.block_table(0)[:2]


def test_the_last_token_of_a_prompt_is_always_computed(target):
    manager = built(target)
    computed(manager, 0, TOKENS[:8])
    assert manager.lookup_prefix(TOKENS[:8]) == 4


@pytest.mark.parametrize("keys", [SALT, LORA])
def test_tags_are_part_of_a_key(target, keys):
    manager = built(target)
    computed(manager, 0, TOKENS, extra_keys=keys)
    assert manager.lookup_prefix(TOKENS) == 0
    assert manager.lookup_prefix(TOKENS, extra_keys=OTHER_LORA) == 0
    assert manager.lookup_prefix(TOKENS, extra_keys=keys) == 8


def test_a_lookup_pins_until_the_step_that_retrieves(target):
    manager = built(target)
    computed(manager, 0, TOKENS)
    manager.finish(0)
    manager.admit(1, TOKENS)
    block = manager.block_table(1)[0]
    assert manager.ref_count(block) == 1
    manager.step([(1, 1)])
    assert manager.ref_count(block) == 1
    manager.finish(1)
    assert manager.ref_count(block) == 0


def test_without_a_cache_nothing_is_found(target):
    manager = built(target, caching=False)
    computed(manager, 0, TOKENS)
    assert manager.lookup_prefix(TOKENS) == 0


def test_groups_are_not_for_a_profile(target):
    with pytest.raises(TargetError, match="layers of a layout"):
        lmcache_manager("lmcache", {"groups": "full+full"})


# Each of these plants one bug in LMCache's own classes.


def frees_twice(parts, patch):
    allocator = parts("lmcache.v1.memory_allocators.tensor_memory_allocator").TensorMemoryAllocator
    free = allocator.free

    def twice(self, memory_obj, allocator_type=None):
        free(self, memory_obj, allocator_type)
        self.address_manager.free(memory_obj.meta.address, memory_obj.meta.phy_size)

    patch.setattr(allocator, "free", twice)


def frees_a_page_twice(parts, patch):
    name = "lmcache.v1.memory_allocators.paged_tensor_memory_allocator"
    allocator = parts(name).PagedTensorMemoryAllocator
    free = allocator.free

    def twice(self, memory_obj, allocator_type=None):
        free(self, memory_obj, allocator_type)
        self.free_blocks.append(memory_obj)

    patch.setattr(allocator, "free", twice)


def _lru(parts):
    return parts("lmcache.v1.storage_backend.cache_policy.lru").LRUCachePolicy


def _backend(parts):
    return parts("lmcache.v1.storage_backend.local_cpu_backend").LocalCPUBackend


def _object(parts):
    return parts("lmcache.v1.memory_management").TensorMemoryObj


def _frees_what_is_removed(parts, patch):
    def remove(self, key, force=True):
        memory_obj = self.hot_cache.pop(key)
        self.memory_allocator.free(memory_obj)
        return True

    patch.setattr(_backend(parts), "remove", remove)


def evicts_what_is_pinned(parts, patch):
    _frees_what_is_removed(parts, patch)
    can_evict = property(lambda self: self.get_ref_count() == 1)
    patch.setattr(_object(parts), "can_evict", can_evict)


def evicts_what_is_referred_to(parts, patch):
    _frees_what_is_removed(parts, patch)
    can_evict = property(lambda self: not self.is_pinned)
    patch.setattr(_object(parts), "can_evict", can_evict)


def keeps_a_reference_of_a_hit(parts, patch):
    get_blocking = _backend(parts).get_blocking

    def get(self, key):
        found = get_blocking(self, key)
        if found is not None:
            found.ref_count_up()
        return found

    patch.setattr(_backend(parts), "get_blocking", get)


def keeps_the_pin_of_a_lookup(parts, patch):
    patch.setattr(_backend(parts), "unpin", lambda self, key: key in self.hot_cache)


def loses_what_is_put_again(parts, patch):
    def put(self, key, memory_obj, on_complete_callback=None):
        memory_obj.ref_count_up()
        self.hot_cache[key] = memory_obj
        self.cache_policy.update_on_put(key)

    patch.setattr(_backend(parts), "submit_put_task", put)


def forgets_the_tags(parts, patch):
    key = parts("lmcache.utils").CacheEngineKey
    patch.setattr(key, "__hash__", lambda self: hash(self.chunk_hash))
    patch.setattr(key, "__eq__", lambda self, other: self.chunk_hash == other.chunk_hash)


def hashes_a_chunk_without_its_prefix(parts, patch):
    database = parts("lmcache.v1.token_database").ChunkedTokenDatabase

    def hashes(self, token_chunks):
        return (self._hash_tokens(chunk, self._get_init_hash()) for chunk in token_chunks)

    patch.setattr(database, "_prefix_hash", hashes)


def splits_so_that_a_part_is_free_again(parts, patch):
    manager = parts("lmcache.v1.memory_management").AddressManager
    allocate = manager.allocate

    def twice(self, size):
        address, aligned = allocate(self, size)
        if self._explicit_list and address == 0:
            self._explicit_list[0].start -= aligned
        return address, aligned

    patch.setattr(manager, "allocate", twice)


def merges_more_than_was_freed(parts, patch):
    manager = parts("lmcache.v1.memory_management").AddressManager
    coalesce = manager._coalesce

    def merge(self, curr_block, prev_block, succ_block):
        merged = coalesce(self, curr_block, prev_block, succ_block)
        if merged and prev_block is not None and succ_block is None:
            prev_block.start = max(0, prev_block.start - curr_block.size)
        return merged

    patch.setattr(manager, "_coalesce", merge)


def forgets_what_was_put(parts, patch):
    lfu = parts("lmcache.v1.storage_backend.cache_policy.lfu").LFUCachePolicy
    put = lfu.update_on_put
    patch.setattr(
        lfu, "update_on_put", lambda self, key: None if key in self.key_to_freq else put(self, key)
    )
    patch.setattr(lfu, "update_on_force_evict", lambda self, key: None)


PLANTED = [
    (frees_twice, "lru"),
    (frees_a_page_twice, "lru+pages"),
    (evicts_what_is_pinned, "lru"),
    (evicts_what_is_referred_to, "lru"),
    (evicts_what_is_referred_to, "lfu"),
    (keeps_a_reference_of_a_hit, "lru"),
    (keeps_the_pin_of_a_lookup, "fifo"),
    (loses_what_is_put_again, "lru"),
    (forgets_the_tags, "lru"),
    (hashes_a_chunk_without_its_prefix, "lru"),
    (splits_so_that_a_part_is_free_again, "lru"),
    (merges_more_than_was_freed, "lru"),
    (forgets_what_was_put, "lfu"),
]


@pytest.mark.parametrize(("plant", "layout"), PLANTED)
def test_a_planted_bug_is_caught(target, parts, monkeypatch, plant, layout):
    plant(parts, monkeypatch)
    assert first_finding(target, layout) is not None
