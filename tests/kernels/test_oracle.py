"""The float64 oracle, its bound, and the gather reference."""

from dataclasses import replace

import pytest
import torch

from poolproof.kernels.case import Case, build
from poolproof.kernels.gather import gather_attention
from poolproof.kernels.oracle import Expected, Rounded, dense_attention


def run(batch, **changes):
    options = {**batch.options.keywords(), **changes}
    return gather_attention(*(getattr(batch, name) for name in batch.__slots__[:6]), **options)


def test_one_key_gives_its_value():
    batch = build(Case(sequences=((1, 1),)))
    value = batch.value_cache[batch.block_tables[0, 0], 0]
    assert torch.equal(dense_attention(batch).output[0], value.double())
    assert torch.equal(run(batch)[0], value)


def test_two_keys_are_weighted_by_hand():
    batch = build(Case(sequences=((1, 2),)))
    block = int(batch.block_tables[0, 0])
    keys, values = batch.key_cache[block, :2, 0].double(), batch.value_cache[block, :2, 0].double()
    scores = (keys @ batch.query[0, 0].double()) * batch.options.scale
    share = 1 / (1 + torch.exp(scores[1] - scores[0]))
    expected = share * values[0] + (1 - share) * values[1]
    assert torch.allclose(dense_attention(batch).output[0, 0], expected, atol=1e-14)


def test_torchs_own_attention_agrees_with_the_oracle():
    batch = build(Case(sequences=((5, 9),), num_kv_heads=2, queries_per_kv_head=2, sinks=False))
    blocks = batch.block_tables[0, :3].long()
    keys, values = (
        cache[blocks].flatten(0, 1)[:9].double().repeat_interleave(2, 1).transpose(0, 1)
        for cache in (batch.key_cache, batch.value_cache)
    )
    mask = torch.arange(9)[None, :] <= torch.arange(5)[:, None] + 4
    expected = torch.nn.functional.scaled_dot_product_attention(
        batch.query.double().transpose(0, 1), keys, values, attn_mask=mask
    ).transpose(0, 1)
    assert torch.allclose(dense_attention(batch).output, expected, atol=1e-14)


def test_a_sink_takes_weight_and_gives_no_value():
    batch = build(Case(sequences=((1, 1),), sinks=True))
    batch.options.sinks[:] = batch.options.scale * float(
        batch.query[0, 0] @ batch.key_cache[batch.block_tables[0, 0], 0, 0]
    )
    value = batch.value_cache[batch.block_tables[0, 0], 0, 0].double()
    assert torch.allclose(dense_attention(batch).output[0, 0], value / 2, atol=1e-6)


def test_a_query_without_keys_gets_zeros():
    batch = build(Case(sequences=((1, 0), (1, 3)), sinks=True))
    assert not dense_attention(batch).output[0].any()
    assert not run(batch)[0].any()
    assert dense_attention(batch).output[1].any()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_bound_is_kept_by_gathering_and_broken_by_a_scale_two_percent_off(dtype):
    broken = 0
    for seed in range(20):
        case = Case(
            sequences=((1, 37), (7, 20)), seed=seed, dtype=dtype, head_size=32,
            distribution=("plain", "sharp")[seed % 2],
        )  # fmt: skip
        batch = build(case)
        expected = dense_attention(batch)
        assert expected.max_ratio(run(batch)) < 0.5
        broken += expected.max_ratio(run(batch, scale=batch.options.scale * 1.02)) > 1
    assert broken >= 15


def test_a_ratio_is_infinite_where_the_output_is_no_number():
    batch = build(Case(sequences=((1, 3),)))
    expected = dense_attention(batch)
    output = expected.output.float()
    output[0, 0, 3] = float("nan")
    assert expected.max_ratio(output) == float("inf")


def test_no_output_has_no_error():
    empty = torch.zeros(0, 1, 16, dtype=torch.float64)
    expected = Expected(empty, empty, empty[..., 0], empty[..., 0])
    assert expected.max_ratio(empty.float()) == 0


def test_what_nobody_owns_is_not_read():
    case = Case(sequences=((2, 6), (1, 3)), sliding_window=3)
    batch = build(case)
    from poolproof.kernels.batch import ownership

    poisoned = batch.key_cache.clone()
    poisoned[~ownership(batch).visible] = float("nan")
    dirty = replace(batch, key_cache=poisoned, value_cache=batch.value_cache)
    assert torch.equal(dense_attention(dirty).output, dense_attention(batch).output)


def test_rounded_scores_have_a_wider_bound_in_half_types_that_grows_with_the_scores():
    def bounds(**rows):
        batch = build(Case(sequences=((1, 9),), dtype="bfloat16", **rows))
        return [
            dense_attention(batch, rounded=Rounded(scores=rounded)).bound.max()
            for rounded in (True, False)
        ]

    (rounded, kept), (rounded_of_large, _) = bounds(), bounds(distribution="sharp")
    assert 1.2 * kept < rounded < 0.6 * rounded_of_large
