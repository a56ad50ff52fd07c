"""The second runner of a vLLM with recurrent layers (`vllm/v1/worker/gpu`), run on a CPU.

It keeps a slot for each request, and decides on the device which state a request starts from. A
real runner is built (vLLM's own class for CPUs, with its `RequestState`, `BlockTables` and
`MambaHybridModelState`), and each step is its own `execute_model` and `sample_tokens`. Missing are
the forward pass and the sampler: what the layers read and write follows from the metadata
(`vllm_hybrid_rows.py`), and which tokens were accepted is told. Its kernels run as their own
source, those with vectors by `lane_triton.py`.

Written after vLLM 0.32. Left out, because they say nothing about states: token ids, logits, slots
of attention, and what the device reads while the host has gone on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from os import environ
from typing import Any

from poolproof.contract.adapter_fault import HandedFields
from poolproof.contract.state_use import StateUse
from poolproof.targets.installed_vllm import engine_module, part_of
from poolproof.targets.lane_triton import LaneKernel
from poolproof.targets.scalar_triton import ScalarKernel
from poolproof.targets.vllm_hybrid_rows import rows_of
from poolproof.targets.vllm_hybrid_states import CopiedStates, copy_by_source, uses_by_request
from poolproof.targets.vllm_left_out import (
    HandedModel,
    alone,
    copy_functions,
    leave_out_builder,
    leave_out_convolutions,
    nothing,
    same,
)

__all__ = ["SecondWorker", "prepare_second_workers", "second_runner_chosen"]

_CHOICE = "VLLM_USE_V2_MODEL_RUNNER"
_GPU = "vllm.v1.worker.gpu"
_KERNELS = {
    f"{_GPU}.buffer_utils": ("_apply_write_kernel",),
    f"{_GPU}.block_table": ("_gather_block_tables_kernel",),
    f"{_GPU}.input_batch": (
        "_prepare_pos_seq_lens_kernel",
        "_get_num_sampled_and_rejected_kernel",
        "_post_update_kernel",
    ),
    f"{_GPU}.model_states.mamba_hybrid": (
        "preprocess_mamba_align_fused_kernel",
        "_scatter_num_accepted_kernel",
        "_fill_num_accepted_kernel",
    ),
}
"""What is launched in a step of this runner alone, by the module that launches it."""


@contextmanager
def second_runner_chosen() -> Iterator[None]:
    """What vLLM builds meanwhile is for the second runner, as it chooses itself on a GPU.

    VLLM's own check refuses what that runner cannot do. It asks for Triton as well, in whose place
    kernels run as their source.
    """
    config = engine_module("vllm.config.vllm")
    has_triton, before = config.HAS_TRITON, environ.get(_CHOICE)
    config.HAS_TRITON, environ[_CHOICE] = True, "1"
    try:
        yield
    finally:
        config.HAS_TRITON = has_triton
        if before is None:
            del environ[_CHOICE]
        else:
            environ[_CHOICE] = before


def prepare_second_workers() -> None:
    """Make the second runner run here: kernels as their source, one rank, no token ids.

    Raises TargetError where a part is missing. Meant for a process that drives nothing else.
    """
    # A state is one number, which threads only wait for.
    part_of(engine_module("torch"), "set_num_threads")(1)
    # Streams, events and pinned memory, as vLLM itself has them on a CPU.
    engine_module("vllm.v1.worker.cpu.shm")
    # What a builder of metadata imports when it is first made, which takes seconds.
    engine_module("vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn")
    copy_by_source()
    leave_out_convolutions()
    pointers = part_of(engine_module(f"{_GPU}.buffer_utils"), "_load_ptr")
    for name, kernels in _KERNELS.items():
        module = engine_module(name)
        for kernel in kernels:
            source = part_of(module, kernel)
            if not isinstance(source, ScalarKernel):
                setattr(module, kernel, LaneKernel(source, {pointers.__name__: pointers}))
    runner = engine_module(f"{_GPU}.model_runner")
    for name in ("prepare_prefill_inputs", "combine_sampled_and_draft_tokens"):
        part_of(runner, name)
        setattr(runner, name, nothing)
    part_of(runner, "expand_idx_mapping")
    runner.expand_idx_mapping = partial(same, (None, None))
    for module in (runner, engine_module(f"{_GPU}.cudagraph_utils")):
        part_of(module, "get_pp_group")
        module.get_pp_group = partial(same, alone())
    part_of(runner, "init_speculator")
    runner.init_speculator = _Drafter


class _Drafter:
    """Stands for what drafts: it proposes as many tokens as there may be, whatever they are."""

    supports_mm_inputs = False

    def __init__(self, config: Any, _device: Any, _states: Any) -> None:
        self._num_drafts = config.num_speculative_tokens
        self._zeros = engine_module("torch").zeros

    def propose(self, batch: Any, *_arguments: Any, **_named: Any) -> Any:
        return self._zeros((batch.num_reqs, self._num_drafts), dtype=engine_module("torch").int64)


class _CalledModel(HandedModel):
    """A model whose forward pass computes nothing."""

    def __call__(self, *, input_ids: Any, **_inputs: Any) -> Any:
        return engine_module("torch").zeros((len(input_ids), 1))


class SecondWorker:
    """A second runner with states of one layer for each recurrent group of `kv_cache_config`.

    `config` is vLLM's whole configuration, `kv_cache_config` the scheduler's.
    """

    def __init__(self, config: Any, kv_cache_config: Any, backend: Any) -> None:
        self._torch = engine_module("torch")
        module = engine_module("vllm.v1.worker.cpu.model_runner")
        self.runner = part_of(module, "CPUModelRunner")(config, self._torch.device("cpu"))
        self._num_drafts = self.runner.num_speculative_steps
        self.memory = CopiedStates(kv_cache_config, self._num_drafts)
        self._names = [group.layer_names[0] for group in kv_cache_config.kv_cache_groups]
        self._accepted: Mapping[str, int] = {}
        self._load_model(config)
        self._attach(config, kv_cache_config, backend)

    def _load_model(self, config: Any) -> None:
        """What `load_model` does, without a model."""
        runner = self.runner
        functions = copy_functions()
        runner.model = _CalledModel(
            modules=tuple,
            compute_logits=nothing,
            get_mamba_state_copy_funcs=lambda types: dict.fromkeys(types, functions),
        )
        states = engine_module(f"{_GPU}.model_states")
        make = part_of(states, "init_model_state")
        runner.model_state = make(config, runner.model, None, runner.device)
        runner.decode_query_len = (
            self._num_drafts + runner.model_state.num_new_sampled_tokens_per_step
        )
        runner.sampler = HandedFields(
            add_request=nothing,
            apply_staged_writes=nothing,
            penalties_state=HandedFields(output_bin_counts=None),
            sampling_states=HandedFields(
                temperature=HandedFields(gpu=None), seeds=HandedFields(gpu=None)
            ),
        )
        runner.prompt_logprobs_worker = HandedFields(
            add_request=nothing,
            remove_request=nothing,
            compute_prompt_logprobs=partial(same, {}),
            compute_prompt_token_id_logprobs=partial(same, {}),
        )
        runner.sample = self._sample

    def _attach(self, config: Any, kv_cache_config: Any, backend: Any) -> None:
        """What `initialize_kv_cache` does with a model's layers."""
        runner = self.runner
        runner.kv_cache_config = kv_cache_config
        runner.kv_caches = []
        runner.attn_groups = [[] for _ in kv_cache_config.kv_cache_groups]
        group_class = part_of(engine_module("vllm.v1.worker.utils"), "AttentionGroup")
        layers: dict[str, Any] = {}
        for number in self.memory.groups:
            group = kv_cache_config.kv_cache_groups[number]
            attention = group_class(backend, group.layer_names, group.kv_cache_spec, number)
            attention.create_metadata_builders(config, runner.device)
            leave_out_builder(attention.get_metadata_builder())
            runner.attn_groups[number] = [attention]
            layers.update(
                (name, HandedFields(kv_cache=list(self.memory.states[number])))
                for name in group.layer_names
            )
        runner.kernel_block_sizes = [
            group.kv_cache_spec.block_size for group in kv_cache_config.kv_cache_groups
        ]
        runner.block_tables = self._block_tables(config, kv_cache_config)
        graphs = engine_module(f"{_GPU}.cudagraph_utils")
        modes = engine_module("vllm.config.compilation")
        runner.cudagraph_manager = part_of(graphs, "CudaGraphManager")(
            config, runner.device, modes.CUDAGraphMode.NONE, runner.decode_query_len
        )
        runner.compilation_config = HandedFields(static_forward_context=layers)
        runner.vllm_config.compilation_config.static_forward_context = layers
        runner.model_state.initialize_kv_cache(kv_cache_config, runner.block_tables)
        runner._init_kv_zero_meta()  # noqa: SLF001 -- as its worker calls it

    def _block_tables(self, config: Any, kv_cache_config: Any) -> Any:
        """Tables as wide as `initialize_kv_cache` makes them."""
        width = part_of(engine_module("vllm.v1.worker.block_table"), "get_block_table_width")
        specs = [group.kv_cache_spec for group in kv_cache_config.kv_cache_groups]
        runner = self.runner
        tables = part_of(engine_module(f"{_GPU}.block_table"), "BlockTables")(
            block_sizes=[spec.block_size for spec in specs],
            max_num_reqs=runner.max_num_reqs,
            max_num_batched_tokens=runner.max_num_tokens,
            max_num_blocks_per_group=[
                width(
                    spec.max_num_blocks_per_req(config, runner.max_model_len),
                    spec.block_size,
                    token_alignment=spec.block_table_token_alignment,
                )
                for spec in specs
            ],
            device=runner.device,
            slot_mapping_enabled=[spec.uses_slot_mapping for spec in specs],
            dcp_sharded=[spec.dcp_sharded for spec in specs],
        )
        part_of(tables, "compute_slot_mappings")
        tables.compute_slot_mappings = partial(same, tables.slot_mappings)
        return tables

    def step(self, scheduled: Any, accepted: Mapping[str, int]) -> dict[str, list[StateUse]]:
        """Carry out one step; what it did with states, by request, in the order of the batch.

        `accepted` are the tokens that each request has got, the drafts that were right and one
        more; of a request that got none a model samples all the same, and the runner throws it
        away. What vLLM's code raises passes through.
        """
        runner = self.runner
        self._accepted = accepted
        runner.execute_model(scheduled)
        state = runner.execute_model_state
        if state is None:
            return {}
        batch = state.input_batch
        before = self.memory.copies()
        counts = batch.num_scheduled_tokens.tolist()
        rows = {
            number: rows_of(state.attn_metadata[self._names[number]], counts)
            for number in self.memory.groups
        }
        firsts = runner.req_states.num_computed_tokens.gpu[batch.idx_mapping].tolist()
        owners = self._owners(batch.req_ids, batch.idx_mapping_np.tolist())
        runner.sample_tokens(None)
        copies = (before, self.memory.copies())
        return uses_by_request(batch.req_ids, firsts, rows, owners, copies)

    def _owners(self, ids: Sequence[str], slots: Sequence[int]) -> dict[tuple[int, int], str]:
        tables = self.runner.block_tables
        return {
            (group, block): name
            for name, slot in reversed([*zip(ids, slots)])
            for group in self.memory.groups
            for block in tables.block_tables[group]
            .gpu[slot, : tables.num_blocks.np[group, slot]]
            .tolist()
        }

    def _sample(self, _hidden: Any, batch: Any, _grammars: Any) -> tuple[Any, Any, Any]:
        """What samples, or rejects drafts, says of a batch: how many tokens are right."""
        torch = self._torch
        outputs = engine_module(f"{_GPU}.input_batch")
        numbers = [max(1, self._accepted.get(name, 0)) for name in batch.req_ids]
        num_sampled, num_rejected = part_of(outputs, "get_num_sampled_and_rejected")(
            torch.tensor(numbers, dtype=torch.int32),
            batch.seq_lens,
            batch.cu_num_logits,
            batch.idx_mapping,
            self.runner.req_states.prefill_len.gpu,
        )
        sampled = torch.zeros((batch.num_reqs, self._num_drafts + 1), dtype=torch.int64)
        output = part_of(engine_module(f"{_GPU}.sample.output"), "SamplerOutput")(
            sampled_token_ids=sampled,
            logprobs_tensors=None,
            num_nans=None,
            num_sampled=num_sampled,
            num_rejected=num_rejected,
        )
        return output, num_sampled, num_rejected
