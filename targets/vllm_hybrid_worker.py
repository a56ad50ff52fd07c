"""The worker of a vLLM with recurrent layers: its own bookkeeping, run on a CPU without a model.

`GPUModelRunner` decides which state a request starts from, and copies states between blocks when
it knows what was accepted. A real runner is built (vLLM's own class for CPUs, with its
`InputBatch` and block tables), and for each step its own methods are called in the order of
`execute_model` and `sample_tokens`: `_update_states`, `_prepare_inputs`, the deferred corrections,
`preprocess_mamba`, `stage_postprocess_inputs_to_gpu`, the attention backend's metadata builder,
`_update_states_after_model_execute`, `_bookkeeping_sync`. Only the forward pass and the sampler are
missing: what they read and write follows from the metadata (`vllm_hybrid_rows.py`), and which
tokens were accepted is told. Three kernels that copy run as their own source
(`scalar_triton.py`); each copy is noted by block.

Written after vLLM 0.32, and fits releases from 0.26 on; the drafters' own bookkeeping under
asynchronous scheduling (`prepare_next_token_ids_padded`, `_copy_valid_sampled_token_count`) is
followed by hand, because it asks for CUDA's streams.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from poolproof.contract.adapter_fault import HandedFields
from poolproof.contract.state_use import StateUse
from poolproof.targets.installed_vllm import engine_module, part_of
from poolproof.targets.vllm_hybrid_rows import HybridRow, rows_of
from poolproof.targets.vllm_hybrid_states import (
    CopiedStates,
    Copies,
    copy_by_source,
    uses_by_request,
)
from poolproof.targets.vllm_left_out import (
    HandedModel,
    alone,
    copy_functions,
    leave_out_builder,
    leave_out_convolutions,
    nothing,
    same,
)

__all__ = ["HybridWorker", "drafts_decide", "prepare_workers"]

_NO_TOKEN = -1
_ANY_TOKEN = 1


def prepare_workers() -> None:
    """Make vLLM's worker code run here: kernels as their source, one rank, nothing compiled.

    Raises TargetError where a part is missing. Meant for a process that drives nothing else.
    """
    # A state is one number, which threads only wait for.
    part_of(engine_module("torch"), "set_num_threads")(1)
    copy_by_source()
    runner = engine_module("vllm.v1.worker.gpu_model_runner")
    runner.get_pp_group = partial(same, alone())
    leave_out_convolutions()
    corrected = part_of(runner, "update_num_computed_tokens_for_batch_change")
    runner.update_num_computed_tokens_for_batch_change = getattr(
        corrected, "_torchdynamo_orig_callable", corrected
    )


def _built(runner_class: Any, config: Any, torch: Any) -> Any:
    """A runner; of CUDA's events, which have to be there for asynchronous scheduling, none."""
    event = torch.cuda.Event
    torch.cuda.Event = nothing
    try:
        return runner_class(config, torch.device("cpu"))
    finally:
        torch.cuda.Event = event


def drafts_decide(execute_model: Any) -> bool:
    """Whether a step in which nobody drafts counts as a step without a drafter, as up to 0.31.

    That is one line of `execute_model`, which we do not run. It is read off the code and not off
    the version, because a patch may change it.
    """
    reads: list[Any] = []
    for one in dis.get_instructions(inspect.unwrap(execute_model)):
        # From CPython 3.13 on an instruction may name two variables.
        names = one.argval if isinstance(one.argval, tuple) else (one.argval,)
        if one.opname.startswith("STORE_FAST") and "use_spec_decode" in names:
            return "scheduled_spec_decode_tokens" in reads
        reads = [] if one.opname.startswith("STORE") else [*reads, one.argval]
    return False


def _leave_out(runner: Any) -> None:
    """What says nothing about states: slots of attention, logits, token ids, temperatures, copies.

    On a CPU both sides of a buffer are one tensor already.
    """
    batch = runner.input_batch
    part_of(batch, "_make_sampling_metadata")
    batch._make_sampling_metadata = partial(same, batch.sampling_metadata)
    runner.input_batch.block_table.compute_slot_mapping = nothing
    runner._prepare_input_ids = nothing
    runner._calc_spec_decode_metadata = _no_logits
    tables = (vars(table) for table in runner.input_batch.block_table.block_tables)
    for named in (vars(runner), vars(runner.input_batch), *tables):
        for buffer in named.values():
            if hasattr(buffer, "copy_to_gpu") and buffer.gpu is buffer.cpu:
                buffer.copy_to_gpu = partial(_first, buffer.gpu)


def _first(tensor: Any, count: int | None = None) -> Any:
    return tensor if count is None else tensor[:count]


def _no_logits(num_drafts: Any, _ends: Any) -> SimpleNamespace:
    return HandedFields(logits_indices=num_drafts)


class HybridWorker:
    """A runner with states of one layer for each recurrent group of `kv_cache_config`.

    `config` is vLLM's whole configuration, `kv_cache_config` the scheduler's. Under asynchronous
    scheduling the counts of accepted tokens reach the host when the next step waits for them, or,
    where the host lags behind the device, before it prepares that step at all.
    """

    def __init__(
        self, config: Any, kv_cache_config: Any, backend: Any, *, host_lags: bool = False
    ) -> None:
        torch = engine_module("torch")
        module = engine_module("vllm.v1.worker.cpu_model_runner")
        self.runner = _built(part_of(module, "CPUModelRunner"), config, torch)
        self._torch, self._int32 = torch, torch.int32
        self._numpy = engine_module("numpy")
        self._utilities = engine_module("vllm.v1.worker.mamba_utils")
        self._num_drafts = self.runner.num_spec_tokens
        self._is_align = config.cache_config.mamba_cache_mode == "align"
        self._is_async = self.runner.use_async_scheduling
        self._drafts_decide = drafts_decide(type(self.runner).execute_model)
        takes = inspect.signature(self._utilities.preprocess_mamba).parameters
        self._precopies = "align_ctx" in takes
        self.memory = CopiedStates(kv_cache_config, self._num_drafts)
        self._groups = self.memory.groups
        self._attach(config, kv_cache_config, backend)
        self._lands_late = self._is_async and bool(self._num_drafts) and not host_lags
        self._landing: Any = None
        if self._lands_late:
            self.runner.num_accepted_tokens_event = HandedFields(
                record=nothing, synchronize=self._land
            )

    def _attach(self, config: Any, kv_cache_config: Any, backend: Any) -> None:
        """What `initialize_kv_cache` does with a model's layers."""
        runner = self.runner
        group_class = part_of(engine_module("vllm.v1.worker.utils"), "AttentionGroup")
        functions = copy_functions()
        runner.kv_cache_config = kv_cache_config
        runner.attn_groups = [[] for _ in kv_cache_config.kv_cache_groups]
        layers: dict[str, Any] = {}
        for number in self._groups:
            group = kv_cache_config.kv_cache_groups[number]
            attention = group_class(backend, group.layer_names, group.kv_cache_spec, number)
            attention.create_metadata_builders(config, runner.device)
            builder = attention.get_metadata_builder()
            leave_out_builder(builder)
            runner.attn_groups[number] = [attention]
            layers.update(
                (name, HandedFields(kv_cache=list(self.memory.states[number])))
                for name in group.layer_names
            )
        runner.calculate_reorder_batch_threshold()
        self._fit_batch(kv_cache_config)
        runner._postprocess_tensors()
        _leave_out(runner)
        runner.compilation_config = HandedFields(static_forward_context=layers)
        runner.model = HandedModel(
            get_mamba_state_copy_funcs=lambda types: dict.fromkeys(types, functions),
            get_mamba_state_copy_func=lambda: functions,
        )

    def _fit_batch(self, kv_cache_config: Any) -> None:
        """A batch for the groups; up to 0.31 it is told the kernels' block sizes as well."""
        fit = self.runner.may_reinitialize_input_batch
        sizes = [group.kv_cache_spec.block_size for group in kv_cache_config.kv_cache_groups]
        wanted = inspect.signature(fit).parameters
        fit(kv_cache_config, *([sizes] if "kernel_block_sizes" in wanted else []))

    def step(self, scheduled: Any, accepted: Mapping[str, int]) -> dict[str, list[StateUse]]:
        """Carry out one step; what it did with states, by request, in the order of the batch.

        `accepted` are the tokens that each request has got, the drafts that were right and one
        more; of a request that got none a model samples all the same, and the runner throws it
        away. What vLLM's code raises passes through.
        """
        with self._torch.inference_mode():
            return self._step(scheduled, accepted)

    def _step(self, scheduled: Any, accepted: Mapping[str, int]) -> dict[str, list[StateUse]]:
        runner = self.runner
        corrections = runner._update_states(scheduled)
        if not scheduled.total_num_scheduled_tokens:
            # The next step is planned with the answer to the last one, which the counts precede.
            self._land()
            return {}
        ids = list(runner.input_batch.req_ids)
        counts = [scheduled.num_scheduled_tokens[name] for name in ids]
        runner._prepare_inputs(scheduled, self._numpy.array(counts, dtype="int32"))
        if self._is_align:
            self._preprocess(scheduled, corrections)
            corrections = None
        before = self.memory.copies()
        firsts = runner.num_computed_tokens[: len(ids)].tolist()
        rows = self._rows(scheduled, counts)
        if corrections is not None:
            corrections()
        owners = {
            (group, block): name
            for name in reversed(ids)
            for group in self._groups
            for block in runner.requests[name].block_ids[group]
        }
        after = self._finish(scheduled, [max(1, accepted.get(name, 0)) for name in ids])
        return uses_by_request(ids, firsts, rows, owners, (before, after))

    def _preprocess(self, scheduled: Any, corrections: Any) -> None:
        """`execute_model` in align mode."""
        runner, utilities = self.runner, self._utilities
        if corrections is not None:
            corrections()
        buffers = runner._get_mamba_bufs()
        # Up to 0.26 the host makes these copies, one after the other.
        fused = {"align_ctx": buffers.postprocess_align} if self._precopies else {}
        utilities.preprocess_mamba(
            scheduled,
            runner.kv_cache_config,
            runner.cache_config,
            runner.mamba_state_idx,
            runner.input_batch,
            runner.requests,
            runner.compilation_config.static_forward_context,
            self._copy_functions(),
            buffers.preprocess,
            **fused,
        )
        count = runner.input_batch.num_reqs
        runner.num_accepted_tokens.np[:count] = runner.input_batch.num_accepted_tokens_cpu[:count]
        runner.num_accepted_tokens.copy_to_gpu(count)
        if buffers.postprocess_align is not None:
            utilities.stage_postprocess_inputs_to_gpu(
                buffers.postprocess_align,
                scheduled,
                runner.input_batch.req_ids,
                count,
                runner.requests,
                runner.mamba_state_idx,
            )

    def _copy_functions(self) -> Any:
        """What the runner hands over: by kind of layer, up to 0.28 those of the only kind."""
        if hasattr(self.runner, "_get_mamba_state_copy_funcs"):
            return self.runner._get_mamba_state_copy_funcs()
        return self.runner.model.get_mamba_state_copy_func()

    def _rows(self, scheduled: Any, counts: Sequence[int]) -> dict[int, list[HybridRow]]:
        """By group what its layers read and write, for each request of the batch."""
        runner = self.runner
        metadata, _ = runner._build_attention_metadata(
            num_tokens=sum(counts),
            num_reqs=len(counts),
            max_query_len=max(counts),
            use_spec_decode=bool(scheduled.scheduled_spec_decode_tokens)
            if self._drafts_decide
            else runner.speculative_config is not None,
            num_scheduled_tokens=scheduled.num_scheduled_tokens,
            slot_mappings=dict.fromkeys(range(len(runner.attn_groups))),
        )
        names = [group.layer_names[0] for group in runner.kv_cache_config.kv_cache_groups]
        return {number: rows_of(metadata[names[number]], counts) for number in self._groups}

    def _finish(self, scheduled: Any, accepted: Sequence[int]) -> Copies:
        """`sample_tokens`, where each request has got so many tokens."""
        runner = self.runner
        sampled = self._torch.full((len(accepted), max(accepted)), _NO_TOKEN, dtype=self._int32)
        for row, number in enumerate(accepted):
            sampled[row, :number] = _ANY_TOKEN
        counts = runner.input_batch.num_accepted_tokens_cpu_tensor
        known = counts.clone()
        runner._update_states_after_model_execute(sampled, scheduled)
        if self._lands_late:
            self._landing = counts[: len(accepted)].clone()
            counts.copy_(known)
        copies = self.memory.copies()
        runner._draft_token_ids = None
        runner.valid_sampled_token_count_gpu = None
        runner.input_batch.prev_sampled_token_ids = None
        if self._is_async and self._num_drafts:
            self._note_counts(sampled)
        output = HandedFields(sampled_token_ids=sampled, logprobs_tensors=None)
        runner._bookkeeping_sync(scheduled, output, None, sampled, 0)
        return copies

    def _land(self) -> None:
        """What was accepted reaches the host: no sooner than it is waited for."""
        if self._landing is not None:
            counts = self.runner.input_batch.num_accepted_tokens_cpu_tensor
            counts[: len(self._landing)].copy_(self._landing)
            self._landing = None

    def _note_counts(self, sampled: Any) -> None:
        """What a drafter on the device keeps; a row that is discarded counts 0."""
        runner = self.runner
        counts = (sampled != _NO_TOKEN).sum(dim=1).to(self._int32)
        counts[runner.discard_request_mask.gpu[: len(counts)]] = 0
        runner.valid_sampled_token_count_cpu[: len(counts)].copy_(counts)
        runner.valid_sampled_token_count_gpu = counts
        runner.input_batch.prev_sampled_token_ids = self._torch.full(
            (len(counts), 1), _ANY_TOKEN, dtype=self._int32
        )
        runner._draft_token_ids = self._torch.full(
            (len(counts), self._num_drafts), _ANY_TOKEN, dtype=self._int32
        )
