"""The manager and vLLM's own, fed with the same random requests: tables, hits and order equal.

What vLLM does otherwise is done by hand here: it frees what left a window also when it then
refuses, and where a request finds a recurrent state of its own step it refuses the request, while
impl finds less.
"""

import random
from typing import Any

import pytest

from poolproof.impl.block_hash import BlockHasher
from poolproof.impl.kv_cache_group import (
    ChunkedLocal,
    FullAttention,
    RecurrentState,
    SlidingWindow,
)
from poolproof.impl.kv_cache_manager import KVCacheManager
from poolproof.impl.kv_cache_request import Request

pytestmark = pytest.mark.vllm
HASHER = BlockHasher("xxh64", seed=b"test", block_size=2)
LIMIT = 40


class Shared(Request):
    """What vLLM's manager reads besides."""

    shared_prefix_boundary = 0
    skip_reading_prefix_cache = False
    status = None
    num_prompt_tokens = 0


def spec_of(kind: Any) -> Any:
    import torch
    from vllm.v1 import kv_cache_interface as vllm

    common = {
        "block_size": kind.block_size,
        "num_kv_heads": 1,
        "head_size": 8,
        "dtype": torch.float16,
    }
    if isinstance(kind, SlidingWindow):
        return vllm.SlidingWindowSpec(sliding_window=kind.window, **common)
    if isinstance(kind, ChunkedLocal):
        return vllm.ChunkedLocalAttentionSpec(attention_chunk_size=kind.chunk_size, **common)
    if isinstance(kind, RecurrentState):
        return vllm.MambaSpec(
            block_size=kind.block_size,
            shapes=((2,),),
            dtypes=(torch.float16,),
            mamba_cache_mode="all",
        )
    return vllm.FullAttentionSpec(**common)


def vllm_manager(num_blocks: int, kinds: list[Any], caching: bool, eagle: bool) -> Any:
    from vllm.v1.core.kv_cache_manager import KVCacheManager as Manager
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec

    groups = [KVCacheGroupSpec([f"layer {i}"], spec_of(kind)) for i, kind in enumerate(kinds)]
    size = max(kind.block_size for kind in kinds)
    hash_size = min(kind.block_size for kind in kinds)
    return Manager(
        KVCacheConfig(num_blocks, [], groups),
        LIMIT,
        size,
        hash_size,
        enable_caching=caching,
        use_eagle=eagle,
    )


LAYOUTS = {
    "full": [FullAttention(block_size=2)],
    "sliding": [SlidingWindow(block_size=2, window=5)],
    "chunked": [ChunkedLocal(block_size=2, chunk_size=6)],
    "full+sliding": [FullAttention(block_size=2), SlidingWindow(block_size=2, window=4)],
    "full+small sliding": [FullAttention(block_size=4), SlidingWindow(block_size=2, window=3)],
    "two windows": [SlidingWindow(block_size=2, window=3), SlidingWindow(block_size=4, window=9)],
    "full+chunked": [FullAttention(block_size=2), ChunkedLocal(block_size=2, chunk_size=4)],
    "state": [RecurrentState(block_size=2)],
    "full+state": [FullAttention(block_size=2), RecurrentState(block_size=2)],
}


class Pair:
    def __init__(self, kinds: list[Any], num_blocks: int, *, caching: bool, eagle: bool) -> None:
        self.ours = KVCacheManager(
            num_blocks,
            kinds[0].block_size,
            max_model_len=LIMIT,
            groups=kinds,
            enable_caching=caching,
            use_eagle=eagle,
        )
        self.theirs = vllm_manager(num_blocks, kinds, caching, eagle)
        self.hits = self.refusals = self.resumed = 0

    def allocate(self, request: Shared, num_new: int, lookahead: int, *, first: bool) -> bool:
        found, num_hit, their_hit, their_found = None, 0, 0, None
        if first:
            found, num_hit = self.ours.get_computed_blocks(request)
            their_found, their_hit, _ = self.theirs.get_computed_blocks(request)
            if self.meets_fresh_state(their_found):
                assert self.theirs.allocate_slots(request, 1, their_hit, their_found) is None
                assert num_hit <= their_hit
                return False
            assert their_hit == num_hit
            assert list(map(list, found.blocks)) == list(their_found.get_block_ids())
            num_new = min(max(1, num_new), request.num_tokens - num_hit)
            self.hits += bool(num_hit)
        computed = request.num_computed_tokens + num_hit
        before = self.ours.block_pool.free_order(), self.ours.get_block_ids(request.request_id)
        new = self.ours.allocate_slots(request, num_new, num_hit, found, lookahead)
        their_new = self.theirs.allocate_slots(request, num_new, num_hit, their_found, lookahead)
        assert (new is None) == (their_new is None)
        if new is None:
            assert before == (
                self.ours.block_pool.free_order(),
                self.ours.get_block_ids(request.request_id),
            )
            self.ours.remove_skipped_blocks(request.request_id, computed)
            self.refusals += 1
            return False
        assert list(map(list, new.blocks)) == list(their_new.get_block_ids())
        request.num_computed_tokens = computed + num_new
        return True

    def meets_fresh_state(self, found: Any) -> bool:
        """Whether vLLM refuses because the last block's key was given to any block in this step."""
        return any(
            len(blocks) > 0 and blocks[-1].block_hash in manager.cached_blocks_this_step
            for manager, blocks in zip(self.theirs.coordinator.single_type_managers, found.blocks)
            if hasattr(manager, "cached_blocks_this_step")
        )

    def compare(self, requests: list[Shared]) -> None:
        queue = self.theirs.block_pool.free_block_queue
        assert self.ours.block_pool.free_order() == [
            b.block_id for b in queue.get_all_free_blocks()
        ]
        for request in requests:
            name = request.request_id
            assert self.ours.get_block_ids(name) == self.theirs.get_block_ids(name)
        for block in self.theirs.block_pool.blocks[1:]:
            assert (block.block_hash is None) == (
                self.ours.block_pool.block_hash(block.block_id) is None
            )
            assert block.ref_cnt == self.ours.block_pool.ref_count(block.block_id)


CASES = [
    *((layout, caching, False) for layout in LAYOUTS for caching in (True, False)),
    # Of several groups vLLM lets the proof block reach beyond the prompt, and its draft models
    # have neither chunked attention nor states.
    *((layout, caching, True) for layout in ("full", "sliding") for caching in (True, False)),
]


@pytest.mark.parametrize(("layout", "caching", "eagle"), CASES)
def test_same_tables_hits_and_order_as_vllm(layout: str, caching: bool, eagle: bool) -> None:
    kinds = LAYOUTS[layout]
    total = Pair(kinds, 2, caching=caching, eagle=eagle)
    for seed in range(60):
        pair = Pair(kinds, random.Random(seed).randint(6, 24), caching=caching, eagle=eagle)
        run(pair, random.Random(seed), 60)
        total.hits += pair.hits
        total.refusals += pair.refusals
        total.resumed += pair.resumed
    assert total.refusals > 50
    assert total.resumed > 50
    assert (total.hits > 50) == caching


def run(pair: Pair, rng: random.Random, steps: int) -> None:
    running: list[Shared] = []
    waiting: list[Shared] = []
    for step in range(steps):
        pair.ours.new_step_starts()
        pair.theirs.new_step_starts()
        if rng.random() < 0.5:
            length = rng.randint(1, 20)
            tokens = [rng.randint(0, 1) if rng.random() < 0.1 else 0 for _ in range(length)]
            request = Shared(str(step), tokens, hasher=HASHER)
            request.num_prompt_tokens = length
            waiting.append(request)
        for request in running[:]:
            if rng.random() < 0.1:
                end(pair, running, request)
                if rng.random() < 0.5:
                    request.num_computed_tokens = 0
                    request.num_preemptions += 1
                    waiting.append(request)
                continue
            left = request.num_tokens - request.num_computed_tokens
            if not left:
                if request.num_tokens > LIMIT - 8:
                    end(pair, running, request)
                    continue
                request.append([rng.randint(0, 1)])
                left = 1
            drafts = rng.randint(0, 2) if left == 1 else 0
            num_new = rng.randint(1, left) + drafts
            before = request.num_computed_tokens
            if pair.allocate(request, num_new, rng.randint(0, 3), first=False):
                accepted = rng.randint(0, drafts)
                if before + num_new > request.num_tokens:
                    request.num_computed_tokens = request.num_tokens + accepted
                    request.append(rng.randint(0, 1) for _ in range(accepted))
            pair.compare(running + waiting)
        if waiting and rng.random() < 0.7:
            request = waiting[0]
            if pair.allocate(request, rng.randint(1, request.num_tokens), 0, first=True):
                running.append(waiting.pop(0))
                pair.resumed += request.num_preemptions > 0
            elif not running:
                waiting.pop(0)
        pair.compare(running + waiting)
    for request in running[:]:
        end(pair, running, request)
    assert pair.ours.usage == 0
    assert pair.ours.reset_prefix_cache()
    assert pair.theirs.reset_prefix_cache()
    pair.compare([])


def end(pair: Pair, running: list[Shared], request: Shared) -> None:
    running.remove(request)
    pair.ours.free(request)
    pair.theirs.free(request)
