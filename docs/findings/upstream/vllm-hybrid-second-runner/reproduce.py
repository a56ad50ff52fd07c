"""vLLM's second model runner, drafts and recurrent layers: two rows that are computed as prompts.

Usage: python reproduce.py [CAUSE ...]    in an environment that has vLLM for the CPU; no network,
                                          no GPU. Without a name all causes are tried.

A batch of two requests is put into order by the runner's own function, and vLLM's own builders say
which blocks each request's state is read from and written to. What a step holds is as vLLM's
scheduler plans it: the script of vllm-hybrid-one-token-prompt runs that.
"""

import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1")
DRAFTS = 2
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
class Row:
    """What a step computes of a request, whose states stand in the blocks of `columns`."""

    prompt: int
    computed: int
    count: int
    drafts: int
    accepted: int
    columns: tuple


SHORT_PROMPT = {
    "running": Row(prompt=4, computed=10, count=1, drafts=0, accepted=2, columns=(1, 2, 3)),
    "new": Row(
        prompt=1 + DRAFTS,
        computed=0,
        count=1 + DRAFTS,
        drafts=0,
        accepted=1,
        columns=(4, 5, 6),
    ),
}
PLACEHOLDERS = {
    "running": Row(
        prompt=4, computed=10, count=1 + DRAFTS, drafts=DRAFTS, accepted=2, columns=(1, 2, 3)
    ),
    "new": Row(
        prompt=1, computed=0, count=1 + DRAFTS, drafts=DRAFTS, accepted=1, columns=(4, 5, 6)
    ),
}
CAUSES = {
    "short-prompt": (
        "a request without drafts is in a step with a prompt of as many tokens as drafts and one",
        SHORT_PROMPT,
        ("mamba2",),
        "running",
    ),
    "placeholders": (
        "a prompt of one token is padded with placeholder drafts, because others run",
        PLACEHOLDERS,
        ("mamba2", "gdn"),
        "new",
    ),
}


def configured():
    """A server's configuration, without a cache of prefixes."""
    from vllm.engine.arg_utils import EngineArgs

    drafter = {"method": "ngram", "num_speculative_tokens": DRAFTS, "prompt_lookup_max": 2}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
        config = EngineArgs(
            model=folder,
            skip_tokenizer_init=True,
            enforce_eager=True,
            dtype="float32",
            block_size=32,
            enable_prefix_caching=False,
            max_model_len=128,
            max_num_batched_tokens=128,
            max_num_seqs=3,
            async_scheduling=False,
            speculative_config=drafter,
        ).create_engine_config()
    config.cache_config.mamba_cache_mode = "none"
    config.cache_config.mamba_block_size = 128
    return config


def told(layers, rows, order):
    """What vLLM's builder says of a batch in this order, asked as the second runner asks it.

    It is asked in `MambaHybridModelState.prepare_attn`, with what `gather_batch_req_state` knows.
    """
    import numpy as np
    import torch
    from vllm.config.compilation import CUDAGraphMode
    from vllm.v1.attention.backends import gdn_attn, mamba2_attn
    from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec, MambaSpec
    from vllm.v1.worker.gpu.model_runner import GPUModelRunner
    from vllm.v1.worker.gpu.model_states.mamba_hybrid import MambaHybridModelState
    from vllm.v1.worker.utils import AttentionGroup

    config = configured()
    spec = MambaSpec(
        block_size=128,
        shapes=((1,),),
        dtypes=(torch.int64,),
        mamba_type=MambaAttentionBackendEnum["GDN_ATTN" if layers == "gdn" else "MAMBA2"],
        mamba_cache_mode="none",
        num_speculative_blocks=DRAFTS,
    )
    is_gdn = layers == "gdn"
    backend = gdn_attn.GDNAttentionBackend if is_gdn else mamba2_attn.Mamba2AttentionBackend
    group = AttentionGroup(backend, ["layer"], spec, 0)
    group.create_metadata_builders(config, torch.device("cpu"))
    cache = KVCacheConfig(
        num_blocks=8, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
    )
    ordered = [rows[name] for name in order]
    places = {name: place for place, name in enumerate(order)}
    known = SimpleNamespace(
        req_id_to_index=places,
        prefill_len=SimpleNamespace(np=np.array([row.prompt for row in ordered])),
        num_computed_prefill_tokens=np.array([min(row.computed, row.prompt) for row in ordered]),
    )
    runner = SimpleNamespace(
        decode_query_len=1 + DRAFTS,
        req_states=known,
        use_pp=False,
        adaptive_verification=None,
        pcp_manager=None,
    )
    batch, _ = GPUModelRunner.gather_batch_req_state(runner, planned(rows), dummy_run=False)
    assert batch.req_ids == order
    starts = np.cumsum([0, *(row.count for row in ordered)]).astype(np.int32)
    lengths = torch.tensor([row.computed + row.count for row in ordered], dtype=torch.int32)
    state = object.__new__(MambaHybridModelState)
    vars(state).update(
        vllm_config=config,
        _align_mode=False,
        recoverssm=None,
        num_accepted_tokens_gpu=torch.tensor([row.accepted for row in ordered], dtype=torch.int32),
    )
    inputs = SimpleNamespace(
        num_reqs=len(order),
        num_tokens=int(starts[-1]),
        idx_mapping=torch.arange(len(order)),
        query_start_loc=torch.from_numpy(starts),
        query_start_loc_np=starts,
        max_query_len=None,
        num_scheduled_tokens=batch.num_scheduled_tokens,
        num_draft_tokens_per_req=batch.num_draft_tokens_np,
        seq_lens=lengths,
        seq_lens_cpu_upper_bound=lengths,
        is_prefilling_np=batch.is_prefilling_np,
        prefill_runs_as_decode_np=batch.prefill_runs_as_decode_np,
        dcp_local_seq_lens=None,
        positions=None,
        prompt_lens=None,
    )
    tables = torch.tensor([row.columns for row in ordered], dtype=torch.int32)
    return state.prepare_attn(
        inputs, CUDAGraphMode.NONE, (tables,), torch.zeros(1, 128), [[group]], cache
    )["layer"]


def planned(rows):
    """What the scheduler tells of the step."""
    return SimpleNamespace(
        num_scheduled_tokens={name: row.count for name, row in rows.items()},
        total_num_scheduled_tokens=sum(row.count for row in rows.values()),
        scheduled_spec_decode_tokens={
            name: [-1] * row.drafts for name, row in rows.items() if row.drafts
        },
    )


def is_decode(layers, metadata, place):
    """Whether a row goes on behind its accepted drafts, and leaves a state for each token."""
    if layers == "mamba2":
        return place < metadata.num_decodes
    masks = metadata.spec_sequence_masks
    return masks is not None and bool(masks[place])


def main():
    """What is expected of the row and what vLLM says; 1 where they differ."""
    import vllm
    from vllm.v1.attention.backends import gdn_attn, mamba_attn
    from vllm.v1.attention.backends.mamba2_attn import Mamba2AttentionMetadataBuilder
    from vllm.v1.worker.gpu.model_runner import sort_batch_req_ids

    # The chunks in which a kernel computes a prompt say nothing about states.
    for module in (gdn_attn, mamba_attn):
        module.compute_causal_conv1d_metadata = lambda *_, **_named: (None, None, None)
    gdn_attn.GDNAttentionMetadataBuilder._build_chunk_metadata = lambda *_: (None, None)
    Mamba2AttentionMetadataBuilder._build_chunk_metadata_tensors = lambda *_: (None,) * 4
    unknown = sorted(set(sys.argv[1:]) - set(CAUSES))
    if unknown:
        print(f"no cause {', '.join(unknown)}; there are {', '.join(CAUSES)}", file=sys.stderr)
        return 2
    is_wrong = False
    for cause in sys.argv[1:] or CAUSES:
        what, rows, kinds, name = CAUSES[cause]
        plan = planned(rows)
        order = sort_batch_req_ids(
            plan.num_scheduled_tokens, plan.scheduled_spec_decode_tokens, 1 + DRAFTS
        )
        for layers in kinds:
            metadata = told(layers, rows, order)
            print(f"vLLM {vllm.__version__}, {cause}, {layers}: {what}")
            print(f"  order of the batch: {', '.join(order)}")
            if is_decode(layers, metadata, order.index(name)):
                print(f"  {name!r} is computed as a decode")
                continue
            is_wrong = True
            first, *_ = rows[name].columns
            if rows[name].computed:
                right = rows[name].columns[rows[name].accepted - 1]
                print(f"    expected  {name!r} goes on from block {right}, behind its right draft")
                print(f"    actual    {name!r} goes on from block {first}, before it")
            else:
                print(f"    expected  block {first} holds the state of {name!r} after 1 token")
                print(f"    actual    block {first} holds it after 1 token and {DRAFTS} drafts")
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
