"""A server of vLLM with a model of a few random weights, in lines that a written test takes.

`vllm_engine_reproducer.py` copies everything from `write_model` on and puts the trace's own values
for the constants. Attention on a CPU wants blocks of 32 tokens, so each token of a trace stands for
`SCALE` of the model, and every limit for as many.
"""

from __future__ import annotations

import json
import math
import tempfile
from array import array
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

__all__ = ["SteppedServer", "Weights", "answers_of", "check_answers", "write_model"]

NUM_BLOCKS = 8
BLOCK_SIZE = 32
SCALE = 8
LONGEST_REQUEST = 224
VOCABULARY = 512
HAS_PRIORITIES = False
ARGUMENTS: dict[str, Any] = {}


def write_model(folder: str) -> None:
    """A Llama of two small layers with random weights, the same each time."""
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
        "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 2, "head_dim": 32, "vocab_size": VOCABULARY,
        "max_position_embeddings": LONGEST_REQUEST, "rms_norm_eps": 1e-5, "bos_token_id": 1,
        "eos_token_id": 2, "torch_dtype": "float32", "tie_word_embeddings": False,
    }  # fmt: skip
    sizes = {
        "self_attn.q_proj": (64, 64), "self_attn.k_proj": (64, 64), "self_attn.v_proj": (64, 64),
        "self_attn.o_proj": (64, 64), "mlp.gate_proj": (128, 64), "mlp.up_proj": (128, 64),
        "mlp.down_proj": (64, 128),
    }  # fmt: skip
    chance = Random(0)
    weights = Weights()
    weights.add("model.embed_tokens", (VOCABULARY, 64), lambda: chance.gauss(0, 1))
    weights.add("lm_head", (VOCABULARY, 64), lambda: chance.gauss(0, 0.3))
    weights.add("model.norm", (64,), lambda: 1.0)
    for layer in range(2):
        for name, size in sizes.items():
            weights.add(f"model.layers.{layer}.{name}", size, lambda: chance.gauss(0, 0.3))
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights.add(f"model.layers.{layer}.{name}", (64,), lambda: 1.0)
    Path(folder, "model.safetensors").write_bytes(weights.file())
    Path(folder, "config.json").write_text(json.dumps(config))


class Weights:
    """A file of safetensors: the length of a header, the header, and all numbers in a row."""

    def __init__(self) -> None:
        self.header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        self.numbers = array("f")

    def add(self, name: str, shape: tuple[int, ...], number: Callable[[], float]) -> None:
        """One matrix or vector, drawn number by number."""
        begin = 4 * len(self.numbers)
        self.numbers.extend(number() for _ in range(math.prod(shape)))
        offsets = [begin, 4 * len(self.numbers)]
        self.header[f"{name}.weight"] = {"dtype": "F32", "shape": shape, "data_offsets": offsets}

    def file(self) -> bytes:
        """The file's bytes."""
        header = json.dumps(self.header).encode()
        return len(header).to_bytes(8, "little") + header + self.numbers.tobytes()


class SteppedServer:
    """vLLM's own `LLM`, stepped by hand; `answers` has each request's tokens so far.

    Beside each token stands how likely the model found it, which a wrong read changes as well.
    """

    def __init__(self, folder: str, *, enable_caching: bool) -> None:
        from vllm import LLM

        llm = LLM(
            folder, skip_tokenizer_init=True, enable_prefix_caching=enable_caching,
            block_size=BLOCK_SIZE, num_gpu_blocks_override=NUM_BLOCKS,
            max_model_len=LONGEST_REQUEST, async_scheduling=False, enforce_eager=True,
            dtype="float32", seed=0, **ARGUMENTS,
        )  # fmt: skip
        self.engine = llm.llm_engine
        self.answers: dict[str, list[tuple[int, float]]] = {}

    def submit(self, name: str, tokens: list[int], max_tokens: int, priority: int = 0) -> None:
        """A request comes; each of its tokens stands for several of the model."""
        from vllm import SamplingParams

        prompt = [3 + token * SCALE + part for token in tokens for part in range(SCALE)]
        urgency = {"priority": priority} if HAS_PRIORITIES else {}
        self.engine.add_request(
            name,
            {"prompt_token_ids": prompt},
            SamplingParams(
                max_tokens=max_tokens, temperature=0, logprobs=0, detokenize=False, ignore_eos=True
            ),
            **urgency,
        )

    def cancel(self, name: str) -> None:
        """Its user has gone."""
        self.engine.abort_request([name])

    def reset(self) -> None:
        """Forget the prefix cache, if nobody uses it."""
        self.engine.reset_prefix_cache()

    def step(self) -> None:
        """One step of the engine."""
        for output in self.engine.step():
            (sample,) = output.outputs
            self.answers[output.request_id.split("-")[0]] = [
                (token, probabilities[token].logprob)
                for token, probabilities in zip(sample.token_ids, sample.logprobs)
            ]

    def finish(self) -> None:
        """Step until every request has ended."""
        for _ in range(1000):
            if not self.engine.has_unfinished_requests():
                return
            self.step()
        raise AssertionError("requests wait forever")


def answers_of(
    play: Callable[[SteppedServer], None], *, enable_caching: bool
) -> dict[str, list[tuple[int, float]]]:
    """What users get in a server of their own."""
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder)
        server = SteppedServer(folder, enable_caching=enable_caching)
        play(server)
        server.finish()
        return server.answers


def check_answers(play: Callable[[SteppedServer], None]) -> None:
    """With a prefix cache users get what they get without one."""
    wanted = answers_of(play, enable_caching=False)
    got = answers_of(play, enable_caching=True)
    for name, right in wanted.items():
        tokens = [token for token, _ in got.get(name, [])]
        right_tokens = [token for token, _ in right]
        assert tokens == right_tokens, (
            f"request {name} gets the tokens {tokens}, and without a prefix cache {right_tokens}: "
            "it has read KV that was not computed for its own prompt"
        )
        for (token, likely), (_, right_likely) in zip(got[name], right):
            assert math.isclose(likely, right_likely, abs_tol=1e-3), (
                f"request {name} gets token {token} with log-probability {likely:.4f}, and without "
                f"a prefix cache with {right_likely:.4f}: it has read KV that was not computed for "
                "its own prompt"
            )
