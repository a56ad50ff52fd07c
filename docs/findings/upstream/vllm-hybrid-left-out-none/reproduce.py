"""vLLM, asynchronous scheduling, drafts, recurrent layers: a request that a step leaves out.

Usage: python reproduce.py [CAUSE ...]    in an environment that has vLLM for the CPU; no network,
                                          no GPU. Without a name all causes are tried.

vLLM's own scheduler plans one step ahead, and vLLM's own (first) model runner decides which state
each request starts from, as it tells the kernels of the layers. Prefixes are not cached. The layer
is simulated with exact numbers: its state after a token is (A * state + token + 1) mod P, so that a
state names its prefix.

Each cause is another reason for which a running request is not in a step, right after one in which
a draft of it was right.
"""

import dis
import inspect
import json
import os
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

os.environ.update(
    VLLM_LOGGING_LEVEL="ERROR",
    VLLM_NO_USAGE_STATS="1",
    HF_HUB_OFFLINE="1",
    TORCHDYNAMO_DISABLE="1",
)
A, P = 1_000_003, (1 << 61) - 1
DRAFTS, BLOCK, LONGEST = 2, 32, 128
ANSWER = 9  # what every request is given, and every draft; so each draft may be right
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
    "mamba_chunk_size": 8,
}


@dataclass(frozen=True)
class Cause:
    """Why a request is left out, in which set-up, and what happens until it goes on."""

    what: str
    events: tuple
    blocks: int = 24
    has_connector: bool = False
    options: dict = field(default_factory=dict)


def comes(name, prompt, most):
    """An event: a request comes, which may be given so many tokens."""
    return lambda server: server.send(name, prompt, most)


def step(accepted=0):
    """An event: a step is planned, and the one before is computed: so many drafts are right."""
    return lambda server: server.step(accepted)


CAUSES = {
    "no-room": Cause(
        "the pool is full beside a connector, and a request of a step in flight is not preempted",
        (
            comes("other", [7, 8], 9),
            comes("one", [5] * (BLOCK - 2 - DRAFTS - 1), 9),
            step(),
            step(),
            step(accepted=1),
            step(),
            step(),
        ),
        blocks=9,
        has_connector=True,
    ),
    "no-tokens": Cause(
        "the tokens of a step go to two requests whose prompts end, without a connector",
        (
            comes("first", [7] * (1 + DRAFTS + 1), 9),
            comes("second", [8] * (2 * (1 + DRAFTS) + 1), 2),
            comes("one", [5, 6], 9),
            *(step() for _ in range(3)),
            step(accepted=1),
            *(step() for _ in range(2)),
        ),
        options={
            "max_num_batched_tokens": 2 * (1 + DRAFTS),
            "long_prefill_token_threshold": 1 + DRAFTS,
        },
    ),
    "longest": Cause(
        "with all its drafts a request would be as long as one may be, without a connector",
        (
            comes("one", [5] * (LONGEST - 2 - DRAFTS), 9),
            step(),
            step(),
            step(accepted=1),
            step(),
            step(),
        ),
    ),
}


def configured(cause):
    """The configuration of a server that caches no prefixes and plans a step ahead."""
    from vllm.config import KVTransferConfig
    from vllm.engine.arg_utils import EngineArgs

    ngram = {
        "method": "ngram",
        "num_speculative_tokens": DRAFTS,
        "prompt_lookup_max": 2,
    }
    options = {"max_num_batched_tokens": LONGEST, **cause.options}
    if cause.has_connector:
        options["kv_transfer_config"] = KVTransferConfig(
            kv_connector="SimpleCPUOffloadConnector",
            kv_role="kv_both",
            kv_connector_extra_config={"cpu_bytes_to_use": 1 << 20},
        )
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
            max_num_seqs=3,
            async_scheduling=False,
            speculative_config=ngram,
            **options,
        ).create_engine_config()
    # Only drafters that need a device draft a step ahead; which one it is decides nothing here.
    config.scheduler_config.async_scheduling = True
    config.cache_config.num_gpu_blocks = cause.blocks
    config.cache_config.block_size = BLOCK
    config.cache_config.mamba_cache_mode = "none"
    config.cache_config.mamba_block_size = LONGEST
    return config


class Server:
    """vLLM's scheduler, one step ahead of its model runner, with one simulated layer."""

    def __init__(self, cause):
        import torch
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler
        from vllm.v1.structured_output import StructuredOutputManager

        config = configured(cause)
        cache = groups_of_cache(cause.blocks)
        self.states = torch.zeros((cause.blocks, 1), dtype=torch.int64)
        self.scheduler = AsyncScheduler(
            vllm_config=config,
            kv_cache_config=cache,
            structured_output_manager=StructuredOutputManager(config),
            block_size=LONGEST,
            hash_block_size=LONGEST,
        )
        self.runner = runner_of(config, cache)
        self.in_flight = []
        self.tokens, self.wrong = {}, []

    def send(self, name, prompt, most):
        """A request comes."""
        from vllm import SamplingParams
        from vllm.v1.request import Request

        self.tokens[name] = list(prompt)
        self.scheduler.add_request(
            Request(
                request_id=name,
                prompt_token_ids=prompt,
                sampling_params=SamplingParams(max_tokens=most, ignore_eos=True),
                pooling_params=None,
            )
        )

    def step(self, accepted):
        """The next step is planned; then the one before it is computed and its answer is heard."""
        self.in_flight.append(self.scheduler.schedule())
        if len(self.in_flight) > 1:
            planned = self.in_flight.pop(0)
            self.scheduler.update_from_output(planned, self.computed(planned, accepted))

    def computed(self, planned, accepted):
        """What a step gives."""
        import numpy as np
        from vllm.v1.outputs import ModelRunnerOutput

        runner = self.runner
        corrections = runner._update_states(planned)
        ids = list(runner.input_batch.req_ids)
        if not planned.total_num_scheduled_tokens:
            return ModelRunnerOutput([], {}, [])
        counts = [planned.num_scheduled_tokens[name] for name in ids]
        runner._prepare_inputs(planned, np.array(counts, dtype=np.int32))
        if corrections is not None:
            corrections()
        told = self.told(planned, counts)
        firsts = runner.num_computed_tokens[: len(ids)].tolist()
        self.rows = list(zip(ids, firsts, counts))
        drafts = planned.scheduled_spec_decode_tokens
        self.num_drafts = [len(drafts.get(name, ())) for name in ids]
        self.compute(told, counts)
        given = []
        for (name, first, count), proposed in zip(self.rows, self.num_drafts):
            samples = first + count >= len(self.tokens[name])
            given.append([ANSWER] * (1 + min(accepted, proposed)) if samples else [])
            self.tokens[name] += given[-1]
        self.hand_over(planned, given)
        places = {name: place for place, name in enumerate(ids)}
        return ModelRunnerOutput(req_ids=ids, req_id_to_index=places, sampled_token_ids=given)

    def told(self, planned, counts):
        """The metadata for the layer."""
        runner = self.runner
        drafts_of_step = bool(planned.scheduled_spec_decode_tokens)
        metadata, _ = runner._build_attention_metadata(
            num_tokens=sum(counts),
            num_reqs=len(counts),
            max_query_len=max(counts),
            use_spec_decode=drafts_of_step if drafts_decide(runner.execute_model) else True,
            slot_mappings={0: None, 1: None},
        )
        return metadata["layer"]

    def compute(self, told, counts):
        """What the layer does with what it is told: read a state, write one or several."""
        for (name, first, count), (source, columns) in zip(self.rows, gdn_rows(told, counts)):
            state = 0 if source is None else int(self.states[source])
            wanted = state_after(self.tokens[name][:first])
            if state != wanted:
                said = [(number, self.meaning(number)) for number in (wanted, state)]
                self.wrong.append((name, first, *said))
            tokens = [*self.tokens[name], *[ANSWER] * DRAFTS]
            state = wanted  # so that what follows is a cause of its own
            for place, token in enumerate(tokens[first : first + count]):
                state = (A * state + token + 1) % P
                self.states[columns[min(place, len(columns) - 1)]] = state

    def hand_over(self, planned, given):
        """As `sample_tokens` has it; what a drafter keeps on the device is kept by hand."""
        import torch

        runner, width = self.runner, 1 + DRAFTS
        # A model samples for every row; what it samples inside a prompt is thrown away.
        rows = [row or [ANSWER] for row in given]
        sampled = torch.tensor([row + [-1] * (width - len(row)) for row in rows], dtype=torch.int32)
        runner._update_states_after_model_execute(sampled, planned)
        counts = torch.tensor([len(row) for row in given], dtype=torch.int32)
        runner.valid_sampled_token_count_cpu[: len(given)].copy_(counts)
        runner.valid_sampled_token_count_gpu = counts
        runner.input_batch.prev_sampled_token_ids = torch.full((len(given), 1), ANSWER)
        runner._draft_token_ids = torch.full((len(given), DRAFTS), ANSWER)
        output = SimpleNamespace(sampled_token_ids=sampled, logprobs_tensors=None)
        runner._bookkeeping_sync(planned, output, None, sampled, 0)

    def meaning(self, state):
        """The prefix whose state a number is."""
        if state == 0:
            return "zero: nobody has left a state there"
        for name, tokens in self.tokens.items():
            for length in range(len(tokens) + DRAFTS + 1):
                if state == state_after([*tokens, *[ANSWER] * DRAFTS][:length]):
                    return f"{length} tokens of {name!r}"
        return "no prefix of a request"


def groups_of_cache(num_blocks):
    """One group of attention, and one of states."""
    import torch
    from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum
    from vllm.v1.kv_cache_interface import (
        FullAttentionSpec,
        KVCacheConfig,
        KVCacheGroupSpec,
        MambaSpec,
    )

    attention = FullAttentionSpec(
        block_size=BLOCK, num_kv_heads=1, head_size=64, dtype=torch.float32
    )
    states = MambaSpec(
        block_size=LONGEST,
        shapes=((1,),),
        dtypes=(torch.int64,),
        mamba_type=MambaAttentionBackendEnum["GDN_ATTN"],
        mamba_cache_mode="none",
        num_speculative_blocks=DRAFTS,
        page_size_padded=attention.page_size_bytes,
    )
    groups = [KVCacheGroupSpec(["attention"], attention), KVCacheGroupSpec(["layer"], states)]
    return KVCacheConfig(num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=groups)


def runner_of(config, cache):
    """vLLM's model runner for CPUs, with a batch and the builder of the layer's metadata."""
    import torch
    import vllm.v1.worker.gpu_model_runner as runners
    from vllm.v1.attention.backends.gdn_attn import GDNAttentionBackend
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner
    from vllm.v1.worker.utils import AttentionGroup

    alone = SimpleNamespace(is_last_rank=True, is_first_rank=True, world_size=1, ranks=[0])
    runners.get_pp_group = lambda: alone
    torch.cuda.Event = lambda *_, **__: None  # asynchronous scheduling makes some
    runner = CPUModelRunner(config, torch.device("cpu"))
    runner.kv_cache_config = cache
    group = AttentionGroup(
        GDNAttentionBackend, ["layer"], cache.kv_cache_groups[1].kv_cache_spec, 1
    )
    group.create_metadata_builders(config, runner.device)
    runner.attn_groups = [[], [group]]
    runner.calculate_reorder_batch_threshold()
    fit = runner.may_reinitialize_input_batch
    takes_sizes = "kernel_block_sizes" in inspect.signature(fit).parameters
    fit(cache, *([[BLOCK, LONGEST]] if takes_sizes else []))
    runner._postprocess_tensors()
    # Slots of attention and ids of tokens are written by kernels, and say nothing about states.
    runner.input_batch.block_table.compute_slot_mapping = lambda *_: None
    runner._prepare_input_ids = lambda *_, **__: None
    return runner


def drafts_decide(execute_model):
    """Whether a step without drafts is no step of drafts; so up to 0.31, in `execute_model`."""
    reads = []
    for one in dis.get_instructions(inspect.unwrap(execute_model)):
        names = one.argval if isinstance(one.argval, tuple) else (one.argval,)
        if one.opname.startswith("STORE_FAST") and "use_spec_decode" in names:
            return "scheduled_spec_decode_tokens" in reads
        reads = [] if one.opname.startswith("STORE") else [*reads, one.argval]
    return False


def state_after(tokens):
    """The right state: from zero over all of them."""
    state = 0
    for token in tokens:
        state = (A * state + token + 1) % P
    return state


def gdn_rows(told, counts):
    """For each request the block it starts from, None for zero, and the blocks it writes."""
    masks = told.spec_sequence_masks
    is_spec = [False] * len(counts) if masks is None else masks.tolist()
    rows, spec, plain = [], 0, 0
    for drafts in is_spec:
        if drafts:
            columns = told.spec_state_indices_tensor[spec].tolist()
            rows.append((columns[int(told.num_accepted_tokens[spec]) - 1], columns))
            spec += 1
        else:
            block = int(told.non_spec_state_indices_tensor[plain])
            has = told.has_initial_state
            is_known = has is None or plain < told.num_decodes or bool(has[plain])
            rows.append((block if is_known else None, [block]))
            plain += 1
    return rows


def main():
    """Expected and actual number of the first wrong state of each cause; 1 where there is one."""
    import vllm

    unknown = sorted(set(sys.argv[1:]) - set(CAUSES))
    if unknown:
        print(f"no cause {', '.join(unknown)}; there are {', '.join(CAUSES)}", file=sys.stderr)
        return 2
    num_wrong = 0
    for name in sys.argv[1:] or CAUSES:
        cause = CAUSES[name]
        server = Server(cause)
        for event in cause.events:
            event(server)
        print(f"vLLM {vllm.__version__}, {name}: {cause.what}")
        if not server.wrong:
            print("  every state is that of its prefix")
            continue
        num_wrong += 1
        who, position, (wanted, expected), (state, actual) = server.wrong[0]
        print(f"  {who!r} goes on at position {position}")
        print(f"    expected {wanted:>20}  {expected}")
        print(f"    actual   {state:>20}  {actual}")
    return int(num_wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
