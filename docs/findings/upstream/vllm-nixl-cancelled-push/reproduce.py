"""A request that is cancelled while its KV is on the way keeps its blocks in a decode instance.

Usage: python reproduce.py   (in an environment with vLLM for the CPU; no model, no device, no NIXL)

It drives vLLM's own `Scheduler` with its `NixlPushConnector` in the role of the decode instance.
The prefill instance never writes: it was cancelled, too.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")

import torch
import vllm
from vllm import SamplingParams
from vllm.config import KVTransferConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheTensor,
)
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

SIZE = 4
TIMEOUT_S = 1
NUM_BLOCKS = 5
"""Room for one prompt of 12 tokens, and the null block."""
MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "vocab_size": 64,
    "max_position_embeddings": 256,
}


def make_scheduler() -> Scheduler:
    """An instance as a server has it: full attention, blocks of 4."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
        config = EngineArgs(
            model=folder,
            skip_tokenizer_init=True,
            enforce_eager=True,
            dtype="float32",
            block_size=SIZE,
            max_model_len=64,
            max_num_seqs=4,
            max_num_batched_tokens=64,
            enable_prefix_caching=True,
            kv_transfer_config=KVTransferConfig(
                kv_connector="NixlPushConnector",
                kv_role="kv_consumer",
                kv_connector_extra_config={
                    "kv_lease_duration": TIMEOUT_S,
                    "decoder_kv_blocks_ttl": TIMEOUT_S,
                    "push_registration_timeout": TIMEOUT_S,
                },
            ),
        ).create_engine_config()
    config.scheduler_config.async_scheduling = False
    config.cache_config.num_gpu_blocks = NUM_BLOCKS
    spec = FullAttentionSpec(block_size=SIZE, num_kv_heads=1, head_size=64, dtype=torch.float32)
    size = NUM_BLOCKS * spec.page_size_bytes
    return Scheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=NUM_BLOCKS,
            kv_cache_tensors=[KVCacheTensor(size, ["full"], size, spec.page_size_bytes)],
            kv_cache_groups=[KVCacheGroupSpec(["full"], spec)],
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=SIZE,
        hash_block_size=SIZE,
    )


def submit(scheduler: Scheduler, name: str, first: int, params: dict) -> None:
    """A request of 12 tokens comes, with what the proxy says of it, if anything."""
    request = Request(
        request_id=name,
        prompt_token_ids=list(range(first, first + 12)),
        sampling_params=SamplingParams(
            max_tokens=4,
            ignore_eos=True,
            extra_args={"kv_transfer_params": params},
        ),
        pooling_params=None,
        block_hasher=get_request_block_hasher(SIZE, sha256),
    )
    scheduler.add_request(request)


def step(scheduler: Scheduler) -> list[str]:
    """A step in which nothing arrives. Returns whose tokens it computes."""
    output = scheduler.schedule()
    names = list(output.num_scheduled_tokens)
    if not names:
        scheduler.update_from_output(output, EMPTY_MODEL_RUNNER_OUTPUT)
    return names


def main() -> int:
    """Print how many blocks are free while a request is cancelled, and what the next one gets."""
    init_none_hash(sha256)
    print(f"vLLM {vllm.__version__}: {NUM_BLOCKS - 1} blocks, time-outs of {TIMEOUT_S} s")
    decode = make_scheduler()
    pool = decode.kv_cache_manager.block_pool
    params = {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_engine_id": "prefill",
        "remote_request_id": "A",
        "remote_host": "localhost",
        "remote_port": 1,
        "tp_size": 1,
    }
    submit(decode, "A", 1, params)
    step(decode)
    print(f"  A waits for what is to be written: {pool.get_num_free_blocks()} free")
    decode.finish_requests("A", RequestStatus.FINISHED_ABORTED)
    print(f"  its user has left: {pool.get_num_free_blocks()} free")
    time.sleep(2 * TIMEOUT_S)
    for _ in range(100):
        step(decode)
    free = pool.get_num_free_blocks()
    print(f"  all time-outs are over, 100 steps later: {free} free")
    submit(decode, "B", 31, {})
    print(f"  B, which nothing is written for, is computed: {'B' in step(decode)}")
    print(f"expected: {NUM_BLOCKS - 1} free at the end, and B computed")
    return int(free < NUM_BLOCKS - 1)


if __name__ == "__main__":
    sys.exit(main())
