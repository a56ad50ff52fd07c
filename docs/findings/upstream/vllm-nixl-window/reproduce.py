"""A decode instance of vLLM computes the last token of a prompt over a block that it has not.

Usage: python reproduce.py   (in an environment with vLLM for the CPU; no model, no device, no NIXL)

It drives vLLM's own `Scheduler` with its `NixlConnector` in the role of the decode instance, for a
model with full attention and a sliding window. The worker's side is one sentence: the blocks that
were asked for have arrived.
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
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_scheduler import (
    NixlBaseConnectorScheduler,
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
    SlidingWindowSpec,
)
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

SIZE = 4
WINDOW = 6
NUM_BLOCKS = 40
NULL = 0
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


def make_scheduler(role: str) -> Scheduler:
    """An instance as a server has it: full attention, and a window of 6 tokens, blocks of 4."""
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
            kv_transfer_config=KVTransferConfig(kv_connector="NixlConnector", kv_role=role),
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


def submit(scheduler: Scheduler, tokens: int, most: int, params: dict) -> None:
    """The request comes, with what the proxy says of it."""
    request = Request(
        request_id="A",
        prompt_token_ids=list(range(1, tokens + 1)),
        sampling_params=SamplingParams(
            max_tokens=most, ignore_eos=True, extra_args={"kv_transfer_params": params}
        ),
        pooling_params=None,
        block_hasher=get_request_block_hasher(SIZE, sha256),
    )
    scheduler.add_request(request)


def answer(scheduler: Scheduler, output, **connector) -> list:
    """A step is computed. Returns what comes of it for users."""
    names = list(output.num_scheduled_tokens)
    given = scheduler.update_from_output(
        output,
        ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: place for place, name in enumerate(names)},
            sampled_token_ids=[[1] for _ in names],
            kv_connector_output=KVConnectorOutput(**connector),
        ),
    )
    return [one for outputs in given.values() for one in outputs.outputs]


def decoded(tokens: int) -> tuple[int, list[int], list[int]]:
    """A prompt of so many tokens is prefilled by one instance and decoded by another.

    Returns the position that the second computes first, its table of the window, and the blocks of
    the window that the first instance offers.
    """
    prefill, decode = make_scheduler("kv_producer"), make_scheduler("kv_consumer")
    submit(prefill, tokens, 1, {"do_remote_decode": True, "do_remote_prefill": False})
    (ended,) = answer(prefill, prefill.schedule())
    submit(decode, tokens, 4, dict(ended.kv_transfer_params))
    answer(decode, decode.schedule(), finished_recving={"A"})
    (new,) = decode.schedule().scheduled_new_reqs
    return (
        new.num_computed_tokens,
        list(new.block_ids[1]),
        ended.kv_transfer_params["remote_block_ids"][1],
    )


def show(lengths: range) -> bool:
    """Print what the first step of the decode instance reads; whether all of it is there."""
    is_right = True
    for tokens in lengths:
        position, table, offered = decoded(tokens)
        first = max(0, position - WINDOW + 1)
        is_null = table[first // SIZE] == NULL
        is_right &= not is_null
        print(
            f"  {tokens} tokens: position {position} reads {first} to {position} through {table}, "
            f"of {offered}{f'; position {first} is in the null block' if is_null else ''}"
        )
    return is_right


def main() -> int:
    """Print it for a few prompts, and once more where the last token is left to the decoder."""
    init_none_hash(sha256)
    print(f"vLLM {vllm.__version__}: a window of {WINDOW}, blocks of {SIZE}, 0 is the null block")
    is_right = show(range(12, 18))
    print("the same with the backoff that Mamba has")
    NixlBaseConnectorScheduler._prefill_backoff = lambda _: 1  # noqa: SLF001 - to show the cause
    show(range(12, 18))
    print("expected: no window begins in the null block, both times")
    return int(not is_right)


if __name__ == "__main__":
    sys.exit(main())
