"""Beside another connector vLLM's OffloadingConnector stores blocks that were overwritten.

Usage: python reproduce.py   (in an environment with vLLM for the CPU; no model, no device)

It drives vLLM's own `Scheduler` with its own `MultiConnector` over a connector that loads from
elsewhere (`Remote`, below) and `OffloadingConnector`. The worker is played by hand: blocks hold the
tokens whose KV stands in them, and a store that nobody flushes is moved one step late, since
`OffloadingConnectorWorker` submits it then.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

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
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingWorkerMetadata
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import (
    OffloadingConnectorScheduler,
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
NUM_BLOCKS = 4
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
A = [1, 2, 2, 1, 1, 1, 2, 2, 1]
B = [3, 3, 3, 3, 3, 3, 3, 3, 3]


@dataclass
class RemoteMetadata(KVConnectorMetadata):
    """Which blocks of which request are loaded."""

    loads: dict[str, list[int]] = field(default_factory=dict)


class Remote(KVConnectorBase_V1, SupportsHMA):
    """Has the first 8 tokens of every prompt that begins with 3, and brings them asynchronously."""

    def __init__(self, vllm_config, role, kv_cache_config) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self._next = RemoteMetadata()

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        has = request.prompt_token_ids[0] == 3 and num_computed_tokens == 0
        return (8, True) if has else (0, False)

    def update_state_after_alloc(self, request, blocks, num_external_tokens) -> None:
        if num_external_tokens:
            self._next.loads[request.request_id] = blocks.get_block_ids()[0][:2]

    def build_connector_meta(self, _scheduler_output):
        metadata, self._next = self._next, RemoteMetadata()
        return metadata

    def request_finished_all_groups(self, _request, _block_ids):
        return False, None

    def start_load_kv(self, forward_context, **kwargs) -> None: ...
    def wait_for_layer_load(self, layer_name) -> None: ...
    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs) -> None: ...
    def wait_for_save(self) -> None: ...


def make_scheduler() -> Scheduler:
    """A scheduler as a server has it, for 3 usable blocks of 4 tokens."""
    remote = {"kv_connector": "Remote", "kv_connector_module_path": "reproduce"}
    offloading = {
        "kv_connector": "OffloadingConnector",
        "kv_connector_extra_config": {"cpu_bytes_to_use": HOST_BLOCKS * mmap.PAGESIZE},
    }
    parts = [{"kv_role": "kv_both", **part} for part in (remote, offloading)]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
        config = EngineArgs(
            model=folder,
            skip_tokenizer_init=True,
            enforce_eager=True,
            dtype="float32",
            block_size=SIZE,
            max_model_len=12,
            max_num_seqs=4,
            max_num_batched_tokens=12,
            enable_prefix_caching=True,
            kv_transfer_config=KVTransferConfig(
                kv_connector="MultiConnector",
                kv_role="kv_both",
                kv_connector_extra_config={"connectors": parts},
            ),
        ).create_engine_config()
    config.scheduler_config.async_scheduling = False
    config.cache_config.num_gpu_blocks = NUM_BLOCKS
    spec = FullAttentionSpec(block_size=SIZE, num_kv_heads=1, head_size=64, dtype=torch.float32)
    page = spec.page_size_bytes
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


class Server:
    """The scheduler, and what stands in the blocks of the device and of the host."""

    def __init__(self) -> None:
        self.scheduler = make_scheduler()
        self.device: dict[int, list] = {}
        self.host: dict[int, list] = {}
        self.late: dict = {}  # stores that were named in the step before
        self.remote: set[str] = set()
        self.done: dict = {}

    def submit(self, name: str, tokens: list[int]) -> None:
        """A request for one token."""
        self.scheduler.add_request(
            Request(
                request_id=name,
                prompt_token_ids=tokens,
                sampling_params=SamplingParams(max_tokens=1, ignore_eos=True),
                pooling_params=None,
                block_hasher=get_request_block_hasher(SIZE, sha256),
            )
        )

    def step(self) -> list[str]:
        """Plan a step and compute it. Returns who computed something."""
        output = self.scheduler.schedule()
        remote, jobs = output.kv_connector_metadata.metadata
        ended, loaded = self.done, set(self.remote)
        for number in sorted(jobs.jobs_to_flush & self.late.keys()):
            self.move(self.late[number])  # the worker waits for these before anything else
        self.remote = set(remote.loads)
        for blocks in remote.loads.values():
            for place, block in enumerate(blocks):
                ends = range(place * SIZE + 1, (place + 1) * SIZE + 1)
                self.device[block] = [tuple(B[:end]) for end in ends]
        for number, job in self.late.items():
            if number not in jobs.jobs_to_flush:
                self.move(job)
        for name, count in output.num_scheduled_tokens.items():
            request = self.scheduler.requests[name]
            end = request.num_computed_tokens
            (table,) = self.scheduler.kv_cache_manager.get_block_ids(name)
            for position in range(end - count, end):
                block = self.device.setdefault(table[position // SIZE], [None] * SIZE)
                block[position % SIZE] = tuple(request.all_token_ids[: position + 1])
        for job in jobs.load_jobs.values():
            self.move(job, is_load=True)
        self.done = {**self.late, **jobs.load_jobs}
        self.late = dict(jobs.store_jobs)
        names = list(output.num_scheduled_tokens)
        loaded |= {job.req_id for job in ended.values() if hasattr(job.dst_spec, "group_sizes")}
        completed = OffloadingWorkerMetadata(completed_jobs=dict.fromkeys(ended, 1))
        self.scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                req_ids=names,
                req_id_to_index={name: place for place, name in enumerate(names)},
                sampled_token_ids=[[1] for _ in names],
                kv_connector_output=KVConnectorOutput(
                    finished_recving=loaded or None,
                    kv_connector_worker_meta=MultiKVConnectorWorkerMetadata(
                        metadata=(None, completed)
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


def read_by_c(*, other: list[int]) -> list:
    """What stands at C's positions 3 and 7 when it is computed; C sends A's prompt again."""
    server = Server()
    server.submit("A", A)
    server.step()  # A ends, and its blocks are to be stored
    server.submit("B", other)  # is given A's blocks
    while server.scheduler.requests:
        server.step()
    server.submit("D", [4] * 11)  # takes all blocks, so that the device forgets A
    while server.scheduler.requests:
        server.step()
    server.submit("C", A)
    while "C" not in server.step():
        (table,) = server.scheduler.kv_cache_manager.get_block_ids("C")
        found = [server.device.get(table[p // SIZE], [None] * SIZE)[p % SIZE] for p in (3, 7)]
    return found


def mend() -> None:
    """Tell OffloadingConnector of blocks that others load into, as vllm#47046 does."""
    alone = OffloadingConnectorScheduler.update_state_after_alloc

    def told(self, request, blocks, num_external_tokens) -> None:
        given = (block.block_id for group in blocks.blocks for block in group)
        self._current_batch_allocated_block_ids.update(block for block in given if block)
        alone(self, request, blocks, num_external_tokens)

    OffloadingConnectorScheduler.update_state_after_alloc = told


def main() -> int:
    """Print what C reads where nobody, and where another connector, loads into A's blocks."""
    init_none_hash(sha256)
    wanted = [tuple(A[: p + 1]) for p in (3, 7)]
    computed = read_by_c(other=[5] * 9)
    loaded = read_by_c(other=B)
    mend()
    mended = read_by_c(other=B)
    print(f"vLLM {vllm.__version__}: the KV that C reads, told by its tokens")
    print(f"  wanted                              {wanted}")
    print(f"  B computes into A's blocks          {computed}")
    print(f"  the other connector loads into them {loaded}")
    print(f"  the same, OffloadingConnector told  {mended}")
    print("expected: four equal lines")
    print(f"happens:  {'C reads KV of B' if loaded != wanted else 'equal lines'}")
    return int({tuple(computed), tuple(loaded), tuple(mended)} != {tuple(wanted)})


if __name__ == "__main__":
    sys.exit(main())
