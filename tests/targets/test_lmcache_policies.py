"""LMCache's policies evict in the order that they declare, which no profile of a manager can say.

A model of a few lines for each policy says which chunk goes next; the backend is driven at random
beside it, over each allocator. What the model leaves open is nothing: of what is neither pinned nor
referred to, exactly one goes.
"""

from __future__ import annotations

import random

import pytest

from poolproof.contract.target import TargetError
from poolproof.targets.engine_sources import engine_folder
from poolproof.targets.lmcache_parts import LMCACHE, StorageSetup, lmcache_modules, lmcache_storage

ROOM = 6


@pytest.fixture(scope="module", autouse=True)
def _sources():
    try:
        engine_folder(LMCACHE)
    except TargetError as error:
        pytest.skip(str(error))


class Model:
    """Which keys are there, in the order of puts and hits, and how often each was hit."""

    def __init__(self, policy):
        self.policy = policy
        self.keys = []
        self.hits = {}
        self.in_bucket = {}
        self.clock = 0

    def put(self, key):
        self.clock += 1
        self.keys.append(key)
        self.hits[key], self.in_bucket[key] = 1, self.clock

    def hit(self, keys):
        """What was looked up last counts as used first, so that a prefix outlives what follows."""
        for key in reversed(keys):
            self.clock += 1
            self.hits[key] += 1
            self.in_bucket[key] = self.clock
            if self.policy in {"LRU", "MRU"}:
                self.keys.remove(key)
                self.keys.append(key)

    def victim(self, can_go):
        keys = [key for key in self.keys if key in can_go]
        if self.policy == "MRU":
            return keys[-1]
        if self.policy == "LFU":
            return min(keys, key=lambda key: (self.hits[key], self.in_bucket[key]))
        return keys[0]

    def evict(self, key):
        self.keys.remove(key)


class Driven:
    """A backend and the model, and what users hold and have pinned."""

    def __init__(self, policy, seed, *, pages):
        self.storage = lmcache_storage(StorageSetup(policy=policy, pages=pages), ROOM)
        self.backend = self.storage.backend
        self.model = Model(policy)
        self.random = random.Random(seed)
        self.held = []
        self.pinned = []
        self.num_evicted = self.num_keys = 0

    def step(self):
        action = self.random.choice([self.store, self.look_up, self.let_go, self.let_go, self.get])
        action()
        there = list(self.backend.hot_cache)
        assert sorted(map(hash, there)) == sorted(map(hash, self.model.keys))

    def store(self):
        """A new chunk; if there is no room, exactly the model's victim goes."""
        before = set(self.backend.hot_cache)
        busy = {key for key, _ in self.held} | set(self.pinned)
        can_go = before - busy
        made = self.backend.allocate(self.storage.shapes, self.storage.dtypes, busy_loop=False)
        gone = before - set(self.backend.hot_cache)
        if len(before) < ROOM:
            assert made is not None
            assert not gone
        elif not can_go:
            assert made is None
            return
        else:
            expected = self.model.victim(can_go)
            assert gone == {expected}
            self.model.evict(expected)
            self.num_evicted += 1
        key = self.new_key()
        self.backend.submit_put_task(key, made)
        made.ref_count_down()
        self.model.put(key)

    def new_key(self):
        self.num_keys += 1
        tokens = [self.num_keys] * self.storage.setup.chunk_tokens
        ((_, _, key),) = self.storage.token_database.process_tokens(tokens)
        return key

    def look_up(self):
        """Some keys are found, pinned for a while, and the policy is told."""
        if not self.model.keys or len(self.pinned) > 2:
            return
        keys = self.random.sample(self.model.keys, min(len(self.model.keys), 2))
        assert self.backend.batched_contains(keys, pin=True) == len(keys)
        self.backend.touch_cache()
        self.model.hit(keys)
        self.pinned += keys

    def get(self):
        if self.model.keys and len(self.held) < 2:
            key = self.random.choice(self.model.keys)
            self.held.append((key, self.backend.get_blocking(key)))

    def let_go(self):
        if self.pinned:
            self.backend.unpin(self.pinned.pop(self.random.randrange(len(self.pinned))))
        if self.held:
            _, found = self.held.pop(self.random.randrange(len(self.held)))
            found.ref_count_down()


def driven(policy, *, pages=False, steps=2000, seed=0):
    run = Driven(policy, seed, pages=pages)
    for _ in range(steps):
        run.step()
    return run


@pytest.mark.parametrize("pages", [False, True])
@pytest.mark.parametrize("policy", ["LRU", "LFU", "FIFO", "MRU"])
def test_what_goes_is_what_the_policy_says(policy, pages):
    run = driven(policy, pages=pages)
    assert run.num_evicted > 100
    assert run.backend.memory_allocator.memcheck()


@pytest.mark.parametrize("policy", ["LRU", "LFU", "FIFO", "MRU"])
def test_nothing_is_left_once_all_have_gone(policy):
    run = driven(policy)
    while run.held or run.pinned:
        run.let_go()
    run.backend.clear()
    manager = run.backend.memory_allocator.pin_allocator.address_manager
    assert manager.get_free_size() == manager.get_heap_size()
    assert manager.check_consistency()


def policy_class(name):
    module = lmcache_modules()(f"lmcache.v1.storage_backend.cache_policy.{name.lower()}")
    return getattr(module, f"{name}CachePolicy")


def does_not_touch(patch):
    patch.setattr(policy_class("LRU"), "update_on_hit", lambda *_: None)


def touches_in_the_order_of_the_prompt(patch):
    backend = lmcache_modules()("lmcache.v1.storage_backend.local_cpu_backend").LocalCPUBackend

    def touch(self):
        for key in self.keys_in_request:
            self.cache_policy.update_on_hit(key, self.hot_cache)
        self.keys_in_request = []

    patch.setattr(backend, "touch_cache", touch)


def evicts_the_oldest(patch):
    patch.setattr(
        policy_class("MRU"), "get_evict_candidates", policy_class("LRU").get_evict_candidates
    )


def counts_a_hit_for_nothing(patch):
    patch.setattr(policy_class("LFU"), "update_on_hit", lambda *_: None)


def moves_what_is_hit(patch):
    def move(self, key, cache_dict):
        cache_dict[key] = cache_dict.pop(key)

    patch.setattr(policy_class("FIFO"), "update_on_hit", move)


@pytest.mark.parametrize(
    ("plant", "policy"),
    [
        (does_not_touch, "LRU"),
        (touches_in_the_order_of_the_prompt, "LRU"),
        (evicts_the_oldest, "MRU"),
        (counts_a_hit_for_nothing, "LFU"),
        (moves_what_is_hit, "FIFO"),
    ],
)
def test_another_order_is_seen(monkeypatch, plant, policy):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        driven(policy)
