"""Log-sum-exps of attention: the oracle's, what a target returns, parts that merge to the whole."""

import math

import pytest
import torch

from poolproof.contract.depth import Depth
from poolproof.contract.target import TargetError
from poolproof.kernels.case import Case, build
from poolproof.kernels.check_run import certify_check, run_case
from poolproof.kernels.checks.catalogue import CHECKS
from poolproof.kernels.load import load_kernel
from poolproof.kernels.odd_kernels import odd_kernel
from poolproof.kernels.oracle import dense_attention
from poolproof.kernels.paged.attention import paged_attention
from poolproof.kernels.target import gather_target, paged_target
from poolproof.kernels.torch_lse import LSE_FAMILIES, TorchLse

TWO_PARTS = Case(sequences=((1, 9), (3, 12)))


def outcome(target, check, case):
    return run_case(target, CHECKS[check], case)[0]


def test_the_log_sum_exp_of_one_key_is_its_score():
    batch = build(Case(sequences=((1, 1),)))
    key = batch.key_cache[batch.block_tables[0, 0], 0, 0].double()
    score = float(key @ batch.query[0, 0].double()) * batch.options.scale
    assert float(dense_attention(batch).lse) == pytest.approx(score, 1e-12)


def test_a_sink_counts_in_the_log_sum_exp():
    case = Case(sequences=((1, 5),), sinks=True)
    batch = build(case)
    without = build(Case(sequences=((1, 5),)))
    expected = torch.logaddexp(
        dense_attention(without).lse, batch.options.sinks.double().unsqueeze(0)
    )
    assert torch.allclose(dense_attention(batch).lse, expected, atol=1e-12)


def test_a_query_without_keys_has_minus_infinity():
    batch = build(Case(sequences=((1, 0), (1, 3))))
    lse = dense_attention(batch).lse
    assert float(lse[0, 0]) == -math.inf
    assert math.isfinite(float(lse[1, 0]))


def test_the_base_is_that_of_the_declaration():
    assert outcome(TorchLse().target("e"), "dense", TWO_PARTS).wrong is None
    assert (
        "log-sum-exp of row" in outcome(TorchLse().target("2", lse="2"), "dense", TWO_PARTS).wrong
    )
    assert outcome(odd_kernel("log-sum-exps in base 2"), "dense", TWO_PARTS).wrong is None


@pytest.mark.parametrize("seed", [19, 28, 92])
def test_one_that_is_kept_from_tile_to_tile_is_rounded_at_each(seed):
    # Coarse keys give many equal scores, whose sums are rounded the same way again and again.
    coarse = {"dtype": "bfloat16", "cache_dtype": "float8_e5m2", "scale": 1.0, "head_size": 16}
    heads = {"num_kv_heads": 1, "queries_per_kv_head": 2, "block_size": 16}
    sequences = ((1, 2080), (1, 132))
    case = Case(sequences=sequences, distribution="high", seed=seed, **coarse, **heads)
    assert outcome(odd_kernel("log-sum-exps in tiles of 5"), "dense", case).wrong is None


@pytest.mark.parametrize("name", ["log-sum-exps returned", "log-sum-exps in base 2"])
@pytest.mark.parametrize("seed", range(3))
def test_parts_of_the_keys_merge_to_the_whole(name, seed):
    result = certify_check(odd_kernel(name), "split keys", Depth.QUICK, seed, lambda case: None)
    assert result.finding is None, result.finding.sentence
    assert result.line.compared > 0


def test_keys_are_cut_where_each_query_sees_all_in_front():
    target = TorchLse().target("t")
    assert outcome(target, "split keys", TWO_PARTS).compared == 1
    for more in ({"sequences": ((5, 7),)}, {"sinks": True}, {"alibi": True}, {"sliding_window": 3}):
        case = Case(**{"sequences": TWO_PARTS.sequences, **more})
        assert outcome(target, "split keys", case).compared == 0


def test_who_has_no_form_without_a_mask_splits_decodes_alone():
    target = TorchLse().target("t", features=())
    assert outcome(target, "split keys", Case(sequences=((1, 9),))).compared == 1
    assert outcome(target, "split keys", Case(sequences=((3, 12),))).compared == 0


def test_who_returns_none_is_not_asked_for_one():
    assert not CHECKS["split keys"].applies(gather_target("cpu"))
    assert CHECKS["split keys"].applies(TorchLse().target("t"))


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (lambda o, s: o, "returned a Tensor, not output and log-sum-exp"),
        (lambda o, s: (o, s.T), "returned log-sum-exps of (1, 4) for (4, 1) tokens and heads"),
        (lambda o, s: (o, None), "returned log-sum-exps of NoneType"),
        (lambda o, s: (o, s.double()), "returned log-sum-exps in torch.float64, not in float32"),
    ],
)
def test_what_is_no_log_sum_exp_is_a_finding(result, words):
    class Returns(TorchLse):
        def __call__(self, *tensors, out=None, **options):
            return result(*super().__call__(*tensors, out=out, **options))

    assert words in outcome(Returns().target("r"), "dense", TWO_PARTS).wrong


@pytest.mark.parametrize("seed", range(2))
def test_ours_merge_to_the_whole(seed):
    result = certify_check(paged_target("cpu"), "split keys", Depth.QUICK, seed, lambda case: None)
    assert result.finding is None, result.finding.sentence
    assert result.line.compared > 0


def test_ours_fill_in_log_sum_exps_wherever_they_stand():
    batch = build(Case(sequences=((1, 9), (3, 12), (1, 0)), queries_per_kv_head=2, sinks=True))
    memory = torch.full((2, 8), math.nan)
    lse = memory.T[1:6]
    paged_attention(
        *(getattr(batch, name) for name in batch.__slots__[:6]),
        **batch.options.keywords(),
        lse=lse,
    )
    expected = dense_attention(batch)
    assert torch.allclose(lse[:4].double(), expected.lse[:4], atol=1e-5)
    assert bool((lse[4] == -math.inf).all())
    assert bool(memory[:, [0, 6, 7]].isnan().all())


def test_each_family_has_four_variants_or_more():
    assert all(len(family.members) >= 4 for family in LSE_FAMILIES)


def test_an_unknown_base_is_refused():
    words = "'lse' in a declaration must be one of absent, e, 2, not '10'"
    with pytest.raises(TargetError, match=words):
        load_kernel("gather", "cpu", {"lse": "10"})
    assert load_kernel("gather", "cpu", {"lse": "2"}).declaration.lse == "2"
