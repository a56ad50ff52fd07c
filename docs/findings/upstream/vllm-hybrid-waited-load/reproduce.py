"""A load that a step waits for ends vLLM with recurrent layers, where the pool is a block short.

Usage: python reproduce.py   (in an environment with vLLM for the CPU; no model, no device)

It drives vLLM's own `KVCacheManager` for full attention and one group of recurrent layers, with
states aligned to blocks. A connector has brought the first tokens of a prompt, and the rest is
computed in the same step, as with `load_kv_async` False.
"""

from __future__ import annotations

import inspect
import os
import sys

os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")

import torch
import vllm
from vllm import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
)
from vllm.v1.request import Request

SIZE = 4
LOADED, COMPUTED = 2 * SIZE, SIZE
NEEDED = 5
"""Three blocks of attention, the state that was loaded, and the one that is computed."""


def make_manager(num_free: int) -> KVCacheManager:
    """A manager with so many free blocks."""
    attention = FullAttentionSpec(
        block_size=SIZE, num_kv_heads=1, head_size=64, dtype=torch.float32
    )
    states = MambaSpec(
        block_size=SIZE,
        shapes=((1,),),
        dtypes=(torch.float32,),
        mamba_cache_mode="align",
        page_size_padded=attention.page_size_bytes,
    )
    config = KVCacheConfig(
        num_blocks=num_free + 1,
        kv_cache_tensors=[],
        kv_cache_groups=[
            KVCacheGroupSpec(["attention"], attention),
            KVCacheGroupSpec(["recurrent"], states),
        ],
    )
    wanted = {
        "kv_cache_config": config,
        "max_model_len": 64,
        "enable_caching": True,
        "scheduler_block_size": SIZE,
        "hash_block_size": SIZE,
        "max_num_batched_tokens": 64,
        "max_in_flight_tokens": 64,
    }
    known = inspect.signature(KVCacheManager.__init__).parameters
    return KVCacheManager(**{name: value for name, value in wanted.items() if name in known})


def admit(num_free: int) -> str:
    """What comes of a request of which two blocks are loaded and one is computed."""
    manager = make_manager(num_free)
    request = Request(
        request_id="A",
        prompt_token_ids=list(range(LOADED + COMPUTED)),
        sampling_params=SamplingParams(max_tokens=1),
        pooling_params=None,
        block_hasher=get_request_block_hasher(SIZE, sha256),
    )
    manager.new_step_starts()
    try:
        new = manager.allocate_slots(request, COMPUTED, num_external_computed_tokens=LOADED)
    except ValueError as error:
        return f"ValueError: {error}"
    return "it has to wait" if new is None else "it comes in"


def main() -> int:
    """Print what happens with the blocks that are needed, and with one and two less."""
    init_none_hash(sha256)
    print(f"vLLM {vllm.__version__}: two blocks are loaded, one is computed; {NEEDED} are needed")
    said = {num_free: admit(num_free) for num_free in (NEEDED, NEEDED - 1, NEEDED - 2)}
    for num_free, what in said.items():
        print(f"  {num_free} free: {what}")
    print("expected: it comes in, it has to wait, it has to wait")
    return int("ValueError" in said[NEEDED - 1])


if __name__ == "__main__":
    sys.exit(main())
