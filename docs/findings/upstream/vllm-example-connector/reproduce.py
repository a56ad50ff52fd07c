"""What vLLM's ExampleConnector says of short prompts, and of prompts that are computed in chunks.

Usage: python reproduce.py   (in an environment with vLLM for the CPU; no model, no device)

It drives vLLM's own `Scheduler` with its own `ExampleConnector`. Of the worker it does one thing:
it makes the folders that `save_kv_layer` makes.
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
)
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

SIZE = 4
NUM_BLOCKS = 9
BATCH = 8
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


def make_scheduler(files: str) -> Scheduler:
    """A scheduler as a server has it: 8 usable blocks of 4 tokens, 8 tokens a step."""
    spec = FullAttentionSpec(block_size=SIZE, num_kv_heads=1, head_size=64, dtype=torch.float32)
    page = spec.page_size_bytes
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
        config = EngineArgs(
            model=folder,
            skip_tokenizer_init=True,
            enforce_eager=True,
            dtype="float32",
            block_size=SIZE,
            max_model_len=24,
            max_num_seqs=4,
            max_num_batched_tokens=BATCH,
            enable_prefix_caching=True,
            kv_transfer_config=KVTransferConfig(
                kv_connector="ExampleConnector",
                kv_role="kv_both",
                kv_connector_extra_config={"shared_storage_path": files},
            ),
        ).create_engine_config()
    config.scheduler_config.async_scheduling = False
    config.cache_config.num_gpu_blocks = NUM_BLOCKS
    tensor = KVCacheTensor(NUM_BLOCKS * page, ["layer.0"], NUM_BLOCKS * page, page)
    return Scheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=NUM_BLOCKS,
            kv_cache_tensors=[tensor],
            kv_cache_groups=[KVCacheGroupSpec(["layer.0"], spec)],
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=SIZE,
        hash_block_size=SIZE,
    )


def step(scheduler: Scheduler, name: str, tokens: list[int]):
    """Submit a request and carry out a step. Returns what workers were told."""
    scheduler.add_request(
        Request(
            request_id=name,
            prompt_token_ids=tokens,
            sampling_params=SamplingParams(max_tokens=1, ignore_eos=True),
            pooling_params=None,
            block_hasher=get_request_block_hasher(SIZE, sha256),
        )
    )
    output = scheduler.schedule()
    for stored in output.kv_connector_metadata.requests:
        if stored.is_store:
            # save_kv_layer names its files in this way, and needs a device for the rest.
            name_of = scheduler.connector._generate_filename_debug  # noqa: SLF001 -- see above
            name_of("layer.0", stored.token_ids, stored.mm_hashes)
    names = list(output.num_scheduled_tokens)
    scheduler.update_from_output(
        output,
        ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: place for place, name in enumerate(names)},
            sampled_token_ids=[[1] for _ in names],
        ),
    )
    return output


def one_token(files: str) -> tuple[int, int]:
    """Where a prompt of one token begins, and how many it has to compute, after another one."""
    scheduler = make_scheduler(files)
    step(scheduler, "A", [3])
    output = step(scheduler, "B", [3])
    (new,) = output.scheduled_new_reqs
    return int(new.num_computed_tokens), int(output.num_scheduled_tokens["B"])


def chunks(files: str) -> tuple[int, int]:
    """For how many tokens a file is written in C's first step, and how many slots it names."""
    output = step(make_scheduler(files), "C", [2] * 17)
    (stored,) = output.kv_connector_metadata.requests
    return len(stored.token_ids), len(stored.slot_mapping)


def main() -> int:
    """Print both."""
    init_none_hash(sha256)
    with tempfile.TemporaryDirectory() as files:
        first, count = one_token(files)
    with tempfile.TemporaryDirectory() as files:
        tokens, slots = chunks(files)
    print(f"vLLM {vllm.__version__}: ExampleConnector")
    print(f"  B sends A's one token again: computed are {count}, from position {first} on")
    print(f"  C is computed in chunks of 8: a file for {tokens} tokens is written of {slots} slots")
    print("expected: 1, from position 0 on; as many slots as tokens")
    return int((first, count) != (0, 1) or tokens != slots)


if __name__ == "__main__":
    sys.exit(main())
