"""Arguments that no kernel is launched with: each is refused by name, before anything runs."""

from dataclasses import replace

import pytest
import torch

from poolproof.kernels.arguments import (
    KernelArgumentError,
    check_latent_shapes,
    check_shapes,
    check_values,
)
from poolproof.kernels.batch import PagedBatch
from poolproof.kernels.case import Case, build
from poolproof.kernels.paged.attention import paged_attention

CASE = Case(sequences=((1, 5), (3, 6)), num_kv_heads=2, queries_per_kv_head=2, block_size=4)


def batch_with(**changes) -> PagedBatch:
    batch = build(CASE)
    options = {name: changes.pop(name) for name in list(changes) if name in batch.options.__slots__}
    return replace(batch, options=replace(batch.options, **options), **changes)


def refusal(batch: PagedBatch, out: torch.Tensor | None = None) -> str:
    with pytest.raises(KernelArgumentError) as refused:
        check_shapes(batch, out)
    return str(refused.value)


SLOTS = (5, 4, 2, 16)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"query": torch.zeros(4, 64)}, ["query", "(4, 64)", "(num_tokens, num_heads, head_size)"]),
        ({"query": [[1.0]]}, ["query", "a list", "a torch tensor"]),
        ({"query": torch.zeros(4, 4, 16).double()}, ["query", "float64", "float32 or float16"]),
        ({"query": torch.zeros(4, 4, 8)}, ["query", "head size 8", "from 16 to 256"]),
        ({"query": torch.zeros(4, 5, 16)}, ["query", "5 heads", "multiple of the cache's 2"]),
        (
            {"query": torch.zeros(16, 4, 4).permute(2, 1, 0)},
            ["query", "strides (1, 4, 16)", "stride 1"],
        ),
        ({"query": torch.zeros(1, 4, 16).expand(4, 4, 16)}, ["query", "strides of 0"]),
        ({"key_cache": torch.zeros(SLOTS).half()}, ["key_cache", "float16", "float32 or float8"]),
        ({"key_cache": torch.zeros(5, 4, 2, 32)}, ["value_cache", "(5, 4, 2, 32)"]),
        ({"value_cache": torch.zeros(9, 4, 2, 16)}, ["value_cache", "(9, 4, 2, 16)"]),
        ({"value_cache": torch.zeros(SLOTS).half()}, ["value_cache", "float16", "float32"]),
        ({"block_tables": torch.zeros(2, 2)}, ["block_tables", "float32", "int32 or int64"]),
        ({"block_tables": torch.zeros(2).int()}, ["block_tables", "(num_sequences, max_blocks)"]),
        ({"kv_lengths": torch.ones(3).int()}, ["kv_lengths", "3 entries", "2 entries"]),
        ({"query_lengths": torch.ones(2)}, ["query_lengths", "float32", "int32 or int64"]),
        ({"scale": float("nan")}, ["scale", "nan", "finite"]),
        ({"sliding_window": 0}, ["sliding_window", "0", "at least 1"]),
        ({"softcap": -1.0}, ["softcap", "-1.0", "above 0"]),
        ({"causal": False, "sliding_window": 3}, ["causal", "False", "sliding_window"]),
        ({"sinks": torch.zeros(3)}, ["sinks", "3 entries", "4 entries"]),
        ({"alibi_slopes": torch.zeros(4).half()}, ["alibi_slopes", "float16", "float32"]),
        ({"key_scale": 2.0}, ["key_scale", "2.0", "only fp8 caches are scaled"]),
        ({"value_scale": 0.0}, ["value_scale", "0.0", "above 0"]),
    ],
)
def test_an_argument_is_refused_by_name_with_what_it_was_and_what_is_allowed(changes, words):
    message = refusal(batch_with(**changes))
    assert message.startswith(words[0]), message
    for word in words:
        assert word in message


def test_a_block_size_that_is_too_large_is_refused():
    cache = torch.zeros(2, 257, 2, 16)
    message = refusal(batch_with(key_cache=cache, value_cache=cache))
    assert message == "key_cache is of block size 257; it must be of a block size from 1 to 256"


def test_a_head_size_that_the_query_does_not_have_is_refused():
    cache = torch.zeros(5, 4, 2, 32)
    message = refusal(batch_with(key_cache=cache, value_cache=cache))
    assert message == "key_cache is of head size 32; it must be of the query's head size, 16"


def test_a_tensor_on_another_device_is_refused():
    table = torch.zeros(2, 2, dtype=torch.int32, device="meta")
    assert "block_tables is on meta; it must be on the query's device, cpu" in refusal(
        batch_with(block_tables=table)
    )


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (torch.zeros(4, 4, 16).half(), "out is float16; it must be float32"),
        (torch.zeros(3, 4, 16), "out is of shape (3, 4, 16)"),
        (torch.zeros(4, 16, 4).transpose(1, 2), "out is laid out with strides"),
    ],
)
def test_an_output_tensor_that_does_not_fit_is_refused(out, words):
    assert words in refusal(build(CASE), out)


@pytest.mark.parametrize(
    ("lse", "words"),
    [
        (torch.zeros(4, 4).double(), "lse is float64; it must be float32"),
        (torch.zeros(4, 2), "lse is of shape (4, 2); it must be of shape (4, 4), one for each"),
        (torch.zeros(16), "lse is of shape (16,); it must be of shape (num_tokens, num_heads)"),
        (torch.zeros(4, 4, device="meta"), "lse is on meta; it must be on the query's device, cpu"),
    ],
)
def test_log_sum_exps_that_do_not_fit_are_refused(lse, words):
    with pytest.raises(KernelArgumentError) as refused:
        check_shapes(build(CASE), lse=lse)
    assert words in str(refused.value)


LATENT = Case(
    sequences=((1, 5), (3, 6)),
    queries_per_kv_head=4,
    head_size=24,
    value_size=16,
    latent=True,
    block_size=4,
)


def latent_refusal(**changes) -> str:
    batch = build(LATENT)
    options = {name: changes.pop(name) for name in list(changes) if name in batch.options.__slots__}
    changed = replace(batch, options=replace(batch.options, **options), **changes)
    with pytest.raises(KernelArgumentError) as refused:
        check_latent_shapes(changed)
    return str(refused.value)


def test_latent_values_in_memory_of_their_own_are_refused():
    assert latent_refusal(value_cache=build(LATENT).value_cache.clone()) == (
        "value_cache is memory of its own; it must be the first elements of key_cache: "
        "key_cache[..., :value_size]"
    )


def test_latent_keys_under_several_heads_are_refused():
    keys = torch.zeros(5, 4, 2, 24)
    words = "key_cache is of 2 heads; it must be of one head"
    assert latent_refusal(key_cache=keys, value_cache=keys[..., :16]) == words


def test_a_latent_part_of_an_impossible_size_is_refused():
    keys = torch.zeros(5, 4, 1, 24)
    words = "value_cache is of 8 elements of 24; it must be of 16 to 512 latent elements"
    assert latent_refusal(key_cache=keys, value_cache=keys[..., :8]).startswith(words)


def test_slopes_with_latent_keys_are_refused():
    assert latent_refusal(alibi_slopes=torch.zeros(4)) == (
        "alibi_slopes is a tensor; it must be None with latent keys"
    )


def values_refused(batch: PagedBatch) -> str:
    with pytest.raises(KernelArgumentError) as refused:
        check_values(batch)
    return str(refused.value)


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kv_lengths": ints(5, 9)}, "kv_lengths[1] is 9; it must be from 0 to 8: 2 table entries"),
        ({"kv_lengths": ints(-1, 6)}, "kv_lengths[0] is -1"),
        ({"query_lengths": ints(-1, 5)}, "query_lengths[0] is -1; it must be 0 or more"),
        ({"query_lengths": ints(6, 3)}, "query_lengths[0] is 6; it must be at most kv_lengths[0]"),
        ({"query_lengths": ints(1, 2)}, "query_lengths is 3 in sum; it must be 4 in sum"),
        (
            {"block_tables": torch.tensor([[1, -7], [2, 3]], dtype=torch.int32)},
            "block_tables[0, 1] is -7; it must be a block from 0 to",
        ),
        (
            {"block_tables": torch.tensor([[1, 2], [99, 3]], dtype=torch.int32)},
            "block_tables[1, 0] is 99",
        ),
    ],
)
def test_lengths_and_ids_that_lead_out_of_the_cache_are_refused(changes, words):
    assert words in values_refused(batch_with(**changes))


def test_ids_behind_the_last_needed_entry_may_be_anything():
    batch = build(replace(CASE, spare_entries=1))
    table = batch.block_tables.clone()
    table[:, -1] = -5
    check_values(replace(batch, block_tables=table))


def test_nothing_is_launched_for_a_refused_argument(monkeypatch):
    import poolproof.kernels.paged.attention as launcher

    monkeypatch.setattr(launcher, "_launch", lambda *_: pytest.fail("launched"))
    batch = batch_with(kv_lengths=ints(5, 99))
    with pytest.raises(KernelArgumentError):
        paged_attention(
            *(getattr(batch, name) for name in batch.__slots__[:6]), **batch.options.keywords()
        )
