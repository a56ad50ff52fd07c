"""Quantised caches: codes, scales, cases, oracle, relations, declaration, keywords, arguments."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from poolproof.contract.depth import Depth
from poolproof.contract.target import TargetError
from poolproof.kernels.arguments import KernelArgumentError, check_quantised
from poolproof.kernels.batch import ownership
from poolproof.kernels.case import LAYOUTS, Case, CaseError, build
from poolproof.kernels.check_run import certify_check, in_order, run_case, smaller_cases
from poolproof.kernels.checks.catalogue import CHECKS
from poolproof.kernels.declaration import FEATURES, Declaration, DeclarationError
from poolproof.kernels.faulty_quantised import QUANTISED_FAMILIES
from poolproof.kernels.grammar import draw_case
from poolproof.kernels.large_cases import KINDS
from poolproof.kernels.layouts import REACHES
from poolproof.kernels.load import load_kernel
from poolproof.kernels.odd_quantised import ODD_QUANTISED
from poolproof.kernels.oracle import ROUNDOFF, Rounded, dense_attention
from poolproof.kernels.quantised_cache import NIBBLES, ZERO_POINTS, pack, quantised, unpack
from poolproof.kernels.read_sets import (
    Accesses,
    element_numbers,
    named_tensors,
    unlawful_accesses,
)
from poolproof.kernels.relations import RELATIONS, Subject
from poolproof.kernels.target import KernelTarget, gather_target
from poolproof.kernels.token_scales import per_slot, with_factors
from poolproof.kernels.torch_quantised import TorchQuantised

TOKENS = Case(
    sequences=((1, 9), (3, 6)),
    num_kv_heads=2,
    queries_per_kv_head=2,
    cache_dtype="int8",
    scales="token",
    sliding_window=3,
)
INT4 = replace(TOKENS, cache_dtype="int4", zero_points="before-scale")
QUERY = replace(TOKENS, cache_dtype="float8_e4m3fn", fp8_query=True, dtype="bfloat16")


def target(**declared) -> KernelTarget:
    return TorchQuantised().target("t", **declared)


# --- codes ---


@pytest.mark.parametrize(
    ("nibbles", "stored"),
    [("low-first", [0x21, 0x43]), ("high-first", [0x12, 0x34]), ("halves", [0x31, 0x42])],
)
def test_two_codes_share_a_byte_in_the_order_that_is_said(nibbles, stored):
    assert pack(torch.tensor([1, 2, 3, 4]), nibbles).tolist() == stored


@pytest.mark.parametrize("nibbles", NIBBLES)
@pytest.mark.parametrize("signed", [True, False])
def test_what_is_packed_is_unpacked(nibbles, signed):
    codes = torch.arange(-8, 8) if signed else torch.arange(16)
    assert torch.equal(unpack(pack(codes, nibbles), nibbles, signed=signed), codes.short())


@pytest.mark.parametrize("zero_points", ZERO_POINTS)
@pytest.mark.parametrize("scales", ["tensor", "head", "token"])
def test_numbers_are_stored_within_half_a_step(zero_points, scales):
    numbers = torch.randn(3, 4, 2, 16, generator=torch.Generator().manual_seed(1))
    made = quantised(
        numbers, "int4", scales, torch.Generator().manual_seed(2), zero_points=zero_points
    )
    codes = unpack(made.codes, "low-first", signed=zero_points == "absent").float()
    shape = {"tensor": (1,), "head": (2, 1), "token": (3, 4, 2, 1)}[scales]
    scale = torch.as_tensor(made.scale).reshape(shape)
    zeros = 0.0 if made.zeros is None else torch.as_tensor(made.zeros).reshape(shape)
    found = codes * scale + zeros if zero_points == "after-scale" else (codes - zeros) * scale
    assert bool(((found - numbers).abs() <= scale * 0.5001).all())
    assert (made.zeros is None) == (zero_points == "absent")


def test_only_whole_zero_points_are_whole():
    def zeros(zero_points):
        batch = build(replace(INT4, zero_points=zero_points))
        return batch.options.quantisation.key_zeros

    assert torch.equal(zeros("whole-before-scale"), zeros("whole-before-scale").round())
    assert not torch.equal(zeros("before-scale"), zeros("before-scale").round())


# --- cases ---


@pytest.mark.parametrize("case", [TOKENS, INT4, QUERY])
def test_a_case_is_the_same_after_json(case):
    assert Case.from_json(json.loads(json.dumps(case.to_json()))) == case


def test_a_case_of_before_is_read_as_it_was():
    old = {"sequences": [[1, 5]], "cache_dtype": "float8_e5m2"}
    batch = build(Case.from_json(old))
    assert (batch.options.key_scale, batch.options.value_scale) == (0.3, 0.7)
    assert batch.query.dtype == torch.float32


def test_words_name_scales_codes_and_queries():
    assert "cache int8 with scales by token" in TOKENS.words()
    assert "cache int4 with scales by token (low-first, zero points before-scale)" in INT4.words()
    assert "queries in fp8" in QUERY.words()


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"scales": "group"}, "scales of a case must be one of tensor, head, token"),
        ({"cache_dtype": "int2"}, "cache_dtype of a case must be one of float8_e4m3fn, float8_e5"),
        ({"nibbles": "first"}, "nibbles of a case must be one of low-first"),
        ({"fp8_query": True}, "queries in fp8 of a case need a cache_dtype of fp8"),
        ({"cache_dtype": None}, "scales for each token of a case need a cache_dtype"),
        ({"zero_points": "after-scale"}, "zero_points of a case need a cache_dtype of int4"),
        ({"cache_dtype": "int4", "value_size": 15}, "needs even sizes of heads"),
    ],
)
def test_a_case_with_an_impossible_cache_is_refused(rows, words):
    with pytest.raises(CaseError, match=words):
        Case.from_json({**TOKENS.to_json(), **rows})


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("reach", [REACHES[0], REACHES[3]])
def test_scales_of_slots_stand_in_the_layout_of_the_slots(layout, reach):
    plain = build(INT4)
    case = replace(INT4, layout=layout, num_kv_heads=2, reach=reach)
    batch = build(case)
    for name, factor in per_slot(plain).items():
        there = per_slot(batch)[name]
        assert there.shape == batch.key_cache.shape[:3]
        for ours, theirs in zip(plain.block_tables[0], batch.block_tables[0], strict=True):
            assert torch.equal(factor[ours], there[theirs])
    packed = all(tensor.is_contiguous() for tensor in per_slot(batch).values())
    assert packed == (layout == LAYOUTS[0])


def test_latent_values_have_the_scales_of_their_keys():
    case = replace(
        TOKENS, head_size=24, value_size=16, latent=True, num_kv_heads=1, layout="interleaved"
    )
    batch = build(case)
    assert batch.is_latent
    assert batch.options.key_scale is batch.options.value_scale


def test_queries_in_fp8_have_a_scale_and_an_output_of_the_cases_type():
    batch = build(QUERY)
    assert (batch.query.dtype, batch.out_dtype) == (torch.float8_e4m3fn, torch.bfloat16)
    assert batch.options.quantisation.query_scale != 1
    assert dense_attention(batch).output.abs().max() > 0


# --- oracle ---


def dequantised(batch):
    """The same batch with a cache in float32."""
    codes = [batch.key_cache, batch.value_cache]
    quantisation = batch.options.quantisation
    if batch.is_packed:
        codes = [unpack(c, quantisation.nibbles, signed=False) for c in codes]
    numbers = [
        (c.float() - (0.0 if zeros is None else zeros[..., None])) * scale[..., None]
        for c, scale, zeros in zip(
            codes,
            (batch.options.key_scale, batch.options.value_scale),
            (quantisation.key_zeros, quantisation.value_zeros),
            strict=True,
        )
    ]
    plain = dict.fromkeys(("key_scale", "value_scale"), 1.0)
    options = replace(
        with_factors(batch.options, plain),
        quantisation=replace(quantisation, key_zeros=None, value_zeros=None),
    )
    return replace(batch, key_cache=numbers[0], value_cache=numbers[1], options=options)


@pytest.mark.parametrize("case", [TOKENS, INT4, replace(TOKENS, cache_dtype="float8_e5m2")])
def test_the_oracle_agrees_with_attention_over_what_codes_stand_for(case):
    batch = build(case)
    plain = dense_attention(dequantised(batch)).output
    assert torch.allclose(dense_attention(batch).output, plain, atol=1e-6)


def test_a_query_scale_counts_in_the_scores():
    batch = build(QUERY)
    scaled = replace(
        batch,
        options=replace(
            batch.options,
            scale=batch.options.scale * batch.options.quantisation.query_scale,
            quantisation=replace(batch.options.quantisation, query_scale=1.0),
        ),
    )
    assert torch.allclose(dense_attention(batch).output, dense_attention(scaled).output, atol=1e-9)


def test_zero_points_widen_the_bound_by_what_cancels():
    batch = build(replace(INT4, distribution="even"))
    assert bool((dense_attention(batch).bound > dense_attention(dequantised(batch)).bound).all())


def test_dequantised_numbers_of_a_half_type_have_a_wider_bound():
    batch = build(replace(TOKENS, dtype="bfloat16"))
    kept = dense_attention(batch)
    wider = dense_attention(batch, rounded=Rounded(dequantised=True))
    least = 3.03 * ROUNDOFF[torch.bfloat16] * kept.output.abs()
    assert bool((wider.bound >= kept.bound + least).all())


@pytest.mark.parametrize(
    ("name", "row"),
    [("dequantised to the query's type", "dequantised"), ("weights in fp8", "weights")],
)
def test_what_is_rounded_without_a_row_that_says_so_is_refused(name, row):
    kernel, declared = ODD_QUANTISED[name]
    assert row in declared
    result = certify_check(kernel.target("t"), "dense", Depth.QUICK, 0, lambda case: None)
    assert result.finding is not None


# --- relations ---


def subject(case) -> Subject:
    batch = build(case)
    return Subject(case, batch, ownership(batch), random.Random(0))


@pytest.mark.parametrize("name", ["placement", "shared prefix", "block size", "strides"])
@pytest.mark.parametrize("case", [TOKENS, INT4, QUERY])
def test_blocks_that_move_take_their_scales_along(name, case):
    case = replace(case, shared_blocks=1)
    variants = list(RELATIONS[name].variants(subject(case), "exact"))
    assert variants
    for variant in variants:
        assert torch.equal(
            dense_attention(variant.batch).output, dense_attention(build(case)).output
        )
    assert run_case(target(), CHECKS[name], case)[0].wrong is None


def test_poison_stands_in_the_scales_of_key_tails_and_not_in_those_of_values():
    batch = next(iter(RELATIONS["key tail"].variants(subject(INT4), "any"))).batch
    found = {name: bool(tensor.isnan().any()) for name, tensor in per_slot(batch).items()}
    assert found == {
        "key_scale": True, "value_scale": False, "key_zeros": True, "value_zeros": False,
    }  # fmt: skip


@pytest.mark.parametrize("relation", ["null block", "unowned blocks", "value tail", "isolation"])
def test_where_only_finite_numbers_stand_so_do_scales(relation):
    for variant in RELATIONS[relation].variants(subject(TOKENS), "finite"):
        assert all(bool(tensor.isfinite().all()) for tensor in per_slot(variant.batch).values())
        assert "under a scale of 1e+30" in variant.what


def test_an_integer_cache_without_scales_of_slots_gets_its_largest_code():
    variants = list(
        RELATIONS["null block"].variants(subject(replace(TOKENS, scales="head")), "any")
    )
    assert [variant.what for variant in variants] == ["the largest code in the null block"]
    assert bool((variants[0].batch.key_cache[0] == 127).all())


def test_a_scale_of_another_request_that_is_read_is_a_leak():
    leak = QUANTISED_FAMILIES_BY_LETTER["QG"].faults()[0].make()
    assert "as a scale in the keys of every request but number" in (
        run_case(leak, CHECKS["isolation"], TOKENS)[0].wrong
    )


def test_the_read_set_holds_scales_of_visible_slots_alone():
    batch = build(replace(TOKENS, sliding_window=None))
    scale = batch.options.key_scale
    numbers = element_numbers(scale)
    block = int(batch.block_tables[0, 0])

    def wrong(*slots):
        accesses = Accesses(named_tensors(batch, None))
        there = scale.data_ptr() + np.array([numbers[slot] for slot in slots]).flatten() * 4
        accesses.note("load", there, np.ones(there.shape, dtype=bool), 4)
        sentences = unlawful_accesses(accesses, batch, None, Declaration())
        return [sentence for sentence in sentences if "key_scale" in sentence]

    assert wrong((block, 0)) == []
    assert wrong((block, 0), (0, 1)) == [
        "reads 2 elements of key_scale of slots that it must not read"
    ]


# --- declarations ---


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"scales": ["group"]}, "'scales' in a declaration may hold tensor, head, token"),
        ({"scales": []}, "'scales' in a declaration must not be empty"),
        ({"nibbles": "first"}, "'nibbles' in a declaration must be one of low-first"),
        ({"zero_points": "yes"}, "'zero_points' in a declaration must be one of absent"),
        ({"features": ["fp8_query"]}, "'fp8_query' in a declaration's 'features' needs 'fp8'"),
        ({"features": [], "unquantised": False}, "needs fp8, int8 or int4 among its 'features'"),
        ({"features": ["int4"], "head_sizes": [15]}, "needs an even size in 'head_sizes'"),
        (
            {"features": ["int4"], "head_sizes": [24], "value_sizes": [16], "latent": True},
            "'latent' in a declaration goes with no 'int4'",
        ),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(rows, words):
    with pytest.raises(DeclarationError, match=words):
        Declaration.from_mapping(rows)


def test_what_is_not_declared_stays_what_it_was():
    declared = Declaration.from_mapping({})
    assert declared.features == FEATURES
    assert (declared.scales, declared.unquantised) == (("tensor",), True)
    draw = random.Random(0)
    for _ in range(200):
        case = draw_case(draw.randrange, declared)
        assert (case.scales, case.fp8_query) == ("tensor", False)
        assert case.cache_dtype in {None, "float8_e4m3fn", "float8_e5m2"}


def test_rows_are_written_with_plus_signs_in_a_target_string():
    rows = {"scales": "head+token", "features": "fp8+int8", "unquantised": "no"}
    declared = load_kernel("gather-quantised", "cpu", rows).declaration
    assert (declared.scales, declared.unquantised) == (("head", "token"), False)
    with pytest.raises(TargetError, match="'fp8_query' in a declaration's 'features' needs 'fp8'"):
        load_kernel("gather-quantised", "cpu", {"features": "fp8_query"})


def test_drawn_and_smaller_cases_have_what_is_declared_alone():
    declared = target(
        features=("int8", "int4"), scales=("token",), unquantised=False, head_sizes=(15, 16)
    ).declaration
    draw, seen = random.Random(0), set()
    for kind in (draw_case, *KINDS):
        case = kind(draw.randrange, declared)
        for one in (case, *smaller_cases(case, declared)):
            assert one.wrong_quantisation() is None
            assert one.scales == "token"
            seen.add(one.cache_dtype)
    assert seen == {"int8", "int4"}


def test_a_finding_becomes_as_plain_as_it_can_be():
    late = QUANTISED_FAMILIES_BY_LETTER["QK"].faults()[1].make()
    found = certify_check(late, "dense", Depth.QUICK, 0, lambda case: None).finding
    assert max(keys for _, keys in found.case["sequences"]) < 80
    assert (found.case["num_kv_heads"], found.case["scales"]) == (1, "token")


def test_every_declared_cache_has_large_cases():
    kernel = target()
    draws = in_order(CHECKS["dense"], kernel, Depth.QUICK, random.Random(0).randrange)
    draw = random.Random(1)
    cases = [one(draw.randrange, kernel.declaration) for one in draws]
    long = {
        (case.cache_dtype, case.scales)
        for case in cases
        if max(keys for _, keys in case.sequences) > 2040
    }
    kinds = ("float8_e4m3fn", "float8_e5m2", "int8", "int4")
    assert long >= {(kind, scales) for kind in kinds for scales in ("tensor", "head", "token")}


def test_64_bit_cases_have_every_cache_with_every_scale():
    declared = target(features=("fp8", "int8", "int4", "fp8_query", "alibi")).declaration
    draws = CHECKS["64-bit offsets"].draws(declared)
    cases = [draw(random.Random(0).randrange, declared) for draw in draws]
    found = {(case.cache_dtype, case.scales, case.fp8_query) for case in cases[3:]}
    of_fp8 = {("float8_e4m3fn", s, q) for s in ("tensor", "head", "token") for q in (True, False)}
    of_integers = {(k, s, False) for k in ("int8", "int4") for s in ("tensor", "head", "token")}
    assert found == of_fp8 | of_integers | {(None, "tensor", False)}


# --- keywords ---


def test_a_function_of_before_gets_the_keywords_of_before():
    seen = []

    def attend(*tensors, scale, causal, sliding_window, softcap, alibi_slopes, sinks, key_scale,
               value_scale):  # fmt: skip
        seen.append((key_scale, value_scale))
        return gather_target("cpu").attend(
            *tensors, scale=scale, causal=causal, sliding_window=sliding_window, softcap=softcap,
            alibi_slopes=alibi_slopes, sinks=sinks, key_scale=key_scale, value_scale=value_scale,
        )  # fmt: skip

    old = KernelTarget(name="old", attend=attend, declaration=Declaration.from_mapping({}))
    result = certify_check(old, "dense", Depth.QUICK, 0, lambda case: None)
    assert result.finding is None
    assert {type(scale) for pair in seen for scale in pair} == {float}


def test_who_declares_queries_in_fp8_or_zero_points_gets_their_keywords_always():
    seen = {}

    def attend(query, *tensors, **keywords):
        seen.update(keywords)
        return query

    kernel = replace(target(), attend=attend)
    kernel(build(Case(sequences=((1, 3),))))
    assert (seen["query_scale"], seen["out_dtype"]) == (1.0, torch.float32)
    assert seen["key_zeros"] is None
    assert "nibbles" not in seen


def test_an_output_of_the_querys_type_is_refused_where_another_is_asked_for():
    class Fp8(TorchQuantised):
        def __call__(self, *tensors, out=None, **options):
            return super().__call__(*tensors, **options).to(tensors[0].dtype)

    wrong = run_case(Fp8().target("f"), CHECKS["dense"], QUERY)[0].wrong
    assert "returned torch.float8_e4m3fn for a query of torch.float8_e4m3fn" in wrong
    assert "out_dtype=torch.bfloat16" in wrong


# --- arguments ---


def refused(case, **changes) -> str:
    batch = build(case)
    options = with_factors(
        batch.options, {n: changes.pop(n) for n in list(changes) if n.endswith(("scale", "zeros"))}
    )
    with pytest.raises(KernelArgumentError) as error:
        check_quantised(replace(batch, options=options, **changes))
    return str(error.value)


@pytest.mark.parametrize(
    ("case", "changes", "words"),
    [
        (
            TOKENS,
            {"key_scale": torch.ones(3)},
            "key_scale is of shape (3,); it must be of shape (2,)",
        ),
        (
            TOKENS,
            {"value_scale": torch.ones(2).half()},
            "value_scale is float16; it must be float32",
        ),
        (TOKENS, {"key_scale": 0.0}, "key_scale is 0.0; it must be a finite number, above 0"),
        (TOKENS, {"key_scale": torch.ones(2, device="meta")}, "key_scale is on meta"),
        (TOKENS, {"key_zeros": 1.0}, "key_zeros is a zero point; it must be None with other codes"),
        (INT4, {"value_zeros": None}, "value_zeros is None; it must be given with unsigned int4"),
        (INT4, {"query": torch.zeros(4, 4, 32)}, "key_cache is of head size 16 in bytes of two"),
        (QUERY, {"query": torch.zeros(4, 4, 16)}, "None"),
    ],
)
def test_arguments_that_do_not_belong_together_are_refused_by_name(case, changes, words):
    if words == "None":
        words = "query_scale is "
    assert words in refused(case, **changes)


# --- faults ---

QUANTISED_FAMILIES_BY_LETTER = {family.letter: family for family in QUANTISED_FAMILIES}


def test_each_family_has_four_variants_or_more():
    assert all(len(family.members) >= 4 for family in QUANTISED_FAMILIES)
    assert sum(len(family.members) for family in QUANTISED_FAMILIES) == 144
    assert len(QUANTISED_FAMILIES_BY_LETTER) == len(QUANTISED_FAMILIES)


@pytest.mark.parametrize("name", ["dense", "isolation", "value tail", "64-bit offsets"])
def test_the_reference_holds(name):
    result = certify_check(
        load_kernel("gather-quantised", "cpu"), name, Depth.QUICK, 1, lambda case: None
    )
    assert result.finding is None, result.finding.sentence
    assert result.line.compared > 0
