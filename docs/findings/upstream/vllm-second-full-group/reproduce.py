"""vLLM, two sizes of full attention: a request is given blocks that lie behind its prefix hit.

Usage: python reproduce.py      in an environment that has vLLM; no network, no GPU

vLLM's own `KVCacheManager` serves a model whose layers of full attention have blocks of 4 and of 8
tokens, beside a sliding window. What is cached for all of them ends where the window has lost its
blocks; the hit is cut there for the first kind of full attention alone. It is called as vLLM's
scheduler calls it.
"""

import os
import sys

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1")
SMALL, LARGE, WINDOW, BLOCKS, LONGEST = 4, 8, 6, 16, 64
PROMPT = list(range(100, 124))


def manager_and_hasher():
    """vLLM's manager over three groups, and what hashes the blocks of a request."""
    import torch
    from vllm.utils.hashing import sha256
    from vllm.v1.core import single_type_kv_cache_manager as managers
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.kv_cache_interface import (
        FullAttentionSpec,
        KVCacheConfig,
        KVCacheGroupSpec,
        SlidingWindowSpec,
    )

    if hasattr(managers, "register_all_kvcache_specs"):
        managers.register_all_kvcache_specs(None)
    init_none_hash(sha256)
    shape = {"num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
    groups = [
        KVCacheGroupSpec(["small"], FullAttentionSpec(block_size=SMALL, **shape)),
        KVCacheGroupSpec(["large"], FullAttentionSpec(block_size=LARGE, **shape)),
        KVCacheGroupSpec(
            ["window"], SlidingWindowSpec(block_size=LARGE, sliding_window=WINDOW, **shape)
        ),
    ]
    cache = KVCacheConfig(num_blocks=BLOCKS, kv_cache_tensors=[], kv_cache_groups=groups)
    known = KVCacheManager.__init__.__code__.co_varnames
    options = {"scheduler_block_size": LARGE, "hash_block_size": SMALL, "enable_caching": True}
    options = {name: value for name, value in options.items() if name in known}
    manager = KVCacheManager(cache, max_model_len=LONGEST, **options)
    return manager, get_request_block_hasher(SMALL, sha256)


def main():
    """1 where a request holds blocks behind its hit."""
    from vllm import SamplingParams
    from vllm.v1.request import Request

    manager, hasher = manager_and_hasher()
    known = Request.__init__.__code__.co_varnames

    def request(name, prompt):
        return Request(
            request_id=name,
            prompt_token_ids=prompt,
            sampling_params=SamplingParams(max_tokens=LONGEST),
            pooling_params=None,
            **({"eos_token_id": None} if "eos_token_id" in known else {}),
            block_hasher=hasher,
        )

    def admit(one, count):
        blocks, cached, *_ = manager.get_computed_blocks(one)
        assert manager.allocate_slots(one, count, cached, blocks) is not None
        one.num_computed_tokens = cached + count

    def ids(blocks):
        return [[block.block_id for block in group] for group in blocks.blocks]

    admit(request("short", [1]), 1)
    long = request("long", PROMPT)
    admit(long, len(PROMPT))
    # One token more does not fit; what no window reads any more is free from now on.
    long.append_output_token_ids(7)
    assert manager.allocate_slots(long, 1) is None
    manager.free(long)
    admit(request("other", [2]), 1)
    again = request("again", PROMPT[:9])
    blocks, cached, *_ = manager.get_computed_blocks(again)
    found = [len(group) for group in blocks.blocks]
    wanted = [cached // size for size in (SMALL, LARGE, LARGE)]
    print(f"expected: {wanted} blocks for {cached} cached tokens of 'again'")
    print(f"actual:   {found} blocks, {ids(blocks)}")
    admit(again, 9 - cached)
    held = manager.get_block_ids("again")
    print(f"'again' computes 9 tokens through blocks {held}")
    return int(found != wanted)


if __name__ == "__main__":
    sys.exit(main())
