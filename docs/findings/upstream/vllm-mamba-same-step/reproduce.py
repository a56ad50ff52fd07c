"""vLLM, recurrent layers: a request starts from a state that the same step has still to compute.

Usage: python reproduce.py      in an environment that has vLLM; no network, no GPU

vLLM's own `KVCacheManager` serves a model of attention and recurrent layers. Two requests with one
prompt are scheduled in one step, as vLLM's scheduler does it.
"""

import os
import sys

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1")
BLOCK, BLOCKS, LONGEST = 4, 17, 64
PROMPT = [10, 11, 12, 13, 14]


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
    )
    groups = [KVCacheGroupSpec(["attention"], attention), KVCacheGroupSpec(["states"], states)]
    cache = KVCacheConfig(num_blocks=BLOCKS, kv_cache_tensors=[], kv_cache_groups=groups)
    cache.prefix_cache_retention_interval = None
    known = KVCacheManager.__init__.__code__.co_varnames
    options = {
        "scheduler_block_size": BLOCK,
        "hash_block_size": BLOCK,
        "enable_caching": True,
        "use_eagle": False,
    }
    options = {name: value for name, value in options.items() if name in known}
    manager = KVCacheManager(cache, max_model_len=LONGEST, **options)
    return manager, get_request_block_hasher(BLOCK, sha256)


def main():
    """1 where a request is let in on a state that nobody has computed yet."""
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

    # The scheduler cuts a chunk where a block ends, so that the state there is kept.
    assert manager.allocate_slots(request("first"), BLOCK) is not None
    second = request("second")
    blocks, cached, *_ = manager.get_computed_blocks(second)
    scheduled = manager.allocate_slots(second, len(PROMPT) - cached, cached, blocks) is not None
    print("'first' and 'second' have one prompt; 'first' computes a block of it in this step")
    print(f"expected: 'second' waits for that step, or finds nothing ({cached} tokens were found)")
    starts_early = scheduled and cached > 0
    if starts_early:
        print(f"actual:   it is scheduled in the same step, from the state behind token {cached}")
    else:
        print("actual:   it waits" if not scheduled else "actual:   it finds nothing")
    return int(starts_early)


if __name__ == "__main__":
    sys.exit(main())
