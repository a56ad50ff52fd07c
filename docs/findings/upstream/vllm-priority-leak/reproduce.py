"""vLLM, scheduling_policy="priority": an answer that depends on what a stranger asked before.

Usage: python reproduce.py      in an environment that has vLLM for the CPU; no network, no GPU

A Llama of two small random layers is served from seven blocks. A long request of low priority is
preempted in the pass of the scheduler that had scheduled its next chunk. Its answer is printed as
it is without a prefix cache, first come first served, and under the priority policy after one and
after another request of somebody else.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

BLOCK = 32
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 512,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
    "tie_word_embeddings": False,
}
LOW = [3 + (7 * position) % 500 for position in range(200)]
FILLER = [4] * 210
HIGH = [5] * BLOCK
STRANGERS = {"": None, "S1": [11] * 190, "S2": [17] * 190}


def write_model(folder: str) -> None:
    """A checkpoint of random weights, the same each time."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    hidden, inner, words = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["vocab_size"]

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns) * 0.3

    tensors = {
        "model.embed_tokens.weight": torch.randn(words, hidden),
        "lm_head.weight": matrix(words, hidden),
        "model.norm.weight": torch.ones(hidden),
    }
    for layer in range(CONFIG["num_hidden_layers"]):
        name = f"model.layers.{layer}"
        for part in ("q", "k", "v", "o"):
            tensors[f"{name}.self_attn.{part}_proj.weight"] = matrix(hidden, hidden)
        tensors[f"{name}.mlp.gate_proj.weight"] = matrix(inner, hidden)
        tensors[f"{name}.mlp.up_proj.weight"] = matrix(inner, hidden)
        tensors[f"{name}.mlp.down_proj.weight"] = matrix(hidden, inner)
        tensors[f"{name}.input_layernorm.weight"] = torch.ones(hidden)
        tensors[f"{name}.post_attention_layernorm.weight"] = torch.ones(hidden)
    save_file(tensors, str(Path(folder, "model.safetensors")), metadata={"format": "pt"})
    Path(folder, "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")


def answer(folder: str, policy: str, caching: bool, stranger: str) -> list[int]:
    """The tokens that the long request of low priority gets."""
    from vllm import LLM, SamplingParams

    llm = LLM(
        folder,
        skip_tokenizer_init=True,
        enable_prefix_caching=caching,
        scheduling_policy=policy,
        block_size=BLOCK,
        num_gpu_blocks_override=8,
        max_model_len=224,
        max_num_seqs=8,
        max_num_batched_tokens=128,
        long_prefill_token_threshold=64,
        async_scheduling=False,
        enforce_eager=True,
        dtype="float32",
        seed=0,
    )
    engine = llm.llm_engine

    def add(name: str, tokens: list[int], count: int, priority: int) -> None:
        parameters = SamplingParams(
            max_tokens=count, temperature=0, detokenize=False, ignore_eos=True
        )
        urgency = {"priority": priority} if policy == "priority" else {}
        engine.add_request(name, {"prompt_token_ids": tokens}, parameters, **urgency)

    if STRANGERS[stranger]:
        add("stranger", STRANGERS[stranger], 1, 0)
        while engine.has_unfinished_requests():
            engine.step()
    add("low", LOW, 6, 5)
    add("filler", FILLER, 2, 9)
    got = {}
    for number in range(400):
        if number == 1:
            add("high", HIGH, 3, 0)
        for output in engine.step():
            got[output.request_id.split("-")[0]] = list(output.outputs[0].token_ids)
        if number > 1 and not engine.has_unfinished_requests():
            break
    return got["low"]


RUNS = [
    ("no prefix cache", "priority", False, ""),
    ("first come, first served", "fcfs", True, ""),
    ("priority, after nobody", "priority", True, ""),
    ("priority, after a stranger's S1", "priority", True, "S1"),
    ("priority, after a stranger's S2", "priority", True, "S2"),
]


def main() -> int:
    """Each run in a process of its own, so that no memory is shared; 1 where answers differ."""
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        VLLM_CPU_KVCACHE_SPACE="1",
        VLLM_LOGGING_LEVEL="ERROR",
        HF_HUB_OFFLINE="1",
        VLLM_NO_USAGE_STATS="1",
    )
    if len(sys.argv) > 1:
        folder, number = sys.argv[1:]
        print("ANSWER", json.dumps(answer(folder, *RUNS[int(number)][1:])))
        return 0
    import vllm

    print(f"vLLM {vllm.__version__}: the first tokens of one and the same request")
    answers = []
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder)
        for number, (words, *_) in enumerate(RUNS):
            done = subprocess.run(  # noqa: S603 -- this very file
                [sys.executable, __file__, folder, str(number)],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
            if not lines:
                print(done.stderr[-2000:])
                return 2
            answers.append(json.loads(lines[0][7:]))
            print(f"  {words:33} {answers[-1]}")
    wrong = [words for (words, *_), got in zip(RUNS, answers) if got != answers[0]]
    print(f"expected: five equal lines\nhappens:  {len(wrong)} differ: {'; '.join(wrong) or '-'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
