"""The watch in Transformers' own continuous batching, with a tiny model of random weights."""

from __future__ import annotations

import random

import pytest

import poolproof
from poolproof.contract.target import TargetError

pytestmark = pytest.mark.vllm

DEADLINE_S = 120


@pytest.fixture(scope="module")
def model():
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=32, hidden_size=32, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=256,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


@pytest.fixture
def serve(model, tmp_path, monkeypatch):
    """Serves prompts that share beginnings, under watch: the watch, and each request's tokens."""
    monkeypatch.setenv("POOLPROOF_WATCH_BUDGET", "100")
    from transformers import GenerationConfig
    from transformers.generation.configuration_utils import ContinuousBatchingConfig

    def run(**batching):
        manager = model.init_continuous_batching(
            generation_config=GenerationConfig(
                max_new_tokens=6, do_sample=False, eos_token_id=-1, pad_token_id=0
            ),
            continuous_batching_config=ContinuousBatchingConfig(
                **{"use_async_batching": False, "num_blocks": 24, "page_size": 4,
                   "max_batch_tokens": 64, **batching}
            ),
        )  # fmt: skip
        watcher = poolproof.watch_engine(manager, folder=tmp_path)
        draw = random.Random(3)
        prompts = [[draw.choice((1, 2)) for _ in range(draw.randint(1, 24))] for _ in range(30)]
        manager.start()
        waiting = {manager.add_request(prompt) for prompt in prompts}
        answers = {}
        while waiting:
            output = manager.get_result(timeout=DEADLINE_S)
            assert output is not None, "nothing came any more"
            if output.is_finished():
                waiting.discard(output.request_id)
                answers[output.request_id] = output.generated_tokens
        manager.stop(block=True)
        watcher.end()
        return watcher, answers

    return run


def test_real_batches_hold_and_hits_are_compared(serve):
    watcher, answers = serve()
    assert (list(watcher.findings), watcher.status()["reason"]) == ([], None)
    assert all(answers.values())
    assert watcher.counts.admissions_with_hits
    assert watcher.counts.checked_reads
    assert watcher.counts.quiescent


def test_a_prefix_found_by_its_last_block_alone_is_named(serve, monkeypatch):
    from transformers.generation.continuous_batching.cache_allocators import cache_allocator

    monkeypatch.setattr(
        cache_allocator, "compute_block_hash", lambda parent, tokens: hash(tuple(tokens))
    )
    watcher, _ = serve()
    assert {finding.invariant for finding in watcher.findings} == {"DATA"}


def test_asynchronous_batching_is_refused_by_name(serve):
    with pytest.raises(TargetError, match="asynchronous batching"):
        serve(use_async_batching=True)
