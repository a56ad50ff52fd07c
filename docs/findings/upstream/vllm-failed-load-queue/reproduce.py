"""A failed KV load stops the queue of a decode instance of vLLM for good, and loads behind it.

Usage: python reproduce.py   (in an environment with vLLM for the CPU; no model, no device, no NIXL)

It drives vLLM's own `Scheduler` with its `NixlConnector` in the role of the decode instance, for a
model with full attention and a sliding window, under `kv_load_failure_policy="recompute"`. The
worker's side is two sentences: the read for A has failed, and that for B is done.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
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
    SlidingWindowSpec,
)
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

SIZE = 4
WINDOW = 6
NUM_BLOCKS = 15
MOST_STEPS = 1_000
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
    """A decode instance with 14 usable blocks: full attention, and a window of 6 tokens."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
        config = EngineArgs(
            model=folder,
            skip_tokenizer_init=True,
            enforce_eager=True,
            dtype="float32",
            block_size=SIZE,
            max_model_len=28,
            max_num_seqs=4,
            max_num_batched_tokens=16,
            enable_prefix_caching=True,
            kv_transfer_config=KVTransferConfig(
                kv_connector="NixlConnector",
                kv_role="kv_consumer",
                kv_load_failure_policy="recompute",
            ),
        ).create_engine_config()
    config.scheduler_config.async_scheduling = False
    config.cache_config.num_gpu_blocks = NUM_BLOCKS
    shape = {"block_size": SIZE, "num_kv_heads": 1, "head_size": 64, "dtype": torch.float32}
    full, sliding = FullAttentionSpec(**shape), SlidingWindowSpec(**shape, sliding_window=WINDOW)
    page = full.page_size_bytes
    size = NUM_BLOCKS * page
    return Scheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=NUM_BLOCKS,
            kv_cache_tensors=[KVCacheTensor(size, ["full", "sliding"], size, page)],
            kv_cache_groups=[
                KVCacheGroupSpec(["full"], full),
                KVCacheGroupSpec(["sliding"], sliding),
            ],
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=SIZE,
        hash_block_size=SIZE,
    )


def submit(scheduler: Scheduler, name: str, tokens: int) -> None:
    """A request comes whose prompt another instance has computed, in blocks that do not matter."""
    blocks = list(range(1, 1 + -(-tokens // SIZE)))
    params = {
        "do_remote_prefill": True,
        "remote_block_ids": (blocks, blocks[-3:]),
        "remote_engine_id": "prefill",
        "remote_request_id": name,
        "remote_host": "host",
        "remote_port": 1,
        "tp_size": 1,
    }
    request = Request(
        request_id=name,
        prompt_token_ids=list(range(1, tokens + 1)),
        sampling_params=SamplingParams(
            max_tokens=2, ignore_eos=True, extra_args={"kv_transfer_params": params}
        ),
        pooling_params=None,
        block_hasher=get_request_block_hasher(SIZE, sha256),
    )
    scheduler.add_request(request)


def step(scheduler: Scheduler, **connector) -> list[str]:
    """A step is planned and computed. Returns the requests that it computes."""
    output = scheduler.schedule()
    names = list(output.num_scheduled_tokens)
    scheduler.update_from_output(
        output,
        ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: place for place, name in enumerate(names)},
            sampled_token_ids=[[1] for _ in names],
            kv_connector_output=KVConnectorOutput(**connector),
        ),
    )
    return names


def steps_until_computed(*, fails: bool) -> int | None:
    """How many steps it takes until anything is computed; None: not in 1,000 steps."""
    scheduler = make_scheduler()
    submit(scheduler, "A", 22)
    submit(scheduler, "B", 8)
    step(scheduler)
    step(scheduler, finished_recving={"A", "B"}, failed_recving={"A"} if fails else set())
    for number in range(3, MOST_STEPS + 1):
        if step(scheduler):
            return number
    free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
    held = sum(map(len, scheduler.kv_cache_manager.get_block_ids("B")))
    print(f"  {free} of {NUM_BLOCKS - 1} blocks are free, {held} are B's, nobody is running")
    print(f"  A is {scheduler.requests['A'].status.name}, B {scheduler.requests['B'].status.name}")
    return None


def main() -> int:
    """Print when anything is computed with and without a failed load."""
    init_none_hash(sha256)
    print(f"vLLM {vllm.__version__}: A (22 tokens) and B (8) are loaded; when is anything computed")
    fine, stuck = steps_until_computed(fails=False), steps_until_computed(fails=True)
    print(f"  both loads succeed  in step {fine}")
    print(f"  A's load fails      {'never' if stuck is None else f'in step {stuck}'}")
    print("expected: soon, twice")
    return int(stuck is None)


if __name__ == "__main__":
    sys.exit(main())
