"""Latent keys (MLA) and values of another size: cases, tensors, oracle, relations, declaration."""

import random

import pytest
import torch

from poolproof.contract.depth import Depth
from poolproof.contract.target import TargetError
from poolproof.kernels.batch import ownership
from poolproof.kernels.case import LAYOUTS, Case, CaseError, build
from poolproof.kernels.check_run import certify_check, run_case, smaller_cases
from poolproof.kernels.checks.catalogue import CHECKS
from poolproof.kernels.declaration import Declaration, DeclarationError
from poolproof.kernels.faulty_kernels import FAULTY_KERNELS
from poolproof.kernels.gather import gather_attention
from poolproof.kernels.large_cases import KINDS
from poolproof.kernels.load import load_kernel
from poolproof.kernels.odd_kernels import odd_kernel
from poolproof.kernels.oracle import dense_attention
from poolproof.kernels.relations import RELATIONS, Subject
from poolproof.kernels.torch_attention import TorchAttention
from poolproof.kernels.torch_mla import MLA_FAMILIES, TorchMla

MLA = Case(
    sequences=((1, 9), (3, 12)),
    queries_per_kv_head=3,
    head_size=24,
    value_size=16,
    latent=True,
)


@pytest.mark.parametrize("reach", ["small", "2^31 elements"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_latent_values_are_the_first_elements_of_the_keys(layout, reach):
    batch = build(Case(**{**MLA.to_json(), "layout": layout, "reach": reach}))
    assert batch.is_latent
    assert batch.value_cache.stride() == batch.key_cache.stride()
    block = int(batch.block_tables[0, 0])
    assert torch.equal(batch.value_cache[block], batch.key_cache[block][..., :16])


@pytest.mark.parametrize("distribution", ["even", "high", "far"])
def test_what_makes_scores_large_is_not_in_latent_values(distribution):
    batch = build(Case(**{**MLA.to_json(), "distribution": distribution}))
    assert float(batch.value_cache.abs().max()) < 6


@pytest.mark.parametrize("layout", LAYOUTS)
def test_values_of_another_size_stand_in_every_layout(layout):
    case = Case(sequences=((1, 5),), head_size=16, value_size=24, num_kv_heads=2, layout=layout)
    plain = Case(**{**case.to_json(), "layout": LAYOUTS[0]})
    batch = build(case)
    assert not batch.is_latent
    assert torch.equal(batch.value_cache, build(plain).value_cache)
    assert batch.out_shape == (1, 2, 24)


def test_the_oracle_agrees_with_attention_over_keys_and_padded_values():
    batch = build(MLA)
    values = torch.nn.functional.pad(batch.value_cache, (0, 8))
    tensors = (batch.query, batch.key_cache, values)
    rest = (batch.block_tables, batch.kv_lengths, batch.query_lengths)
    padded = gather_attention(*tensors, *rest, **batch.options.keywords())
    assert dense_attention(batch).max_ratio(padded[..., :16]) <= 1


def test_poison_in_keys_leaves_latent_values_alone():
    case = Case(**{**MLA.to_json(), "sequences": ((1, 9),)})
    batch = build(case)
    subject = Subject(case, batch, ownership(batch), random.Random(0))
    for name, of_values in (("key tail", False), ("value tail", True)):
        variant = next(iter(RELATIONS[name].variants(subject, "any"))).batch
        assert variant.is_latent
        assert bool(variant.value_cache.isnan().any()) is of_values
        assert bool(variant.key_cache[..., 16:].isnan().any()) is not of_values


@pytest.mark.parametrize("name", ["dense", "permuted elements", "isolation", "64-bit offsets"])
def test_the_reference_holds(name):
    result = certify_check(
        load_kernel("gather-mla", "cpu"), name, Depth.QUICK, 1, lambda case: None
    )
    assert result.finding is None, result.finding.sentence
    assert result.line.compared > 0


def test_a_kernel_that_gives_the_keys_size_back_is_refused():
    class Wide(TorchMla):
        def __call__(self, *tensors, out=None, **options):
            return torch.nn.functional.pad(super().__call__(*tensors, **options), (0, 8))

    wrong = run_case(Wide().target("w"), CHECKS["dense"], MLA)[0].wrong
    assert "returned shape (4, 3, 24) for a query of (4, 3, 24) and values of 16 elements" in wrong


def test_parts_that_are_mixed_up_change_with_the_order_of_elements():
    mixed_up = FAULTY_KERNELS["DI4"].make()
    assert "in another order" in run_case(mixed_up, CHECKS["permuted elements"], MLA)[0].wrong
    assert not CHECKS["permuted elements"].applies(TorchAttention().target("t"))


def test_cases_are_drawn_and_made_smaller_with_latent_keys():
    declared, draw = TorchMla().target("t").declaration, random.Random(0)
    for kind in KINDS:
        case = kind(draw.randrange, declared)
        for one in (case, *smaller_cases(case, declared)):
            assert one.latent
            assert one.num_kv_heads == 1
            assert one.value_size == declared.value_size(one.head_size)


def test_the_widest_group_is_that_of_a_large_model():
    declared, draw = TorchMla().target("t").declaration, random.Random(0)
    assert max(kind(draw.randrange, declared).num_heads for kind in KINDS) == 128


def test_serving_is_not_applicable_and_says_why():
    target = odd_kernel("values of another size")
    result = certify_check(target, "serving", Depth.QUICK, 0, lambda case: None)
    assert result.line.note == "the model that is served has values of the keys' size"


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"latent": True}, "'latent' in a declaration needs 'value_sizes'"),
        ({"value_sizes": [16]}, "must hold one size for each of 'head_sizes'"),
        (
            {"head_sizes": [24, 24], "value_sizes": [16, 8]},
            "must hold one size for each of 'head_sizes', all of which differ, not 2 for 24, 24",
        ),
        (
            {"head_sizes": [24], "value_sizes": [32], "latent": True},
            "'value_sizes' are at most its 'head_sizes', not 32 for 24",
        ),
        ({"value_sizes": [0]}, "'value_sizes' in a declaration must hold sizes, not 0"),
        ({"latent": 1}, "'latent' in a declaration must be True or False"),
    ],
)
def test_a_declaration_whose_sizes_do_not_belong_together_is_refused(rows, words):
    with pytest.raises(DeclarationError, match=words):
        Declaration.from_mapping(rows)


def test_sizes_of_values_are_written_with_plus_signs_in_a_target_string():
    rows = {"head_sizes": "24+40", "value_sizes": "16+32"}
    assert load_kernel("gather-mla", "cpu", rows).declaration.value_size(40) == 32
    with pytest.raises(TargetError, match="'latent' in a declaration needs 'value_sizes'"):
        load_kernel("gather", "cpu", {"latent": "yes"})


def test_a_declaration_with_latent_keys_is_read_back():
    declared = TorchMla().target("t").declaration
    assert Declaration.from_mapping(declared.to_json()).to_json() == declared.to_json()


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"value_size": None}, "need a value_size of at most its head_size"),
        ({"value_size": 32}, "need a value_size of at most its head_size"),
        ({"value_size": "16"}, "must be a number of elements, not '16'"),
        ({"num_kv_heads": 2}, "has one head in the cache"),
    ],
)
def test_a_case_with_impossible_values_is_refused(rows, words):
    with pytest.raises(CaseError, match=words):
        Case.from_json({**MLA.to_json(), **rows})


def test_each_family_has_four_variants_or_more():
    assert all(len(family.members) >= 4 for family in MLA_FAMILIES)
    assert sum(len(family.members) for family in MLA_FAMILIES) == 53
