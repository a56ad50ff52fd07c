"""After a failed load vLLM's asynchronous scheduler plans tokens that a request does not have.

Usage: python reproduce.py   (in an environment with vLLM for the CPU; no model, no device)

It drives vLLM's own `AsyncScheduler` with `kv_load_failure_policy="recompute"`. A connector of a
few lines offers KV and loads it while the step waits; the load fails, and is reported as vLLM asks.
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
from vllm.v1.core.sched.async_scheduler import AsyncScheduler as Scheduler
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheTensor,
)
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

SIZE = 4
NUM_BLOCKS = 12
LOADED = 4 * SIZE
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
    """Offers four blocks to A, and loads them while the step waits."""

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        return (LOADED if request.request_id == "A" and not num_computed_tokens else 0), False

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
    """An asynchronous scheduler as a server has it, for 11 usable blocks of 4 tokens."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
        config = EngineArgs(
            model=folder,
            skip_tokenizer_init=True,
            enforce_eager=True,
            dtype="float32",
            block_size=SIZE,
            max_model_len=40,
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


def answer(scheduler: Scheduler, output, **connector) -> None:
    """Answer a step as its worker does, with one token for each of its requests."""
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


PROMPT = list(range(1, LOADED + 2))


def what_is_planned(*, fails: bool) -> tuple[int, int, int]:
    """The next step after A's first: its first position, its tokens, and how many A has by then.

    One more step was planned before that, as asynchronous scheduling does.
    """
    scheduler = make_scheduler()
    request = Request(
        request_id="A",
        prompt_token_ids=PROMPT,
        sampling_params=SamplingParams(max_tokens=4, ignore_eos=True),
        pooling_params=None,
        block_hasher=get_request_block_hasher(SIZE, sha256),
    )
    scheduler.add_request(request)
    first, _in_flight = scheduler.schedule(), scheduler.schedule()
    (table,) = scheduler.kv_cache_manager.get_block_ids("A")
    answer(scheduler, first, invalid_block_ids={table[0]} if fails else set())
    begins = request.num_computed_tokens
    count = scheduler.schedule().num_scheduled_tokens["A"]
    return begins, count, len(PROMPT) + (0 if fails else 2)


def main() -> int:
    """Print which positions are planned where a load succeeds, and where it fails."""
    init_none_hash(sha256)
    print(f"vLLM {vllm.__version__}: A has {len(PROMPT)} tokens, {LOADED} of which are loaded")
    wrong = False
    for fails, words in ((False, "its load succeeds"), (True, "its load fails   ")):
        begins, count, known = what_is_planned(fails=fails)
        wrong |= begins + count > known
        print(
            f"  {words}  positions {begins} to {begins + count - 1} are computed; {known} are known"
        )
    print("expected: no position that has no token and was not promised one")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
