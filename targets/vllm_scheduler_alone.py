"""vLLM's scheduler with the methods of an engine, in lines that a written test takes as they are.

`vllm_engine_reproducer.py` copies everything from the first class on and puts the trace's own
values for the constants. It is `vllm_engine.py` and `vllm_engine_parts.py` said once more, without
what they take from Poolproof; what is read of vLLM is explained there.
"""

from __future__ import annotations

from typing import Any

__all__ = ["SchedulerAlone", "new_engine"]

NUM_BLOCKS = 8
BLOCK_SIZE = 4
ENABLE_CACHING = True
IS_ASYNC = False
TAKES_DRAFTS = False
LONGEST_REQUEST = 28
ARGUMENTS: dict[str, Any] = {}
ATTENTION: list[tuple[str, int]] = [("full", 0)]


class SchedulerAlone:
    """A scheduler, and the block tables as its workers are told of them."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.tables: dict[str, list[list[int]]] = {}
        self.steps: list[Any] = []

    def submit(
        self,
        number: int,
        tokens: list[int],
        *,
        max_new_tokens: int,
        priority: int = 0,
        extra_keys: Any = None,
    ) -> None:
        """A request comes."""
        from vllm import SamplingParams
        from vllm.lora.request import LoRARequest
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher
        from vllm.v1.request import Request as VllmRequest

        keys = {kind: value for kind, value, *_ in extra_keys or ()}
        adapter = None
        if "lora" in keys:
            name, path = keys["lora"]
            adapter = LoRARequest(lora_name=name, lora_int_id=1 + len(name), lora_path=path)
        self.scheduler.add_request(
            VllmRequest(
                request_id=str(number),
                prompt_token_ids=tokens,
                sampling_params=SamplingParams(
                    max_tokens=max_new_tokens, stop_token_ids=[0], ignore_eos=True
                ),
                pooling_params=None,
                arrival_time=float(number),
                lora_request=adapter,
                cache_salt=keys.get("salt"),
                priority=priority,
                block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
            )
        )

    def cancel(self, number: int) -> None:
        """Its user has gone."""
        from vllm.v1.request import RequestStatus

        self.scheduler.finish_requests(str(number), RequestStatus.FINISHED_ABORTED)

    def reset(self) -> None:
        """Forget the prefix cache, if nobody uses it."""
        self.scheduler.reset_prefix_cache()

    def plan(self) -> dict[str, Any]:
        """The next step, as its worker is told of it."""
        told = self.scheduler.schedule()
        self.steps.append(told)
        for request_id in (*told.finished_req_ids, *(told.preempted_req_ids or ())):
            self.tables.pop(request_id, None)
        parts = []
        for new in told.scheduled_new_reqs:
            self.tables[new.req_id] = [list(table) for table in new.block_ids]
            parts.append(self.part(told, new.req_id, new.num_computed_tokens))
        known = told.scheduled_cached_reqs
        for request_id, first, added in zip(
            known.req_ids, known.num_computed_tokens, known.new_block_ids
        ):
            if request_id in known.resumed_req_ids or request_id not in self.tables:
                self.tables[request_id] = [list(table) for table in added or ()]
            elif added is not None:
                for table, more in zip(self.tables[request_id], added):
                    table.extend(more or ())
            parts.append(self.part(told, request_id, first))
        return {
            "compute": parts,
            "preempted": [int(request_id) for request_id in told.preempted_req_ids or ()],
            "copies": [
                (copy.src_block_id, copy.dst_block_id) for copy in told.kv_cache_block_copies or ()
            ],
        }

    def part(self, told: Any, request_id: str, first: int) -> dict[str, Any]:
        """What a step computes of one request."""
        return {
            "request": int(request_id),
            "first": first,
            "count": told.num_scheduled_tokens[request_id],
            "drafts": len(told.scheduled_spec_decode_tokens.get(request_id, ())),
            "blocks": [list(table) for table in self.tables[request_id]],
        }

    def answer(
        self, tokens: dict[int, list[int]], drafts: dict[int, list[int]]
    ) -> list[tuple[int, list[int], bool]]:
        """What the worker has sampled in the oldest step; what users are given."""
        from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput

        told = self.steps.pop(0)
        ids = list(told.num_scheduled_tokens)
        output = ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={request_id: place for place, request_id in enumerate(ids)},
            sampled_token_ids=[tokens.get(int(request_id), []) for request_id in ids],
        )
        given = self.scheduler.update_from_output(told, output)
        if TAKES_DRAFTS and ids:
            tried = [drafts.get(int(request_id), []) for request_id in ids]
            self.scheduler.update_draft_token_ids(DraftTokenIds(ids, tried))
        return [
            (int(one.request_id), one.new_token_ids, one.finish_reason is not None)
            for outputs in given.values()
            for one in outputs.outputs
        ]

    def num_free(self) -> int:
        """How many blocks nobody holds."""
        count: int = self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        return count

    def unfinished(self) -> list[int]:
        """The requests that the scheduler still has."""
        return [int(request_id) for request_id in self.scheduler.requests]


def new_engine() -> SchedulerAlone:
    """A scheduler as a server builds it, without a model, a worker or a GPU."""
    import json
    import tempfile
    from pathlib import Path

    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import init_none_hash
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import (
        ChunkedLocalAttentionSpec,
        FullAttentionSpec,
        KVCacheConfig,
        KVCacheGroupSpec,
        SlidingWindowSpec,
    )
    from vllm.v1.structured_output import StructuredOutputManager

    model = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
        "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1,
        "num_key_value_heads": 1, "head_dim": 64, "vocab_size": 64, "bos_token_id": 1,
        "eos_token_id": 2, "max_position_embeddings": 65536,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(model))
        config = EngineArgs(
            model=folder, skip_tokenizer_init=True, enforce_eager=True, dtype="float32",
            block_size=BLOCK_SIZE, max_model_len=65536, **ARGUMENTS,
        ).create_engine_config()  # fmt: skip
    config.scheduler_config.async_scheduling = IS_ASYNC
    config.cache_config.num_gpu_blocks = NUM_BLOCKS
    config.cache_config.enable_prefix_caching = ENABLE_CACHING
    config.model_config.max_model_len = LONGEST_REQUEST
    init_none_hash(sha256)
    size = {
        "block_size": BLOCK_SIZE, "num_kv_heads": 1, "head_size": 64,
        "dtype": config.model_config.dtype,
    }  # fmt: skip
    specs: dict[str, Any] = {
        "full": lambda _: FullAttentionSpec(**size),
        "sliding": lambda window: SlidingWindowSpec(**size, sliding_window=window),
        "chunked": lambda window: ChunkedLocalAttentionSpec(**size, attention_chunk_size=window),
    }
    groups = [
        KVCacheGroupSpec([f"layer.{number}"], specs[kind](window))
        for number, (kind, window) in enumerate(ATTENTION)
    ]
    return SchedulerAlone(
        (AsyncScheduler if IS_ASYNC else Scheduler)(
            vllm_config=config,
            kv_cache_config=KVCacheConfig(
                num_blocks=NUM_BLOCKS, kv_cache_tensors=[], kv_cache_groups=groups
            ),
            structured_output_manager=StructuredOutputManager(config),
            block_size=BLOCK_SIZE,
            hash_block_size=BLOCK_SIZE,
        )
    )
