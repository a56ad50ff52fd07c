"""vLLM, drafts and recurrent layers: three requests that go on from a state that is not theirs.

Usage: python reproduce.py [CAUSE ...]    in an environment that has vLLM for the CPU; no network,
                                          no GPU. Without a name all causes are tried.

vLLM's own scheduler plans, and vLLM's own (first) model runner decides which state each request
starts from, as it tells the kernels of the layers. The layer is simulated with exact numbers: its
state after a token is (A * state + token + 1) mod P, so that a state names its prefix.
"""

import ctypes
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
DRAFTS, BLOCK = 2, 32
LONGEST = 4 * BLOCK
ANSWER = 9  # what every request is given, and every draft; so each draft may be right
PLACEHOLDER = -1  # what stands where a scheduler has no draft yet
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
    """What goes wrong, in which set-up, and what happens until it does."""

    what: str
    events: tuple
    layers: str = "gdn"
    caches: bool = False
    blocks: int = 24
    options: dict = field(default_factory=dict)


def comes(name, prompt, most):
    """An event: a request comes, which may be given so many tokens."""
    return lambda server: server.send(name, prompt, most)


def step(accepted=0, drafts=None):
    """An event: a step in which so many drafts are right, and how many come next, by request.

    All have `DRAFTS` of them where nothing is said.
    """
    return lambda server: server.step(accepted, drafts)


CAUSES = {
    "recomputed": Cause(
        "a request that comes back after a preemption ends on a chunk of two tokens",
        (
            comes("other", [7, 8], 30),
            comes("long", [7] * 120, 8),
            *(step() for _ in range(4)),
            comes("one", [5] * 30, 9),
            *(step() for _ in range(20)),
        ),
        layers="mamba2",
        blocks=16,
        options={"max_num_batched_tokens": 34},
    ),
    "behind-a-chunk": Cause(
        "the padded last token of a prompt stands behind a chunk of two tokens",
        (
            *(comes(f"earlier {token}", [token] * (BLOCK + 5), 1) for token in (7, 8)),
            *(step() for _ in range(3)),
            comes("two", [7] * (BLOCK + 2), 3),
            comes("one", [8] * (BLOCK + 1), 3),
            step(),
            step(),
        ),
        layers="mamba2",
        caches=True,
    ),
    "left-out": Cause(
        "a request is left out of one step, for which the tokens of a step do not suffice",
        (
            comes("first", [7, 8], 60),
            step(drafts={}),
            comes("one", [5, 6, 7], 9),
            *(step(drafts={}) for _ in range(2)),
            step(drafts={"one": 2}),
            step(accepted=1, drafts={"first": 2}),
            step(drafts={}),
            step(drafts={}),
        ),
        options={"max_num_batched_tokens": 3},
    ),
}


def configured(cause):
    """The configuration of a server, which caches prefixes or does not."""
    from vllm.engine.arg_utils import EngineArgs

    ngram = {
        "method": "ngram",
        "num_speculative_tokens": DRAFTS,
        "prompt_lookup_max": 2,
    }
    options = {"max_num_batched_tokens": LONGEST, "max_num_seqs": 3, **cause.options}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
        config = EngineArgs(
            model=folder,
            skip_tokenizer_init=True,
            enforce_eager=True,
            dtype="float32",
            block_size=BLOCK,
            enable_prefix_caching=cause.caches,
            max_model_len=LONGEST,
            async_scheduling=False,
            speculative_config=ngram,
            **options,
        ).create_engine_config()
    config.cache_config.num_gpu_blocks = cause.blocks
    config.cache_config.block_size = BLOCK
    config.cache_config.mamba_cache_mode = "align" if cause.caches else "none"
    config.cache_config.mamba_block_size = BLOCK if cause.caches else LONGEST
    return config


class Server:
    """vLLM's scheduler and model runner with one simulated layer."""

    def __init__(self, cause):
        import torch
        import vllm.v1.worker.gpu_model_runner as runners
        from vllm.v1.attention.backends.gdn_attn import GDNAttentionBackend
        from vllm.v1.attention.backends.mamba2_attn import Mamba2AttentionBackend
        from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum
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

        config = configured(cause)
        attention = FullAttentionSpec(
            block_size=BLOCK, num_kv_heads=1, head_size=64, dtype=torch.float32
        )
        is_gdn = cause.layers == "gdn"
        size = config.cache_config.mamba_block_size
        states = MambaSpec(
            block_size=size,
            shapes=((1,),),
            dtypes=(torch.int64,),
            mamba_type=MambaAttentionBackendEnum["GDN_ATTN" if is_gdn else "MAMBA2"],
            mamba_cache_mode=config.cache_config.mamba_cache_mode,
            num_speculative_blocks=DRAFTS,
            page_size_padded=attention.page_size_bytes,
        )
        groups = [KVCacheGroupSpec(["attention"], attention), KVCacheGroupSpec(["layer"], states)]
        cache = KVCacheConfig(num_blocks=cause.blocks, kv_cache_tensors=[], kv_cache_groups=groups)
        self.scheduler = Scheduler(
            vllm_config=config,
            kv_cache_config=cache,
            structured_output_manager=StructuredOutputManager(config),
            block_size=size,
            hash_block_size=size,
        )
        alone = SimpleNamespace(is_last_rank=True, is_first_rank=True, world_size=1, ranks=[0])
        runners.get_pp_group = lambda: alone
        self.runner = runner = CPUModelRunner(config, torch.device("cpu"))
        runner.kv_cache_config = cache
        backend = GDNAttentionBackend if is_gdn else Mamba2AttentionBackend
        group = AttentionGroup(backend, ["layer"], states, 1)
        group.create_metadata_builders(config, runner.device)
        runner.attn_groups = [[], [group]]
        runner.calculate_reorder_batch_threshold()
        fit = runner.may_reinitialize_input_batch
        takes_sizes = "kernel_block_sizes" in inspect.signature(fit).parameters
        fit(cache, *([[BLOCK, size]] if takes_sizes else []))
        runner._postprocess_tensors()
        # The slots of attention are written by a kernel, and say nothing about states.
        runner.input_batch.block_table.compute_slot_mapping = lambda *_: None
        self.states = torch.zeros((cause.blocks, 1), dtype=torch.int64)
        self.hasher = None
        if cause.caches:
            self.hasher = hasher()
            self.copy_states_by_hand()
        self.tokens = {}
        self.wrong = []

    def copy_states_by_hand(self):
        """With a cache of prefixes: what its two kernels copy, which need a device."""
        import vllm.model_executor.layers.mamba.mamba_utils as copies
        import vllm.v1.worker.mamba_utils as utilities

        functions = (copies.get_temporal_copy_spec,)
        self.runner.model = SimpleNamespace(
            get_mamba_state_copy_funcs=lambda types: dict.fromkeys(types, functions),
            get_mamba_state_copy_func=lambda: functions,
        )
        layer = SimpleNamespace(kv_cache=[self.states])
        self.runner.compilation_config = SimpleNamespace(static_forward_context={"layer": layer})
        utilities.batch_memcpy = move
        utilities.postprocess_mamba_align_gpu = self.keep_states

    def prepare_states(self, planned):
        """As `execute_model` has it: the state a request goes on from moves into its last block."""
        import vllm.v1.worker.mamba_utils as utilities

        runner = self.runner
        utilities.preprocess_mamba(
            planned,
            runner.kv_cache_config,
            runner.cache_config,
            runner.mamba_state_idx,
            runner.input_batch,
            runner.requests,
            runner.compilation_config.static_forward_context,
            self.copies(),
            runner._get_mamba_bufs().preprocess,
        )
        count = runner.input_batch.num_reqs
        runner.num_accepted_tokens.np[:count] = runner.input_batch.num_accepted_tokens_cpu[:count]
        runner.num_accepted_tokens.copy_to_gpu(count)

    def copies(self):
        """What copies a state, by kind of layer; up to 0.28 that of the only kind."""
        if hasattr(self.runner, "_get_mamba_state_copy_funcs"):
            return self.runner._get_mamba_state_copy_funcs()
        return self.runner.model.get_mamba_state_copy_func()

    def keep_states(self, *, num_reqs, num_accepted_tokens_cpu_tensor, **_others):
        """As `postprocess_mamba_fused_kernel` has it: the state of a block's end stays there."""
        runner, counts = self.runner, num_accepted_tokens_cpu_tensor
        counts[:num_reqs] = runner.num_accepted_tokens.gpu[:num_reqs]
        for row, name in enumerate(runner.input_batch.req_ids):
            drafts = len(self.planned.scheduled_spec_decode_tokens.get(name, ()))
            known = runner.requests[name].num_computed_tokens - drafts
            known += self.planned.num_scheduled_tokens[name]
            end = (known + int(counts[row]) - 1) // BLOCK * BLOCK
            if end >= known:
                source, into = runner.mamba_state_idx[name], end // BLOCK - 1
                if source == into:
                    counts[row] = 1
                blocks = runner.requests[name].block_ids[1]
                self.states[blocks[into]] = self.states[blocks[source + end - known]]

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
                block_hasher=self.hasher,
            )
        )

    def step(self, accepted, drafts):
        """One step of the server."""
        import numpy as np
        import torch
        from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput

        runner, planned = self.runner, self.scheduler.schedule()
        self.planned = planned
        runner._update_states(planned)
        ids = list(runner.input_batch.req_ids)
        if not ids:
            self.scheduler.update_from_output(planned, ModelRunnerOutput([], {}, []))
            return
        counts = [planned.num_scheduled_tokens[name] for name in ids]
        proposed = planned.scheduled_spec_decode_tokens
        runner._prepare_inputs(planned, np.array(counts, dtype=np.int32))
        if self.hasher is not None:
            self.prepare_states(planned)
        metadata, _ = runner._build_attention_metadata(
            num_tokens=sum(counts),
            num_reqs=len(ids),
            max_query_len=max(counts),
            use_spec_decode=bool(proposed) if drafts_decide(runner.execute_model) else True,
            slot_mappings={0: None, 1: None},
        )
        firsts = [runner.requests[name].num_computed_tokens for name in ids]
        self.compute(metadata["layer"], ids, firsts, counts)
        given = []
        for name, first, count in zip(ids, firsts, counts):
            known = len(self.tokens[name])
            num_drafts = first + count - known
            right = min(accepted, len(proposed.get(name, ())))
            given.append([ANSWER] * (1 + right) if num_drafts >= 0 else [])
            self.tokens[name] += given[-1]
        width = 1 + DRAFTS
        sampled = [(row or [ANSWER]) + [-1] * (width - max(1, len(row))) for row in given]
        tokens = torch.tensor(sampled, dtype=torch.int32)
        runner._update_states_after_model_execute(tokens, planned)
        runner._draft_token_ids = None
        output = SimpleNamespace(sampled_token_ids=tokens, logprobs_tensors=None)
        runner._bookkeeping_sync(planned, output, None, tokens, 0)
        places = {name: place for place, name in enumerate(ids)}
        self.scheduler.update_from_output(
            planned,
            ModelRunnerOutput(req_ids=ids, req_id_to_index=places, sampled_token_ids=given),
        )
        numbers = dict.fromkeys(ids, DRAFTS) if drafts is None else drafts
        self.scheduler.update_draft_token_ids(
            DraftTokenIds(ids, [[ANSWER] * numbers.get(name, 0) for name in ids])
        )

    def compute(self, told, ids, firsts, counts):
        """What the layer does with what it is told: read a state, write one or several."""
        rows = gdn_rows(told, counts) if hasattr(told, "spec_sequence_masks") else mamba_rows(told)
        for name, first, count, (source, columns) in zip(ids, firsts, counts, rows):
            state = 0 if source is None else int(self.states[source])
            wanted = state_after(self.tokens[name][:first])
            if state != wanted:
                said = [(number, self.meaning(name, number)) for number in (wanted, state)]
                self.wrong.append((name, first, *said))
            known = self.tokens[name]
            drafts = self.planned.scheduled_spec_decode_tokens.get(name, ())
            for place, token in enumerate([*known, *drafts][first : first + count]):
                state = (A * state + token + 1) % P
                self.states[columns[min(place, len(columns) - 1)]] = state

    def meaning(self, name, state):
        """The prefix whose state a number is, with up to so many drafts or placeholders."""
        for token, said in ((ANSWER, "drafts"), (PLACEHOLDER, "placeholders")):
            for behind in range(DRAFTS + 1):
                for owner in (name, *self.tokens):
                    tokens = self.tokens[owner]
                    for length in range(len(tokens) + 1):
                        if state == state_after([*tokens[:length], *[token] * behind]):
                            more = f" and {behind} {said}" if behind else ""
                            return f"{length} tokens of {owner!r}{more}"
        return "no prefix of a request"


def hasher():
    """What gives each full block of a prompt its key."""
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash

    init_none_hash(sha256)
    return get_request_block_hasher(BLOCK, sha256)


def move(sources, targets, sizes):
    """Memory is copied, one piece after the other."""
    for source, target, size in zip(sources.tolist(), targets.tolist(), sizes.tolist()):
        ctypes.memmove(target, source, size)


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


def mamba_rows(told):
    """The same for Mamba2, whose requests that decode come first."""
    rows = []
    for number in range(told.num_decodes):
        columns = told.state_indices_tensor_d[number].tolist()
        accepted = told.num_accepted_tokens
        at = 0 if accepted is None else int(accepted[number]) - 1
        rows.append((columns[at], columns if accepted is not None else columns[:1]))
    for number in range(told.num_prefills):
        block = int(told.state_indices_tensor_p[number])
        rows.append((block if bool(told.has_initial_states_p[number]) else None, [block]))
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
