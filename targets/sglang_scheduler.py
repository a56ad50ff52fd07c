"""Builds SGLang's `Scheduler` with its pools and its tree, without a model and without its server.

Its constructor starts a model, so its attributes are set one by one, to what a server of one rank
has without LoRA, images, grammars, speculation, disaggregation, host memory or sessions. States
hold two numbers, of one layer, and KV none.
"""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

from poolproof.contract.adapter_fault import HandedOver
from poolproof.targets.engine_sources import BlankModule
from poolproof.targets.sglang_engine_setups import CHUNK_SIZE, TRACK_INTERVAL, SglangSetup
from poolproof.targets.sglang_server import SglangServer
from poolproof.targets.sglang_states import recorded_pool

__all__ = [
    "VOCABULARY",
    "ServerParts",
    "build_allocator",
    "build_request_pool",
    "build_scheduler",
    "build_tree",
    "configuration",
    "ranks",
]

VOCABULARY = 1 << 62
"""More than any name of a token; a server ends a request that samples one beyond."""


class ServerParts(SimpleNamespace, HandedOver):
    """What the scheduler asks of its server; what is missing is our fault and no finding."""


def configuration(setup: SglangSetup, *, enable_caching: bool) -> tuple[dict[str, Any], Any]:
    """What is published by namespace, and what stands for the server's arguments."""
    tracks = setup.tracks and enable_caching
    nothing = BlankModule("configuration")
    mamba = ServerParts(
        enable_mamba_extra_buffer=tracks,
        enable_mamba_extra_buffer_lazy=tracks and setup.is_lazy,
        mamba_max_states_per_path=setup.max_states_per_path,
        mamba_track_interval=TRACK_INTERVAL,
        enable_int8_mamba_checkpoint=False,
    )
    features = ServerParts(
        enable_encoder_swa_bounded_replay=False,
        enable_return_hidden_states=False,
        return_hidden_states_mode=None,
    )
    kernel = ServerParts(
        attention_backend="torch_native",
        decode_attention_backend=None,
        prefill_attention_backend=None,
    )
    bags = {
        "exec": ServerParts(mamba=mamba, features=features, kernel=kernel),
        "schedule": ServerParts(
            page_size=setup.page_size,
            schedule_policy="fcfs",
            prefill_max_requests=None,
            retraction_policy="",
            schedule_low_priority_values_first=False,
            schedule_conservativeness=1.0,
            chunked_prefill_size=setup.max_batch_tokens,
        ),
        "memory": ServerParts(
            enable_hisparse=False,
            enable_hierarchical_cache=False,
            enable_flexkv=False,
            radix_eviction_policy="lru",
        ),
        "spec": ServerParts(
            speculative_algorithm=None,
            speculative_num_draft_tokens=None,
            max_speculative_num_draft_tokens=None,
        ),
        "serving": ServerParts(strip_thinking_cache=False, weight_version=""),
        "disagg": ServerParts(
            disaggregation_mode="null", disaggregation_decode_enable_offload_kvcache=False
        ),
        "observability": ServerParts(enable_metrics=False),
        "lora": nothing,
        "mm": nothing,
        "model": nothing,
    }
    return bags, ServerParts(_mamba_cache_chunk_size=setup.cache_chunk_size)


def ranks(server: SglangServer, setup: SglangSetup) -> Any:
    """One rank, in the engine's own kind of bag."""
    bag = server.runtime_context._ConfigBag("parallel")  # noqa: SLF001 - no accessor without a whole configuration
    ones = dict.fromkeys(("attn_dcp_size", "attn_dp_size", "dcp_size", "pp_size", "tp_size"), 1)
    values = {**ones, "dcp_enabled": False, "pp_max_micro_batch_size": setup.max_running}
    for name, value in values.items():
        bag._set(name, value)  # noqa: SLF001 - the same
    return bag


def build_request_pool(
    server: SglangServer, setup: SglangSetup, num_pages: int, *, enable_caching: bool
) -> Any:
    """Rows of requests, and beside them slots of states that hold two numbers each."""
    context_len = num_pages * setup.page_size
    if not setup.has_states:
        return server.cache.ReqToTokenPool(setup.max_running, context_len, "cpu", False)
    tracks = setup.tracks and enable_caching
    base = server.memory_pool.HybridReqToTokenPool
    methods = {"mamba_pool_cls": recorded_pool(server.memory_pool.MambaPool)}
    torch = server.memory_pool.torch
    shape = ServerParts(conv=[(1, 1)], temporal=(1, 1, 1))
    dtype = ServerParts(conv=torch.float32, temporal=torch.float32)
    return type("RecordedRequestPool", (base,), methods)(
        size=setup.max_running,
        mamba_size=setup.num_slots,
        mamba_spec_state_size=0,
        max_context_len=context_len,
        device="cpu",
        enable_memory_saver=False,
        cache_params=ServerParts(shape=shape, dtype=dtype, layers=[0], is_kda=False),
        mamba_layer_ids=[0],
        enable_mamba_extra_buffer=tracks,
        enable_mamba_extra_buffer_lazy=tracks and setup.is_lazy,
        enable_overlap_schedule=setup.overlaps,
    )


def build_allocator(server: SglangServer, setup: SglangSetup, num_pages: int) -> Any:
    """No KV is stored, so there is neither a number type nor a tensor for it."""
    num_slots, size = num_pages * setup.page_size, setup.page_size
    if size == 1:
        return server.cache.TokenToKVPoolAllocator(num_slots, None, "cpu", None, False)
    return server.cache.PagedTokenToKVPoolAllocator(num_slots, size, None, "cpu", None, False)


def build_tree(
    server: SglangServer, setup: SglangSetup, pool: Any, allocator: Any, *, enable_caching: bool
) -> Any:
    """The unified tree, of pages and, where there are states, of these."""
    tracks = setup.tracks and enable_caching
    components = server.unified_radix_cache.ComponentType
    kinds = (components.FULL, *((components.MAMBA,) if setup.has_states else ()))
    return server.unified_radix_cache.UnifiedRadixCache(
        server.cache.CacheInitParams(
            disable=not enable_caching,
            req_to_token_pool=pool,
            token_to_kv_pool_allocator=allocator,
            page_size=setup.page_size,
            eviction_policy="lru",
            enable_mamba_extra_buffer=tracks,
            enable_mamba_extra_buffer_lazy=tracks and setup.is_lazy,
            chunked_prefill_size=setup.max_batch_tokens,
            tree_core_backend="python",
            tree_components=kinds,
        )
    )


def build_scheduler(server: SglangServer, setup: SglangSetup, tree: Any, stream: Any) -> Any:
    """A `Scheduler` with the attributes that its constructor would set."""
    kind = server.scheduler.Scheduler
    scheduler = kind.__new__(kind)
    nothing = BlankModule("scheduler")
    pool, allocator = tree.req_to_token_pool, tree.token_to_kv_pool_allocator
    no_draft = ServerParts(is_none=lambda: True)
    model = ServerParts(
        hf_text_config=ServerParts(mamba_chunk_size=CHUNK_SIZE),
        is_encoder_decoder=False,
        self_opened_think_start_ids=None,
        vocab_size=VOCABULARY,
    )
    beams = ServerParts(pending_member_rows=_zero, commit_decode=_no_groups, retire_group=_ignored)
    modes = server.disaggregation.DisaggregationMode
    vars(scheduler).update(
        _off(nothing),
        beam_coordinator=beams,
        chunked_prefill_size=setup.max_batch_tokens,
        disaggregation_mode=modes.NULL,
        enable_overlap=setup.overlaps,
        enable_skip_finishing_decode=setup.overlaps,
        device="cpu",
        dp_attn_adapter=ServerParts(
            maybe_prepare_mlp_sync_batch=_first, maybe_convert_decode_to_extend=_first
        ),
        ipc_channels=ServerParts(send_to_tokenizer=stream),
        is_mixed_chunk=setup.mixes,
        max_prefill_tokens=setup.max_batch_tokens,
        max_req_len=allocator.size - 1,
        max_running_requests=setup.max_running,
        max_total_num_tokens=allocator.size,
        metrics_reporter=_metrics(),
        model_config=model,
        new_token_ratio_tracker=server.ratio.NewTokenRatioTracker.from_config(),
        ngram_embedding_manager=ServerParts(prepare_for_forward=_first),
        page_size=setup.page_size,
        policy=server.schedule_policy.SchedulePolicy("fcfs", tree, False, False, False),
        req_to_token_pool=pool,
        result_queue=deque(),
        running_batch=server.schedule_batch.ScheduleBatch(reqs=[], batch_is_full=False),
        spec_algorithm=no_draft,
        token_to_kv_pool_allocator=allocator,
        tp_worker=ServerParts(model_runner=ServerParts(attn_backend=None, prefill_aware_swa=False)),
        tree_cache=tree,
        waiting_queue=[],
    )
    scheduler.batch_result_processor = _processor(scheduler, server, stream)
    return scheduler


def _processor(scheduler: Any, server: SglangServer, stream: Any) -> Any:
    """What looks at the results of batches; `stream` is given what users get."""
    return server.batch_result_processor.SchedulerBatchResultProcessor(
        is_generation=True,
        disaggregation_mode=scheduler.disaggregation_mode,
        enable_overlap=scheduler.enable_overlap,
        enable_overlap_mlx=False,
        model_config=scheduler.model_config,
        token_to_kv_pool_allocator=scheduler.token_to_kv_pool_allocator,
        tree_cache=scheduler.tree_cache,
        hisparse_coordinator=None,
        req_to_token_pool=scheduler.req_to_token_pool,
        decode_offload_manager=None,
        metrics_collector=BlankModule("metrics"),
        metrics_reporter=scheduler.metrics_reporter,
        draft_worker=None,
        model_worker=None,
        logprob_result_processor=BlankModule("logprobs"),
        output_streamer=stream,
        beam_coordinator=scheduler.beam_coordinator,
        abort_request=scheduler.abort_request,
    )


def _off(nothing: Any) -> dict[str, Any]:
    """What a server of one rank does not use, as its constructor leaves it."""
    none = dict.fromkeys(
        (
            "_pending_chunked_abort_req",
            "chunked_req",
            "decode_offload_manager",
            "dllm_config",
            "dynamic_chunk_sizer",
            "hisparse_coordinator",
            "last_batch",
            "lora_drainer",
            "max_new_tokens_limit",
            "min_free_slots_delayer",
            "mm_receiver",
            "prefill_delayer",
            "rust_server",
            "sliding_window_size",
            "truncation_align_size",
            "max_queued_requests",
        )
    )
    false = dict.fromkeys(
        (
            "enable_continuous_input_polling",
            "enable_fpm",
            "enable_hicache_storage",
            "enable_hierarchical_cache",
            "enable_hisparse",
            "enable_lmcache",
            "enable_lora",
            "enable_priority_preemption",
            "enable_priority_scheduling",
            "enable_unified_cache_external_linker",
            "is_hybrid_swa",
            "require_mlp_sync",
        ),
        False,
    )
    zero = dict.fromkeys(
        (
            "_prefill_decode_interval_remaining",
            "forward_ct",
            "max_prefill_bs",
            "prefill_decode_interval",
            "priority_scheduling_preemption_threshold",
            "processed_tokens_counter",
        ),
        0,
    )
    blank = dict.fromkeys(("grammar_manager", "load_inquirer", "load_publisher"), nothing)
    # Its own methods that only measure, or answer probes.
    measures = dict.fromkeys(
        ("publish_load_snapshot", "_record_step_counters", "maybe_send_health_check_signal"),
        _ignored,
    )
    return {**none, **false, **zero, **blank, **measures, "prefill_decode_interval_min_bs": None}


def _metrics() -> ServerParts:
    return ServerParts(
        _emit_forward_pass_metrics=_ignored,
        enable_metrics=False,
        forward_ct_decode=0,
        log_batch_result_stats=_ignored,
        num_generated_tokens=0,
        num_retracted_reqs=0,
        report_decode_stats=_ignored,
        report_prefill_stats=_ignored,
        update_device_timer=_ignored,
    )


def _ignored(*_arguments: Any, **_named: Any) -> None:
    """Nothing of it decides anything here."""


def _first(given: Any, **_named: Any) -> Any:
    return given


def _zero(*_arguments: Any) -> int:
    return 0


def _no_groups(*_arguments: Any) -> set[int]:
    return set()
