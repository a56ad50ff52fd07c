"""vLLM, recurrent layers and a drafting head: a hit is longer than what attention has of it.

Usage: python reproduce.py      in an environment that has vLLM; no network, no GPU

vLLM's own `KVCacheManager` serves a model of attention and recurrent layers that drafts (MTP,
EAGLE). Of a hit attention drops the last block, because the head needs it computed. The recurrent
layers look one block further and drop nothing. It is called as vLLM's scheduler calls it.
"""

import os
import sys

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1")
BLOCK, BLOCKS, LONGEST = 4, 17, 64
PROMPT = [10, 11, 12, 13, 14, 15, 16, 17, 18]


def manager_and_hasher():
    """vLLM's manager over attention and states, and what hashes the blocks of a request."""
    import torch
    from vllm.utils.hashing import sha256
    from vllm.v1.core import single_type_kv_cache_manager as managers
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.kv_cache_interface import (
        FullAttentionSpec,
        KVCacheConfig,
        KVCacheGroupSpec,
        MambaSpec,
    )

    if hasattr(managers, "register_all_kvcache_specs"):
        managers.register_all_kvcache_specs(None)
    init_none_hash(sha256)
    attention = FullAttentionSpec(
        block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32
    )
    states = MambaSpec(
        block_size=BLOCK,
        shapes=((1,),),
        dtypes=(torch.float32,),
        mamba_cache_mode="align",
        num_speculative_blocks=1,
    )
    groups = [KVCacheGroupSpec(["attention"], attention), KVCacheGroupSpec(["states"], states)]
    cache = KVCacheConfig(num_blocks=BLOCKS, kv_cache_tensors=[], kv_cache_groups=groups)
    cache.prefix_cache_retention_interval = None
    known = KVCacheManager.__init__.__code__.co_varnames
    options = {
        "scheduler_block_size": BLOCK,
        "hash_block_size": BLOCK,
        "enable_caching": True,
        "use_eagle": True,
    }
    options = {name: value for name, value in options.items() if name in known}
    manager = KVCacheManager(cache, max_model_len=LONGEST, **options)
    return manager, get_request_block_hasher(BLOCK, sha256)


def main():
    """1 where tokens are said to be cached for which attention has no block."""
    from vllm import SamplingParams
    from vllm.v1.request import Request

    manager, hasher = manager_and_hasher()
    known = Request.__init__.__code__.co_varnames

    def request(name):
        return Request(
            request_id=name,
            prompt_token_ids=PROMPT,
            sampling_params=SamplingParams(max_tokens=LONGEST),
            pooling_params=None,
            **({"eos_token_id": None} if "eos_token_id" in known else {}),
            block_hasher=hasher,
        )

    first = request("first")
    # In chunks that end with a block, as the scheduler cuts them for recurrent layers.
    for begin in range(0, len(PROMPT), BLOCK):
        count = min(BLOCK, len(PROMPT) - begin)
        assert manager.allocate_slots(first, count, num_lookahead_tokens=1) is not None
        first.num_computed_tokens += count
    if hasattr(manager, "new_step_starts"):
        manager.new_step_starts()
    blocks, cached, *_ = manager.get_computed_blocks(request("again"))
    found = len(blocks.blocks[0])
    print(f"of 'again' {cached} tokens are said to be cached")
    print(f"expected: {cached // BLOCK} blocks of attention for them")
    missing = cached // BLOCK - found
    print(f"actual:   {found}" + (f"; {missing} of them nobody ever computes" if missing else ""))
    return int(missing > 0)


if __name__ == "__main__":
    sys.exit(main())
