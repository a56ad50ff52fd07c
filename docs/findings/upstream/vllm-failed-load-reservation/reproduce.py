"""After a failed KV load vLLM's scheduler reserves blocks for a request that has given them back.

Usage: python reproduce.py   (in an environment with vLLM for the CPU; no model, no device)

It drives vLLM's own `Scheduler` with `kv_load_failure_policy="recompute"`. A connector of a few
lines offers KV, loads it asynchronously, and reports once that the load has failed.
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
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

SIZE = 4
NUM_BLOCKS = 6
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


class Connector(KVConnectorBase_V1):
    """Offers the first 8 tokens, and offers them again if they could not be read in time."""

    def get_num_new_matched_tokens(self, *_):
        return 8, True

    def update_state_after_alloc(self, *_):
        pass

    def build_connector_meta(self, *_):
        return KVConnectorMetadata()

    def request_finished(self, *_):
        return False, None

    def start_load_kv(self, *_, **__):
        pass

    def wait_for_layer_load(self, *_):
        pass

    def save_kv_layer(self, *_, **__):
        pass

    def wait_for_save(self):
        pass


def make_scheduler() -> Scheduler:
    """A scheduler as a server has it, for 5 usable blocks of 4 tokens, first come first served."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
        config = EngineArgs(
            model=folder,
            skip_tokenizer_init=True,
            enforce_eager=True,
            dtype="float32",
            block_size=SIZE,
            max_model_len=20,
            max_num_seqs=4,
            max_num_batched_tokens=20,
            enable_prefix_caching=True,
            disable_hybrid_kv_cache_manager=True,
            kv_transfer_config=KVTransferConfig(
                kv_connector="Connector",
                kv_connector_module_path=Path(__file__).stem,
                kv_role="kv_consumer",
                kv_load_failure_policy="recompute",
            ),
        ).create_engine_config()
    config.scheduler_config.async_scheduling = False
    config.cache_config.num_gpu_blocks = NUM_BLOCKS
    spec = FullAttentionSpec(block_size=SIZE, num_kv_heads=1, head_size=64, dtype=torch.float32)
    size, page = NUM_BLOCKS * spec.page_size_bytes, spec.page_size_bytes
    return Scheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=NUM_BLOCKS,
            kv_cache_tensors=[KVCacheTensor(size, ["layer"], size, page)],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=SIZE,
        hash_block_size=SIZE,
    )


def submit(scheduler: Scheduler, name: str, tokens: list[int]) -> None:
    """A request comes; it wants one token."""
    request = Request(
        request_id=name,
        prompt_token_ids=tokens,
        sampling_params=SamplingParams(max_tokens=1, ignore_eos=True),
        pooling_params=None,
        block_hasher=get_request_block_hasher(SIZE, sha256),
    )
    scheduler.add_request(request)


def step(scheduler: Scheduler, output=None, **connector):
    """Answer a step as its worker does. Returns what it computed."""
    output = output or scheduler.schedule()
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
    return output.num_scheduled_tokens


def steps_until_computed(*, fails: bool, repaired: bool = False) -> int | None:
    """How many steps it takes until the request is computed; None: not in 1,000 steps."""
    scheduler = make_scheduler()
    submit(scheduler, "A", [1] * 16)
    output = scheduler.schedule()
    (table,) = scheduler.kv_cache_manager.get_block_ids("A")
    failed = set(table[:2]) if fails else set()
    step(scheduler, output, finished_recving={"A"}, invalid_block_ids=failed)
    for number in range(2, 1_001):
        output = scheduler.schedule()
        if repaired and not scheduler.kv_cache_manager.get_block_ids("A")[0]:
            scheduler._inflight_prefills.clear()  # noqa: SLF001 - to show that this is the cause
        request = scheduler.requests["A"]
        is_loading = request.status == RequestStatus.WAITING_FOR_REMOTE_KVS
        if step(scheduler, output, finished_recving={"A"} if is_loading else None):
            return number
    free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
    print(f"  A is {request.status.name} and needs 4 blocks; {free} of 5 are free")
    return None


def main() -> int:
    """Print how long A waits with and without a failed load."""
    init_none_hash(sha256)
    print(f"vLLM {vllm.__version__}: when is A computed, who is alone and needs 4 of 5 blocks")
    fine = steps_until_computed(fails=False)
    repaired = steps_until_computed(fails=True, repaired=True)
    stuck = steps_until_computed(fails=True)
    print(f"  its load succeeds                        in step {fine}")
    print(f"  it fails; A's reservation is taken back  in step {repaired}")
    print(f"  it fails                                 {'never' if stuck is None else stuck}")
    print("expected: soon, three times")
    return int(stuck is None)


if __name__ == "__main__":
    sys.exit(main())
