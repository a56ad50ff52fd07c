"""Watch a real vLLM `LLM` of random weights under memory pressure, by the step oracle.

A Llama of one tiny layer is served with prefix caching from so few blocks that requests are
preempted all the time; prompts share beginnings, some requests are aborted. What the scheduler told
the workers is compared with what they read, by the readable oracle and by the watch that a server
would load. Prints and writes a row for each scenario; all of them run where none is named, each in
a process of its own:

    pressure   first come, first served
    async      the same with asynchronous scheduling
    chunks     prompts are computed in chunks of 16 tokens
    salts      two tenants, and the cache is reset now and then
    events     the engine publishes KV events
    parallel   each prompt is answered twice
    sliding    a model of a sliding window of 64 tokens
    ngram      speculation of two tokens by n-grams
    sleep      the engine is paused and put to sleep now and then, at each level
    tensor     two ranks, each with its half of the heads (tensor parallel)
    drop-in    by priorities that are drawn, over Poolproof's manager (impl/vllm_drop_in.py)
    async-...  one of these with asynchronous scheduling
    random     by priorities that are drawn
    priority   a request of low priority is preempted in the pass that has scheduled it
    planted    the pool keeps index entries of evicted blocks: both have to see it

Connectors move their blocks on streams that a CPU has not; `watch_alarms.py` drives their
schedulers. vLLM 0.32 is wrong under priorities, so what is found in the last three is true. What
the watch finds in any other is a false alarm.

Usage: python benchmarks/live_vllm.py [--scenario NAME] [--steps N] [--record]
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
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from record import add_destination, write_record

from poolproof.targets.vllm_live import LiveWatch, scheduler_of, watch
from poolproof.targets.vllm_watch import attach
from poolproof.watch.settings import WatchSettings

BLOCK_SIZE = 32  # the least that vLLM's attention on a CPU has
MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "vocab_size": 64,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "dtype": "float32",
}


def make_llm(folder: str, **options: Any) -> Any:
    """A vLLM engine in this process."""
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1"
    )
    ranks = options.get("tensor_parallel_size", 1)
    if ranks > 1:  # vLLM wants a node of memory for each, or to be told its cores.
        cores = sorted(os.sched_getaffinity(0))
        binding = "|".join(str(cores[rank % len(cores)]) for rank in range(ranks))
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", binding)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    model = {**MODEL, **options.pop("model_changes", {})}
    Path(folder, "config.json").write_text(json.dumps(model), encoding="utf-8")
    from vllm import LLM

    defaults: dict[str, Any] = {
        "num_gpu_blocks_override": 22,
        "max_model_len": 512,
        "max_num_batched_tokens": 512,
        "async_scheduling": False,
    }
    return LLM(
        folder,
        load_format="dummy",
        skip_tokenizer_init=True,
        enable_prefix_caching=True,
        block_size=BLOCK_SIZE,
        max_num_seqs=16,
        enforce_eager=True,
        seed=0,
        **{**defaults, **options},
    )


def add(
    llm: Any,
    name: str,
    tokens: list[int],
    num_outputs: int,
    priority: int = 0,
    *,
    salt: str | None = None,
    answers: int = 1,
) -> None:
    """One request, of which `num_outputs` tokens are sampled."""
    from vllm import SamplingParams

    parameters = SamplingParams(
        max_tokens=num_outputs, detokenize=False, ignore_eos=True, n=answers
    )
    prompt = {"prompt_token_ids": tokens, **({"cache_salt": salt} if salt else {})}
    llm.llm_engine.add_request(name, prompt, parameters, priority=priority)


def kv_in(llm: Any, block: int) -> float:
    """The sum of all keys and values (without their signs) that stand in a block in memory.

    0 in a block that no forward pass has ever written.
    """
    worker = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker
    (cache,) = getattr(worker, "worker", worker).model_runner.kv_caches
    return float(cache[block].abs().sum())


def press(
    llm: Any,
    watched: LiveWatch,
    steps: int,
    *,
    salts: tuple[str | None, ...] = (None,),
    answers: int = 1,
    priorities: int = 1,
    sleeps: bool = False,
) -> None:
    """Twelve requests at a time, more than fit, until so many steps were watched."""
    choose, texts, number = random.Random(1), list[list[int]](), 0
    engine = llm.llm_engine
    while watched.counts.steps < steps:
        while engine.get_num_unfinished_requests() < 12:
            kept = choose.choice(texts) if texts and choose.random() < 0.7 else []
            kept = kept[: choose.randint(0, len(kept))]
            tokens = kept + [choose.randint(3, 6) for _ in range(choose.randint(1, 90))]
            texts = [*texts[-7:], tokens[:250]]
            number += 1
            length, priority = choose.randint(1, 60), choose.randrange(priorities)
            salt = choose.choice(salts)
            add(llm, str(number), texts[-1], length, priority, salt=salt, answers=answers)
        if len(salts) > 1 and choose.random() < 0.01:
            scheduler_of(llm).reset_prefix_cache(reset_running_requests=choose.random() < 0.5)
        if choose.random() < 0.02:
            engine.abort_request([choose.choice(sorted(scheduler_of(llm).requests))], internal=True)
        if sleeps and choose.random() < 0.02:
            nap(llm, level=choose.randrange(3), mode=choose.choice(("keep", "abort")))
        engine.step()


def nap(llm: Any, *, level: int, mode: str) -> None:
    """Put the engine to sleep and wake it up.

    On a CPU the worker frees nothing; the scheduler does all that it does elsewhere: from level 1
    on it takes the blocks of those that run, and empties the cache.
    """
    engine, ended = llm.llm_engine, sorted(scheduler_of(llm).requests)
    engine.engine_core.sleep(level, mode)
    if mode == "abort":  # The core has dropped them, and whoever waits for them is told.
        engine.abort_request(ended, internal=True)
    engine.engine_core.wake_up(["scheduling"] if level == 0 else None)


def low_priority(llm: Any, _: LiveWatch, __: int) -> None:
    """A long prompt of low priority is scheduled and preempted in one pass of the scheduler."""
    add(llm, "low", [3, 4, 5, 6] * 50, 8, priority=5)
    add(llm, "filler", [4] * 210, 4, priority=9)
    llm.llm_engine.step()
    add(llm, "high", [5] * 32, 2, priority=0)
    while llm.llm_engine.has_unfinished_requests():
        llm.llm_engine.step()


def plant() -> None:
    """Evicted blocks lose their hash, and the index keeps them under it."""
    from vllm.v1.core.block_pool import BlockPool

    def forget_half(_: Any, block: Any) -> bool:
        block.reset_hash()
        return False

    BlockPool._maybe_evict_cached_block = forget_half  # noqa: SLF001 - what is broken on purpose


def _events() -> dict[str, Any]:
    from vllm.config import KVEventsConfig

    return {"kv_events_config": KVEventsConfig(enable_kv_cache_events=True, publisher="null")}


Drive = Callable[..., None]
SCENARIOS: dict[str, tuple[Drive, Callable[[], dict[str, Any]]]] = {
    "pressure": (press, dict),
    "async": (press, lambda: {"async_scheduling": True}),
    "chunks": (press, lambda: {"long_prefill_token_threshold": 16}),
    "salts": (partial(press, salts=("a", "b", None)), dict),
    "events": (press, _events),
    "parallel": (partial(press, answers=2), dict),
    "sliding": (
        press,
        lambda: {
            "model_changes": {
                "architectures": ["MistralForCausalLM"], "model_type": "mistral",
                "sliding_window": 64,
            }
        },
    ),
    "ngram": (
        press,
        lambda: {
            "speculative_config": {
                "method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 2
            }
        },
    ),
    "sleep": (partial(press, sleeps=True), dict),
    "tensor": (
        press,
        lambda: {
            "tensor_parallel_size": 2,
            "model_changes": {
                "num_attention_heads": 2, "num_key_value_heads": 2, "hidden_size": 64
            },
        },
    ),
    "drop-in": (
        partial(press, priorities=3),
        lambda: {
            "scheduling_policy": "priority",
            "scheduler_cls": "poolproof.impl.vllm_drop_in.DropInScheduler",
        },
    ),
    "async-drop-in": (
        partial(press, priorities=3),
        lambda: {
            "scheduling_policy": "priority",
            "scheduler_cls": "poolproof.impl.vllm_drop_in.DropInAsyncScheduler",
            "async_scheduling": True,
        },
    ),
    "random": (partial(press, priorities=3), lambda: {"scheduling_policy": "priority"}),
    "priority": (
        low_priority,
        lambda: {
            "scheduling_policy": "priority",
            "num_gpu_blocks_override": 8,
            "max_model_len": 224,
            "max_num_batched_tokens": 128,
            "long_prefill_token_threshold": 64,
        },
    ),
    "planted": (press, dict),
}  # fmt: skip
_KEPT = 3  # of the findings of a scenario, in its row
WRONG = ("random", "priority", "planted")


def _asynchronous(options: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    return lambda: {**options(), "async_scheduling": True}


for _name in ("chunks", "salts", "parallel", "sliding", "sleep"):
    _drive, _options = SCENARIOS[_name]
    SCENARIOS[f"async-{_name}"] = (_drive, _asynchronous(_options))


def run(scenario: str, steps: int) -> dict[str, Any]:
    """One engine, watched; what was seen."""
    drive, options = SCENARIOS[scenario]
    with tempfile.TemporaryDirectory() as folder:
        llm = make_llm(folder, **options())
        if scenario == "planted":
            plant()
        scheduler = scheduler_of(llm)
        really_there: list[float] = []
        watched = watch(scheduler, lambda found: really_there.append(kv_in(llm, found.block)))
        quick = attach(scheduler, WatchSettings("log", Path(folder), budget=9.0))
        assert quick is not None
        began = time.monotonic()
        drive(llm, watched, steps)
        took_s = time.monotonic() - began
        quick.watcher.end()
    findings = [
        {"sentence": found.sentence(), **asdict(found), "kv_in_block": amount}
        for found, amount in zip_longest(watched.findings, really_there)
    ]
    counts = asdict(watched.counts)
    told = {
        "reason": quick.watcher.status()["reason"],
        "steps": quick.watcher.counts.steps,
        "unknown_reads": quick.watcher.counts.unknown_reads,
        "violations": dict(quick.watcher.violations),
        "first": [found.sentence for found in list(quick.watcher.findings)[:3]],
    }
    return {
        "scenario": scenario,
        **counts,
        "took_s": round(took_s, 1),
        "watch": told,
        "false_alarms": 0 if scenario in WRONG else sum(quick.watcher.violations.values()),
        "num_findings": len(findings),
        "findings": findings[:_KEPT],
    }


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", choices=SCENARIOS)
    parser.add_argument("--steps", type=int, default=3000)
    add_destination(parser, "live_vllm")
    arguments = parser.parse_args()
    if arguments.scenario is None:
        return each_of_its_own(arguments)
    row = run(arguments.scenario, arguments.steps)
    rows = json.loads(arguments.json.read_text()) if arguments.json.exists() else []
    rows = [old for old in rows if old["scenario"] != row["scenario"]]
    if not write_record(arguments.json, [*rows, row], indent=1):
        return 2
    print(json.dumps({**row, "findings": [f["sentence"] for f in row["findings"]]}, indent=1))
    return 0


def each_of_its_own(arguments: argparse.Namespace) -> int:
    """All scenarios, one after another; vLLM is set up once in a process."""
    place = ["--steps", str(arguments.steps), "--json", str(arguments.json)]
    codes = [
        subprocess.run(
            [sys.executable, __file__, "--scenario", name, *place], check=False
        ).returncode
        for name in SCENARIOS
    ]
    rows = [
        row
        for row in json.loads(arguments.json.read_text(encoding="utf-8"))
        if row["scenario"] in SCENARIOS
    ]
    wrong = [row for row in rows if row["scenario"] in WRONG]
    print(
        f"{sum(row['steps'] for row in rows)} steps of {len(rows)} scenarios, "
        f"{sum(row['false_alarms'] for row in rows)} false alarms; of the {len(WRONG)} that are "
        f"wrong, {sum(bool(row['watch']['violations']) for row in wrong)} are seen"
    )
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
