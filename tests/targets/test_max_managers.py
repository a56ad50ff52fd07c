"""MAX's managers and pools behind their adapters, over small ones in their shapes.

The small ones are right, but for the one fault that a test plants. MAX's own are driven where its
wheel has been fetched.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import Profile
from poolproof.contract.target import TargetError
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.random_driver import PoolCampaign
from poolproof.targets.catalogue import MAX_ENGINES
from poolproof.targets.load import load_target
from poolproof.targets.max_manager import MAX_JENGA, MAX_MANAGER, MaxJengaManager, MaxManager
from poolproof.targets.max_pool import (
    MAX_JENGA_POOL,
    MAX_POOL,
    MaxJengaPool,
    MaxPool,
    jenga_pool,
)
from poolproof.targets.max_release import MaxRequests


class NoSpaceError(Exception):
    """What MAX raises where no block is left."""


class ToyPool:
    """A pool in the shape of `BlockPool`.

    With `unhashed_first` a block without a hash goes to the head of the queue when it is freed;
    with `forgets_the_index` what is handed out is still found.
    """

    def __init__(self, num_blocks, *, unhashed_first=False, forgets_the_index=False):
        self.unhashed_first = unhashed_first
        self.forgets_the_index = forgets_the_index
        self.total_num_blocks = num_blocks
        self.pool = [SimpleNamespace(bid=b, ref_cnt=0, block_hash=None) for b in range(num_blocks)]
        self.queue = list(self.pool)
        self.prefix_cache = {}

    @property
    def num_free_blocks(self):
        return len(self.queue)

    @property
    def free_blocks(self):
        return {block.bid for block in self.queue}

    @property
    def free_block_queue(self):
        ends = [None, *self.queue, None]
        for before, block, after in zip(ends, self.queue, ends[2:], strict=False):
            block.prev_free_block, block.next_free_block = before, after
        return SimpleNamespace(free_list_head=ends[1])

    def alloc_block(self):
        block = self.queue.pop(0)
        old = block.block_hash
        if old is not None and not self.forgets_the_index:
            del self.prefix_cache[old]
        block.ref_cnt, block.block_hash = 1, None
        return block, old

    def touch(self, block):
        if not block.ref_cnt:
            self.queue.remove(block)
        block.ref_cnt += 1

    def free_block(self, block):
        block.ref_cnt -= 1
        if not block.ref_cnt:
            to_head = self.unhashed_first and block.block_hash is None
            self.queue.insert(0 if to_head else len(self.queue), block)

    def get_or_commit_into_prefix_cache(self, block_hash, block):
        known = self.prefix_cache.setdefault(block_hash, block)
        if known is block:
            block.block_hash = block_hash
            return None
        self.touch(known)
        self.free_block(block)
        return known

    def uncommit_block(self, block):
        del self.prefix_cache[block.block_hash]
        block.block_hash = None

    def reset_prefix_cache(self):
        self.prefix_cache.clear()
        for block in self.pool:
            block.block_hash = None


class ToyJengaPool(ToyPool):
    """A pool in the shape of `JengaBlockPool`: caches have names, block 0 is the null block."""

    def __init__(self, num_huge_blocks, ratios, **bug):
        ((self.cache_id, self.ratio),) = ratios.items()
        super().__init__(num_huge_blocks * self.ratio, unhashed_first=True, **bug)
        del self.queue[: self.ratio]
        self.prefix_caches = {self.cache_id: self.prefix_cache}

    def num_free_blocks(self, cache_id):
        assert cache_id == self.cache_id
        return len(self.queue)

    @property
    def num_free_huge_blocks(self):
        return len(self.queue) // self.ratio

    def alloc_block(self, cache_id):
        assert cache_id == self.cache_id
        return super().alloc_block()[0]

    def block(self, cache_id, bid):
        assert cache_id == self.cache_id
        return self.pool[bid]


class ToyTokens:
    """What MAX's `TokenBuffer` tells of a request's tokens."""

    def __init__(self, row):
        self.all = list(row)
        self.processed_length, self.end = 0, len(self.all)

    def __len__(self):
        return len(self.all)

    @property
    def active_length(self):
        return self.end - self.processed_length

    def skip_processing(self, count):
        self.processed_length += count

    def chunk(self, count):
        self.end = self.processed_length + count

    def advance_chunk(self):
        self.processed_length, self.end = self.end, len(self.all)


class ToyContext:
    """What MAX's `TextContext` has; the tracker of ends is asked as MAX asks it."""

    def __init__(self, *, max_length, tokens, request_id, sampling_params, eos_tracker, cache_salt):
        assert len(tokens) < max_length
        assert sampling_params == 0
        self.tokens, self.request_id, self.cache_salt = tokens, request_id, cache_salt
        self.eos_tracker = eos_tracker

    def update(self, token):
        assert not self.eos_tracker.is_eos_from_tokens(self.tokens.all)
        self.tokens.processed_length = len(self.tokens)
        self.tokens.all.append(token)
        self.tokens.end = len(self.tokens)


def toy_modules(name):
    return {
        "max.pipelines.context": SimpleNamespace(
            TextContext=ToyContext, TokenBuffer=ToyTokens, SamplingParams=lambda *, seed: seed
        ),
        "numpy": SimpleNamespace(array=lambda row, dtype: row, int64=None),
    }[name]


class ToyManager:
    """A manager in both shapes, over a pool in one of them; all tokens but the last are hashed.

    With `forgets_parents` a block is found behind any prefix.
    """

    def __init__(self, pool, *, caching, take, forgets_parents=False):
        self.device_block_pool = pool
        self.pools = [pool]
        self.caching, self.take, self.forgets_parents = caching, take, forgets_parents
        self.tables, self.num_free = {}, pool.queue.__len__

    def claim(self, request):
        assert request.request_id not in self.tables
        self.tables[request.request_id] = []

    def hashes_of(self, request):
        tokens = request.tokens.all
        ends = range(4, len(tokens), 4)
        first = [end - 4 if self.forgets_parents else 0 for end in ends]
        return [(request.cache_salt, *tokens[a:end]) for a, end in zip(first, ends, strict=True)]

    def _hits(self, hashes):
        found = []
        for each in hashes if self.caching else ():
            if each not in self.device_block_pool.prefix_cache:
                break
            found.append(self.device_block_pool.prefix_cache[each])
        return found

    def reuse_blocks_from_prefix_cache(self, request):
        hits = self._hits(self.hashes_of(request))
        for block in hits:
            self.device_block_pool.touch(block)
        self.tables[request.request_id] += hits
        request.tokens.skip_processing(4 * len(hits))
        return 4 * len(hits)

    def allocate_new_blocks(self, request):
        table = self.tables[request.request_id]
        missing = -(-(request.tokens.processed_length + request.tokens.active_length) // 4)
        missing -= len(table)
        if missing > self.num_free():
            raise NoSpaceError
        table += [self.take(self.device_block_pool) for _ in range(missing)]

    def rollback_prefix_reuse(self, request, skipped):
        table = self.tables[request.request_id]
        for _ in range(skipped // 4):
            self.device_block_pool.free_block(table.pop())
        request.tokens.skip_processing(-skipped)

    def alloc(self, request):
        is_new = not request.tokens.processed_length
        skipped = self.reuse_blocks_from_prefix_cache(request) if is_new else 0
        try:
            self.allocate_new_blocks(request)
        except NoSpaceError:
            self.rollback_prefix_reuse(request, skipped)
            raise

    def step(self, request):
        table = self.tables[request.request_id]
        hashes = self.hashes_of(request) if self.caching else []
        for entry in range(min(request.tokens.processed_length // 4, len(hashes))):
            pool = self.device_block_pool
            twin = pool.get_or_commit_into_prefix_cache(hashes[entry], table[entry])
            table[entry] = twin or table[entry]

    def release(self, request):
        for block in reversed(self.tables.pop(request.request_id)):
            self.device_block_pool.free_block(block)

    def get_req_blocks(self, request):
        return [block.bid for block in self.tables[request.request_id]]

    def get_req_blocks_per_leaf(self, request):
        return {"cache 0": self.get_req_blocks(request)}

    def count_cached_prefix_blocks_per_replica(self, hashes):
        return [SimpleNamespace(device_blocks=len(self._hits(hashes)))]

    def get_prefix_cache_hit_counts(self, request):
        return self.count_cached_prefix_blocks_per_replica(self.hashes_of(request))

    def reset_prefix_cache(self):
        self.device_block_pool.reset_prefix_cache()


def block_manager(pool_bug=None, **bug):
    def make(num_blocks, enable_caching):
        pool = ToyPool(num_blocks, **(pool_bug or {}))
        blocks = ToyManager(
            pool, caching=enable_caching, take=lambda pool: pool.alloc_block()[0], **bug
        )
        return MaxManager(blocks, MaxRequests(toy_modules), NoSpaceError, blocks.hashes_of)

    return make


def jenga_manager(ratio, **bug):
    def make(num_blocks, enable_caching):
        pool, first = jenga_pool(ToyJengaPool, num_blocks, ("cache 0",), ratio)
        blocks = ToyManager(
            pool, caching=enable_caching, take=lambda pool: pool.alloc_block("cache 0"), **bug
        )
        return MaxJengaManager(
            blocks, MaxRequests(toy_modules), NoSpaceError, first_block=first, ratio=ratio
        )

    return make


def found_in_manager(engine, make, runs=60, **rows):
    profile = ManagerProfile.from_mapping({**engine.rows, **rows})
    campaign = ManagerCampaign(engine.name, make, profile, 4)
    traces = [campaign.run(number).trace for number in range(runs)]
    return {trace.violation.invariant for trace in traces if trace is not None}


def found_in_pool(engine, make, runs=60):
    campaign = PoolCampaign(engine.name, make, Profile.from_mapping(engine.rows))
    traces = [campaign.run(number).trace for number in range(runs)]
    return {trace.violation.invariant for trace in traces if trace is not None}


def max_pool(**bug):
    return lambda num_blocks, caching: MaxPool(ToyPool(num_blocks, **bug), enable_caching=caching)


def max_jenga_pool(ratio, **bug):
    def make(num_blocks, enable_caching):
        def real_class(num_huge_blocks, ratios):
            return ToyJengaPool(num_huge_blocks, ratios, **bug)

        pool, first = jenga_pool(real_class, num_blocks, (MaxJengaPool.cache_id,), ratio)
        return MaxJengaPool(pool, first, enable_caching=enable_caching)

    return make


def test_a_right_pool_in_the_shape_of_max_holds():
    assert found_in_pool(MAX_POOL, max_pool()) == set()


def test_a_pool_whose_index_outlives_its_block_is_refused():
    assert found_in_pool(MAX_POOL, max_pool(forgets_the_index=True))


def test_a_pool_that_reuses_unhashed_blocks_first_is_not_what_max_states():
    assert "ORD" in found_in_pool(MAX_POOL, max_pool(unhashed_first=True))


@pytest.mark.parametrize("ratio", [1, 2, 3])
def test_a_right_pool_of_huge_blocks_holds(ratio):
    assert found_in_pool(MAX_JENGA_POOL, max_jenga_pool(ratio)) == set()


def test_a_pool_of_huge_blocks_whose_index_outlives_its_block_is_refused():
    assert found_in_pool(MAX_JENGA_POOL, max_jenga_pool(2, forgets_the_index=True))


def test_a_right_block_manager_holds():
    assert found_in_manager(MAX_MANAGER, block_manager()) == set()


def test_a_block_manager_that_finds_a_block_behind_another_prefix_is_refused():
    found = found_in_manager(MAX_MANAGER, block_manager(forgets_parents=True))
    assert found & {"DATA", "IDX"}


def test_a_refused_prompt_moves_its_hits_in_the_free_queue():
    """Why `eviction` is unspecified: everything else of the order is that of a queue."""
    found = found_in_manager(
        MAX_MANAGER, block_manager(), eviction="lru", uncached_order="tail-first"
    )
    assert found == {"ATOM"}


@pytest.mark.parametrize("ratio", [1, 2])
def test_a_right_manager_of_huge_blocks_holds(ratio):
    assert found_in_manager(MAX_JENGA, jenga_manager(ratio)) == set()


def test_a_manager_of_huge_blocks_that_finds_a_block_behind_another_prefix_is_refused():
    found = found_in_manager(MAX_JENGA, jenga_manager(1, forgets_parents=True))
    assert found & {"DATA", "IDX"}


def test_what_is_computed_of_a_request_stays_so_when_it_grows():
    requests = MaxRequests(toy_modules)
    request = requests.new(7, [1, 2, 3], (("lora", ("a", ""), 0, None), ("salt", "s", 0, None)))
    request.update(requests.named(request, 4))
    grown = requests.grown(request, [5])
    assert (grown.request_id, grown.cache_salt, grown.tokens.processed_length) == ("7", "s", 3)
    assert (
        grown.tokens.all
        == requests.new(8, [1, 2, 3, 4, 5], (("lora", ("a", ""), 0, None),)).tokens.all
    )


@pytest.mark.parametrize("name", MAX_ENGINES)
def test_max_that_was_not_fetched_says_how_to_get_it(name, tmp_path, monkeypatch):
    monkeypatch.setenv("POOLPROOF_ENGINES", str(tmp_path))
    with pytest.raises(TargetError, match=f"is not in .*; run `poolproof engines {name}`"):
        load_target(name)
    with pytest.raises(TargetError, match="holds no MAX: it has no folder"):
        load_target(f"{name}:{tmp_path}")


def test_a_checkout_without_the_compiled_part_is_one_line(tmp_path):
    pytest.importorskip("numpy")
    (tmp_path / "max" / "pipelines" / "kv_cache" / "paged_kv_cache").mkdir(parents=True)
    with pytest.raises(
        TargetError, match=r"_kv_core\.so does not exist: .* a checkout has neither"
    ):
        load_target(f"max-pool:{tmp_path}")
    (tmp_path / "max" / "_kv_core.so").write_text("of another machine")
    with pytest.raises(TargetError, match=r"_kv_core\.so cannot be loaded by "):
        load_target(f"max-pool:{tmp_path}")


def test_the_groups_of_its_layouts_are_not_chosen_one_by_one():
    for name in ("max-manager[groups=sliding:6]", "max-jenga[groups=full]"):
        with pytest.raises(TargetError, match=r"group|is not in|numpy"):
            load_target(name)


@pytest.mark.deep
@pytest.mark.parametrize("name", MAX_ENGINES)
def test_max_itself_holds(name):
    try:
        target = load_target(name)
    except TargetError as error:
        pytest.skip(str(error))
    if not target.layouts:
        assert found_in_pool(MAX_ENGINES[name], target.make, 200) == set()
    for layout in target.layouts:
        campaign = ManagerCampaign(name, layout.make, layout.profile, layout.block_size)
        assert all(campaign.run(number).trace is None for number in range(100))
