"""Random schedules on every layout: contents by shadow memory, capacity and hits by counting.

The shadow holds for each slot of each block which tokens, from the start of the sequence, were
computed for it. Nothing here uses the manager's own arithmetic: what is read is told position by
position, what is needed and what is there is counted over sets.
"""

import random
from collections import Counter
from itertools import product

import pytest

from poolproof.impl.block_hash import BlockHasher, Salt
from poolproof.impl.kv_cache_group import (
    ChunkedLocal,
    FullAttention,
    RecurrentState,
    SlidingWindow,
)
from poolproof.impl.kv_cache_manager import KVCacheManager
from poolproof.impl.kv_cache_request import Request
from poolproof.impl.kv_cache_tables import GroupTables

LIMIT = 24
LAYOUTS = {
    "full": ([FullAttention()], None),
    "hash blocks": ([FullAttention(block_size=4)], 2),
    "sliding": ([SlidingWindow(window=4)], None),
    "chunked": ([ChunkedLocal(chunk_size=6)], None),
    "odd chunks": ([ChunkedLocal(chunk_size=3, block_size=4)], None),
    "state": ([RecurrentState()], None),
    "drafting state": ([FullAttention(), RecurrentState(num_speculative_blocks=1)], None),
    "full+sliding": ([FullAttention(), SlidingWindow(window=3)], None),
    "sizes": ([FullAttention(block_size=4), SlidingWindow(window=5, block_size=2)], None),
    "odd sizes": ([SlidingWindow(window=6, block_size=3), FullAttention(block_size=2)], 1),
    "three": ([ChunkedLocal(chunk_size=4), FullAttention(), SlidingWindow(window=7)], None),
    "state of other size": ([RecurrentState(block_size=4), FullAttention(block_size=2)], None),
}


def reads(kind, position):
    """The positions before `position` whose KV (or state) the token there reads."""
    if isinstance(kind, SlidingWindow):
        return range(max(0, position - kind.window + 1), position)
    if isinstance(kind, ChunkedLocal):
        return range(position // kind.chunk_size * kind.chunk_size, position)
    if isinstance(kind, RecurrentState):
        return range(max(0, position - 1), position)
    return range(position)


class Engine:
    def __init__(self, seed, layout, *, caching=True, eagle=False):
        self.rng = random.Random(seed)
        kinds, hash_size = LAYOUTS[layout]
        self.size = 2
        self.manager = KVCacheManager(
            self.rng.randint(5, 22),
            self.size,
            max_model_len=LIMIT,
            groups=kinds,
            hash_block_size=hash_size,
            enable_caching=caching,
            use_eagle=eagle,
            events="per-copy",
        )
        laid_out = self.manager._layout
        self.groups = [(group.kind, group.block_size) for group in laid_out.groups]
        self.alignment = laid_out.alignment
        self.eagle = eagle
        self.hasher = BlockHasher("xxh64", seed=b"s", block_size=laid_out.hash_block_size)
        self.memory = {}
        self.fresh = set()
        self.running, self.waiting = [], []
        self.counts = Counter()
        self.index = Counter()

    # What is counted out.

    def table(self, request, index):
        return self.manager.get_block_ids(request.request_id)[index]

    def needed(self, kind, size, computed):
        """The blocks that the tokens from `computed` on read."""
        return {at // size for at in reads(kind, computed)}

    def longest_hit(self, request):
        pool, tokens = self.manager.block_pool, request.num_tokens
        hashes = request.block_hashes
        scale = [size // self.hasher.block_size for _, size in self.groups]

        def cached(index, block):
            found = pool.lookup(hashes[(block + 1) * scale[index] - 1], group=index)
            state = isinstance(self.groups[index][0], RecurrentState)
            return found is not None and not (state and found in self.fresh)

        for length in range((tokens - 1) // self.alignment * self.alignment, 0, -self.alignment):
            if all(
                all(cached(index, block) for block in self.needed(kind, size, length))
                and (
                    not self.eagle
                    or isinstance(kind, RecurrentState)
                    or (length + size < tokens and cached(index, length // size))
                )
                for index, (kind, size) in enumerate(self.groups)
            ):
                return length
        return 0

    def fits(self, request, hits, computed, slots, own):
        """Whether what the table has to hold afterwards can be had.

        Of the slots those beyond the `own` ones are lookahead: extra blocks take their place.
        """
        pool = self.manager.block_pool
        wanted = 0
        leaving, joining = Counter(), set()
        for index, (kind, size) in enumerate(self.groups):
            before = self.table(request, index) or list(hits[index])
            first = min(self.needed(kind, size, computed), default=computed // size)
            entries = -(-slots // size)
            if isinstance(kind, RecurrentState) and kind.num_speculative_blocks:
                entries = -(-own // size) + kind.num_speculative_blocks
            wanted += len(range(max(len(before), first), entries))
            if request in self.running:
                leaving.update(block for block in before[:first] if block)
            else:
                joining.update(before[first:])
        room = pool.num_free() + sum(pool.ref_count(b) == n for b, n in leaving.items())
        return wanted + sum(not pool.ref_count(b) for b in joining) <= room

    # What an engine does.

    def take_slots(self, request, num_new, num_hit, found, lookahead):
        manager = self.manager
        computed = request.num_computed_tokens + num_hit
        own = min(computed + num_new, LIMIT)
        slots = min(own + lookahead, LIMIT)
        hits = found.blocks if found else [[]] * len(self.groups)
        expected = self.fits(request, hits, computed, slots, own)
        before = self.state()
        new = manager.allocate_slots(request, num_new, num_hit, found, lookahead)
        assert (new is not None) == expected
        if new is None:
            self.counts["refused"] += 1
            assert self.state() == before
            return False
        for index, blocks in enumerate(new.blocks):
            real = [block for block in self.table(request, index) if block]
            assert not blocks or real[-len(blocks) :] == blocks
        return True

    def state(self):
        pool = self.manager.block_pool
        return (
            pool.free_order(),
            [pool.ref_count(b) for b in range(pool.num_blocks)],
            [self.manager.get_block_ids(r.request_id) for r in self.running],
            len(pool._cached.index),
        )

    def step(self, number):
        rng, manager = self.rng, self.manager
        manager.new_step_starts()
        batch = []
        if rng.random() < 0.5 or not (self.running or self.waiting):
            tokens = [int(rng.random() < 0.1) for _ in range(rng.randint(1, 16))]
            salt = Salt("other") if rng.random() < 0.2 else None
            self.waiting.append(Request(str(number), tokens, hasher=self.hasher, salt=salt))
        for request in self.running[:]:
            if rng.random() < 0.15:
                self.leave(request)
            elif request.num_tokens < LIMIT - 3:
                self.grow(request, batch)
            else:
                self.leave(request, resume=False)
        if self.waiting:
            self.admit(self.waiting[0], batch)
        self.forward(batch)
        self.check()

    def leave(self, request, *, resume=None):
        self.running.remove(request)
        self.manager.free(request)
        self.manager.free(request)
        assert not any(self.manager.get_block_ids(request.request_id))
        if resume is None and self.rng.random() < 0.5:
            request.num_computed_tokens = 0
            request.num_preemptions += 1
            self.waiting.append(request)

    def grow(self, request, batch):
        rng = self.rng
        if rng.random() < 0.1:
            self.truncate(request)
            if request not in self.running:
                return
        left = request.num_tokens - request.num_computed_tokens
        if not left:
            request.append([rng.randint(0, 1)])
            left = 1
        drafts = rng.randint(0, 2) if left == 1 else 0
        num_new = rng.randint(1, left) + drafts
        start = request.num_computed_tokens
        if self.take_slots(request, num_new, 0, None, rng.randint(0, 2)):
            batch.append((request, start, num_new))

    def truncate(self, request):
        length = self.rng.randint(1, request.num_tokens)
        kept = self.manager.truncate(request, length)
        assert kept <= min(length, request.num_computed_tokens)
        request.num_computed_tokens = kept
        request.truncate(length)
        self.counts["truncated"] += 1
        if not any(map(any, self.manager.get_block_ids(request.request_id))) and not kept:
            self.running.remove(request)
            self.waiting.append(request)
        else:
            self.counts["kept"] += 1

    def admit(self, request, batch):
        found, num_hit = None, 0
        before = self.state()
        self.fresh = {
            self.table(scheduled, index)[at // size]
            for scheduled, start, num_new in batch
            for index, (_, size) in enumerate(self.groups)
            for at in range(start, start + num_new)
        }
        if self.manager.enable_caching:
            found, num_hit = self.manager.get_computed_blocks(request)
            assert num_hit == self.longest_hit(request)
            self.counts["hits"] += bool(num_hit)
            self.counts["resumed hits"] += bool(num_hit and request.num_preemptions)
        assert self.state() == before
        num_new = self.rng.randint(1, request.num_tokens - num_hit)
        if self.take_slots(request, num_new, num_hit, found, 0):
            self.waiting.remove(request)
            self.running.append(request)
            batch.append((request, num_hit, num_new))
        elif not self.running:
            self.waiting.remove(request)

    def forward(self, batch):
        """All writes of the step, then all its reads; states are read before."""
        drafted = {}
        for request, start, num_new in batch:
            drafts = [self.rng.randint(0, 1) for _ in range(start + num_new - request.num_tokens)]
            drafted[request] = drafts
            self.read(request, start, states=True)
        for request, start, num_new in batch:
            tokens = request.token_ids + drafted[request]
            for index, at in product(range(len(self.groups)), range(start, start + num_new)):
                self.write(request, index, at, tokens)
        for request, start, num_new in batch:
            for at in range(start, start + num_new):
                self.read(request, at, states=False, tokens=request.token_ids + drafted[request])
            accepted = self.rng.randint(0, len(drafted[request]))
            request.num_computed_tokens = start + num_new - len(drafted[request]) + accepted
            if drafted[request]:
                request.append(drafted[request][:accepted])
                self.rewind(request, request.num_computed_tokens)

    def write(self, request, index, at, tokens):
        kind, size = self.groups[index]
        block = self.table(request, index)[at // size]
        assert block
        slot = 0 if isinstance(kind, RecurrentState) else at % size
        self.memory[index, block, slot] = (request._salt, tuple(tokens[: at + 1]))

    def rewind(self, request, computed):
        """An engine puts back the state after the last accepted token, which it has kept."""
        for index, (kind, size) in enumerate(self.groups):
            if isinstance(kind, RecurrentState) and computed:
                table = self.table(request, index)
                for at in range((computed - 1) // size * size, computed):
                    if table[at // size]:
                        self.write(request, index, at, request.token_ids)

    def read(self, request, position, *, states, tokens=None):
        tokens = request.token_ids if tokens is None else tokens
        for index, (kind, size) in enumerate(self.groups):
            is_state = isinstance(kind, RecurrentState)
            if is_state is not states:
                continue
            table = self.table(request, index)
            for at in reads(kind, position):
                slot = 0 if is_state else at % size
                wanted = (request._salt, tuple(tokens[: at + 1]))
                assert self.memory.get((index, table[at // size], slot)) == wanted

    def check(self):
        pool = self.manager.block_pool
        owners = Counter()
        for request, index in product(self.running, range(len(self.groups))):
            owners.update(block for block in self.table(request, index) if block)
        ids = range(1, pool.num_blocks)
        assert [pool.ref_count(block) for block in ids] == [owners[block] for block in ids]
        assert sorted(pool.free_order()) == [block for block in ids if not owners[block]]
        assert pool.block_hash(0) is None
        for request in self.running:
            if request.num_computed_tokens:
                for states in (False, True):
                    self.read(request, request.num_computed_tokens, states=states)
        for event in self.manager.take_events():
            sign = {"stored": 1, "removed": -1}[event["type"]]
            self.index[event["hashes"][0], event["group"]] += sign
        carried = Counter(key for block in ids for key in pool.block_hashes(block))
        assert +self.index == carried


@pytest.mark.some(4)
@pytest.mark.parametrize("num_seeds", [12, pytest.param(60, marks=pytest.mark.deep)])
@pytest.mark.parametrize("eagle", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_random_schedules(layout, eagle, num_seeds):
    counts = Counter()
    if eagle and layout == "odd sizes":
        num_seeds = max(num_seeds, 30)  # hits are rare there
    for seed in range(num_seeds):
        engine = Engine(seed, layout, eagle=eagle)
        for number in range(60):
            engine.step(number)
        counts += engine.counts
        for request in engine.running[:]:
            engine.leave(request, resume=False)
        assert engine.manager.usage == 0
        assert engine.manager.reset_prefix_cache()
    for name in ("refused", "truncated", "kept", "hits"):
        assert counts[name], counts
    assert counts["resumed hits"] or eagle


@pytest.mark.some(5)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_random_schedules_without_caching(layout):
    for seed in range(5):
        engine = Engine(seed, layout, caching=False)
        for number in range(60):
            engine.step(number)
        assert not engine.index


@pytest.mark.some(1)
@pytest.mark.parametrize("eagle", [False, True])
def test_the_direct_path_answers_as_the_general_one(eagle):
    for seed in range(20):
        direct, general = (Engine(seed, "hash blocks", eagle=eagle) for _ in range(2))
        general.manager._direct = None
        general.manager._tables = GroupTables(general.manager._layout, general.manager.block_pool)
        for number in range(60):
            direct.step(number)
            general.step(number)
            assert direct.state() == general.state()
        assert direct.counts == general.counts
