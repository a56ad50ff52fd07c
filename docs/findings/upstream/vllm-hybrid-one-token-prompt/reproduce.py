"""vLLM, recurrent layers and drafts: a prompt of one token starts from a stranger's state.

Usage: python reproduce.py      in an environment that has vLLM for the CPU; no network, no GPU

vLLM's own scheduler plans, and vLLM's own model runner decides which state each request starts
from, as it tells the kernels of a gated DeltaNet. The layer is simulated with exact numbers: its
state after a token is (A * state + token + 1) mod P, so that a state names its prefix.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

os.environ.update(
    VLLM_LOGGING_LEVEL="ERROR",
    VLLM_NO_USAGE_STATS="1",
    HF_HUB_OFFLINE="1",
    TORCHDYNAMO_DISABLE="1",
)
A, P = 1_000_003, (1 << 61) - 1
DRAFTS, BLOCKS, BLOCK = 2, 9, 32
LONGEST = 4 * BLOCK
MODEL = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "vocab_size": 64,
    "max_position_embeddings": 512,
    "layer_types": ["linear_attention", "full_attention"],
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 1,
    "num_experts": 2,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
}


def configured():
    """The configuration of a server with ngram drafts and without prefix caching."""
    from vllm.engine.arg_utils import EngineArgs

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
        config = EngineArgs(
            model=folder,
            skip_tokenizer_init=True,
            enforce_eager=True,
            dtype="float32",
            block_size=BLOCK,
            enable_prefix_caching=False,
            max_model_len=LONGEST,
            max_num_seqs=4,
            max_num_batched_tokens=LONGEST,
            async_scheduling=False,
            speculative_config={
                "method": "ngram",
                "num_speculative_tokens": DRAFTS,
                "prompt_lookup_max": 2,
            },
        ).create_engine_config()
    config.cache_config.num_gpu_blocks = BLOCKS
    config.cache_config.mamba_cache_mode = "none"
    return config


class Server:
    """vLLM's scheduler and model runner over `BLOCKS` blocks, with one simulated layer."""

    def __init__(self) -> None:
        import torch
        import vllm.v1.worker.gpu_model_runner as runners
        from vllm.v1.attention.backends.gdn_attn import GDNAttentionBackend
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.kv_cache_interface import (
            FullAttentionSpec,
            KVCacheConfig,
            KVCacheGroupSpec,
            MambaSpec,
        )
        from vllm.v1.structured_output import StructuredOutputManager
        from vllm.v1.worker.cpu_model_runner import CPUModelRunner
        from vllm.v1.worker.utils import AttentionGroup

        config = configured()
        attention = FullAttentionSpec(
            block_size=BLOCK, num_kv_heads=1, head_size=64, dtype=torch.float32
        )
        states = MambaSpec(
            block_size=LONGEST,
            shapes=((1,),),
            dtypes=(torch.int64,),
            mamba_cache_mode="none",
            num_speculative_blocks=DRAFTS,
            page_size_padded=attention.page_size_bytes,
        )
        groups = [KVCacheGroupSpec(["attention"], attention), KVCacheGroupSpec(["gdn"], states)]
        cache = KVCacheConfig(num_blocks=BLOCKS, kv_cache_tensors=[], kv_cache_groups=groups)
        self.scheduler = Scheduler(
            vllm_config=config,
            kv_cache_config=cache,
            structured_output_manager=StructuredOutputManager(config),
            block_size=LONGEST,
            hash_block_size=LONGEST,
        )
        alone = SimpleNamespace(is_last_rank=True, is_first_rank=True, world_size=1, ranks=[0])
        runners.get_pp_group = lambda: alone
        self.runner = runner = CPUModelRunner(config, torch.device("cpu"))
        runner.kv_cache_config = cache
        group = AttentionGroup(GDNAttentionBackend, ["gdn"], states, 1)
        group.create_metadata_builders(config, runner.device)
        runner.attn_groups = [[], [group]]
        runner.calculate_reorder_batch_threshold()
        runner.may_reinitialize_input_batch(cache)
        runner._postprocess_tensors()
        # The slots of attention are written by a kernel, and say nothing about states.
        runner.input_batch.block_table.compute_slot_mapping = lambda *_: None
        self.states = [0] * BLOCKS  # as new memory
        self.first_states = {}

    def send(self, name: str, prompt: list[int], most: int) -> None:
        """A request comes."""
        from vllm import SamplingParams
        from vllm.v1.request import Request

        self.scheduler.add_request(
            Request(
                request_id=name,
                prompt_token_ids=prompt,
                sampling_params=SamplingParams(max_tokens=most, ignore_eos=True),
                pooling_params=None,
            )
        )

    def step(self) -> None:
        """One step; each request that samples gets the token 9 and the drafts 9, 9."""
        import numpy as np
        import torch
        from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput

        runner, planned = self.runner, self.scheduler.schedule()
        runner._update_states(planned)
        ids = list(runner.input_batch.req_ids)
        counts = [planned.num_scheduled_tokens[name] for name in ids]
        runner._prepare_inputs(planned, np.array(counts, dtype=np.int32))
        metadata, _ = runner._build_attention_metadata(
            num_tokens=sum(counts),
            num_reqs=len(ids),
            max_query_len=max(counts),
            use_spec_decode=True,
            slot_mappings={0: None, 1: None},
        )
        self.compute(metadata["gdn"], ids, counts)
        sampled = torch.tensor([[9, -1, -1]] * len(ids), dtype=torch.int32)
        runner._update_states_after_model_execute(sampled, planned)
        output = SimpleNamespace(sampled_token_ids=sampled, logprobs_tensors=None)
        runner._bookkeeping_sync(planned, output, None, sampled, 0)
        places = {name: place for place, name in enumerate(ids)}
        tokens = [[9]] * len(ids)
        self.scheduler.update_from_output(
            planned,
            ModelRunnerOutput(req_ids=ids, req_id_to_index=places, sampled_token_ids=tokens),
        )
        self.scheduler.update_draft_token_ids(DraftTokenIds(ids, [[9, 9]] * len(ids)))

    def compute(self, told, ids: list[str], counts: list[int]) -> None:
        """What the layer does with what it is told: read a state, write one or several."""
        masks = told.spec_sequence_masks_cpu
        is_spec = [False] * len(ids) if masks is None else masks.tolist()
        spec, plain = 0, 0
        for name, drafts, count in zip(ids, is_spec, counts):
            if drafts:
                columns = told.spec_state_indices_tensor[spec].tolist()
                state = self.states[columns[int(told.num_accepted_tokens[spec]) - 1]]
                spec += 1
            else:
                columns = [int(told.non_spec_state_indices_tensor[plain])] * count
                has = told.has_initial_state
                is_known = has is None or plain < told.num_decodes or bool(has[plain])
                state = self.states[columns[0]] if is_known else 0
                plain += 1
            runner_state = self.runner.requests[name]
            first = runner_state.num_computed_tokens
            for place in range(count):
                position = first + place
                known = position < runner_state.num_tokens
                token = runner_state.get_token_id(position) if known else 9
                state = (A * state + token + 1) % P
                self.states[columns[place]] = state
                if position == 0:
                    self.first_states[name] = state


def state_after_5(stranger: list[int], *, beside_another: bool) -> int:
    """The state after the prompt [5], where a stranger's request has run and ended before."""
    server = Server()
    server.send("stranger", stranger, 2)
    if beside_another:
        server.send("another", [7, 8], 40)
    server.step()
    server.step()  # with drafts, a state behind each; then the stranger's request has ended
    server.send("one", [5], 4)
    server.step()
    return server.first_states["one"]


def main() -> int:
    """Three numbers that should be one; 1 where they are not."""
    import vllm

    strangers = ([11, 12, 13], [21, 22, 23])
    rows = [("alone, after [11, 12, 13]", state_after_5(strangers[0], beside_another=False))]
    rows += [
        (f"beside another, after {stranger}", state_after_5(stranger, beside_another=True))
        for stranger in strangers
    ]
    print(f"vLLM {vllm.__version__}: the state after the first token of the prompt [5]")
    print(f"  {'expected, from zero':34} {5 + 1}")
    for what, state in rows:
        print(f"  {what:34} {state}")
    return int(any(state != 5 + 1 for _, state in rows))


if __name__ == "__main__":
    sys.exit(main())
