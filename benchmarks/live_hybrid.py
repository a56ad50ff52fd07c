"""The watch over a real vLLM with recurrent layers: a tiny Qwen3-Next of random weights on a CPU.

Requests that share beginnings come and go, in cache mode align (prefix caching) without drafts, and
none with n-grams as drafts. Drafts in mode align move states by kernels that a CPU has not;
`watch_alarms.py` drives their scheduler and worker. In `one-token` prompts of one token come beside
requests that draft, which vLLM 0.32 starts from strangers' states
(docs/findings/upstream/vllm-hybrid-one-token-prompt); everywhere else a finding is a false alarm.
Each scenario has a process of its own; with --only the rows of others that were written stay.

Usage: python benchmarks/live_hybrid.py [--only NAME] [--steps N] [--record]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from record import add_destination, surroundings, write_record

MODEL = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "vocab_size": 128,
    "max_position_embeddings": 4096,
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
}
DRAFTS = {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 2}
SCENARIOS: dict[str, dict[str, Any]] = {
    "one-token": {"enable_prefix_caching": False, "speculative_config": DRAFTS},
    "align": {"enable_prefix_caching": True},
    "none+drafts": {"enable_prefix_caching": False, "speculative_config": DRAFTS},
}
WRONG = ("one-token",)


def make_llm(folder: str, **options: Any) -> Any:
    """A vLLM engine in this process."""
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        VLLM_CPU_KVCACHE_SPACE="1",
        VLLM_LOGGING_LEVEL="ERROR",
        VLLM_NO_USAGE_STATS="1",
        HF_HUB_OFFLINE="1",
    )
    Path(folder, "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
    from vllm import LLM

    return LLM(
        folder,
        **{
            "load_format": "dummy",
            "skip_tokenizer_init": True,
            "enforce_eager": True,
            "async_scheduling": False,
            "dtype": "bfloat16",
            "seed": 0,
            "max_num_seqs": 8,
            "max_model_len": 2048,
            "max_num_batched_tokens": 2048,
            "num_gpu_blocks_override": 24,
            **options,
        },
    )


def press(llm: Any, watcher: Any, steps: int, block_size: int, *, short: bool) -> None:
    """Six requests at a time, many with a beginning that was there before; some hang up."""
    from vllm import SamplingParams

    choose, texts, number = random.Random(1), list[list[int]](), 0
    engine = llm.llm_engine
    while watcher.counts.steps < steps and watcher.is_on:
        while engine.get_num_unfinished_requests() < 6:
            kept = choose.choice(texts) if texts and choose.random() < 0.7 else []
            kept = kept[: choose.choice((len(kept), choose.randint(0, len(kept))))]
            more = choose.randint(2, block_size + block_size // 2)
            tokens = (kept + [choose.randint(3, 6) for _ in range(more)])[: 3 * block_size]
            texts = [*texts[-7:], tokens]
            if short and choose.random() < 0.3:
                tokens = [choose.randint(3, 6)]
            number += 1
            limits = SamplingParams(
                max_tokens=choose.randint(1, 12), temperature=0, detokenize=False, ignore_eos=True
            )
            engine.add_request(str(number), {"prompt_token_ids": tokens}, limits)
        if choose.random() < 0.02:
            running = sorted(engine.engine_core.engine_core.scheduler.requests)
            engine.abort_request([choose.choice(running)], internal=True)
        engine.step()


def run(scenario: str, steps: int) -> dict[str, Any]:
    """One engine, watched; what was seen."""
    import poolproof

    with tempfile.TemporaryDirectory() as folder:
        llm = make_llm(folder, **SCENARIOS[scenario])
        os.environ["POOLPROOF_WATCH_BUDGET"] = "90"  # Every read is compared.
        watcher = poolproof.watch_engine(llm, folder=folder)
        groups = watcher.status()["groups"]
        (size,) = [group["block_size"] for group in groups if group["kind"] == "full"]
        if not SCENARIOS[scenario]["enable_prefix_caching"]:
            size = 32  # Nothing is found again, so short prompts say as much.
        began_s = time.monotonic()
        press(llm, watcher, steps, size, short=scenario == "one-token")
        took_s = time.monotonic() - began_s
        watcher.end()
        status, counts = watcher.status(), watcher.counts
    return {
        "scenario": scenario,
        "steps": counts.steps,
        "admissions_with_hits": counts.admissions_with_hits,
        "resumes": counts.resumes,
        "checked_reads": counts.checked_reads,
        "unknown_reads": counts.unknown_reads,
        "groups": groups,
        "left_out": status["left_out"],
        "reason": status["reason"],
        "took_s": round(took_s, 1),
        "violations": status["violations"],
        "first": [found.sentence for found in list(watcher.findings)[:3]],
        "false_alarms": 0 if scenario in WRONG else sum(status["violations"].values()),
    }


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", choices=SCENARIOS, help="in this process, to be printed")
    parser.add_argument("--only", choices=SCENARIOS)
    parser.add_argument("--steps", type=int, default=1000)
    add_destination(parser, "live_hybrid")
    arguments = parser.parse_args()
    if arguments.scenario is not None:
        print(json.dumps(run(arguments.scenario, arguments.steps)))
        return 0
    names = [arguments.only] if arguments.only else list(SCENARIOS)
    rows = []
    if arguments.only and arguments.json.exists():
        written = json.loads(arguments.json.read_text(encoding="utf-8"))["rows"]
        rows = [row for row in written if row["scenario"] not in names]
    for name in names:
        place = ["--scenario", name, "--steps", str(arguments.steps)]
        done = subprocess.run(
            [sys.executable, __file__, *place], check=False, capture_output=True, text=True
        )
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            return 2
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(rows[-1], flush=True)
        # Whole at every time: it may be ended.
        if not write_record(arguments.json, {**surroundings(), "rows": rows}, tells=False):
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
