"""Blocks whose load has failed stay in vLLM's prefix cache, for whoever comes next.

Usage: python reproduce.py   (in an environment with vLLM for the CPU; no model, no device)

It drives vLLM's own `Scheduler` with `kv_load_failure_policy="recompute"`. A connector of a few
lines offers KV and loads it while the step waits; the load fails, and is reported as vLLM asks.
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
    """Offers the first block to A alone, and loads it while the step waits."""

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        return (SIZE if request.request_id == "A" and not num_computed_tokens else 0), False

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


PROMPT = [5, 6, 7, 8, 9]


def blocks_taken_as_cached(*, leaves: bool) -> tuple[int, list[int], set[int]]:
    """The tokens that B takes as cached, its blocks, and those that were never written.

    A sends the same prompt before. Its load fails; then it leaves, or is computed again.
    """
    scheduler = make_scheduler()
    submit(scheduler, "A", PROMPT)
    output = scheduler.schedule()
    (table,) = scheduler.kv_cache_manager.get_block_ids("A")
    unwritten = {table[0]}
    step(scheduler, output, invalid_block_ids={table[0]})
    if leaves:
        scheduler.finish_requests("A", RequestStatus.FINISHED_ABORTED)
    while scheduler.has_requests():
        output = scheduler.schedule()
        for name, count in output.num_scheduled_tokens.items():
            request = scheduler.requests[name]
            (table,) = scheduler.kv_cache_manager.get_block_ids(name)
            first = request.num_computed_tokens - count
            unwritten -= set(table[first // SIZE :])
        step(scheduler, output)
    submit(scheduler, "B", PROMPT)
    output = scheduler.schedule()
    (new,) = output.scheduled_new_reqs
    return new.num_computed_tokens, list(new.block_ids[0]), unwritten


def main() -> int:
    """Print what B takes as cached where A was computed again, and where it left."""
    init_none_hash(sha256)
    print(f"vLLM {vllm.__version__}: B sends the prompt of A, whose load had failed")
    wrong = False
    for leaves, what in ((False, "A was computed again"), (True, "A left before that  ")):
        cached, blocks, unwritten = blocks_taken_as_cached(leaves=leaves)
        bad = unwritten & set(blocks[: cached // SIZE])
        wrong |= bool(bad)
        words = f"blocks {sorted(bad)} of them were never written" if bad else "all of it written"
        print(f"  {what}  B takes {cached} tokens as cached, {words}")
    print("expected: whatever is taken as cached was written")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
