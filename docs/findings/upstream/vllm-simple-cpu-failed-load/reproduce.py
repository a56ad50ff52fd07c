"""Where another connector's load fails, vLLM's SimpleCPUOffloadConnector ends the engine.

Usage: python reproduce.py   (in an environment with vLLM for the CPU; no model, no device)

It drives vLLM's own `Scheduler` with its own `MultiConnector` over `SimpleCPUOffloadConnector` and
a connector that loads while a step waits (`Remote`, below), and whose load fails. The worker is
played by hand.
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
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)
from vllm.distributed.kv_transfer.kv_connector.v1.multi_connector import (
    MultiKVConnectorWorkerMetadata,
)
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
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadWorkerMetadata
from vllm.v1.structured_output import StructuredOutputManager

SIZE = 4
NUM_BLOCKS = 9
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


class Remote(KVConnectorBase_V1, SupportsHMA):
    """Has the first 8 tokens of every prompt; a step waits until they are there."""

    def get_num_new_matched_tokens(self, _request, num_computed_tokens):
        return (0 if num_computed_tokens else 8), False

    def update_state_after_alloc(self, request, blocks, num_external_tokens) -> None: ...

    def build_connector_meta(self, _scheduler_output):
        return KVConnectorMetadata()

    def request_finished_all_groups(self, _request, _block_ids):
        return False, None

    def start_load_kv(self, forward_context, **kwargs) -> None: ...
    def wait_for_layer_load(self, layer_name) -> None: ...
    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs) -> None: ...
    def wait_for_save(self) -> None: ...


def make_scheduler(policy: str) -> Scheduler:
    """A scheduler as a server has it, for 8 usable blocks of 4 tokens."""
    spec = FullAttentionSpec(block_size=SIZE, num_kv_heads=1, head_size=64, dtype=torch.float32)
    page = spec.page_size_bytes
    simple = {
        "kv_connector": "SimpleCPUOffloadConnector",
        "kv_connector_extra_config": {"cpu_bytes_to_use": 16 * page},
    }
    remote = {"kv_connector": "Remote", "kv_connector_module_path": "reproduce"}
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
            max_num_batched_tokens=24,
            enable_prefix_caching=True,
            kv_transfer_config=KVTransferConfig(
                kv_connector="MultiConnector",
                kv_role="kv_both",
                kv_load_failure_policy=policy,
                kv_connector_extra_config={
                    "connectors": [{"kv_role": "kv_both", **part} for part in (simple, remote)]
                },
            ),
        ).create_engine_config()
    config.scheduler_config.async_scheduling = False
    config.cache_config.num_gpu_blocks = NUM_BLOCKS
    return Scheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=NUM_BLOCKS,
            kv_cache_tensors=[
                KVCacheTensor(NUM_BLOCKS * page, ["layer.0"], NUM_BLOCKS * page, page)
            ],
            kv_cache_groups=[KVCacheGroupSpec(["layer.0"], spec)],
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=SIZE,
        hash_block_size=SIZE,
    )


def step(scheduler: Scheduler, *, failed: int, done: dict[int, int]) -> int:
    """A step in which so many of A's blocks fail to load; `done` are stores that have ended.

    Returns the number of the store that it begins, or -1.
    """
    output = scheduler.schedule()
    names = list(output.num_scheduled_tokens)
    blocks = [b for new in output.scheduled_new_reqs for b in new.block_ids[0]][:failed]
    stores = SimpleCPUOffloadWorkerMetadata(completed_store_events=done) if done else None
    scheduler.update_from_output(
        output,
        ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: place for place, name in enumerate(names)},
            sampled_token_ids=[[1] for _ in names],
            kv_connector_output=KVConnectorOutput(
                invalid_block_ids=set(blocks),
                kv_connector_worker_meta=MultiKVConnectorWorkerMetadata(metadata=(stores, None)),
            ),
        ),
    )
    return int(output.kv_connector_metadata.metadata[0].store_event)


def what_happens(failed: int) -> str:
    """A loads 8 tokens, of which so many blocks fail. All stores end, in order."""
    scheduler = make_scheduler("fail")
    scheduler.add_request(
        Request(
            request_id="A",
            prompt_token_ids=[1, 2, 2, 1, 1, 1, 2, 2, 1],
            sampling_params=SamplingParams(max_tokens=3, ignore_eos=True),
            pooling_params=None,
            block_hasher=get_request_block_hasher(SIZE, sha256),
        )
    )
    begun = -1
    try:
        for number in range(6):
            done = {begun: 1} if begun >= 0 else {}
            begun = step(scheduler, failed=failed if not number else 0, done=done)
    except AssertionError:
        return "raises AssertionError"
    return "goes on"


def main() -> int:
    """Print what becomes of the engine with and without a load that fails."""
    init_none_hash(sha256)
    whole, one = what_happens(0), what_happens(1)
    print(f"vLLM {vllm.__version__}: the engine, once A's store has ended")
    print(f"  its load succeeds       {whole}")
    print(f"  a block fails to load   {one}")
    print("expected: goes on, twice (the failure policy ends A alone)")
    return int((whole, one) != ("goes on", "goes on"))


if __name__ == "__main__":
    sys.exit(main())
