"""A decode instance of vLLM reads blocks that the prefill instance has given to another request.

Usage: python reproduce.py   (in an environment with vLLM for the CPU; no model, no device, no NIXL)

It drives vLLM's own `Scheduler` with its `NixlConnector` in both roles, and the method of the
prefill worker that takes the notice of a read. The lease is one second long here.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")

import torch
import vllm
from vllm import SamplingParams
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_worker import (
    NixlPullConnectorWorker,
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
from vllm.v1.structured_output import StructuredOutputManager

SIZE = 4
LEASE_S = 1
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


def make_scheduler(role: str) -> Scheduler:
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
                kv_connector="NixlConnector",
                kv_role=role,
                kv_connector_extra_config={"kv_lease_duration": LEASE_S},
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
    """A request of 12 tokens comes, with what the proxy says of it."""
    request = Request(
        request_id=name,
        prompt_token_ids=list(range(first, first + 12)),
        sampling_params=SamplingParams(
            max_tokens=1 if params.get("do_remote_decode") else 4,
            ignore_eos=True,
            extra_args={"kv_transfer_params": params},
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


def worker_of(leases: dict[str, float], notices: list[bytes]) -> SimpleNamespace:
    """What the method of the prefill worker looks at."""
    return SimpleNamespace(
        _reqs_to_send=leases,
        _reqs_to_process=set(leases),
        consumer_notification_counts_by_req=defaultdict(int),
        expected_consumer_notifications_by_req={},
        xfer_stats=SimpleNamespace(record_notification_after_expiry=lambda: None),
        transfer_topo=object(),
        nixl_wrapper=SimpleNamespace(get_new_notifs=lambda: {"decode": notices}),
    )


def main() -> int:
    """Print whose blocks the decode instance reads, and what it is told afterwards."""
    init_none_hash(sha256)
    print(f"vLLM {vllm.__version__}: a lease of {LEASE_S} s, blocks of {SIZE}")
    prefill, decode = make_scheduler("kv_producer"), make_scheduler("kv_consumer")
    producing = {"do_remote_decode": True, "do_remote_prefill": False}

    submit(prefill, "A", 1, producing)
    (ended,) = answer(prefill, prefill.schedule())
    offered = ended.kv_transfer_params["remote_block_ids"][0]
    leases = dict(prefill.schedule().kv_connector_metadata.reqs_to_send)
    print(f"  the prefill instance offers blocks {offered} of A")

    time.sleep(LEASE_S + 0.2)
    # As the worker's get_finished does in every step.
    done = {name for name, deadline in leases.items() if time.perf_counter() >= deadline}
    worker = worker_of({name: leases[name] for name in set(leases) - done}, [b"A:1"])
    answer(prefill, prefill.schedule(), finished_sending=done)
    submit(prefill, "B", 31, producing)
    (new,) = prefill.schedule().scheduled_new_reqs
    print(
        f"  the lease of {sorted(done)} has ended, and B is computed in blocks {new.block_ids[0]}"
    )

    submit(decode, "A", 1, dict(ended.kv_transfer_params))
    plan = decode.schedule()
    (wanted,) = plan.kv_connector_metadata.reqs_to_recv.values()
    read = wanted.remote.block_ids[0]
    print(f"  the decode instance reads blocks {read} for A")
    answer(decode, plan, finished_recving={"A"})
    finished = NixlPullConnectorWorker._get_new_notifs(worker)  # noqa: SLF001 - the worker's step
    print(f"  the prefill worker is told of the read and answers {finished or 'nobody'}")
    running = decode.schedule().scheduled_new_reqs
    for request in running:
        print(f"  A goes on at position {request.num_computed_tokens} of 12, as if all were right")
    print("expected: what is read after its lease is not used")
    return int(bool(running) and bool(set(read) & set(new.block_ids[0])))


if __name__ == "__main__":
    sys.exit(main())
