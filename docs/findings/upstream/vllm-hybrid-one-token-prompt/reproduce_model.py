"""The same on a served model: the answer to [5] depends on what strangers had asked before.

Usage: python reproduce_model.py      in an environment that has vLLM for the CPU and transformers

A Qwen3-Next of two small random layers, bfloat16, greedy, without prefix caching. Six requests of
strangers run and end; then [5] is sent, alone or beside a request that is being answered.
"""

import json
import os
import random
import subprocess
import sys
import tempfile

CONFIG = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "vocab_size": 128,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "layer_types": ["linear_attention", "full_attention"],
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "mlp_only_layers": [],
    "initializer_range": 0.25,
}
# (what, drafts, beside another, seed of the strangers' prompts)
RUNS = (
    ("no drafts, beside another", 0, True, 3),
    ("drafts, beside another, strangers' 3", 2, True, 3),
    ("drafts, beside another, strangers' 4", 2, True, 4),
)


def write_model(folder: str) -> None:
    """A checkpoint of random weights, the same each time."""
    import torch
    from transformers.models.qwen3_next.configuration_qwen3_next import Qwen3NextConfig
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextForCausalLM

    torch.manual_seed(0)
    Qwen3NextForCausalLM(Qwen3NextConfig(**CONFIG)).to(torch.bfloat16).save_pretrained(folder)


def serve(folder: str, drafts: int, beside_another: bool, seed: int) -> None:
    """Print the first tokens of the answer to [5], and the log-probability of the first."""
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        VLLM_CPU_KVCACHE_SPACE="1",
        VLLM_LOGGING_LEVEL="ERROR",
        VLLM_NO_USAGE_STATS="1",
        HF_HUB_OFFLINE="1",
    )
    from vllm import LLM, SamplingParams

    speculative = {"method": "ngram", "num_speculative_tokens": drafts, "prompt_lookup_max": 2}
    engine = LLM(
        folder,
        skip_tokenizer_init=True,
        enable_prefix_caching=False,
        enforce_eager=True,
        async_scheduling=False,
        dtype="bfloat16",
        seed=0,
        max_num_seqs=8,
        max_model_len=256,
        max_num_batched_tokens=256,
        num_gpu_blocks_override=24,
        speculative_config={**speculative, "prompt_lookup_min": 1} if drafts else None,
    ).llm_engine
    strangers, answers = random.Random(seed), {}

    def send(name: str, prompt: list[int], most: int) -> None:
        limits = SamplingParams(
            max_tokens=most, temperature=0, ignore_eos=True, detokenize=False, logprobs=1
        )
        engine.add_request(name, {"prompt_token_ids": prompt}, limits)

    def step() -> None:
        for output in engine.step():
            if output.finished:
                answers[output.request_id] = output.outputs[0]

    for number in range(6):
        send(f"stranger{number}", [strangers.randrange(3, 128) for _ in range(60)], 20)
    while engine.has_unfinished_requests():
        step()
    if beside_another:
        send("another", [7, 8, 9] * 3, 60)
        for _ in range(4):
            step()
    send("one", [5], 6)
    while "one" not in answers:
        step()
    first = next(iter(answers["one"].logprobs[0].values())).logprob
    print(json.dumps([list(answers["one"].token_ids), round(first, 4)]))


def main() -> int:
    """One process for each run; 1 where the first tokens differ."""
    firsts = set()
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder)
        for what, *arguments in RUNS:
            command = [sys.executable, __file__, folder, json.dumps(arguments)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                print(done.stderr, file=sys.stderr)
                return 2
            tokens, logprob = json.loads(done.stdout.splitlines()[-1])
            firsts.add(tokens[0])
            print(f"  {what:38} {tokens}  {logprob}", flush=True)
    return int(len(firsts) > 1)


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(main())
    serve(sys.argv[1], *json.loads(sys.argv[2]))
