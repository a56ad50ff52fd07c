"""vLLM, recurrent layers and drafts: a step with fewer drafts than the one before ends the engine.

Usage: python reproduce.py      in an environment that has vLLM; no network, no GPU

vLLM's own `KVCacheManager` serves a model of attention and recurrent layers whose drafts vary in
number, as those of suffix decoding and n-grams do. It is called as vLLM's scheduler calls it: a
prompt, a step with three drafts of which none is right, and a step without drafts.
"""

import os
import sys

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1")
BLOCK, BLOCKS, LONGEST, DRAFTS = 4, 17, 64, 3
PROMPT = [10, 11]


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
        num_speculative_blocks=DRAFTS,
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
    """1 where the manager fails over a step that has fewer drafts than the one before."""
    from vllm import SamplingParams
    from vllm.v1.request import Request

    manager, hasher = manager_and_hasher()
    known = Request.__init__.__code__.co_varnames
    request = Request(
        request_id="drafting",
        prompt_token_ids=PROMPT,
        sampling_params=SamplingParams(max_tokens=LONGEST),
        pooling_params=None,
        **({"eos_token_id": None} if "eos_token_id" in known else {}),
        block_hasher=hasher,
    )

    def step(num_tokens):
        assert manager.allocate_slots(request, num_tokens) is not None
        if hasattr(manager, "new_step_starts"):
            manager.new_step_starts()
        # The tokens that count: the prompt, or the last token; every draft was wrong.
        request.num_computed_tokens = request.num_tokens
        request.append_output_token_ids(20)

    step(len(PROMPT))
    step(1 + DRAFTS)
    print(f"the last step had {DRAFTS} drafts, none was right; this one has none")
    print("expected: no block more, since there are enough")
    try:
        step(1)
    except AssertionError as error:
        print(f"actual:   AssertionError: {error}")
        return 1
    print("actual:   no block more")
    return 0


if __name__ == "__main__":
    sys.exit(main())
