"""After a reset vLLM's OffloadingConnector stores blocks that belong to somebody else by now.

Usage: python reproduce.py   (in an environment with vLLM for the CPU; no model, no device)

It drives vLLM's own `Scheduler` with its own `OffloadingConnector` for a model with a group of full
attention and one of a sliding window. The worker is played by hand, and as kindly as can be: every
job is over as soon as the step that names it is computed. Blocks hold the tokens whose KV stands in
them, so that one can see what is stored under whose key.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch
import vllm
from vllm import SamplingParams
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingWorkerMetadata
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
NUM_BLOCKS = 13
HOST_BLOCKS = 64
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
    """A scheduler as a server has it, for 12 usable blocks of 4 tokens."""
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
                kv_connector="OffloadingConnector",
                kv_role="kv_both",
                kv_connector_extra_config={"cpu_bytes_to_use": HOST_BLOCKS * mmap.PAGESIZE},
            ),
        ).create_engine_config()
    config.scheduler_config.async_scheduling = False
    config.cache_config.num_gpu_blocks = NUM_BLOCKS
    sizes = {"block_size": SIZE, "num_kv_heads": 1, "head_size": 64, "dtype": torch.float32}
    specs = [FullAttentionSpec(**sizes), SlidingWindowSpec(**sizes, sliding_window=WINDOW)]
    page = specs[0].page_size_bytes
    names = ["layer.0", "layer.1"]
    return Scheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=NUM_BLOCKS,
            kv_cache_tensors=[
                KVCacheTensor(NUM_BLOCKS * page, [n], NUM_BLOCKS * page, page) for n in names
            ],
            kv_cache_groups=[KVCacheGroupSpec([n], s) for n, s in zip(names, specs)],
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=SIZE,
        hash_block_size=SIZE,
    )


class Server:
    """The scheduler, and what stands in the blocks of the device and of the host."""

    def __init__(self) -> None:
        self.scheduler = make_scheduler()
        self.device: dict[int, list] = {}
        self.host: dict[int, list] = {}
        self.done: list = []

    def submit(self, name: str, tokens: list[int], max_tokens: int) -> None:
        hasher = get_request_block_hasher(SIZE, sha256)
        limits = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
        self.scheduler.add_request(
            Request(
                request_id=name,
                prompt_token_ids=tokens,
                sampling_params=limits,
                pooling_params=None,
                block_hasher=hasher,
            )
        )

    def step(self) -> list[str]:
        """Plan a step, compute it, end its jobs. Returns who computed something."""
        output = self.scheduler.schedule()
        jobs, done = output.kv_connector_metadata, self.done
        early = jobs.jobs_to_flush & jobs.store_jobs.keys()
        for number in early:
            self.move(jobs.store_jobs[number])
        for name, count in output.num_scheduled_tokens.items():
            request = self.scheduler.requests[name]
            end = request.num_computed_tokens
            for table in self.scheduler.kv_cache_manager.get_block_ids(name):
                for position in range(end - count, end):
                    block = self.device.setdefault(table[position // SIZE], [None] * SIZE)
                    block[position % SIZE] = tuple(request.all_token_ids[: position + 1])
        for number in jobs.store_jobs.keys() - early:
            self.move(jobs.store_jobs[number])
        for job in jobs.load_jobs.values():
            self.move(job, is_load=True)
        self.done = [*jobs.store_jobs.items(), *jobs.load_jobs.items()]
        names = list(output.num_scheduled_tokens)
        ended = {n: 1 for n, _ in done}
        loaded = {job.req_id for _, job in done if hasattr(job.dst_spec, "group_sizes")}
        self.scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                req_ids=names,
                req_id_to_index={name: place for place, name in enumerate(names)},
                sampled_token_ids=[[1] for _ in names],
                kv_connector_output=KVConnectorOutput(
                    finished_recving=loaded or None,
                    kv_connector_worker_meta=(
                        OffloadingWorkerMetadata(completed_jobs=ended) if ended else None
                    ),
                ),
            ),
        )
        return names

    def move(self, job, *, is_load: bool = False) -> None:
        """Copy whole blocks between the device and the host."""
        source, into = (self.host, self.device) if is_load else (self.device, self.host)
        for a, b in zip(job.src_spec.block_ids, job.dst_spec.block_ids, strict=True):
            into[int(b)] = list(source.get(int(a), [None] * SIZE))


A = [1, 2, 2, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 2, 1, 1]
B = [1, 2, 1, 1, 1]


def second_reset() -> str:
    """What a second reset does that comes before the next step."""
    server = Server()
    server.submit("A", A, 3)
    server.step()
    server.scheduler.reset_prefix_cache(reset_connector=True)
    try:
        server.scheduler.reset_prefix_cache(reset_connector=True)
    except AssertionError:
        return "raises AssertionError"
    return "returns"


def main() -> int:
    """Print what C reads without and with a reset, and what two resets do."""
    init_none_hash(sha256)
    wanted, plain = window_of_c(reset=False)
    _, after = window_of_c(reset=True)
    twice = second_reset()
    print(f"vLLM {vllm.__version__}: the KV that stands in C's window, told by its tokens")
    print(f"  wanted                {wanted}")
    print(f"  no reset              {plain}")
    print(f"  a reset while served  {after}")
    print(f"a second reset before the next step {twice}")
    print("expected: three equal lines, and that it returns")
    is_wrong = plain != wanted or after != wanted or twice != "returns"
    print(f"happens:  {'C reads KV of B' if after != wanted else 'equal lines'}; it {twice}")
    return int(is_wrong)


def window_of_c(*, reset: bool) -> tuple[list, list]:
    """The tokens whose KV C needs at positions 6 and 7 (its window), and those that stand there."""
    server = Server()
    server.submit("A", A, 3)
    server.step()
    server.submit("B", B, 2)  # is given blocks that A's window has left
    server.step()
    if reset:  # as POST /reset_prefix_cache?reset_external=true does, while A and B are served
        server.scheduler.reset_prefix_cache(reset_connector=True)
    while server.scheduler.has_requests():
        server.step()
    server.submit("D", [3] * 22, 1)  # takes all blocks, so that the device forgets A
    while server.scheduler.has_requests():
        server.step()
    server.submit("C", A[:12], 1)
    while "C" not in server.step():
        table = server.scheduler.kv_cache_manager.get_block_ids("C")[1]
        found = [server.device.get(table[p // SIZE], [None] * SIZE)[p % SIZE] for p in (6, 7)]
    return [tuple(A[: p + 1]) for p in (6, 7)], found


if __name__ == "__main__":
    sys.exit(main())
