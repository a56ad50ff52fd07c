"""The real engines load unmodified, and their known bugs show on the real code."""

from __future__ import annotations

from pathlib import Path

import pytest

from poolproof.contract.target import TargetError
from poolproof.targets.installed_sglang import sglang_parts
from poolproof.targets.nano_clones import NANO_CLONES
from poolproof.targets.nano_manager import nano_vllm
from poolproof.targets.source_engines import fetched_folder
from poolproof.targets.transformers_manager import transformers_parts
from poolproof.targets.v0_manager import vllm_v0

pytestmark = pytest.mark.vllm


def checkout(commit: str) -> Path:
    try:
        return fetched_folder(NANO_CLONES[f"nano-vllm-{commit}"])
    except TargetError as error:
        pytest.skip(str(error))


def test_v0_forgets_a_block_that_a_window_repeats():
    """vllm#1556: fork counts each place in the table, free each block."""
    v0 = vllm_v0()
    manager = v0.BlockSpaceManager(4, 8, 0, watermark=0.0, sliding_window=8)
    parent = v0.Sequence(0, "", list(range(12)), 4)
    group = v0.SequenceGroup("0", [parent], v0.SamplingParams(), 0.0)
    manager.allocate(group)
    child = parent.fork(1)
    manager.fork(parent, child)
    manager.free(parent)
    manager.free(child)
    assert manager.get_num_free_gpu_blocks() == 7


def hits_after_recycling(engine) -> int:
    """Cached tokens of [1, 2, 3, 4] when [3, 4] was since computed under [5, 5]."""
    engine.Sequence.block_size = 2
    manager = engine.BlockManager(3, 2)

    def admit(tokens):
        sequence = engine.Sequence(tokens, engine.SamplingParams())
        answer = manager.can_allocate(sequence)
        if hasattr(manager, "hash_blocks"):
            manager.allocate(sequence, answer)
            sequence.num_scheduled_tokens = len(tokens) - sequence.num_cached_tokens
            manager.hash_blocks(sequence)
        else:
            manager.allocate(sequence)
        return sequence

    manager.deallocate(admit([1, 2, 3, 4]))
    manager.deallocate(admit([5, 5, 3, 4]))
    return admit([1, 2, 3, 4]).num_cached_tokens


def test_the_published_port_of_nano_vllm_hits_a_recycled_block():
    """nano-vllm#163: the map still names the block that was given to another prefix."""
    assert hits_after_recycling(nano_vllm()) == 4


@pytest.mark.parametrize(("commit", "hits"), [("df99418", 4), ("f64d821", 2), ("9fa256a", 2)])
def test_checkouts_of_nano_vllm_load_side_by_side(commit, hits):
    assert hits_after_recycling(nano_vllm(checkout(commit))) == hits


def test_transformers_shares_a_prefix_on_the_cpu():
    parts = transformers_parts()
    config = parts.PretrainedConfig(
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=8,
        hidden_size=8,
        vocab_size=8,
    )
    config.layer_types = ["full_attention"]
    config._attn_implementation = "sdpa"
    settings = parts.ContinuousBatchingConfig(
        page_size=2, num_blocks=8, max_batch_tokens=64, max_memory_percent=0.5
    )
    cache = parts.PagedAttentionCache(
        config, settings, "cpu", parts.DistributedHelper(None, None), dtype=parts.float32
    )
    state = parts.RequestState("a", [0, 1, 2, 3, 4])
    assert cache.can_store_request_tokens(state, 5)
    done = cache.count_new_complete_blocks(state, 5)
    state.position_offset = 5
    cache.mark_complete_blocks(state, done)
    assert cache.search_prefix_match("b", [0, 1, 2, 3, 9]) == 4


def test_sglang_allocates_pages_on_the_cpu():
    parts = sglang_parts()
    allocator = parts.PagedTokenToKVPoolAllocator(8, 2, None, "cpu", None, False)
    assert allocator.alloc(4).tolist() == [2, 3, 4, 5]
    assert allocator.available_size() == 4
